//! 16 floats, with AVX-512F.

use std::arch::x86_64::*;

use half::f16;

use super::{EXP_COEFFICIENTS, LARGEST_EXPONENT, LN_2, SMALLEST_EXPONENT, Vector};

impl Vector for __m512 {
    const LANES: usize = 16;
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2] {
        let from = from.cast::<__m256i>();
        // SAFETY: the caller's promise.
        unsafe { [_mm512_cvtph_ps(_mm256_loadu_si256(from)), _mm512_cvtph_ps(_mm256_loadu_si256(from.add(1)))] }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }

    #[inline(always)]
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2] {
        let from = from.cast::<__m128i>();
        // SAFETY: the caller's promise.
        unsafe {
            let left = _mm512_cvtepi8_epi32(_mm_loadu_si128(from));
            let right = _mm512_cvtepi8_epi32(_mm_loadu_si128(from.add(1)));
            [_mm512_cvtepi32_ps(left), _mm512_cvtepi32_ps(right)]
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn divide(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_div_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn maximum(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_max_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_fmadd_ps(self, factor, summand) }
    }

    /// e^x = 2^n · e^r, with n the nearest integer to x / ln 2.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let in_range = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(self, _mm512_set1_ps(SMALLEST_EXPONENT));
            // If either operand is NaN, the second is returned.
            let x = _mm512_min_ps(_mm512_set1_ps(LARGEST_EXPONENT), _mm512_maskz_mov_ps(in_range, self));
            let n = _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(_mm512_mul_ps(
                x,
                _mm512_set1_ps(std::f32::consts::LOG2_E),
            ));
            let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN_2[0]), x);
            let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN_2[1]), r);
            let mut sum = _mm512_set1_ps(EXP_COEFFICIENTS[0]);
            for coefficient in &EXP_COEFFICIENTS[1..] {
                sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(*coefficient));
            }
            _mm512_maskz_scalef_ps(in_range, sum, n)
        }
    }

    #[inline(always)]
    unsafe fn prefetch(address: *const f16) {
        // SAFETY: a prefetch does not fault for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_reduce_add_ps(self) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_reduce_max_ps(self) }
    }

    #[inline(always)]
    unsafe fn swap_neighbours(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm512_permute_ps::<0b10_11_00_01>(self) }
    }
}
