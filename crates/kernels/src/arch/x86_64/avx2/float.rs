//! Products of floating-point weights.

use std::arch::x86_64::*;

use super::{HALF, store};
use crate::TensorType;
use crate::matrix::ROW_GROUP;
use crate::matrix::layout::BLOCK;
use crate::operands::Product;

/// How far ahead of its use a weight is prefetched, in bytes: far enough to hide the memory's latency.
const PREFETCH_BYTES: usize = 4096;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
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
        let mut sums = [[_mm256_setzero_ps(); 2]; N_TOKENS];
        for _ in 0..product.n_blocks {
            for column in (0..BLOCK).step_by(2) {
                for at in (0..pair_bytes).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(weights.wrapping_add(PREFETCH_BYTES + at).cast());
                }
                let halves = [read_pair::<TENSOR_TYPE>(weights, 0), read_pair::<TENSOR_TYPE>(weights, 1)];
                for (token, sums) in sums.iter_mut().enumerate() {
                    for parity in 0..2 {
                        let element = _mm256_set1_ps(*activations.add(token * BLOCK + column + parity));
                        for (sum, columns) in sums.iter_mut().zip(&halves) {
                            *sum = _mm256_fmadd_ps(columns[parity], element, *sum);
                        }
                    }
                }
                weights = weights.add(pair_bytes);
            }
            activations = activations.add(product.token_stride * BLOCK);
        }
        for (idx, sums) in sums.into_iter().enumerate() {
            for (half, sums) in sums.into_iter().enumerate() {
                let row = row + half * HALF;
                store(&product.out, token + idx, row, product.n_rows.saturating_sub(row), sums);
            }
        }
    }
    N_TOKENS
}

/// Two columns of half a group of rows.
///
/// # Safety
/// `weights` points to two columns of a group; AVX2 and F16C.
#[inline(always)]
unsafe fn read_pair<const TENSOR_TYPE: u8>(weights: *const u8, half: usize) -> [__m256; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        match TensorType::ALL[usize::from(TENSOR_TYPE)] {
            TensorType::F16 => [
                _mm256_cvtph_ps(_mm_loadu_si128(weights.add(16 * half).cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(weights.add(32 + 16 * half).cast())),
            ],
            TensorType::BF16 => {
                let pairs = _mm256_loadu_si256(weights.add(32 * half).cast());
                let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
                [
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)),
                    _mm256_castsi256_ps(_mm256_and_si256(pairs, upper)),
                ]
            }
            _ => [_mm256_loadu_ps(weights.add(32 * half).cast()), _mm256_loadu_ps(weights.add(64 + 32 * half).cast())],
        }
    }
}
