//! Products of floating-point weights.

use std::arch::aarch64::*;

use super::weights::read_halves;
use super::{QUARTER, QUARTERS, store};
use crate::TensorType;
use crate::matrix::ROW_GROUP;
use crate::matrix::layout::BLOCK;
use crate::operands::Product;

/// Columns whose activations fill a register.
const COLUMNS: usize = 4;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    for row in (0..product.n_rows).step_by(ROW_GROUP) {
        let mut token = 0;
        while token < product.n_tokens {
            // SAFETY: the caller's promise; rows and tokens are the product's.
            token += unsafe {
                match product.n_tokens - token {
                    4.. => tile::<TENSOR_TYPE, 4>(product, row, token),
                    2.. => tile::<TENSOR_TYPE, 2>(product, row, token),
                    _ => tile::<TENSOR_TYPE, 1>(product, row, token),
                }
            };
        }
    }
}

/// Multiplies the group that starts at `row` with `N_TOKENS` tokens from `token` on; returns that number.
///
/// # Safety
/// As [`product`], and the rows and tokens are the product's.
#[inline(always)]
unsafe fn tile<const TENSOR_TYPE: u8, const N_TOKENS: usize>(product: &Product, row: usize, token: usize) -> usize {
    let pair_bytes = 2 * ROW_GROUP * TensorType::ALL[usize::from(TENSOR_TYPE)].block_bytes();
    // SAFETY: the group and the tokens' blocks are the product's; a row is padded to whole blocks.
    unsafe {
        let mut weights = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut activations = product.floats.add(token * BLOCK);
        let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; N_TOKENS];
        for _ in 0..product.n_blocks {
            for column in (0..BLOCK).step_by(COLUMNS) {
                let elements: [float32x4_t; N_TOKENS] =
                    std::array::from_fn(|token| vld1q_f32(activations.add(token * BLOCK + column)));
                let [first, second] = read_pair::<TENSOR_TYPE>(weights);
                let [third, fourth] = read_pair::<TENSOR_TYPE>(weights.add(pair_bytes));
                for (sums, elements) in sums.iter_mut().zip(elements) {
                    for (quarter, sum) in sums.iter_mut().enumerate() {
                        *sum = vfmaq_laneq_f32::<0>(*sum, first[quarter], elements);
                        *sum = vfmaq_laneq_f32::<1>(*sum, second[quarter], elements);
                        *sum = vfmaq_laneq_f32::<2>(*sum, third[quarter], elements);
                        *sum = vfmaq_laneq_f32::<3>(*sum, fourth[quarter], elements);
                    }
                }
                weights = weights.add(2 * pair_bytes);
            }
            activations = activations.add(product.token_stride * BLOCK);
        }
        for (idx, sums) in sums.into_iter().enumerate() {
            store(&product.out, token + idx, row, product.n_rows - row, sums);
        }
    }
    N_TOKENS
}

/// Two columns of a group of rows.
///
/// # Safety
/// `weights` points to two columns of a group; NEON.
#[inline(always)]
unsafe fn read_pair<const TENSOR_TYPE: u8>(weights: *const u8) -> [[float32x4_t; QUARTERS]; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        match TensorType::ALL[usize::from(TENSOR_TYPE)] {
            TensorType::F16 => [read_halves(weights), read_halves(weights.add(2 * ROW_GROUP))],
            TensorType::BF16 => {
                let pairs = [0, 1, 2, 3].map(|quarter| vld1q_u32(weights.add(4 * QUARTER * quarter).cast()));
                let upper = vdupq_n_u32(0xffff_0000);
                [
                    pairs.map(|pairs| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs))),
                    pairs.map(|pairs| vreinterpretq_f32_u32(vandq_u32(pairs, upper))),
                ]
            }
            _ => [read_column(weights), read_column(weights.add(4 * ROW_GROUP))],
        }
    }
}

/// One column of a group of rows in single precision. Written out: a closure in a closure becomes a call.
///
/// # Safety
/// `column` points to a column of a group; NEON.
#[inline(always)]
unsafe fn read_column(column: *const u8) -> [float32x4_t; QUARTERS] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut quarters = [vdupq_n_f32(0.0); QUARTERS];
        for (idx, quarter) in quarters.iter_mut().enumerate() {
            *quarter = vld1q_f32(column.cast::<f32>().add(QUARTER * idx));
        }
        quarters
    }
}
