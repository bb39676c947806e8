//! The kernels for every processor, and the oracle that the others are tested against: plain Rust, with loops over
//! sixteen rows that the compiler vectorizes. Where it would gather operands one by one, in integer products and in
//! code written over [`Vector`](crate::elementwise::vector::Vector), 128-bit registers are used (the crate `wide`).

use std::slice;

use bytemuck::cast;
use wide::{i16x8, i32x4, u32x4};

use crate::TensorType;

use crate::arch::{InstructionSet, Kernels};
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::quant_layout;
use crate::matrix::layout::BLOCK;
use crate::matrix::unpack::{RowsBlock, read_float_rows};
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
/// See [`Product`].
unsafe fn quant_product<const TENSOR_TYPE: u8>(product: &Product) {
    let layout = quant_layout(TensorType::ALL[usize::from(TENSOR_TYPE)]);
    for first_row in (0..product.n_rows).step_by(ROW_GROUP) {
        // SAFETY: the row is one of the product's.
        let group = unsafe { group_of(product, first_row) };
        let mut sums = [[0.0; ROW_GROUP]; TOKEN_TILE];
        for block in 0..product.n_blocks {
            let record_at = block / layout.record_blocks() * layout.record_bytes();
            let record = &group[record_at..record_at + layout.record_bytes()];
            let weights = Weights::of(&RowsBlock::read(layout, record, block % layout.record_blocks(), 0));
            for (token, sums) in sums.iter_mut().enumerate().take(product.n_tokens) {
                let at = block * product.token_stride + token;
                // SAFETY: the product's tokens have this block, and those that are refined its remainder.
                unsafe {
                    weights.add_product(&*product.quantized.add(at), sums);
                    if *product.is_refined.add(at) != 0 {
                        weights.add_product(&*product.remainders.add(at), sums);
                    }
                }
            }
        }
        // SAFETY: the rows and tokens are the product's.
        unsafe { store(product, first_row, &sums) };
    }
}

/// Rows in a register of 32-bit numbers.
const LANES: usize = 4;
/// Registers per group of rows.
const QUARTERS: usize = ROW_GROUP / LANES;
/// Pairs of columns in half a block.
const PAIRS: usize = BLOCK / 4;

/// Thirty-two columns of a group of rows.
struct Weights {
    /// As stored. Of every four columns, [`in_pairs`] takes two: a register has them for each of four rows.
    pairs: [[[i16x8; QUARTERS]; PAIRS]; 2],
    offset: i32,
    scales: [[f32; ROW_GROUP]; 2],
    minimums: [[f32; ROW_GROUP]; 2],
}

impl Weights {
    #[inline(always)]
    fn of(block: &RowsBlock<ROW_GROUP>) -> Weights {
        let mut pairs = [[[i16x8::ZERO; QUARTERS]; PAIRS]; 2];
        for (columns, words) in pairs.as_flattened_mut().as_chunks_mut::<2>().0.iter_mut().zip(&block.quants) {
            for (quarter, rows) in words.as_chunks::<LANES>().0.iter().enumerate() {
                let words = u32x4::new(*rows);
                columns[0][quarter] = cast(words & u32x4::splat(0x00ff_00ff));
                columns[1][quarter] = cast((words >> 8) & u32x4::splat(0x00ff_00ff));
            }
        }
        Weights { pairs, offset: block.offset, scales: block.scales, minimums: block.minimums }
    }

    /// Adds the products with a token: integers first, then the scales, as in the vector kernels.
    #[inline(always)]
    fn add_product(&self, activation: &ActivationBlock, sums: &mut [f32; ROW_GROUP]) {
        let quants = in_pairs(&activation.quants);
        let [start_first, start_last] = activation.negative_sums.map(|sum| self.offset * sum);
        let first = multiply(&self.pairs[0], &quants[0], start_first);
        let last = multiply(&self.pairs[1], &quants[1], start_last);
        let totals = activation.negative_sums.map(|sum| -(sum as f32));
        for (row, sum) in sums.iter_mut().enumerate() {
            let scaled = self.scales[0][row] * first[row] as f32 + self.scales[1][row] * last[row] as f32;
            let minimums = self.minimums[0][row] * totals[0] + self.minimums[1][row] * totals[1];
            *sum += activation.scale * (scaled + minimums);
        }
    }
}

/// The quants of both halves of a block: of every four columns the first and the third, then the second and the fourth.
#[inline(always)]
fn in_pairs(quants: &[i8; BLOCK]) -> [[u32; PAIRS]; 2] {
    let mut pairs = [[0; PAIRS]; 2];
    let (words, _) = quants.as_chunks::<4>();
    for (pair, word) in pairs.as_flattened_mut().as_chunks_mut::<2>().0.iter_mut().zip(words) {
        let of = |first: i8, second: i8| u32::from(i16::from(first) as u16) | u32::from(i16::from(second) as u16) << 16;
        *pair = [of(word[0], word[2]), of(word[1], word[3])];
    }
    pairs
}

/// Sixteen columns of a group times those of a token, added to `start`.
#[inline(always)]
fn multiply(weights: &[[i16x8; QUARTERS]; PAIRS], quants: &[u32; PAIRS], start: i32) -> [i32; ROW_GROUP] {
    let mut products = [i32x4::splat(start); QUARTERS];
    for (weights, &pair) in weights.iter().zip(quants) {
        let pair: i16x8 = cast(u32x4::splat(pair));
        for (product, weights) in products.iter_mut().zip(weights) {
            *product += weights.dot(pair);
        }
    }
    cast(products)
}

/// # Safety
/// See [`Product`].
unsafe fn float_product<const TENSOR_TYPE: u8>(product: &Product) {
    let tensor_type = TensorType::ALL[usize::from(TENSOR_TYPE)];
    for first_row in (0..product.n_rows).step_by(ROW_GROUP) {
        // SAFETY: the row is one of the product's.
        let group = unsafe { group_of(product, first_row) };
        let mut sums = [[0.0; ROW_GROUP]; TOKEN_TILE];
        for block in 0..product.n_blocks {
            let mut weights = [[0.0; ROW_GROUP]; BLOCK];
            read_float_rows(tensor_type, group, block * BLOCK, &mut weights);
            // SAFETY: the product's tokens have this block, contiguously.
            let activations = unsafe {
                slice::from_raw_parts(
                    product.floats.add(block * product.token_stride * BLOCK),
                    product.n_tokens * BLOCK,
                )
            };
            for (sums, activation) in sums.iter_mut().zip(activations.as_chunks::<BLOCK>().0) {
                add_float_product(&weights, activation, sums);
            }
        }
        // SAFETY: the rows and tokens are the product's.
        unsafe { store(product, first_row, &sums) };
    }
}

/// The sum of a block is added as one, which rounds less than adding its columns one by one.
#[inline(always)]
fn add_float_product(weights: &[[f32; ROW_GROUP]; BLOCK], activation: &[f32; BLOCK], sums: &mut [f32; ROW_GROUP]) {
    let mut products = [0.0; ROW_GROUP];
    for (weights, element) in weights.iter().zip(activation) {
        for (product, weight) in products.iter_mut().zip(weights) {
            *product += weight * element;
        }
    }
    sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
}

/// The packed weights of the group that starts at a row.
///
/// # Safety
/// `first_row` is one of the product's.
unsafe fn group_of(product: &Product, first_row: usize) -> &[u8] {
    // SAFETY: the product may read all groups of its rows.
    unsafe {
        slice::from_raw_parts(product.weights.add(first_row / ROW_GROUP * product.group_bytes), product.group_bytes)
    }
}

/// Writes the sums of the group that starts at a row.
///
/// # Safety
/// `first_row` is one of the product's.
unsafe fn store(product: &Product, first_row: usize, sums: &[[f32; ROW_GROUP]; TOKEN_TILE]) {
    let n_rows = ROW_GROUP.min(product.n_rows - first_row);
    for (token, sums) in sums.iter().enumerate().take(product.n_tokens) {
        for (row, &sum) in sums.iter().enumerate().take(n_rows) {
            // SAFETY: the product may access its rows and tokens of `out`.
            unsafe {
                let element = product.out.pointer.add(token * product.out.stride + first_row + row);
                *element = if product.out.add { *element + sum } else { sum };
            }
        }
    }
}
