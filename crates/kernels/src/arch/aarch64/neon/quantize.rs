//! Quantizing activations.

use std::arch::aarch64::*;

use crate::arch::portable;
use crate::matrix::layout::BLOCK;
use crate::operands::{ActivationBlock, QuantizedRow};

/// Quantizes a row to the same quants as the portable version.
///
/// # Safety
/// The pointers of `out` are valid for writes of all blocks of the row; NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn quantize_row(row: &[f32], out: &QuantizedRow) {
    // SAFETY: the caller's promise; `fill` passes pointers to the row's blocks.
    unsafe { out.fill(row, |elements, out| quantize_block(elements, out)) }
}

/// # Safety
/// `out` is valid for writes; NEON.
#[inline(always)]
unsafe fn quantize_block(elements: &[f32; BLOCK], out: *mut ActivationBlock) {
    // SAFETY: the eight reads stay within the block, and so do the writes of its quants.
    unsafe {
        let parts: [float32x4_t; 8] = std::array::from_fn(|idx| vld1q_f32(elements.as_ptr().add(4 * idx)));
        // Given a number and NaN, the maximum is the number.
        let largest = parts.iter().fold(vdupq_n_f32(0.0), |largest, part| vmaxnmq_f32(vabsq_f32(*part), largest));
        let largest = vmaxnmvq_f32(largest);
        let steps_per_unit = portable::steps_per_unit(largest);
        let quants = parts.map(|part| {
            let rounded = vcvtnq_s32_f32(vmulq_n_f32(part, steps_per_unit));
            vmaxq_s32(rounded, vdupq_n_s32(-127))
        });
        let mut sums = [0; 2];
        for (half, (quants, sum)) in quants.as_chunks::<4>().0.iter().zip(&mut sums).enumerate() {
            let first = vqmovn_high_s32(vqmovn_s32(quants[0]), quants[1]);
            let last = vqmovn_high_s32(vqmovn_s32(quants[2]), quants[3]);
            vst1q_s8(out.cast::<i8>().add(16 * half), vqmovn_high_s16(vqmovn_s16(first), last));
            *sum = vaddvq_s32(vaddq_s32(vaddq_s32(quants[0], quants[1]), vaddq_s32(quants[2], quants[3])));
        }
        let scale = largest / 127.0;
        (*out).scale = scale;
        (*out).scaled_sum = scale * (sums[0] + sums[1]) as f32;
        (*out).negative_sums = [-sums[0], -sums[1]];
    }
}
