//! Products of quantized weights.
//!
//! Quants and activations are both signed, as `sdot` and `smmla` require. For a few tokens the offset of a type's quants
//! stays in them, and the integer sums start at minus the offset times the sum of the activations; for many tokens it is
//! subtracted once. Integer sums are exact, and after 32 columns they are converted to floats, scaled and added up in
//! the same order everywhere: a row has the same bits alone and in any tile.

use std::arch::aarch64::*;

use super::instructions::{sdot, smmla};
use super::weights::{BlockFactors, Factors, QuarterWeights, RecordFactors, layout, offset_shift, read_quants};
use super::{QUARTERS, store};
use crate::matrix::ROW_GROUP;
use crate::matrix::layout::Scales;
use crate::operands::{ActivationBlock, Product, TOKEN_TILE};

/// Quarters whose weights of 32 columns fit the registers, with some to spare for the tokens and the sums.
const UNPACKED: usize = 2;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// As [`Product`] says; NEON with `dotprod`.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<TENSOR_TYPE, false>(product) }
}

/// Like [`product`], with the byte matrices of `i8mm`.
///
/// # Safety
/// As [`Product`] says; NEON with `dotprod` and `i8mm`.
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
    let layout = const { layout::<TENSOR_TYPE>() };
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
            std::array::from_fn(|idx| {
                let mut quants = read_quants::<TENSOR_TYPE, true>(self.planes::<TENSOR_TYPE>(), quarter + idx);
                if I8MM {
                    quants = pair_rows(quants);
                }
                QuarterWeights { quants, factors: factors.of_quarter::<TENSOR_TYPE>(quarter + idx) }
            })
        }
    }

    /// Where the planes of the block start.
    ///
    /// # Safety
    /// As [`Block::add_few`].
    #[inline(always)]
    unsafe fn planes<const TENSOR_TYPE: u8>(&self) -> *const u8 {
        let layout = const { layout::<TENSOR_TYPE>() };
        // SAFETY: the record contains the block.
        unsafe { self.record.add(layout.planes_offset() + self.block * layout.planes.block_bytes()) }
    }
}

/// Turns registers of four columns of four rows into registers of eight columns of two rows: for every eight columns the
/// first two rows, then the last two.
#[inline(always)]
unsafe fn pair_rows(quants: [int8x16_t; 8]) -> [int8x16_t; 8] {
    let mut pairs = quants;
    for idx in (0..8).step_by(2) {
        // SAFETY: no memory is touched.
        unsafe {
            let [first, last] = [quants[idx], quants[idx + 1]].map(|quants| vreinterpretq_s32_s8(quants));
            pairs[idx] = vreinterpretq_s8_s32(vzip1q_s32(first, last));
            pairs[idx + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, last));
        }
    }
    pairs
}

/// Multiplies the group of rows that starts at `row` with all tokens of the tile: 32 columns of half the group are
/// unpacked into registers, then multiplied with each token, whose sums stay in the first-level cache.
///
/// # Safety
/// As [`product`], and the group is the product's; `i8mm` if `I8MM`.
#[inline(always)]
unsafe fn many_tokens<const TENSOR_TYPE: u8, const I8MM: bool>(product: &Product, row: usize) {
    let layout = const { layout::<TENSOR_TYPE>() };
    // SAFETY: the group is the product's, and so are its records and the tokens' blocks; a tile's tokens have room in
    // `sums`.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; TOKEN_TILE];
        let sums = sums.get_unchecked_mut(..product.n_tokens);
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        for _ in 0..product.n_blocks / layout.record_blocks() {
            let factors = RecordFactors::read::<TENSOR_TYPE>(record);
            for block in 0..layout.record_blocks() {
                let block = Block { record, factors: &factors, block };
                let refined = refined_tokens(product, at);
                for quarter in (0..QUARTERS).step_by(UNPACKED) {
                    let weights = block.unpack::<TENSOR_TYPE, I8MM>(quarter);
                    let tile = Tile { weights: &weights, quarter, sums: sums.as_mut_ptr() };
                    if I8MM {
                        tile.add_pairs::<TENSOR_TYPE>(product.quantized.add(at), 0..product.n_tokens);
                        tile.add_pairs::<TENSOR_TYPE>(product.remainders.add(at), Bits(refined));
                    } else {
                        tile.add_tokens::<TENSOR_TYPE>(product.quantized.add(at), 0..product.n_tokens);
                        tile.add_tokens::<TENSOR_TYPE>(product.remainders.add(at), Bits(refined));
                    }
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        for (token, sums) in sums.iter().enumerate() {
            store(&product.out, token, row, product.n_rows - row, *sums);
        }
    }
}

/// A bit for every token whose block is refined; the first token's block has index `at`.
///
/// # Safety
/// As [`Product`] says; NEON.
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

/// The numbers of the bits that are set.
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
    /// Adds the products with some tokens of the tile, whose first block is `blocks`.
    ///
    /// # Safety
    /// As [`product`], and the tokens are in the tile.
    #[inline(always)]
    unsafe fn add_tokens<const TENSOR_TYPE: u8>(
        &self,
        blocks: *const ActivationBlock,
        tokens: impl Iterator<Item = usize>,
    ) {
        for token in tokens {
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

    /// Like [`Tile::add_tokens`], two tokens at a time. The last one may come twice, and is then written twice.
    ///
    /// # Safety
    /// As [`Tile::add_tokens`]; `i8mm`.
    #[inline(always)]
    unsafe fn add_pairs<const TENSOR_TYPE: u8>(
        &self,
        blocks: *const ActivationBlock,
        mut tokens: impl Iterator<Item = usize>,
    ) {
        while let Some(first) = tokens.next() {
            let places = [first, tokens.next().unwrap_or(first)];
            // SAFETY: the caller's promise.
            unsafe {
                let pair = places.map(|token| Token::of_centred::<TENSOR_TYPE>(blocks.add(token)));
                let columns = pair_columns(&pair);
                for (idx, weights) in self.weights.iter().enumerate() {
                    let quarter = self.quarter + idx;
                    let sums = places.map(|token| (*self.sums.add(token))[quarter]);
                    let dots = dot_pairs::<TENSOR_TYPE>(weights, &columns);
                    for token in 0..2 {
                        let sum = add_scaled::<TENSOR_TYPE>(sums[token], dots[token], &weights.factors, &pair[token]);
                        (*self.sums.add(places[token]))[quarter] = sum;
                    }
                }
            }
        }
    }
}

/// Thirty-two columns of one token in registers.
struct Token {
    quants: [int8x16_t; 2],
    /// Where the integer sums of the first and of the last 16 columns start. If a type has one scale for both, they are
    /// one sum, which starts at the first of these.
    starts: [int32x4_t; 2],
    /// The scale, the scaled sum; then bits that are no floats.
    scale: float32x4_t,
    /// The scaled sums of the first and of the last 16 columns, in the last two places.
    half_sums: float32x4_t,
}

impl Token {
    /// A token to be multiplied with quants that have their offset.
    ///
    /// # Safety
    /// `block` is valid for reads; NEON.
    #[inline(always)]
    unsafe fn read<const TENSOR_TYPE: u8>(block: *const ActivationBlock) -> Token {
        // SAFETY: the caller's promise.
        unsafe {
            let mut token = Token::of_centred::<TENSOR_TYPE>(block);
            if let Some(shift) = const { offset_shift::<TENSOR_TYPE>() } {
                let sums = vshlq_s32(vreinterpretq_s32_f32(token.scale), vdupq_n_s32(shift as i32));
                token.starts = if const { layout::<TENSOR_TYPE>() }.has_half_scales() {
                    [vdupq_laneq_s32::<2>(sums), vdupq_laneq_s32::<3>(sums)]
                } else {
                    [vdupq_laneq_s32::<1>(vpaddq_s32(sums, sums)); 2]
                };
            }
            token
        }
    }

    /// A token to be multiplied with quants without an offset.
    ///
    /// # Safety
    /// As [`Token::read`].
    #[inline(always)]
    unsafe fn of_centred<const TENSOR_TYPE: u8>(block: *const ActivationBlock) -> Token {
        // SAFETY: all reads are inside the block, whose last four fields are four bytes each.
        unsafe {
            let bytes = block.cast::<i8>();
            let scale = vld1q_f32((&raw const (*block).scale).cast());
            let mut half_sums = scale;
            if matches!(const { layout::<TENSOR_TYPE>() }.scales, Scales::SubPairMinimum) {
                let negative_sums = vcvtq_f32_s32(vreinterpretq_s32_f32(scale));
                half_sums = vmulq_laneq_f32::<0>(negative_sums, vnegq_f32(scale));
            }
            Token { quants: [vld1q_s8(bytes), vld1q_s8(bytes.add(16))], starts: [vdupq_n_s32(0); 2], scale, half_sums }
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
        let dots = if const { layout::<TENSOR_TYPE>() }.has_half_scales() {
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

/// The columns of two tokens, eight of both to a register.
#[inline(always)]
unsafe fn pair_columns(pair: &[Token; 2]) -> [int8x16_t; 4] {
    // SAFETY: no memory is touched.
    unsafe {
        let [first, last] = [0, 1].map(|half| pair.each_ref().map(|token| vreinterpretq_s64_s8(token.quants[half])));
        [
            vzip1q_s64(first[0], first[1]),
            vzip2q_s64(first[0], first[1]),
            vzip1q_s64(last[0], last[1]),
            vzip2q_s64(last[0], last[1]),
        ]
        .map(|columns| vreinterpretq_s8_s64(columns))
    }
}

/// The integer products of 32 columns of two tokens with four rows, which are paired: for each token those of the first
/// and of the last 16 columns, or both together, twice.
///
/// # Safety
/// `i8mm`.
#[inline(always)]
unsafe fn dot_pairs<const TENSOR_TYPE: u8>(weights: &QuarterWeights, columns: &[int8x16_t; 4]) -> [[int32x4_t; 2]; 2] {
    let has_half_scales = const { layout::<TENSOR_TYPE>() }.has_half_scales();
    // SAFETY: no memory is touched.
    unsafe {
        let mut halves = [[vdupq_n_s32(0); 2]; 2];
        for (idx, &columns) in columns.iter().enumerate() {
            let half = &mut halves[if has_half_scales { idx / 2 } else { 0 }];
            for (sums, &rows) in half.iter_mut().zip(&weights.quants[2 * idx..]) {
                *sums = smmla(*sums, columns, rows);
            }
        }
        let of_tokens = |half: [int32x4_t; 2]| {
            let [first, last] = half.map(|sums| vreinterpretq_s64_s32(sums));
            [vzip1q_s64(first, last), vzip2q_s64(first, last)].map(|sums| vreinterpretq_s32_s64(sums))
        };
        let first = of_tokens(halves[0]);
        let last = if has_half_scales { of_tokens(halves[1]) } else { first };
        [[first[0], last[0]], [first[1], last[1]]]
    }
}

/// Scales the integer sums of four rows and adds them, and what the minimums come to.
#[inline(always)]
unsafe fn add_scaled<const TENSOR_TYPE: u8>(
    sums: float32x4_t,
    dots: [int32x4_t; 2],
    factors: &Factors,
    token: &Token,
) -> float32x4_t {
    let layout = const { layout::<TENSOR_TYPE>() };
    // SAFETY: no memory is touched.
    unsafe {
        let [first, last] = dots.map(|dots| vcvtq_f32_s32(dots));
        let sums = if layout.has_half_scales() {
            let both = vfmaq_f32(vmulq_f32(first, factors.scales[0]), last, factors.scales[1]);
            vfmaq_laneq_f32::<0>(sums, both, token.scale)
        } else {
            vfmaq_f32(sums, first, vmulq_laneq_f32::<0>(factors.scales[0], token.scale))
        };
        match layout.scales {
            Scales::BlockMinimum | Scales::SubMinimum => vfmaq_laneq_f32::<1>(sums, factors.minimums[0], token.scale),
            Scales::SubPairMinimum => {
                let sums = vfmaq_laneq_f32::<2>(sums, factors.minimums[0], token.half_sums);
                vfmaq_laneq_f32::<3>(sums, factors.minimums[1], token.half_sums)
            }
            _ => sums,
        }
    }
}
