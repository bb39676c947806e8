//! Quantizing activations.

use std::arch::x86_64::*;

use crate::arch::portable;
use crate::matrix::layout::BLOCK;
use crate::operands::{ActivationBlock, QuantizedRow};

/// Quantizes a row to the same quants as the portable version.
///
/// # Safety
/// The pointers of `out` are valid for writes of all blocks of the row; AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn quantize_row(row: &[f32], out: &QuantizedRow) {
    // SAFETY: the caller's promise; `fill` passes pointers to the row's blocks.
    unsafe { out.fill(row, |elements, out| quantize_block(elements, out)) }
}

/// # Safety
/// `out` is valid for writes; AVX-512.
#[inline(always)]
unsafe fn quantize_block(elements: &[f32; BLOCK], out: *mut ActivationBlock) {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    // SAFETY: reads and writes stay within both halves of the block.
    unsafe {
        let first = _mm512_loadu_ps(elements.as_ptr());
        let last = _mm512_loadu_ps(elements.as_ptr().add(16));
        let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(first), _mm512_abs_ps(last)));
        let steps_per_unit = _mm512_set1_ps(portable::steps_per_unit(largest));
        let first = _mm512_cvt_roundps_epi32::<NEAREST>(_mm512_mul_ps(first, steps_per_unit));
        let last = _mm512_cvt_roundps_epi32::<NEAREST>(_mm512_mul_ps(last, steps_per_unit));
        let lowest = _mm512_set1_epi32(-127);
        let (first, last) = (_mm512_max_epi32(first, lowest), _mm512_max_epi32(last, lowest));
        let quants = out.cast::<__m128i>();
        _mm_storeu_si128(quants, _mm512_cvtsepi32_epi8(first));
        _mm_storeu_si128(quants.add(1), _mm512_cvtsepi32_epi8(last));
        let sums = [_mm512_reduce_add_epi32(first), _mm512_reduce_add_epi32(last)];
        let scale = largest / 127.0;
        (*out).scale = scale;
        (*out).scaled_sum = scale * (sums[0] + sums[1]) as f32;
        (*out).negative_sums = [-sums[0], -sums[1]];
    }
}
