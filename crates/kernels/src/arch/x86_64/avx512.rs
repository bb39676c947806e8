//! AVX-512 with VNNI: a register holds four columns of sixteen rows, and one instruction multiplies its 64 quants with
//! four activations, broadcast to all rows.
//!
//! Helpers are `#[inline(always)]` and have no `#[target_feature]`: they become part of the outer function, which has
//! it, and whose caller has checked that the machine has these instructions.

mod float;
mod quant;
mod quantize;

use std::arch::x86_64::*;

use crate::arch::{InstructionSet, Kernels};
use crate::matrix::ROW_GROUP;
use crate::operands::Output;
use crate::{attention, elementwise, recurrence};
use float::product as float_product;
use quant::product as quant_product;

/// The kernels for AVX-512.
pub(super) static KERNELS: Kernels = Kernels {
    instruction_set: InstructionSet::Avx512,
    quantize_row: quantize::quantize_row,
    products: products!(float_product, quant_product),
    elementwise: &elementwise::avx512::TABLE,
    attention: &attention::avx512::TABLE,
    recurrence: &recurrence::avx512::TABLE,
};

/// Writes the sums of a group of rows for one token, leaving out padding rows from `n_rows` on.
///
/// # Safety
/// `out` is valid for `min(n_rows, 16)` elements at (`token`, `row`); AVX-512.
#[inline(always)]
unsafe fn store(out: &Output, token: usize, row: usize, n_rows: usize, sums: __m512) {
    // SAFETY: the caller's promise; the mask leaves out the rows that do not exist.
    unsafe {
        let mask = if n_rows >= ROW_GROUP { u16::MAX } else { (1 << n_rows) - 1 };
        let pointer = out.pointer.add(token * out.stride + row);
        let sums = if out.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, pointer), sums) } else { sums };
        _mm512_mask_storeu_ps(pointer, mask, sums);
    }
}
