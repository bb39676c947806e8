//! Products of floating-point weights.

use std::arch::x86_64::*;

use super::store;
use crate::TensorType;
use crate::matrix::ROW_GROUP;
use crate::matrix::layout::BLOCK;
use crate::operands::Product;

/// Groups of rows that are multiplied at once.
const N_GROUPS: usize = 2;

/// How far ahead of its use a weight is prefetched, in bytes: far enough to hide the memory's latency.
const PREFETCH_BYTES: usize = 4096;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    let mut row = 0;
    while row < product.n_rows {
        let mut token = 0;
        while token < product.n_tokens {
            // SAFETY: the caller's promise; rows and tokens are the product's.
            token += unsafe {
                match product.n_tokens - token {
                    12.. => tile::<TENSOR_TYPE, 12>(product, row, token),
                    8.. => tile::<TENSOR_TYPE, 8>(product, row, token),
                    4.. => tile::<TENSOR_TYPE, 4>(product, row, token),
                    2.. => tile::<TENSOR_TYPE, 2>(product, row, token),
                    _ => tile::<TENSOR_TYPE, 1>(product, row, token),
                }
            };
        }
        row += N_GROUPS * ROW_GROUP;
    }
}

/// Multiplies the groups that start at `row` with `N_TOKENS` tokens from `token` on; returns that number.
///
/// # Safety
/// As [`product`], and the rows and tokens are the product's.
#[inline(always)]
unsafe fn tile<const TENSOR_TYPE: u8, const N_TOKENS: usize>(product: &Product, row: usize, token: usize) -> usize {
    let pair_bytes = 2 * ROW_GROUP * TensorType::ALL[usize::from(TENSOR_TYPE)].block_bytes();
    // If the second group is padding, the first is multiplied twice, and one result is not stored.
    let second = if row + ROW_GROUP < product.n_rows { product.group_bytes } else { 0 };
    // SAFETY: the groups and the tokens' blocks are the product's; a row is padded to whole blocks.
    unsafe {
        let mut weights = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut activations = product.floats.add(token * BLOCK);
        let mut sums = [[_mm512_setzero_ps(); N_GROUPS]; N_TOKENS];
        for _ in 0..product.n_blocks {
            for column in (0..BLOCK).step_by(2) {
                for at in (0..pair_bytes).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(weights.wrapping_add(PREFETCH_BYTES + at).cast());
                    _mm_prefetch::<_MM_HINT_T0>(weights.wrapping_add(second + PREFETCH_BYTES + at).cast());
                }
                let columns = [read_pair::<TENSOR_TYPE>(weights), read_pair::<TENSOR_TYPE>(weights.add(second))];
                for (token, sums) in sums.iter_mut().enumerate() {
                    for parity in 0..2 {
                        let element = _mm512_set1_ps(*activations.add(token * BLOCK + column + parity));
                        for (sum, columns) in sums.iter_mut().zip(&columns) {
                            *sum = _mm512_fmadd_ps(columns[parity], element, *sum);
                        }
                    }
                }
                weights = weights.add(pair_bytes);
            }
            activations = activations.add(product.token_stride * BLOCK);
        }
        for (idx, sums) in sums.into_iter().enumerate() {
            store(&product.out, token + idx, row, product.n_rows - row, sums[0]);
            if second != 0 {
                let row = row + ROW_GROUP;
                store(&product.out, token + idx, row, product.n_rows - row, sums[1]);
            }
        }
    }
    N_TOKENS
}

/// Two columns of sixteen rows.
///
/// # Safety
/// `weights` points to two columns of a group; AVX-512.
#[inline(always)]
unsafe fn read_pair<const TENSOR_TYPE: u8>(weights: *const u8) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        match TensorType::ALL[usize::from(TENSOR_TYPE)] {
            TensorType::F16 => [
                _mm512_cvtph_ps(_mm256_loadu_si256(weights.cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(weights.add(32).cast())),
            ],
            TensorType::BF16 => {
                let pairs = _mm512_loadu_si512(weights.cast());
                let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
                [
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)),
                    _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)),
                ]
            }
            _ => [_mm512_loadu_ps(weights.cast()), _mm512_loadu_ps(weights.add(64).cast())],
        }
    }
}
