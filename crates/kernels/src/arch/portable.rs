//! The kernels in plain Rust: the fallback for other processors, and the oracle that the other kernels are tested
//! against.

use std::slice;

use crate::TensorType;

use crate::arch::{InstructionSet, Kernels};
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::quant_layout;
use crate::matrix::layout::BLOCK;
use crate::matrix::unpack::{RowBlock, read_float};
use crate::operands::{ActivationBlock, Product, QuantizedRow, TOKEN_TILE};
use crate::{attention, elementwise, recurrence};

/// The portable kernels.
pub(crate) static KERNELS: Kernels = Kernels {
    instruction_set: InstructionSet::Portable,
    quantize_row,
    products: products!(float_product, quant_product),
    elementwise: &elementwise::portable::TABLE,
    attention: &attention::portable::TABLE,
    recurrence: &recurrence::portable::TABLE,
};

/// Blocks whose largest element is smaller than this become zero, because the steps per unit would overflow.
const SMALLEST: f32 = 1e-30;

/// Quantizes a row.
///
/// # Safety
/// The pointers of `out` are valid for writes of all blocks of the row.
unsafe fn quantize_row(row: &[f32], out: &QuantizedRow) {
    // SAFETY: the caller's promise; `fill` passes pointers to the row's blocks.
    unsafe { out.fill(row, |elements, out| out.write(quantize_block(elements))) }
}

/// Rounds to the nearest of 255 steps, ties to even; the largest element gets ±127.
fn quantize_block(elements: &[f32; BLOCK]) -> ActivationBlock {
    let largest = elements.iter().fold(0.0f32, |largest, element| largest.max(element.abs()));
    let steps_per_unit = steps_per_unit(largest);
    let quants = elements.map(|element| (element * steps_per_unit).round_ties_even().clamp(-127.0, 127.0) as i8);
    let scale = largest / 127.0;
    let sum = |half: &[i8]| half.iter().map(|&quant| i32::from(quant)).sum::<i32>();
    let (first, last) = (sum(&quants[..BLOCK / 2]), sum(&quants[BLOCK / 2..]));
    ActivationBlock { quants, scale, scaled_sum: scale * (first + last) as f32, negative_sums: [-first, -last] }
}

/// The factor by which the elements of a block are multiplied before they are rounded.
#[inline(always)]
pub(crate) fn steps_per_unit(largest: f32) -> f32 {
    if largest > SMALLEST { 127.0 / largest } else { 0.0 }
}

/// # Safety
/// As [`Product`] says.
unsafe fn quant_product<const TENSOR_TYPE: u8>(product: &Product) {
    let layout = quant_layout(TensorType::ALL[usize::from(TENSOR_TYPE)]);
    for row in 0..product.n_rows {
        // SAFETY: the row is one of the product's.
        let group = unsafe { group_of(product, row) };
        let mut sums = [0.0; TOKEN_TILE];
        for block in 0..product.n_blocks {
            let record_at = block / layout.record_blocks() * layout.record_bytes();
            let record = &group[record_at..record_at + layout.record_bytes()];
            let weights = RowBlock::read(layout, record, block % layout.record_blocks(), row % ROW_GROUP);
            for (token, sum) in sums.iter_mut().enumerate().take(product.n_tokens) {
                let at = block * product.token_stride + token;
                // SAFETY: the product's tokens have this block, and those that are refined its remainder.
                unsafe {
                    *sum += dot(&weights, &*product.quantized.add(at));
                    if *product.is_refined.add(at) != 0 {
                        *sum += dot(&weights, &*product.remainders.add(at));
                    }
                }
            }
        }
        // SAFETY: the row and its tokens are the product's.
        unsafe { store(product, row, &sums) };
    }
}

/// The product of 32 columns: integers first, then the scales, as in the vector kernels.
#[inline]
fn dot(weights: &RowBlock, activation: &ActivationBlock) -> f32 {
    let mut products = [0; BLOCK];
    for (product, (&weight, &quant)) in products.iter_mut().zip(weights.quants.iter().zip(&activation.quants)) {
        *product = i32::from(weight) * i32::from(quant);
    }
    let (first, last) = products.split_at(BLOCK / 2);
    let [first, last] = [first, last].map(|half| half.iter().sum::<i32>() as f32);
    let scaled = weights.scales[0] * first + weights.scales[1] * last;
    let [first, last] = activation.negative_sums.map(|sum| -(sum as f32));
    let minimums = weights.minimums[0] * first + weights.minimums[1] * last;
    activation.scale * (scaled + minimums)
}

/// # Safety
/// As [`Product`] says.
unsafe fn float_product<const TENSOR_TYPE: u8>(product: &Product) {
    let tensor_type = TensorType::ALL[usize::from(TENSOR_TYPE)];
    for row in 0..product.n_rows {
        // SAFETY: the row is one of the product's.
        let group = unsafe { group_of(product, row) };
        let mut sums = [0.0; TOKEN_TILE];
        for block in 0..product.n_blocks {
            let weights: [f32; BLOCK] =
                std::array::from_fn(|idx| read_float(tensor_type, group, block * BLOCK + idx, row % ROW_GROUP));
            // SAFETY: the product's tokens have this block, contiguously.
            let activations = unsafe {
                slice::from_raw_parts(
                    product.floats.add(block * product.token_stride * BLOCK),
                    product.n_tokens * BLOCK,
                )
            };
            for (sum, activation) in sums.iter_mut().zip(activations.chunks_exact(BLOCK)) {
                *sum += dot_floats(&weights, activation);
            }
        }
        // SAFETY: the row and its tokens are the product's.
        unsafe { store(product, row, &sums) };
    }
}

/// Eight sums side by side, which the compiler can keep in vector registers.
#[inline]
fn dot_floats(weights: &[f32; BLOCK], activation: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (weights, elements) in weights.chunks_exact(8).zip(activation.chunks_exact(8)) {
        for (sum, (weight, element)) in sums.iter_mut().zip(weights.iter().zip(elements)) {
            *sum += weight * element;
        }
    }
    sums.iter().sum()
}

/// The packed weights of the group that contains a row.
///
/// # Safety
/// `row` is one of the product's.
unsafe fn group_of(product: &Product, row: usize) -> &[u8] {
    // SAFETY: the product may read all groups of its rows.
    unsafe { slice::from_raw_parts(product.weights.add(row / ROW_GROUP * product.group_bytes), product.group_bytes) }
}

/// Writes the sums of one row, one per token.
///
/// # Safety
/// `row` is one of the product's.
unsafe fn store(product: &Product, row: usize, sums: &[f32; TOKEN_TILE]) {
    for (token, &sum) in sums.iter().enumerate().take(product.n_tokens) {
        // SAFETY: the product may access its rows and tokens of `out`.
        unsafe {
            let element = product.out.pointer.add(token * product.out.stride + row);
            *element = if product.out.add { *element + sum } else { sum };
        }
    }
}
