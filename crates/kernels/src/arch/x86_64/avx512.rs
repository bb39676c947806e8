//! AVX-512 with VNNI: a register holds four columns of sixteen rows, and one instruction multiplies its 64 quants with
//! four activations that are broadcast to all rows.
//!
//! Helpers are `#[inline(always)]` and carry no `#[target_feature]`: they become part of the outer function, which
//! does, and whose caller has made sure that the machine has these instructions.

mod float;
mod quant;
mod quantize;

use std::arch::x86_64::*;

use crate::WeightType;
use crate::matrix::ROW_GROUP;
use crate::platform::{InstructionSet, Kernels};
use crate::product::Output;
use crate::{attention, elementwise};

/// The kernels for AVX-512.
pub(super) static KERNELS: Kernels = Kernels {
    instruction_set: InstructionSet::Avx512,
    quantize_row: quantize::quantize_row,
    products: [
        float::product::<{ WeightType::F32 as u8 }>,
        float::product::<{ WeightType::F16 as u8 }>,
        float::product::<{ WeightType::BF16 as u8 }>,
        quant::product::<{ WeightType::Q4_0 as u8 }>,
        quant::product::<{ WeightType::Q4_1 as u8 }>,
        quant::product::<{ WeightType::Q5_0 as u8 }>,
        quant::product::<{ WeightType::Q5_1 as u8 }>,
        quant::product::<{ WeightType::Q8_0 as u8 }>,
        quant::product::<{ WeightType::Q2_K as u8 }>,
        quant::product::<{ WeightType::Q3_K as u8 }>,
        quant::product::<{ WeightType::Q4_K as u8 }>,
        quant::product::<{ WeightType::Q5_K as u8 }>,
        quant::product::<{ WeightType::Q6_K as u8 }>,
        quant::product::<{ WeightType::IQ4_NL as u8 }>,
    ],
    elementwise: &elementwise::avx512::TABLE,
    attention: &attention::avx512::TABLE,
};

/// Writes the sums of a group of rows for one token; rows from `n_rows` on are padding and are left out.
///
/// # Safety
/// `out` is valid for `min(n_rows, 16)` elements at (`token`, `row`); AVX-512.
#[inline(always)]
unsafe fn store(out: &Output, token: usize, row: usize, n_rows: usize, sums: __m512) {
    // SAFETY: the caller's promise; the mask leaves out the rows that are not there.
    unsafe {
        let mask = if n_rows >= ROW_GROUP { u16::MAX } else { (1 << n_rows) - 1 };
        let pointer = out.pointer.add(token * out.stride + row);
        let sums = if out.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, pointer), sums) } else { sums };
        _mm512_mask_storeu_ps(pointer, mask, sums);
    }
}
