//! Quantizing activations.

use std::arch::x86_64::*;

use crate::arch::portable;
use crate::matrix::layout::BLOCK;
use crate::operands::{ActivationBlock, QuantizedRow};

/// Quantizes a row to the same quants as the portable version.
///
/// # Safety
/// The pointers of `out` are valid for writes of all blocks of the row; AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn quantize_row(row: &[f32], out: &QuantizedRow) {
    // SAFETY: the caller's promise; `fill` passes pointers to the row's blocks.
    unsafe { out.fill(row, |elements, out| quantize_block(elements, out)) }
}

/// # Safety
/// `out` is valid for writes; AVX2.
#[inline(always)]
unsafe fn quantize_block(elements: &[f32; BLOCK], out: *mut ActivationBlock) {
    // SAFETY: the four reads stay within the block.
    unsafe {
        let mut parts = [_mm256_setzero_ps(); 4];
        let mut largest = _mm256_setzero_ps();
        for (idx, part) in parts.iter_mut().enumerate() {
            *part = _mm256_loadu_ps(elements.as_ptr().add(8 * idx));
            largest = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0), *part), largest);
        }
        let largest = largest_of(largest);
        let steps_per_unit = _mm256_set1_ps(portable::steps_per_unit(largest));
        let mut quants = [_mm256_setzero_si256(); 4];
        for (quant, part) in quants.iter_mut().zip(parts) {
            let rounded = _mm256_cvtps_epi32(_mm256_mul_ps(part, steps_per_unit));
            *quant = _mm256_max_epi32(rounded, _mm256_set1_epi32(-127));
        }
        let [a, b, c, d] = quants;
        // Packing works within 128-bit lanes, so its words come out in the order 0 2 4 6 1 3 5 7.
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(out.cast(), bytes);
        let sums = [sum_of(_mm256_add_epi32(a, b)), sum_of(_mm256_add_epi32(c, d))];
        let scale = largest / 127.0;
        (*out).scale = scale;
        (*out).scaled_sum = scale * (sums[0] + sums[1]) as f32;
        (*out).negative_sums = [-sums[0], -sums[1]];
    }
}

#[inline(always)]
unsafe fn largest_of(elements: __m256) -> f32 {
    // SAFETY: no memory is touched.
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(elements), _mm256_extractf128_ps::<1>(elements));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

#[inline(always)]
unsafe fn sum_of(elements: __m256i) -> i32 {
    // SAFETY: no memory is touched.
    unsafe {
        let four = _mm_add_epi32(_mm256_castsi256_si128(elements), _mm256_extracti128_si256::<1>(elements));
        let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
    }
}
