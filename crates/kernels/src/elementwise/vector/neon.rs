//! 4 floats, with NEON.

use std::arch::aarch64::*;

use half::f16;

use super::{EXP_COEFFICIENTS, LARGEST_EXPONENT, LN_2, SMALLEST_EXPONENT, Vector};

impl Vector for float32x4_t {
    const LANES: usize = 4;
    const TILE_ROWS: usize = 8;
    const N_FACTORS: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let halves = vreinterpretq_f16_u16(vld1q_u16(from.cast()));
            [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { vst1_u16(to.cast(), vreinterpret_u16_f16(vcvt_f16_f32(self))) }
    }

    #[inline(always)]
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let words = vmovl_s8(vld1_s8(from));
            [vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))]
        }
    }

    #[inline(always)]
    unsafe fn store_f16_pair([left, right]: [Self; 2], to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_u16(to.cast(), vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(left), right))) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vaddq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn subtract(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vsubq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vmulq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn divide(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vdivq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn maximum(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vmaxnmq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vfmaq_f32(summand, self, factor) }
    }

    #[inline(always)]
    unsafe fn load_factors(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::load(from) }
    }

    #[inline(always)]
    unsafe fn multiply_add_lane<const LANE: i32>(self, factors: Self, summand: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vfmaq_laneq_f32::<LANE>(summand, self, factors) }
    }

    /// e^x = 2^n · e^r, with n the nearest integer to x / ln 2, which goes into the exponent's bits.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let too_small = vcltq_f32(self, vdupq_n_f32(SMALLEST_EXPONENT));
            // NaN stays NaN.
            let x = vminq_f32(vdupq_n_f32(LARGEST_EXPONENT), keep_unless(too_small, self));
            let n = vrndnq_f32(vmulq_n_f32(x, std::f32::consts::LOG2_E));
            let r = vfmsq_f32(x, n, vdupq_n_f32(LN_2[0]));
            let r = vfmsq_f32(r, n, vdupq_n_f32(LN_2[1]));
            let mut sum = vdupq_n_f32(EXP_COEFFICIENTS[0]);
            for coefficient in &EXP_COEFFICIENTS[1..] {
                sum = vfmaq_f32(vdupq_n_f32(*coefficient), sum, r);
            }
            let biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            let power = vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased));
            keep_unless(too_small, vmulq_f32(sum, power))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has the instruction set.
        unsafe { vaddvq_f32(self) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has the instruction set.
        unsafe { vmaxnmvq_f32(self) }
    }

    #[inline(always)]
    unsafe fn swap_neighbours(self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { vrev64q_f32(self) }
    }
}

/// The values, or zero where the condition is set.
#[inline(always)]
unsafe fn keep_unless(condition: uint32x4_t, values: float32x4_t) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe { vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(values), condition)) }
}
