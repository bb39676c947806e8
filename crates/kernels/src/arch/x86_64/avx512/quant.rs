//! Products of quantized weights.
//!
//! Quants are unsigned and activations signed, as `vpdpbusd` requires. If a type's quants are signed, the integer sums
//! start at minus the offset times the sum of the activations. After 32 columns the integer sums are converted to
//! floats, scaled and added up.

use std::arch::x86_64::*;

use super::store;
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::LayoutOf;
use crate::matrix::layout::Scales;
use crate::operands::{ActivationBlock, Product, TOKEN_TILE};

/// How far ahead of its use a weight is prefetched, in bytes: far enough to hide the memory's latency.
const PREFETCH_BYTES: usize = 4096;

/// Multiplies groups of rows with the tokens of a tile.
///
/// # Safety
/// See [`Product`]; AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn product<const TENSOR_TYPE: u8>(product: &Product) {
    let mut row = 0;
    while row < product.n_rows {
        // SAFETY: the caller's promise; every group passed on is the product's.
        row += unsafe {
            match product.n_tokens {
                1 => few_tokens::<TENSOR_TYPE, 1>(product, row),
                2 => few_tokens::<TENSOR_TYPE, 2>(product, row),
                3 => few_tokens::<TENSOR_TYPE, 3>(product, row),
                4 => few_tokens::<TENSOR_TYPE, 4>(product, row),
                5 => few_tokens::<TENSOR_TYPE, 5>(product, row),
                6 => few_tokens::<TENSOR_TYPE, 6>(product, row),
                7 => few_tokens::<TENSOR_TYPE, 7>(product, row),
                8 => few_tokens::<TENSOR_TYPE, 8>(product, row),
                _ if product.n_rows - row > ROW_GROUP => many_tokens::<TENSOR_TYPE, 2>(product, row),
                _ => many_tokens::<TENSOR_TYPE, 1>(product, row),
            }
        };
    }
}

/// Multiplies the group of rows that starts at `row` with `N_TOKENS` tokens, with all sums in registers: the weights
/// are streamed once, at the speed of memory. Returns the number of rows.
///
/// # Safety
/// As [`product`], with `N_TOKENS` tokens, and the group is the product's.
#[inline(always)]
unsafe fn few_tokens<const TENSOR_TYPE: u8, const N_TOKENS: usize>(product: &Product, row: usize) -> usize {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the group is the product's, and so are its records and the tokens' blocks.
    unsafe {
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        let mut sums = [[_mm512_setzero_ps()]; N_TOKENS];
        for _ in 0..product.n_blocks / layout.record_blocks() {
            for block in 0..layout.record_blocks() {
                let weights = read_groups::<TENSOR_TYPE, 1>(product, record, block);
                let refined = refined_tokens(product, at, N_TOKENS);
                for (token, sums) in sums.iter_mut().enumerate() {
                    *sums = accumulate::<TENSOR_TYPE, 1>(*sums, &weights, product.quantized.add(at + token));
                    if refined >> token & 1 == 1 {
                        *sums = accumulate::<TENSOR_TYPE, 1>(*sums, &weights, product.remainders.add(at + token));
                    }
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        store_groups(product, row, &sums);
    }
    ROW_GROUP
}

/// Multiplies `N_GROUPS` groups of rows, the first of which starts at `row`, with all tokens: 32 columns of weights are
/// unpacked into registers, then multiplied with each token, whose sums stay in the first-level cache. Returns the
/// number of rows.
///
/// # Safety
/// As [`product`], and the groups are the product's.
#[inline(always)]
unsafe fn many_tokens<const TENSOR_TYPE: u8, const N_GROUPS: usize>(product: &Product, row: usize) -> usize {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the groups are the product's, and so are their records and the tokens' blocks; a tile's tokens have room
    // in `sums`.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); N_GROUPS]; TOKEN_TILE];
        let sums = sums.get_unchecked_mut(..product.n_tokens);
        let mut record = product.weights.add(row / ROW_GROUP * product.group_bytes);
        let mut at = 0;
        for _ in 0..product.n_blocks / layout.record_blocks() {
            for block in 0..layout.record_blocks() {
                let weights = read_groups::<TENSOR_TYPE, N_GROUPS>(product, record, block);
                for (token, sums) in sums.iter_mut().enumerate() {
                    *sums = accumulate::<TENSOR_TYPE, N_GROUPS>(*sums, &weights, product.quantized.add(at + token));
                }
                let mut refined = refined_tokens(product, at, product.n_tokens);
                while refined != 0 {
                    let token = refined.trailing_zeros() as usize;
                    let sums = sums.get_unchecked_mut(token);
                    *sums = accumulate::<TENSOR_TYPE, N_GROUPS>(*sums, &weights, product.remainders.add(at + token));
                    refined &= refined - 1;
                }
                at += product.token_stride;
            }
            record = record.add(layout.record_bytes());
        }
        store_groups(product, row, sums);
    }
    N_GROUPS * ROW_GROUP
}

/// A bit for every token whose block is refined; the first token's block has index `at`.
///
/// # Safety
/// See [`Product`]; AVX-512.
#[inline(always)]
unsafe fn refined_tokens(product: &Product, at: usize, n_tokens: usize) -> u64 {
    // SAFETY: the flags of a whole tile may be read starting at any block.
    let flags = unsafe { _mm512_loadu_si512(product.is_refined.add(at).cast()) };
    // SAFETY: no memory is touched.
    unsafe { _mm512_test_epi8_mask(flags, flags) & (u64::MAX >> (64 - n_tokens)) }
}

/// Reads a block of `N_GROUPS` groups, and prefetches the data after it.
///
/// # Safety
/// `record` points to a whole record of the first group that contains the block; AVX-512.
#[inline(always)]
unsafe fn read_groups<const TENSOR_TYPE: u8, const N_GROUPS: usize>(
    product: &Product,
    record: *const u8,
    block: usize,
) -> [BlockWeights; N_GROUPS] {
    // SAFETY: the groups are `group_bytes` apart.
    unsafe {
        let mut weights = [BlockWeights::zero(); N_GROUPS];
        for (group, weights) in weights.iter_mut().enumerate() {
            let record = record.add(group * product.group_bytes);
            prefetch::<TENSOR_TYPE>(record, block);
            *weights = BlockWeights::read::<TENSOR_TYPE>(record, block);
        }
        weights
    }
}

/// Writes the sums of `N_GROUPS` groups from `row` on, token by token.
///
/// # Safety
/// As [`product`], and the groups are the product's.
#[inline(always)]
unsafe fn store_groups<const N_GROUPS: usize>(product: &Product, row: usize, sums: &[[__m512; N_GROUPS]]) {
    for (token, sums) in sums.iter().enumerate() {
        for (group, &sums) in sums.iter().enumerate() {
            let row = row + group * ROW_GROUP;
            // SAFETY: the caller's promise.
            unsafe { store(&product.out, token, row, product.n_rows - row, sums) };
        }
    }
}

/// Thirty-two columns of sixteen rows, ready to be multiplied.
#[derive(Clone, Copy)]
struct BlockWeights {
    /// Four columns per register.
    quants: [__m512i; 8],
    /// The scales of the first 16 columns and of the last 16; both are equal if the type has one for all 32.
    scales: [__m512; 2],
    minimums: [__m512; 2],
}

impl BlockWeights {
    #[inline(always)]
    unsafe fn zero() -> BlockWeights {
        // SAFETY: no memory is touched.
        unsafe {
            let zero = [_mm512_setzero_ps(); 2];
            BlockWeights { quants: [_mm512_setzero_si512(); 8], scales: zero, minimums: zero }
        }
    }

    /// # Safety
    /// `record` points to a whole record that contains the block; AVX-512.
    #[inline(always)]
    unsafe fn read<const TENSOR_TYPE: u8>(record: *const u8, block: usize) -> BlockWeights {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: the offsets are those of the layout that the record was written with.
        unsafe {
            let planes = record.add(layout.planes_offset() + block * layout.planes.block_bytes());
            let (scales, minimums) = read_scales::<TENSOR_TYPE>(record, block);
            BlockWeights { quants: read_quants::<TENSOR_TYPE>(planes), scales, minimums }
        }
    }
}

/// # Safety
/// As [`BlockWeights::read`].
#[inline(always)]
unsafe fn read_scales<const TENSOR_TYPE: u8>(record: *const u8, block: usize) -> ([__m512; 2], [__m512; 2]) {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the offsets are those of the layout; fields that a type does not have are not read.
    unsafe {
        if matches!(layout.scales, Scales::Exponent) {
            return ([read_exponents(record); 2], [_mm512_setzero_ps(); 2]);
        }
        let mut scale = read_halves(record);
        if layout.scale_shift > 0 {
            scale = _mm512_mul_ps(scale, _mm512_set1_ps(layout.unit_scale()));
        }
        let minimum = if layout.has_minimum() { read_halves(record.add(2 * ROW_GROUP)) } else { _mm512_setzero_ps() };
        let sub_scales = layout.sub_scales_offset() + block * layout.sub_scale_bytes() * ROW_GROUP;
        let sub_scales = record.add(sub_scales).cast::<__m128i>();
        match layout.scales {
            Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => ([scale; 2], [minimum; 2]),
            Scales::Sub => {
                let integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(sub_scales));
                ([_mm512_mul_ps(scale, _mm512_cvtepi32_ps(integers)); 2], [minimum; 2])
            }
            Scales::SubMinimum => {
                let bytes = [_mm_loadu_si128(sub_scales), _mm_loadu_si128(sub_scales.add(1))];
                let scale = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes[0])));
                let minimum = _mm512_mul_ps(minimum, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes[1])));
                ([scale; 2], [minimum; 2])
            }
            Scales::SubPair => {
                let bytes = [_mm_loadu_si128(sub_scales), _mm_loadu_si128(sub_scales.add(1))];
                let first = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes[0])));
                let last = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes[1])));
                ([first, last], [minimum; 2])
            }
            Scales::SubPairMinimum => {
                let first = _mm512_cvtepu8_epi32(_mm_loadu_si128(sub_scales));
                let last = _mm512_cvtepu8_epi32(_mm_loadu_si128(sub_scales.add(1)));
                let low_bits = _mm512_set1_epi32(15);
                (
                    [
                        _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_and_si512(first, low_bits))),
                        _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_and_si512(last, low_bits))),
                    ],
                    [
                        _mm512_mul_ps(minimum, _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(first))),
                        _mm512_mul_ps(minimum, _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(last))),
                    ],
                )
            }
            Scales::SubOddPair => {
                let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(sub_scales));
                let halves = [_mm512_and_si512(bytes, _mm512_set1_epi32(15)), _mm512_srli_epi32::<4>(bytes)];
                ([odd_scales(scale, halves[0]), odd_scales(scale, halves[1])], [minimum; 2])
            }
        }
    }
}

/// Sixteen times `scale · (2 half + 1)`.
#[inline(always)]
unsafe fn odd_scales(scale: __m512, halves: __m512i) -> __m512 {
    // SAFETY: no memory is touched.
    unsafe {
        let odd = _mm512_or_si512(_mm512_slli_epi32::<1>(halves), _mm512_set1_epi32(1));
        _mm512_mul_ps(scale, _mm512_cvtepi32_ps(odd))
    }
}

/// Sixteen f16 numbers.
///
/// # Safety
/// `pointer` is valid for reads of 32 bytes; AVX-512.
#[inline(always)]
unsafe fn read_halves(pointer: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(pointer.cast())) }
}

/// Sixteen powers of two, as [`exponent_scale`](crate::quantized::exponent_scale).
///
/// # Safety
/// `pointer` is valid for reads of 16 bytes; AVX-512.
#[inline(always)]
unsafe fn read_exponents(pointer: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let exponents = _mm_subs_epu8(_mm_loadu_si128(pointer.cast()), _mm_set1_epi8(1));
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(exponents)))
    }
}

/// The quants of a block, assembled from its planes.
///
/// # Safety
/// `planes` points to all planes of a block; AVX-512.
#[inline(always)]
unsafe fn read_quants<const TENSOR_TYPE: u8>(planes: *const u8) -> [__m512i; 8] {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the offsets are those of the layout; a plane that a type does not have is not read.
    unsafe {
        let mut quants = [_mm512_setzero_si512(); 8];
        if layout.planes.bytes {
            for (idx, quant) in quants.iter_mut().enumerate() {
                *quant = _mm512_loadu_si512(planes.add(64 * idx).cast());
            }
        }
        if layout.planes.nibbles {
            let low_bits = _mm512_set1_epi8(15);
            for idx in 0..4 {
                let bytes = _mm512_loadu_si512(planes.add(64 * idx).cast());
                quants[idx] = _mm512_and_si512(bytes, low_bits);
                quants[idx + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low_bits);
            }
        }
        if layout.planes.pairs {
            let shift = layout.planes.upper_shift();
            let mask = _mm512_set1_epi8(3 << shift);
            for idx in 0..2 {
                let bytes = _mm512_loadu_si512(planes.add(layout.planes.pairs_offset() + 64 * idx).cast());
                for within in 0..4 {
                    let moved = move_bits(bytes, 2 * within as u32, shift);
                    quants[4 * idx + within] = merge(quants[4 * idx + within], moved, mask);
                }
            }
        }
        if layout.planes.bits {
            let shift = layout.planes.bit_shift();
            let mask = _mm512_set1_epi8(1 << shift);
            let bytes = _mm512_loadu_si512(planes.add(layout.planes.bits_offset()).cast());
            for (idx, quant) in quants.iter_mut().enumerate() {
                *quant = merge(*quant, move_bits(bytes, idx as u32, shift), mask);
            }
        }
        if let Some(codebook) = layout.codebook {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(codebook.as_ptr().cast()));
            for quant in &mut quants {
                *quant = _mm512_shuffle_epi8(table, *quant);
            }
        }
        quants
    }
}

/// Moves bit `from` of every byte to bit `to`; bits shifted in from neighbours must be masked off.
#[inline(always)]
unsafe fn move_bits(bytes: __m512i, from: u32, to: u32) -> __m512i {
    // SAFETY: no memory is touched.
    unsafe {
        if from >= to {
            _mm512_srl_epi16(bytes, _mm_cvtsi32_si128((from - to) as i32))
        } else {
            _mm512_sll_epi16(bytes, _mm_cvtsi32_si128((to - from) as i32))
        }
    }
}

/// `quants | (upper & mask)`.
#[inline(always)]
unsafe fn merge(quants: __m512i, upper: __m512i, mask: __m512i) -> __m512i {
    // SAFETY: no memory is touched.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(quants, upper, mask) }
}

/// Adds the products of 32 columns of one token to the sums of `N_GROUPS` groups of rows.
///
/// # Safety
/// `activation` is valid for reads; AVX-512 with VNNI.
#[inline(always)]
unsafe fn accumulate<const TENSOR_TYPE: u8, const N_GROUPS: usize>(
    mut sums: [__m512; N_GROUPS],
    weights: &[BlockWeights; N_GROUPS],
    activation: *const ActivationBlock,
) -> [__m512; N_GROUPS] {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: all reads are inside the activation's block.
    unsafe {
        let start = start_of_sums::<TENSOR_TYPE>(activation);
        let quants = activation.cast::<i32>();
        let mut integers = [start; N_GROUPS];
        for word in 0..4 {
            let first = _mm512_set1_epi32(quants.add(word).read());
            let last = _mm512_set1_epi32(quants.add(word + 4).read());
            for group in 0..N_GROUPS {
                let [sum_first, sum_last] = &mut integers[group];
                *sum_first = _mm512_dpbusd_epi32(*sum_first, weights[group].quants[word], first);
                *sum_last = _mm512_dpbusd_epi32(*sum_last, weights[group].quants[word + 4], last);
            }
        }
        let scale = _mm512_set1_ps((*activation).scale);
        for group in 0..N_GROUPS {
            let (weights, [first, last]) = (&weights[group], integers[group]);
            sums[group] = if layout.has_half_scales() {
                let first = _mm512_mul_ps(_mm512_cvtepi32_ps(first), weights.scales[0]);
                let both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(last), weights.scales[1], first);
                _mm512_fmadd_ps(both, scale, sums[group])
            } else {
                let integers = _mm512_cvtepi32_ps(_mm512_add_epi32(first, last));
                _mm512_fmadd_ps(integers, _mm512_mul_ps(weights.scales[0], scale), sums[group])
            };
            sums[group] = add_minimums::<TENSOR_TYPE>(sums[group], weights, activation);
        }
        sums
    }
}

/// The initial integer sums: zero, or a value that compensates for the offset of the quants.
///
/// # Safety
/// `activation` is valid for reads; AVX-512.
#[inline(always)]
unsafe fn start_of_sums<const TENSOR_TYPE: u8>(activation: *const ActivationBlock) -> [__m512i; 2] {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the caller's promise.
    unsafe {
        let Some(shift) = layout.offset_shift else { return [_mm512_setzero_si512(); 2] };
        let count = _mm_cvtsi32_si128(shift as i32);
        let [first, last] = (*activation).negative_sums;
        [_mm512_sll_epi32(_mm512_set1_epi32(first), count), _mm512_sll_epi32(_mm512_set1_epi32(last), count)]
    }
}

/// # Safety
/// `activation` is valid for reads; AVX-512.
#[inline(always)]
unsafe fn add_minimums<const TENSOR_TYPE: u8>(
    sums: __m512,
    weights: &BlockWeights,
    activation: *const ActivationBlock,
) -> __m512 {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the caller's promise.
    unsafe {
        match layout.scales {
            Scales::BlockMinimum | Scales::SubMinimum => {
                _mm512_fmadd_ps(weights.minimums[0], _mm512_set1_ps((*activation).scaled_sum), sums)
            }
            Scales::SubPairMinimum => {
                let [first, last] = (*activation).negative_sums;
                let scale = -(*activation).scale;
                let sums = _mm512_fmadd_ps(weights.minimums[0], _mm512_set1_ps(first as f32 * scale), sums);
                _mm512_fmadd_ps(weights.minimums[1], _mm512_set1_ps(last as f32 * scale), sums)
            }
            _ => sums,
        }
    }
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
