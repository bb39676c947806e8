//! Products of quantized weights.
//!
//! With VNNI, this works as on AVX-512. Without it, `vpmaddubsw` multiplies unsigned quants with signed activations to
//! sums of 16 bits, which are added up only as long as they cannot overflow and then widened to 32 bits. Eight-bit
//! quants are treated as signed, and their sign is moved to the activation, because unsigned ones could overflow a
//! single sum.

use std::arch::x86_64::*;
use std::array;

use super::{HALF, store};
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::LayoutOf;
use crate::matrix::layout::Scales;
use crate::operands::{ActivationBlock, Product, TOKEN_TILE};

/// How far ahead of its use a weight is prefetched, in bytes: far enough to hide the memory's latency.
const PREFETCH_BYTES: usize = 4096;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<TENSOR_TYPE, false>(product) }
}

/// Like [`product`], with the byte products of AVX-VNNI.
///
/// # Safety
/// See [`Product`]; AVX2, FMA, F16C and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn product_vnni<const TENSOR_TYPE: u8>(product: &Product) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<TENSOR_TYPE, true>(product) }
}

/// How the quants of a type are multiplied.
struct Quants<const TENSOR_TYPE: u8, const VNNI: bool>;

impl<const TENSOR_TYPE: u8, const VNNI: bool> Quants<TENSOR_TYPE, VNNI> {
    /// Whether the quants are multiplied as signed numbers: true for eight-bit quants, all of which have an offset of
    /// 128.
    const ARE_SIGNED: bool = !VNNI && matches!(LayoutOf::<TENSOR_TYPE>::LAYOUT.offset_shift, Some(7));

    /// How many words of unsigned products 16 bits hold: a sum of two products is at most 2 · 127 · quant.
    const NARROW_WORDS: usize = i16::MAX as usize / (2 * 127 * LayoutOf::<TENSOR_TYPE>::LAYOUT.largest_quant());

    /// Tokens multiplied with a register of weights before the next one is read: the fastest number measured, since
    /// their sums compete for registers.
    const CHUNK_TOKENS: usize = if Self::NARROW_WORDS < 4 || VNNI { 2 } else { 4 };
}

/// # Safety
/// As [`product`]; AVX-VNNI if `VNNI`.
#[inline(always)]
unsafe fn multiply<const TENSOR_TYPE: u8, const VNNI: bool>(product: &Product) {
    let mut row = 0;
    while row < product.n_rows {
        // SAFETY: the caller's promise; the group is the product's.
        unsafe {
            match product.n_tokens {
                1 => group::<TENSOR_TYPE, VNNI, 1>(product, row, 1),
                2 => group::<TENSOR_TYPE, VNNI, 2>(product, row, 2),
                3 => group::<TENSOR_TYPE, VNNI, 3>(product, row, 3),
                4 => group::<TENSOR_TYPE, VNNI, 4>(product, row, 4),
                n_tokens => group::<TENSOR_TYPE, VNNI, TOKEN_TILE>(product, row, n_tokens),
            }
        }
        row += ROW_GROUP;
    }
}

/// Multiplies the group of rows that starts at `row` with `n_tokens` tokens, at most `MAX_TOKENS`: 32 columns of the
/// rows are unpacked, then multiplied with each token. If there are few tokens, the compiler keeps their sums in
/// registers.
///
/// # Safety
/// As [`product`], and the group is the product's; AVX-VNNI if `VNNI`.
#[inline(always)]
unsafe fn group<const TENSOR_TYPE: u8, const VNNI: bool, const MAX_TOKENS: usize>(
    product: &Product,
    row: usize,
    n_tokens: usize,
) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the group is the product's, and so are its records and the tokens' blocks.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; MAX_TOKENS];
        let sums = sums.get_unchecked_mut(..n_tokens);
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        for _ in 0..product.n_blocks / layout.record_blocks() {
            for block in 0..layout.record_blocks() {
                prefetch::<TENSOR_TYPE>(record, block);
                let refined = refined_tokens(product, at, n_tokens);
                let weights = [
                    BlockWeights::read::<TENSOR_TYPE, VNNI>(record, block, 0),
                    BlockWeights::read::<TENSOR_TYPE, VNNI>(record, block, 1),
                ];
                if const { Quants::<TENSOR_TYPE, VNNI>::CHUNK_TOKENS == 4 } {
                    accumulate_all::<TENSOR_TYPE, VNNI, 4>(sums, &weights, product.quantized.add(at));
                } else {
                    accumulate_all::<TENSOR_TYPE, VNNI, 2>(sums, &weights, product.quantized.add(at));
                }
                if refined > 0 {
                    for (token, sums) in sums.iter_mut().enumerate().filter(|(token, _)| refined >> token & 1 == 1) {
                        let remainder = product.remainders.add(at + token);
                        accumulate::<TENSOR_TYPE, VNNI, 1>(array::from_mut(sums), &weights, remainder);
                    }
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        for (token, sums) in sums.iter().enumerate() {
            for (half, &sums) in sums.iter().enumerate() {
                let row = row + half * HALF;
                store(&product.out, token, row, product.n_rows.saturating_sub(row), sums);
            }
        }
    }
}

/// A bit for every token whose block is refined; the first token's block has index `at`.
///
/// # Safety
/// See [`Product`]; AVX2.
#[inline(always)]
unsafe fn refined_tokens(product: &Product, at: usize, n_tokens: usize) -> u64 {
    // SAFETY: the flags of a whole tile may be read starting at any block.
    unsafe {
        let flags = product.is_refined.add(at).cast::<__m256i>();
        let halves = [_mm256_loadu_si256(flags), _mm256_loadu_si256(flags.add(1))];
        // The flag is the lowest bit of a byte, but the highest one is collected.
        let [first, last] = halves.map(|flags| _mm256_movemask_epi8(_mm256_slli_epi16::<7>(flags)).cast_unsigned());
        (u64::from(first) | u64::from(last) << 32) & (u64::MAX >> (64 - n_tokens))
    }
}

/// Thirty-two columns of eight rows, ready to be multiplied.
struct BlockWeights {
    /// Four columns per register.
    quants: [__m256i; 8],
    /// The scales of the first 16 columns and of the last 16; both are equal if the type has one for all 32.
    scales: [__m256; 2],
    minimums: [__m256; 2],
}

impl BlockWeights {
    /// # Safety
    /// `record` points to a whole record that contains the block; AVX2 and F16C.
    #[inline(always)]
    unsafe fn read<const TENSOR_TYPE: u8, const VNNI: bool>(
        record: *const u8,
        block: usize,
        half: usize,
    ) -> BlockWeights {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: the offsets are those of the layout that the record was written with.
        unsafe {
            let planes = record.add(layout.planes_offset() + block * layout.planes.block_bytes() + half * 4 * HALF);
            let (scales, minimums) = read_scales::<TENSOR_TYPE>(record, block, half);
            BlockWeights { quants: read_quants::<TENSOR_TYPE, VNNI>(planes), scales, minimums }
        }
    }
}

/// # Safety
/// As [`BlockWeights::read`].
#[inline(always)]
unsafe fn read_scales<const TENSOR_TYPE: u8>(
    record: *const u8,
    block: usize,
    half: usize,
) -> ([__m256; 2], [__m256; 2]) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the offsets are those of the layout; fields that a type does not have are not read.
    unsafe {
        if matches!(layout.scales, Scales::Exponent) {
            return ([read_exponents(record.add(half * HALF)); 2], [_mm256_setzero_ps(); 2]);
        }
        let halves = record.add(half * 2 * HALF);
        let mut scale = read_halves(halves);
        if layout.scale_shift > 0 {
            scale = _mm256_mul_ps(scale, _mm256_set1_ps(layout.unit_scale()));
        }
        let minimum = if layout.has_minimum() { read_halves(halves.add(2 * ROW_GROUP)) } else { _mm256_setzero_ps() };
        let sub_scales = layout.sub_scales_offset() + block * layout.sub_scale_bytes() * ROW_GROUP + half * HALF;
        let sub_scales = record.add(sub_scales);
        let mut bytes = [_mm_setzero_si128(); 2];
        for (idx, bytes) in bytes.iter_mut().enumerate().take(layout.sub_scale_bytes()) {
            *bytes = _mm_loadl_epi64(sub_scales.add(idx * ROW_GROUP).cast());
        }
        let unsigned = [_mm256_cvtepu8_epi32(bytes[0]), _mm256_cvtepu8_epi32(bytes[1])];
        match layout.scales {
            Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => ([scale; 2], [minimum; 2]),
            Scales::Sub => ([scaled(scale, _mm256_cvtepi8_epi32(bytes[0])); 2], [minimum; 2]),
            Scales::SubMinimum => ([scaled(scale, unsigned[0]); 2], [scaled(minimum, unsigned[1]); 2]),
            Scales::SubPair => {
                let signed = [_mm256_cvtepi8_epi32(bytes[0]), _mm256_cvtepi8_epi32(bytes[1])];
                ([scaled(scale, signed[0]), scaled(scale, signed[1])], [minimum; 2])
            }
            Scales::SubPairMinimum => {
                let low_bits = _mm256_set1_epi32(15);
                let low = [_mm256_and_si256(unsigned[0], low_bits), _mm256_and_si256(unsigned[1], low_bits)];
                let high = [_mm256_srli_epi32::<4>(unsigned[0]), _mm256_srli_epi32::<4>(unsigned[1])];
                ([scaled(scale, low[0]), scaled(scale, low[1])], [scaled(minimum, high[0]), scaled(minimum, high[1])])
            }
            Scales::SubOddPair => {
                let halves =
                    [_mm256_and_si256(unsigned[0], _mm256_set1_epi32(15)), _mm256_srli_epi32::<4>(unsigned[0])];
                ([odd_scales(scale, halves[0]), odd_scales(scale, halves[1])], [minimum; 2])
            }
        }
    }
}

/// Eight times `scale · (2 half + 1)`.
#[inline(always)]
unsafe fn odd_scales(scale: __m256, halves: __m256i) -> __m256 {
    // SAFETY: no memory is touched.
    unsafe { scaled(scale, _mm256_or_si256(_mm256_slli_epi32::<1>(halves), _mm256_set1_epi32(1))) }
}

#[inline(always)]
unsafe fn scaled(scale: __m256, integers: __m256i) -> __m256 {
    // SAFETY: no memory is touched.
    unsafe { _mm256_mul_ps(scale, _mm256_cvtepi32_ps(integers)) }
}

/// Eight f16 numbers.
///
/// # Safety
/// `pointer` is valid for reads of 16 bytes; F16C.
#[inline(always)]
unsafe fn read_halves(pointer: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(pointer.cast())) }
}

/// Eight powers of two, as [`exponent_scale`](crate::quantized::exponent_scale).
///
/// # Safety
/// `pointer` is valid for reads of 8 bytes; AVX2.
#[inline(always)]
unsafe fn read_exponents(pointer: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let exponents = _mm_subs_epu8(_mm_loadl_epi64(pointer.cast()), _mm_set1_epi8(1));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_cvtepu8_epi32(exponents)))
    }
}

/// The quants of a block, assembled from its planes.
///
/// # Safety
/// `planes` points to this half's first word of all planes of a block; AVX2.
#[inline(always)]
unsafe fn read_quants<const TENSOR_TYPE: u8, const VNNI: bool>(planes: *const u8) -> [__m256i; 8] {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the offsets are those of the layout; a plane that a type does not have is not read.
    unsafe {
        let mut quants = [_mm256_setzero_si256(); 8];
        if layout.planes.bytes {
            for (idx, quant) in quants.iter_mut().enumerate() {
                *quant = load(planes, 64 * idx);
            }
        }
        if layout.planes.nibbles {
            let low_bits = _mm256_set1_epi8(15);
            for idx in 0..4 {
                let bytes = load(planes, 64 * idx);
                quants[idx] = _mm256_and_si256(bytes, low_bits);
                quants[idx + 4] = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), low_bits);
            }
        }
        if layout.planes.pairs {
            let shift = layout.planes.upper_shift();
            let mask = _mm256_set1_epi8(3 << shift);
            for (idx, quant) in quants.iter_mut().enumerate() {
                let bytes = load(planes, layout.planes.pairs_offset() + 64 * (idx / 4));
                *quant = merge(*quant, move_bits(bytes, 2 * (idx % 4) as u32, shift), mask);
            }
        }
        if layout.planes.bits {
            let shift = layout.planes.bit_shift();
            let mask = _mm256_set1_epi8(1 << shift);
            let bytes = load(planes, layout.planes.bits_offset());
            for (idx, quant) in quants.iter_mut().enumerate() {
                *quant = merge(*quant, move_bits(bytes, idx as u32, shift), mask);
            }
        }
        if let Some(codebook) = layout.codebook {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(codebook.as_ptr().cast()));
            for quant in &mut quants {
                *quant = _mm256_shuffle_epi8(table, *quant);
            }
        }
        // Quants are stored unsigned; an offset of 128 makes them signed.
        if Quants::<TENSOR_TYPE, VNNI>::ARE_SIGNED {
            for quant in &mut quants {
                *quant = _mm256_xor_si256(*quant, _mm256_set1_epi8(-128));
            }
        }
        quants
    }
}

/// # Safety
/// `planes + at` is valid for reads of 32 bytes; AVX2.
#[inline(always)]
unsafe fn load(planes: *const u8, at: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(planes.add(at).cast()) }
}

/// Moves bit `from` of every byte to bit `to`; bits shifted in from neighbours must be masked off.
#[inline(always)]
unsafe fn move_bits(bytes: __m256i, from: u32, to: u32) -> __m256i {
    // SAFETY: no memory is touched.
    unsafe {
        if from >= to {
            _mm256_srl_epi16(bytes, _mm_cvtsi32_si128((from - to) as i32))
        } else {
            _mm256_sll_epi16(bytes, _mm_cvtsi32_si128((to - from) as i32))
        }
    }
}

/// `quants | (upper & mask)`.
#[inline(always)]
unsafe fn merge(quants: __m256i, upper: __m256i, mask: __m256i) -> __m256i {
    // SAFETY: no memory is touched.
    unsafe { _mm256_or_si256(quants, _mm256_and_si256(upper, mask)) }
}

/// Adds the products of 32 columns of all tokens to the sums of sixteen rows, `CHUNK` tokens at a time.
///
/// # Safety
/// `activations` points to one block per element of `sums`; AVX2 and FMA, and AVX-VNNI if `VNNI`.
#[inline(always)]
unsafe fn accumulate_all<const TENSOR_TYPE: u8, const VNNI: bool, const CHUNK: usize>(
    sums: &mut [[__m256; 2]],
    weights: &[BlockWeights; 2],
    activations: *const ActivationBlock,
) {
    let (chunks, rest) = sums.as_chunks_mut::<CHUNK>();
    let n_chunked = chunks.len() * CHUNK;
    // SAFETY: the caller's promise.
    unsafe {
        for (idx, sums) in chunks.iter_mut().enumerate() {
            accumulate::<TENSOR_TYPE, VNNI, CHUNK>(sums, weights, activations.add(idx * CHUNK));
        }
        for (idx, sums) in rest.iter_mut().enumerate() {
            accumulate::<TENSOR_TYPE, VNNI, 1>(array::from_mut(sums), weights, activations.add(n_chunked + idx));
        }
    }
}

/// Adds the products of 32 columns of some tokens to the sums of sixteen rows.
///
/// # Safety
/// `activations` points to `N_TOKENS` blocks; AVX2 and FMA, and AVX-VNNI if `VNNI`.
#[inline(always)]
unsafe fn accumulate<const TENSOR_TYPE: u8, const VNNI: bool, const N_TOKENS: usize>(
    sums: &mut [[__m256; 2]; N_TOKENS],
    weights: &[BlockWeights; 2],
    activations: *const ActivationBlock,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let dots = dot::<TENSOR_TYPE, VNNI, N_TOKENS>(weights, activations);
        for (token, (sums, dots)) in sums.iter_mut().zip(dots).enumerate() {
            sums[0] = add_scaled::<TENSOR_TYPE>(sums[0], dots[0], &weights[0], activations.add(token));
            sums[1] = add_scaled::<TENSOR_TYPE>(sums[1], dots[1], &weights[1], activations.add(token));
        }
    }
}

/// Adds integer products, as [`dot`] returns them, to the sums of eight rows.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn add_scaled<const TENSOR_TYPE: u8>(
    sums: __m256,
    dots: [__m256i; 2],
    weights: &BlockWeights,
    activation: *const ActivationBlock,
) -> __m256 {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: all reads are inside the activation's block.
    unsafe {
        let scale = _mm256_set1_ps((*activation).scale);
        let first = _mm256_cvtepi32_ps(dots[0]);
        let sums = if layout.has_half_scales() {
            let first = _mm256_mul_ps(first, weights.scales[0]);
            let both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[1]), weights.scales[1], first);
            _mm256_fmadd_ps(both, scale, sums)
        } else {
            _mm256_fmadd_ps(first, _mm256_mul_ps(weights.scales[0], scale), sums)
        };
        match layout.scales {
            Scales::BlockMinimum | Scales::SubMinimum => {
                _mm256_fmadd_ps(weights.minimums[0], _mm256_set1_ps((*activation).scaled_sum), sums)
            }
            Scales::SubPairMinimum => {
                let [first, last] = (*activation).negative_sums.map(|sum| sum as f32 * -(*activation).scale);
                let sums = _mm256_fmadd_ps(weights.minimums[0], _mm256_set1_ps(first), sums);
                _mm256_fmadd_ps(weights.minimums[1], _mm256_set1_ps(last), sums)
            }
            _ => sums,
        }
    }
}

/// The integer products of some tokens with both halves of the rows: over the first and the last 16 columns separately
/// if each half has its own scales, otherwise over all 32.
///
/// # Safety
/// As [`accumulate`].
#[inline(always)]
unsafe fn dot<const TENSOR_TYPE: u8, const VNNI: bool, const N_TOKENS: usize>(
    weights: &[BlockWeights; 2],
    activations: *const ActivationBlock,
) -> [[[__m256i; 2]; 2]; N_TOKENS] {
    let part_words = if const { LayoutOf::<TENSOR_TYPE>::LAYOUT.has_half_scales() } { 4 } else { 8 };
    // SAFETY: all reads are inside the activations' blocks.
    unsafe {
        let mut sums = [[[_mm256_setzero_si256(); 2]; 2]; N_TOKENS];
        let mut narrow = [[_mm256_setzero_si256(); 2]; N_TOKENS];
        for word in 0..8 {
            let (part, n_words) = (word / part_words, word % part_words + 1);
            for token in 0..N_TOKENS {
                let quants = _mm256_set1_epi32(activations.add(token).cast::<i32>().add(word).read());
                for half in 0..2 {
                    let weights = weights[half].quants[word];
                    let (sum, narrow) = (&mut sums[token][half][part], &mut narrow[token][half]);
                    if VNNI {
                        *sum = _mm256_dpbusd_avx_epi32(*sum, weights, quants);
                    } else if Quants::<TENSOR_TYPE, VNNI>::ARE_SIGNED {
                        let signed = _mm256_sign_epi8(quants, weights);
                        let products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), signed);
                        *sum = _mm256_add_epi32(*sum, widened(products));
                    } else {
                        *narrow = _mm256_add_epi16(*narrow, _mm256_maddubs_epi16(weights, quants));
                        if n_words == part_words || n_words % Quants::<TENSOR_TYPE, VNNI>::NARROW_WORDS == 0 {
                            *sum = _mm256_add_epi32(*sum, widened(*narrow));
                            *narrow = _mm256_setzero_si256();
                        }
                    }
                }
            }
        }
        for (token, sums) in sums.iter_mut().enumerate() {
            if let Some(offsets) = offsets::<TENSOR_TYPE, VNNI>(&*activations.add(token)) {
                for sums in sums {
                    for (sum, offset) in sums.iter_mut().zip(offsets) {
                        *sum = _mm256_add_epi32(*sum, _mm256_set1_epi32(offset));
                    }
                }
            }
        }
        sums
    }
}

/// The contribution of the weights' offset to the products of the first and of the last 16 columns, or of all.
#[inline(always)]
fn offsets<const TENSOR_TYPE: u8, const VNNI: bool>(activation: &ActivationBlock) -> Option<[i32; 2]> {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    let [first, last] = activation.negative_sums;
    match layout.offset_shift {
        Some(shift) if !Quants::<TENSOR_TYPE, VNNI>::ARE_SIGNED => {
            let parts = if layout.has_half_scales() { [first, last] } else { [first + last, 0] };
            Some(parts.map(|sum| sum << shift))
        }
        _ => None,
    }
}

/// Sums of neighbouring words.
#[inline(always)]
unsafe fn widened(words: __m256i) -> __m256i {
    // SAFETY: no memory is touched.
    unsafe { _mm256_madd_epi16(words, _mm256_set1_epi16(1)) }
}

/// Prefetches a block's share of the weights [`PREFETCH_BYTES`] after this block's.
#[inline(always)]
unsafe fn prefetch<const TENSOR_TYPE: u8>(record: *const u8, block: usize) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    let share = layout.record_bytes() / layout.record_blocks();
    let mut at = 0;
    while at < share {
        let ahead = record.wrapping_add(PREFETCH_BYTES + block * share + at);
        // SAFETY: a prefetch never faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
        at += 64;
    }
}
