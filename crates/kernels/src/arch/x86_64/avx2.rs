//! AVX2, with and without the byte products of AVX-VNNI: a register holds four columns of eight rows, and a group of
//! rows is two such halves.
//!
//! As with AVX-512, helpers are `#[inline(always)]` and become part of the outer function, which alone has the
//! `#[target_feature]`.

mod float;
mod quant;
mod quantize;

use std::arch::x86_64::*;

use crate::arch::{InstructionSet, Kernels};
use crate::operands::Output;
use crate::{attention, elementwise, recurrence};

/// Rows of a register: half a group.
const HALF: usize = 8;

macro_rules! kernels {
    ($instruction_set:expr, $product:ident) => {
        Kernels {
            instruction_set: $instruction_set,
            quantize_row: quantize::quantize_row,
            products: products!(float_product, $product),
            elementwise: &elementwise::avx2::TABLE,
            attention: &attention::avx2::TABLE,
            recurrence: &recurrence::avx2::TABLE,
        }
    };
}

use float::product as float_product;
use quant::{product, product_vnni};

/// The kernels for AVX2, FMA and F16C.
pub(super) static KERNELS: Kernels = kernels!(InstructionSet::Avx2, product);

/// The kernels for AVX2, FMA, F16C and AVX-VNNI.
pub(super) static VNNI_KERNELS: Kernels = kernels!(InstructionSet::AvxVnni, product_vnni);

/// Writes the sums of half a group of rows for one token, leaving out padding rows from `n_rows` on.
///
/// # Safety
/// `out` is valid for `min(n_rows, 8)` elements at (`token`, `row`); AVX2.
#[inline(always)]
unsafe fn store(out: &Output, token: usize, row: usize, n_rows: usize, sums: __m256) {
    // SAFETY: the caller's promise; rows that do not exist are not touched.
    unsafe {
        let pointer = out.pointer.add(token * out.stride + row);
        if n_rows >= HALF {
            let sums = if out.add { _mm256_add_ps(_mm256_loadu_ps(pointer), sums) } else { sums };
            _mm256_storeu_ps(pointer, sums);
            return;
        }
        let mut elements = [0.0; HALF];
        _mm256_storeu_ps(elements.as_mut_ptr(), sums);
        for (idx, element) in elements.into_iter().enumerate().take(n_rows) {
            let pointer = pointer.add(idx);
            *pointer = if out.add { *pointer + element } else { element };
        }
    }
}
