//! A token in registers, and the factors that scale its integer sums.

use std::arch::aarch64::*;

use super::weights::{Factors, offset_shift};
use crate::matrix::formats::LayoutOf;
use crate::matrix::layout::Scales;
use crate::operands::ActivationBlock;

/// Quarters whose weights of 32 columns fit the registers, with some to spare for the tokens and the sums.
pub(super) const UNPACKED: usize = 2;

/// Thirty-two columns of one token in registers.
pub(super) struct Token {
    pub(super) quants: [int8x16_t; 2],
    /// Initial values of the integer sums of the first and of the last 16 columns. A type with one scale for both has
    /// one sum, which starts at the first of these.
    pub(super) starts: [int32x4_t; 2],
    /// The scale and the scaled sum, followed by bits that are not floats.
    pub(super) scale: float32x4_t,
    /// The scaled sums of the first and of the last 16 columns, in the last two places.
    pub(super) half_sums: float32x4_t,
}

impl Token {
    /// A token to be multiplied with quants that have their offset.
    ///
    /// # Safety
    /// `block` is valid for reads; NEON.
    #[inline(always)]
    pub(super) unsafe fn read<const TENSOR_TYPE: u8>(block: *const ActivationBlock) -> Token {
        // SAFETY: the caller's promise.
        unsafe {
            let mut token = Token::of_centred::<TENSOR_TYPE>(block);
            if let Some(shift) = const { offset_shift(LayoutOf::<TENSOR_TYPE>::LAYOUT) } {
                let sums = vshlq_s32(vreinterpretq_s32_f32(token.scale), vdupq_n_s32(shift as i32));
                token.starts = if LayoutOf::<TENSOR_TYPE>::LAYOUT.has_half_scales() {
                    [vdupq_laneq_s32::<2>(sums), vdupq_laneq_s32::<3>(sums)]
                } else {
                    [vdupq_laneq_s32::<1>(vpaddq_s32(sums, sums)); 2]
                };
            }
            token
        }
    }

    /// A token to be multiplied with quants without an offset.
    ///
    /// # Safety
    /// As [`Token::read`].
    #[inline(always)]
    pub(super) unsafe fn of_centred<const TENSOR_TYPE: u8>(block: *const ActivationBlock) -> Token {
        // SAFETY: all reads are inside the block, whose last four fields are four bytes each.
        unsafe {
            let bytes = block.cast::<i8>();
            let scale = vld1q_f32((&raw const (*block).scale).cast());
            let mut half_sums = scale;
            if matches!(LayoutOf::<TENSOR_TYPE>::LAYOUT.scales, Scales::SubPairMinimum) {
                let negative_sums = vcvtq_f32_s32(vreinterpretq_s32_f32(scale));
                half_sums = vmulq_laneq_f32::<0>(negative_sums, vnegq_f32(scale));
            }
            Token { quants: [vld1q_s8(bytes), vld1q_s8(bytes.add(16))], starts: [vdupq_n_s32(0); 2], scale, half_sums }
        }
    }
}

/// Multipliers for the integer sums of a register: the scale and the sums of one token, or of two.
pub(super) trait Multipliers {
    /// `values` times the scale.
    unsafe fn scaled(&self, values: float32x4_t) -> float32x4_t;

    /// `sums` plus `values` times the scale.
    unsafe fn add_scaled(&self, sums: float32x4_t, values: float32x4_t) -> float32x4_t;

    /// `sums` plus the minimums times the sum of all columns.
    unsafe fn add_minimums(&self, sums: float32x4_t, minimums: float32x4_t) -> float32x4_t;

    /// `sums` plus the minimums of either half times the sum of its columns.
    unsafe fn add_half_minimums(&self, sums: float32x4_t, minimums: &[float32x4_t; 2]) -> float32x4_t;
}

impl Multipliers for Token {
    #[inline(always)]
    unsafe fn scaled(&self, values: float32x4_t) -> float32x4_t {
        // SAFETY: no memory is touched, here and below.
        unsafe { vmulq_laneq_f32::<0>(values, self.scale) }
    }

    #[inline(always)]
    unsafe fn add_scaled(&self, sums: float32x4_t, values: float32x4_t) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vfmaq_laneq_f32::<0>(sums, values, self.scale) }
    }

    #[inline(always)]
    unsafe fn add_minimums(&self, sums: float32x4_t, minimums: float32x4_t) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vfmaq_laneq_f32::<1>(sums, minimums, self.scale) }
    }

    #[inline(always)]
    unsafe fn add_half_minimums(&self, sums: float32x4_t, minimums: &[float32x4_t; 2]) -> float32x4_t {
        // SAFETY: as above.
        unsafe {
            let sums = vfmaq_laneq_f32::<2>(sums, minimums[0], self.half_sums);
            vfmaq_laneq_f32::<3>(sums, minimums[1], self.half_sums)
        }
    }
}

/// Scales and adds the integer sums of a register, and adds the contribution of the minimums.
#[inline(always)]
pub(super) unsafe fn add_scaled<const TENSOR_TYPE: u8>(
    sums: float32x4_t,
    dots: [int32x4_t; 2],
    factors: &Factors,
    multipliers: &impl Multipliers,
) -> float32x4_t {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: no memory is touched.
    unsafe {
        let [first, last] = dots.map(|dots| vcvtq_f32_s32(dots));
        let sums = if layout.has_half_scales() {
            let both = vfmaq_f32(vmulq_f32(first, factors.scales[0]), last, factors.scales[1]);
            multipliers.add_scaled(sums, both)
        } else {
            vfmaq_f32(sums, first, multipliers.scaled(factors.scales[0]))
        };
        match layout.scales {
            Scales::BlockMinimum | Scales::SubMinimum => multipliers.add_minimums(sums, factors.minimums[0]),
            Scales::SubPairMinimum => multipliers.add_half_minimums(sums, &factors.minimums),
            _ => sums,
        }
    }
}
