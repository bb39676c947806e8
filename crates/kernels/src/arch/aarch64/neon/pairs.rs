//! The byte matrices of `i8mm`: two rows at a time are multiplied with two tokens.
//!
//! `smmla` leaves four sums in a register, two rows for each of two tokens, and this order is kept until a tile is
//! done: for every quarter of the group, the slots of two tokens' sums hold the first two rows of both tokens, then the
//! last two.

use std::arch::aarch64::*;

use super::instructions::smmla;
use super::token::{Multipliers, Token, UNPACKED, add_scaled};
use super::weights::{Factors, QuarterWeights};
use super::{QUARTER, QUARTERS};
use crate::matrix::formats::LayoutOf;
use crate::matrix::layout::Scales;
use crate::operands::ActivationBlock;

/// Pairs among the four rows of a register.
const PAIRS: usize = QUARTER / 2;

/// Thirty-two columns of four rows as pairs of rows.
pub(super) struct PairedWeights {
    /// Eight columns of the first pair, then of the last, four times.
    quants: [int8x16_t; 8],
    /// The factors of a pair of rows, twice.
    factors: [Factors; PAIRS],
}

/// Turns registers of four columns of four rows into registers of eight columns of two rows: for every eight columns the
/// first two rows, then the last two.
#[inline(always)]
pub(super) unsafe fn pair_rows(quants: [int8x16_t; 8]) -> [int8x16_t; 8] {
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

impl PairedWeights {
    /// Arranges the factors of weights whose quants are paired.
    #[inline(always)]
    pub(super) unsafe fn new(weights: &QuarterWeights) -> PairedWeights {
        let Factors { scales: [s, t], minimums: [m, n] } = weights.factors;
        // SAFETY: no memory is touched.
        let factors = unsafe {
            [
                Factors { scales: [low(s, s), low(t, t)], minimums: [low(m, m), low(n, n)] },
                Factors { scales: [high(s, s), high(t, t)], minimums: [high(m, m), high(n, n)] },
            ]
        };
        PairedWeights { quants: weights.quants, factors }
    }
}

/// The lower halves of two registers.
#[inline(always)]
unsafe fn low(first: float32x4_t, second: float32x4_t) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe { vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(first), vreinterpretq_f64_f32(second))) }
}

/// The upper halves of two registers.
#[inline(always)]
unsafe fn high(first: float32x4_t, second: float32x4_t) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe { vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(first), vreinterpretq_f64_f32(second))) }
}

/// Gives each of two tokens its own sums.
#[inline(always)]
pub(super) unsafe fn separate(pair: &mut [[float32x4_t; QUARTERS]; 2]) {
    let [[a, b, c, d], [e, f, g, h]] = *pair;
    // SAFETY: no memory is touched.
    *pair = unsafe { [[low(a, b), low(c, d), low(e, f), low(g, h)], [high(a, b), high(c, d), high(e, f), high(g, h)]] };
}

/// Unpacked weights of 32 columns and half a group, and the sums that their products are added to.
pub(super) struct PairTile<'a> {
    pub(super) weights: &'a [PairedWeights; UNPACKED],
    /// The first quarter of the weights.
    pub(super) quarter: usize,
    /// Two for every pair of tokens of the tile.
    pub(super) sums: *mut [float32x4_t; QUARTERS],
}

impl PairTile<'_> {
    /// Adds the products with all tokens of the tile, whose first block is `blocks`. An odd last token is paired with
    /// itself.
    ///
    /// # Safety
    /// As [`product_i8mm`](super::quant::product_i8mm), and the tile has `n_tokens`.
    #[inline(always)]
    pub(super) unsafe fn add_all<const TENSOR_TYPE: u8>(&self, blocks: *const ActivationBlock, n_tokens: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for second in (1..n_tokens).step_by(2) {
                let tokens = Pair::read::<TENSOR_TYPE>(blocks.add(second - 1), blocks.add(second));
                self.add::<TENSOR_TYPE>(second - 1, &tokens, None);
            }
            if n_tokens % 2 == 1 {
                let last = blocks.add(n_tokens - 1);
                self.add::<TENSOR_TYPE>(n_tokens - 1, &Pair::read::<TENSOR_TYPE>(last, last), None);
            }
        }
    }

    /// Like [`PairTile::add_all`], for the tokens whose bits are set.
    ///
    /// # Safety
    /// As [`PairTile::add_all`], for these tokens.
    #[inline(always)]
    pub(super) unsafe fn add_refined<const TENSOR_TYPE: u8>(&self, blocks: *const ActivationBlock, tokens: u64) {
        let mut left = tokens;
        while left != 0 {
            let first = left.trailing_zeros() as usize & !1;
            let both = [left >> first & 1, left >> first & 2].map(|bit| bit != 0);
            left &= !(3 << first);
            // SAFETY: the caller's promise; a token whose bit is not set is replaced by the other, and its sums stay.
            unsafe {
                let places = if both[0] { [first, first + usize::from(both[1])] } else { [first + 1; 2] };
                let tokens = Pair::read::<TENSOR_TYPE>(blocks.add(places[0]), blocks.add(places[1]));
                let [lower, upper] = both.map(|bit| vdup_n_u32(if bit { u32::MAX } else { 0 }));
                self.add::<TENSOR_TYPE>(first, &tokens, Some(vcombine_u32(lower, upper)));
            }
        }
    }

    /// Adds the products with the pair of tokens that starts at `first`, all or where the bits of a mask are set.
    ///
    /// # Safety
    /// As [`PairTile::add_all`], for these tokens.
    #[inline(always)]
    unsafe fn add<const TENSOR_TYPE: u8>(&self, first: usize, tokens: &Pair, mask: Option<uint32x4_t>) {
        // SAFETY: the sums of a half of the group are the first or the second of the pair's.
        unsafe {
            let sums = &mut *self.sums.add(first + self.quarter / UNPACKED);
            for (weights, sums) in self.weights.iter().zip(sums.as_chunks_mut::<PAIRS>().0) {
                for (pair, sum) in sums.iter_mut().enumerate() {
                    let dots = tokens.dots::<TENSOR_TYPE>(&weights.quants, pair);
                    let added = add_scaled::<TENSOR_TYPE>(*sum, dots, &weights.factors[pair], tokens);
                    *sum = mask.map_or(added, |mask| vbslq_f32(mask, added, *sum));
                }
            }
        }
    }
}

/// Thirty-two columns of two tokens in registers. The numbers of the first token fill the lower half of a register.
struct Pair {
    /// Eight columns of both.
    columns: [int8x16_t; 4],
    scale: float32x4_t,
    scaled_sum: float32x4_t,
    /// The scaled sums of the first and of the last 16 columns.
    half_sums: [float32x4_t; 2],
}

impl Pair {
    /// # Safety
    /// Both pointers are valid for reads; NEON.
    #[inline(always)]
    unsafe fn read<const TENSOR_TYPE: u8>(first: *const ActivationBlock, second: *const ActivationBlock) -> Pair {
        // SAFETY: the caller's promise.
        unsafe {
            let first = Token::of_centred::<TENSOR_TYPE>(first);
            let second = Token::of_centred::<TENSOR_TYPE>(second);
            let [a, b] = first.quants.map(|quants| vreinterpretq_s64_s8(quants));
            let [c, d] = second.quants.map(|quants| vreinterpretq_s64_s8(quants));
            let columns = [vzip1q_s64(a, c), vzip2q_s64(a, c), vzip1q_s64(b, d), vzip2q_s64(b, d)];
            let scales = low(first.scale, second.scale);
            let mut half_sums = [scales; 2];
            if matches!(LayoutOf::<TENSOR_TYPE>::LAYOUT.scales, Scales::SubPairMinimum) {
                let sums = high(first.half_sums, second.half_sums);
                half_sums = [vtrn1q_f32(sums, sums), vtrn2q_f32(sums, sums)];
            }
            Pair {
                columns: columns.map(|columns| vreinterpretq_s8_s64(columns)),
                scale: vtrn1q_f32(scales, scales),
                scaled_sum: vtrn2q_f32(scales, scales),
                half_sums,
            }
        }
    }

    /// The integer products with one pair of four rows: for the first and the last 16 columns separately, or for both
    /// together, twice.
    ///
    /// # Safety
    /// `i8mm`.
    #[inline(always)]
    unsafe fn dots<const TENSOR_TYPE: u8>(&self, quants: &[int8x16_t; 8], pair: usize) -> [int32x4_t; 2] {
        let has_half_scales = LayoutOf::<TENSOR_TYPE>::LAYOUT.has_half_scales();
        // SAFETY: no memory is touched.
        unsafe {
            let mut dots = [vdupq_n_s32(0); 2];
            for (idx, &columns) in self.columns.iter().enumerate() {
                let half = &mut dots[if has_half_scales { idx / 2 } else { 0 }];
                *half = smmla(*half, columns, quants[PAIRS * idx + pair]);
            }
            if has_half_scales { dots } else { [dots[0]; 2] }
        }
    }
}

impl Multipliers for Pair {
    #[inline(always)]
    unsafe fn scaled(&self, values: float32x4_t) -> float32x4_t {
        // SAFETY: no memory is touched, here and below.
        unsafe { vmulq_f32(values, self.scale) }
    }

    #[inline(always)]
    unsafe fn add_scaled(&self, sums: float32x4_t, values: float32x4_t) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vfmaq_f32(sums, values, self.scale) }
    }

    #[inline(always)]
    unsafe fn add_minimums(&self, sums: float32x4_t, minimums: float32x4_t) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vfmaq_f32(sums, minimums, self.scaled_sum) }
    }

    #[inline(always)]
    unsafe fn add_half_minimums(&self, sums: float32x4_t, minimums: &[float32x4_t; 2]) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vfmaq_f32(vfmaq_f32(sums, minimums[0], self.half_sums[0]), minimums[1], self.half_sums[1]) }
    }
}
