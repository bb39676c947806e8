//! 8 floats, with AVX2, FMA and F16C.

use std::arch::x86_64::*;

use half::f16;

use super::{EXP_COEFFICIENTS, LARGEST_EXPONENT, LN_2, SMALLEST_EXPONENT, Vector};

impl Vector for __m256 {
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2] {
        let from = from.cast::<__m128i>();
        // SAFETY: the caller's promise.
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))] }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }

    #[inline(always)]
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let left = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()));
            let right = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(Self::LANES).cast()));
            [_mm256_cvtepi32_ps(left), _mm256_cvtepi32_ps(right)]
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn divide(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_div_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn maximum(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_max_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_fmadd_ps(self, factor, summand) }
    }

    /// e^x = 2^n · e^r, with n the nearest integer to x / ln 2, which goes into the exponent's bits.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let in_range = _mm256_cmp_ps::<_CMP_NLT_UQ>(self, _mm256_set1_ps(SMALLEST_EXPONENT));
            // If either operand is NaN, the second is returned.
            let x = _mm256_min_ps(_mm256_set1_ps(LARGEST_EXPONENT), _mm256_and_ps(in_range, self));
            let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
                x,
                _mm256_set1_ps(std::f32::consts::LOG2_E),
            ));
            let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN_2[0]), x);
            let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN_2[1]), r);
            let mut sum = _mm256_set1_ps(EXP_COEFFICIENTS[0]);
            for coefficient in &EXP_COEFFICIENTS[1..] {
                sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(*coefficient));
            }
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased));
            _mm256_and_ps(in_range, _mm256_mul_ps(sum, power))
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
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn swap_neighbours(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { _mm256_permute_ps::<0b10_11_00_01>(self) }
    }
}
