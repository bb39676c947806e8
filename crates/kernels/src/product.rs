//! The entry point of the products: checks shapes once, and cuts the work into tiles of tokens.

use std::ops::Range;
use std::ptr::null;

use crate::activations::Activations;
use crate::matrix::layout::BLOCK;
use crate::matrix::{Matrix, ROW_GROUP};
use crate::operands::{Output, Product, QuantizedRow, TOKEN_TILE};
use crate::platform::Kernels;

/// Multiplies the matrix with every token in use: `out[token · n_rows + row]`. Uses only the calling thread.
///
/// # Panics
/// When the matrix and the activations differ in columns, when the activations were not made for the matrix's type,
/// or when `out` is not `n_tokens · n_rows` long.
pub fn matmul(kernels: &Kernels, matrix: &Matrix, activations: &Activations, out: &mut [f32]) {
    assert_readable(matrix, activations);
    assert_eq!(out.len(), activations.n_tokens() * matrix.n_rows(), "the product has an element per token and row");
    let out = Output { pointer: out.as_mut_ptr(), stride: matrix.n_rows(), add: false };
    // SAFETY: the shapes have just been checked, and `out` is borrowed mutably.
    unsafe { matmul_rows(kernels, matrix, 0..matrix.n_rows(), activations, 0..activations.n_tokens(), out) }
}

/// Checks that the activations can be multiplied with the matrix.
///
/// # Panics
/// When they differ in columns, or when the activations were not made for the matrix's type.
pub(crate) fn assert_readable(matrix: &Matrix, activations: &Activations) {
    let (expected, given) = (matrix.n_columns(), activations.n_columns());
    assert_eq!(given, expected, "a matrix of {expected} columns cannot be multiplied with {given} activations");
    let is_float = matrix.tensor_type().is_float();
    let has_form = if is_float { activations.floats().is_some() } else { activations.is_quantized() };
    assert!(has_form, "the activations were not made for weights of type {:?}", matrix.tensor_type());
}

/// Multiplies some rows of the matrix with some tokens. Several threads may do so at once for different rows.
///
/// # Safety
/// - [`assert_readable`] holds for the matrix and the activations, and no one writes to the activations meanwhile.
/// - `rows.start` is a multiple of [`ROW_GROUP`], `rows.end` too or the number of rows; `tokens` are in use.
/// - `out` is valid for reads and writes at every (token, row) of the ranges, with `token` counted from `tokens.start`
///   and `row` from 0, and no one else accesses those elements meanwhile.
pub(crate) unsafe fn matmul_rows(
    kernels: &Kernels,
    matrix: &Matrix,
    rows: Range<usize>,
    activations: &Activations,
    tokens: Range<usize>,
    out: Output,
) {
    debug_assert!(rows.start.is_multiple_of(ROW_GROUP) && rows.end <= matrix.n_rows());
    debug_assert!(tokens.end <= activations.n_tokens());
    if rows.is_empty() {
        return;
    }
    let kernel = kernels.products[matrix.tensor_type() as usize];
    let group_bytes = matrix.group_bytes();
    let weights = &matrix.as_bytes()[rows.start / ROW_GROUP * group_bytes..];
    let mut token = tokens.start;
    while token < tokens.end {
        let n_tokens = (TOKEN_TILE - token % TOKEN_TILE).min(tokens.end - token);
        let (index, token_stride) = activations.position(token);
        // Only the form that the weight type reads exists; the pointers to the other stay null and unread.
        let quantized = activations.quantized_from(token).unwrap_or(QuantizedRow::NONE);
        let floats = activations.floats().map_or(null(), |blocks| blocks.wrapping_add(index * BLOCK));
        let pointer = out.pointer.wrapping_add((token - tokens.start) * out.stride + rows.start);
        let product = Product {
            weights: weights.as_ptr(),
            group_bytes,
            n_rows: rows.len(),
            n_blocks: matrix.n_columns().div_ceil(BLOCK),
            quantized: quantized.blocks,
            remainders: quantized.remainders,
            is_refined: quantized.is_refined,
            floats,
            token_stride,
            n_tokens,
            out: Output { pointer, ..out },
        };
        // SAFETY: the caller's promises match the requirements of `Product`, restricted to the tokens of one tile;
        // kernels exist only for instruction sets that the machine has.
        unsafe { kernel(&product) };
        token += n_tokens;
    }
}
