//! Products of quantized weights.
//!
//! Quants and activations are both signed, as `sdot` and `smmla` require. For a few tokens the offset of a type's quants
//! stays in them, and the integer sums start at minus the offset times the sum of the activations; for many tokens it is
//! subtracted once. Integer sums are exact, and after 32 columns they are converted to floats, scaled and added up in
//! the same order everywhere: a row has the same bits alone and in any tile.

use std::arch::aarch64::*;

use super::instructions::sdot;
use super::pairs::{PairTile, PairedWeights, pair_rows, separate};
use super::token::{Token, UNPACKED, add_scaled};
use super::weights::{BlockFactors, QuarterWeights, RecordFactors, read_quants};
use super::{QUARTERS, store};
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::LayoutOf;
use crate::operands::{ActivationBlock, Product, TOKEN_TILE};

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; NEON with `dotprod`.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<TENSOR_TYPE, false>(product) }
}

/// Like [`product`], with the byte matrices of `i8mm`.
///
/// # Safety
/// See [`Product`]; NEON with `dotprod` and `i8mm`.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(super) unsafe fn product_i8mm<const TENSOR_TYPE: u8>(product: &Product) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<TENSOR_TYPE, true>(product) }
}

/// # Safety
/// As [`product`]; `i8mm` if `I8MM`.
#[inline(always)]
unsafe fn multiply<const TENSOR_TYPE: u8, const I8MM: bool>(product: &Product) {
    for row in (0..product.n_rows).step_by(ROW_GROUP) {
        // SAFETY: the caller's promise; the group is the product's.
        unsafe {
            match product.n_tokens {
                1 => few_tokens::<TENSOR_TYPE, 1>(product, row),
                2 => few_tokens::<TENSOR_TYPE, 2>(product, row),
                3 => few_tokens::<TENSOR_TYPE, 3>(product, row),
                _ => many_tokens::<TENSOR_TYPE, I8MM>(product, row),
            }
        }
    }
}

/// Multiplies the group of rows that starts at `row` with `N_TOKENS` tokens, with all sums in registers: the weights
/// are streamed once, at the speed of memory.
///
/// # Safety
/// As [`product`], with `N_TOKENS` tokens, and the group is the product's.
#[inline(always)]
unsafe fn few_tokens<const TENSOR_TYPE: u8, const N_TOKENS: usize>(product: &Product, row: usize) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the group is the product's, and so are its records and the tokens' blocks.
    unsafe {
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; N_TOKENS];
        for _ in 0..product.n_blocks / layout.record_blocks() {
            let factors = RecordFactors::read::<TENSOR_TYPE>(record);
            for block in 0..layout.record_blocks() {
                let refined = (0..N_TOKENS).fold(0, |any, token| any | *product.is_refined.add(at + token));
                let block = Block { record, factors: &factors, block };
                if refined == 0 {
                    block.add_few::<TENSOR_TYPE, N_TOKENS, false>(product, at, &mut sums);
                } else {
                    block.add_few::<TENSOR_TYPE, N_TOKENS, true>(product, at, &mut sums);
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        for (token, sums) in sums.into_iter().enumerate() {
            store(&product.out, token, row, product.n_rows - row, sums);
        }
    }
}

/// Thirty-two columns of a group of rows, still packed.
struct Block<'a> {
    record: *const u8,
    factors: &'a RecordFactors,
    /// Its place in the record.
    block: usize,
}

impl Block<'_> {
    /// Adds the products with `N_TOKENS` tokens, whose first block has index `at`.
    ///
    /// # Safety
    /// As [`product`], and the record contains the block; `REFINED` if a token's block is refined.
    #[inline(always)]
    unsafe fn add_few<const TENSOR_TYPE: u8, const N_TOKENS: usize, const REFINED: bool>(
        &self,
        product: &Product,
        at: usize,
        sums: &mut [[float32x4_t; QUARTERS]; N_TOKENS],
    ) {
        // SAFETY: the caller's promise; the remainders of refined blocks exist.
        unsafe {
            let factors = BlockFactors::read::<TENSOR_TYPE>(self.factors, self.record, self.block);
            let tokens: [Token; N_TOKENS] =
                std::array::from_fn(|token| Token::read::<TENSOR_TYPE>(product.quantized.add(at + token)));
            for quarter in 0..QUARTERS {
                let weights = QuarterWeights {
                    quants: read_quants::<TENSOR_TYPE, false>(self.planes::<TENSOR_TYPE>(), quarter),
                    factors: factors.of_quarter::<TENSOR_TYPE>(quarter),
                };
                for (idx, (token, sums)) in tokens.iter().zip(sums.iter_mut()).enumerate() {
                    sums[quarter] = accumulate::<TENSOR_TYPE>(sums[quarter], &weights, token);
                    if REFINED && *product.is_refined.add(at + idx) != 0 {
                        let remainder = Token::read::<TENSOR_TYPE>(product.remainders.add(at + idx));
                        sums[quarter] = accumulate::<TENSOR_TYPE>(sums[quarter], &weights, &remainder);
                    }
                }
            }
        }
    }

    /// Reads the weights of [`UNPACKED`] quarters from `quarter` on, without offsets. With `I8MM`, a register holds
    /// eight columns of two rows.
    ///
    /// # Safety
    /// As [`Block::add_few`].
    #[inline(always)]
    unsafe fn unpack<const TENSOR_TYPE: u8, const I8MM: bool>(&self, quarter: usize) -> [QuarterWeights; UNPACKED] {
        // SAFETY: the caller's promise.
        unsafe {
            let factors = BlockFactors::read::<TENSOR_TYPE>(self.factors, self.record, self.block);
            // Written out: a closure becomes a call that passes everything through memory.
            [
                self.unpack_quarter::<TENSOR_TYPE, I8MM>(&factors, quarter),
                self.unpack_quarter::<TENSOR_TYPE, I8MM>(&factors, quarter + 1),
            ]
        }
    }

    /// # Safety
    /// As [`Block::add_few`], and the factors are the block's.
    #[inline(always)]
    unsafe fn unpack_quarter<const TENSOR_TYPE: u8, const I8MM: bool>(
        &self,
        factors: &BlockFactors,
        quarter: usize,
    ) -> QuarterWeights {
        // SAFETY: the caller's promise.
        unsafe {
            let mut quants = read_quants::<TENSOR_TYPE, true>(self.planes::<TENSOR_TYPE>(), quarter);
            if I8MM {
                quants = pair_rows(quants);
            }
            QuarterWeights { quants, factors: factors.of_quarter::<TENSOR_TYPE>(quarter) }
        }
    }

    /// Where the planes of the block start.
    ///
    /// # Safety
    /// As [`Block::add_few`].
    #[inline(always)]
    unsafe fn planes<const TENSOR_TYPE: u8>(&self) -> *const u8 {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: the record contains the block.
        unsafe { self.record.add(layout.planes_offset() + self.block * layout.planes.block_bytes()) }
    }
}

/// Multiplies the group of rows that starts at `row` with all tokens of the tile: 32 columns of half the group are
/// unpacked into registers, then multiplied with each token, whose sums stay in the first-level cache.
///
/// # Safety
/// As [`product`], and the group is the product's; `i8mm` if `I8MM`.
#[inline(always)]
unsafe fn many_tokens<const TENSOR_TYPE: u8, const I8MM: bool>(product: &Product, row: usize) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the group is the product's, and so are its records and the tokens' blocks; a tile's tokens have room in
    // `sums`.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; TOKEN_TILE];
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        for _ in 0..product.n_blocks / layout.record_blocks() {
            let factors = RecordFactors::read::<TENSOR_TYPE>(record);
            for block in 0..layout.record_blocks() {
                let block = Block { record, factors: &factors, block };
                let refined = refined_tokens(product, at);
                for quarter in (0..QUARTERS).step_by(UNPACKED) {
                    let weights = block.unpack::<TENSOR_TYPE, I8MM>(quarter);
                    let sums = sums.as_mut_ptr();
                    if I8MM {
                        let [first, last] = &weights;
                        let tile =
                            PairTile { weights: &[PairedWeights::new(first), PairedWeights::new(last)], quarter, sums };
                        tile.add_all::<TENSOR_TYPE>(product.quantized.add(at), product.n_tokens);
                        tile.add_refined::<TENSOR_TYPE>(product.remainders.add(at), refined);
                    } else {
                        let tile = Tile { weights: &weights, quarter, sums };
                        tile.add_all::<TENSOR_TYPE>(product.quantized.add(at), product.n_tokens);
                        tile.add_refined::<TENSOR_TYPE>(product.remainders.add(at), refined);
                    }
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        if I8MM {
            sums.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| separate(pair));
        }
        for (token, sums) in sums.iter().enumerate().take(product.n_tokens) {
            store(&product.out, token, row, product.n_rows - row, *sums);
        }
    }
}

/// A bit for every token whose block is refined; the first token's block has index `at`.
///
/// # Safety
/// See [`Product`]; NEON.
#[inline(always)]
unsafe fn refined_tokens(product: &Product, at: usize) -> u64 {
    let mut bits = 0;
    for first in (0..TOKEN_TILE).step_by(8) {
        // SAFETY: the flags of a whole tile may be read starting at any block.
        let flags = unsafe { product.is_refined.add(at + first).cast::<u64>().read_unaligned() };
        // The lowest bits of eight bytes, gathered in the highest byte.
        bits |= (flags.wrapping_mul(0x0102_0408_1020_4080) >> 56) << first;
    }
    bits & (u64::MAX >> (TOKEN_TILE - product.n_tokens))
}

/// The indices of the set bits.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lowest = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (lowest < TOKEN_TILE).then_some(lowest)
    }
}

/// Unpacked weights of 32 columns and half a group, and the sums that their products are added to.
struct Tile<'a> {
    weights: &'a [QuarterWeights; UNPACKED],
    /// The first quarter of the weights.
    quarter: usize,
    /// One for every token of the tile.
    sums: *mut [float32x4_t; QUARTERS],
}

impl Tile<'_> {
    /// Adds the products with all tokens of the tile, whose first block is `blocks`.
    ///
    /// # Safety
    /// As [`product`], and the tile has `n_tokens`.
    #[inline(always)]
    unsafe fn add_all<const TENSOR_TYPE: u8>(&self, blocks: *const ActivationBlock, n_tokens: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for token in (1..n_tokens).step_by(2) {
                self.add::<TENSOR_TYPE>(blocks, token - 1);
                self.add::<TENSOR_TYPE>(blocks, token);
            }
            if n_tokens % 2 == 1 {
                self.add::<TENSOR_TYPE>(blocks, n_tokens - 1);
            }
        }
    }

    /// Like [`Tile::add_all`], for the tokens whose bits are set.
    ///
    /// # Safety
    /// As [`Tile::add_all`], for these tokens.
    #[inline(always)]
    unsafe fn add_refined<const TENSOR_TYPE: u8>(&self, blocks: *const ActivationBlock, tokens: u64) {
        for token in Bits(tokens) {
            // SAFETY: the caller's promise.
            unsafe { self.add::<TENSOR_TYPE>(blocks, token) };
        }
    }

    /// # Safety
    /// As [`Tile::add_all`], for this token.
    #[inline(always)]
    unsafe fn add<const TENSOR_TYPE: u8>(&self, blocks: *const ActivationBlock, token: usize) {
        // SAFETY: the caller's promise; the integer sums of centred quants start at zero.
        unsafe {
            let sums = &mut *self.sums.add(token);
            let token = Token::of_centred::<TENSOR_TYPE>(blocks.add(token));
            for (idx, weights) in self.weights.iter().enumerate() {
                let sum = &mut sums[self.quarter + idx];
                *sum = accumulate::<TENSOR_TYPE>(*sum, weights, &token);
            }
        }
    }
}

/// Adds the products of 32 columns of one token to the sums of four rows.
///
/// # Safety
/// `dotprod`.
#[inline(always)]
unsafe fn accumulate<const TENSOR_TYPE: u8>(sums: float32x4_t, weights: &QuarterWeights, token: &Token) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe {
        let [first, last] = weights.quants.as_chunks::<4>().0 else { return sums };
        let dots = if LayoutOf::<TENSOR_TYPE>::LAYOUT.has_half_scales() {
            [dot(token.starts[0], first, token.quants[0]), dot(token.starts[1], last, token.quants[1])]
        } else {
            [dot(dot(token.starts[0], first, token.quants[0]), last, token.quants[1]); 2]
        };
        add_scaled::<TENSOR_TYPE>(sums, dots, &weights.factors, token)
    }
}

/// Adds the products of 16 columns.
///
/// # Safety
/// `dotprod`.
#[inline(always)]
unsafe fn dot(start: int32x4_t, weights: &[int8x16_t; 4], token: int8x16_t) -> int32x4_t {
    // SAFETY: no memory is touched.
    unsafe {
        let sums = sdot::<0>(start, weights[0], token);
        let sums = sdot::<1>(sums, weights[1], token);
        let sums = sdot::<2>(sums, weights[2], token);
        sdot::<3>(sums, weights[3], token)
    }
}
