//! NEON with the byte products of `dotprod`, with and without the byte matrices of `i8mm`: a register holds four columns
//! of four rows, and a group of rows is four such quarters.
//!
//! The packed order of x86-64 suits these registers as well: `sdot` multiplies a register of weights with four columns of
//! a token that it picks out of a register itself, so nothing is broadcast, and the pairs of rows that `smmla` multiplies
//! are two neighbouring registers, zipped once for all tokens of a tile.
//!
//! As elsewhere, helpers are `#[inline(always)]` and become part of the outer function, which alone has the
//! `#[target_feature]`.

mod float;
mod instructions;
mod pairs;
mod quant;
mod quantize;
mod token;
mod weights;

use std::arch::aarch64::*;

use crate::arch::{InstructionSet, Kernels};
use crate::matrix::ROW_GROUP;
use crate::operands::Output;
use crate::{attention, elementwise, recurrence};

/// Rows of a register.
const QUARTER: usize = 4;

/// Registers that hold one number of every row of a group.
const QUARTERS: usize = ROW_GROUP / QUARTER;

macro_rules! kernels {
    ($instruction_set:expr, $product:ident) => {
        Kernels {
            instruction_set: $instruction_set,
            quantize_row: quantize::quantize_row,
            products: products!(float_product, $product),
            elementwise: &elementwise::neon::TABLE,
            attention: &attention::neon::TABLE,
            recurrence: &recurrence::neon::TABLE,
        }
    };
}

use float::product as float_product;
use quant::{product, product_i8mm};

/// The kernels for NEON with `dotprod`.
pub(super) static KERNELS: Kernels = kernels!(InstructionSet::NeonDotprod, product);

/// The kernels for NEON with `dotprod` and `i8mm`.
pub(super) static I8MM_KERNELS: Kernels = kernels!(InstructionSet::NeonI8mm, product_i8mm);

/// Writes the sums of a group of rows for one token, leaving out padding rows from `n_rows` on.
///
/// # Safety
/// `out` is valid for `min(n_rows, 16)` elements at (`token`, `row`); NEON.
#[inline(always)]
unsafe fn store(out: &Output, token: usize, row: usize, n_rows: usize, sums: [float32x4_t; QUARTERS]) {
    // SAFETY: the caller's promise; rows that do not exist are not touched.
    unsafe {
        let pointer = out.pointer.add(token * out.stride + row);
        if n_rows >= ROW_GROUP {
            for (quarter, sums) in sums.into_iter().enumerate() {
                let pointer = pointer.add(quarter * QUARTER);
                vst1q_f32(pointer, if out.add { vaddq_f32(vld1q_f32(pointer), sums) } else { sums });
            }
            return;
        }
        let mut elements = [0.0; ROW_GROUP];
        for (quarter, sums) in sums.into_iter().enumerate() {
            vst1q_f32(elements.as_mut_ptr().add(quarter * QUARTER), sums);
        }
        for (idx, element) in elements.into_iter().enumerate().take(n_rows) {
            let pointer = pointer.add(idx);
            *pointer = if out.add { *pointer + element } else { element };
        }
    }
}
