//! Reads packed weights back without vector instructions: one row for the embedding lookup, sixteen side by side for the
//! portable product.
//!
//! Both read through here, so that a mistake in the packed order cannot hide in one of them. The compiler
//! vectorizes the loops over rows.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::layout::{BLOCK, QuantLayout, ROW_GROUP, Scales};
use super::pack::float_index;
use crate::TensorType;
use crate::quantized::exponent_scale;

/// Thirty-two columns of `N` rows: `weight = scale · (quant − offset) + minimum`, with one scale and one minimum per 16
/// columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowsBlock<const N: usize> {
    /// Word `c` of a row holds its columns `4c .. 4c + 4`, one unsigned byte each.
    pub(crate) quants: [[u32; N]; BLOCK / 4],
    pub(crate) offset: i32,
    pub(crate) scales: [[f32; N]; 2],
    pub(crate) minimums: [[f32; N]; 2],
}

impl<const N: usize> RowsBlock<N> {
    /// Reads the block `block_idx` (within the record) of the rows from `row_idx` on (within the group).
    #[inline(always)]
    pub(crate) fn read(layout: QuantLayout, record: &[u8], block_idx: usize, row_idx: usize) -> RowsBlock<N> {
        let planes_at = layout.planes_offset() + block_idx * layout.planes.block_bytes();
        let mut quants = read_planes(layout, &record[planes_at..], row_idx);
        if let Some(codebook) = layout.codebook {
            let look_up = |word: u32| u32::from_le_bytes(word.to_le_bytes().map(|code| codebook[usize::from(code)]));
            quants = quants.map(|words| words.map(look_up));
        }
        if layout.is_signed() {
            quants = quants.map(|words| words.map(|word| word ^ 0x8080_8080));
        }
        let offset = layout.offset_shift.or(layout.is_signed().then_some(7)).map_or(0, |shift| 1 << shift);
        let (scales, minimums) = read_scales(layout, record, block_idx, row_idx);
        RowsBlock { quants, offset, scales, minimums }
    }
}

impl RowsBlock<1> {
    /// The weight of a column of the row.
    pub(crate) fn weight(&self, column: usize) -> f32 {
        let quant = i32::from(self.quants[column / 4][0].to_le_bytes()[column % 4]) - self.offset;
        self.scales[column / 16][0] * quant as f32 + self.minimums[column / 16][0]
    }
}

/// The words of the rows' quants, assembled from their planes.
#[inline(always)]
fn read_planes<const N: usize>(layout: QuantLayout, bytes: &[u8], row_idx: usize) -> [[u32; N]; BLOCK / 4] {
    let planes = layout.planes;
    let mut quants = [[0; N]; BLOCK / 4];
    for (idx, quants) in quants.iter_mut().enumerate() {
        if planes.bytes {
            *quants = read_words(bytes, idx, row_idx);
        }
        if planes.nibbles {
            let nibbles = read_words(bytes, idx % 4, row_idx);
            merge(quants, nibbles, 4 * (idx / 4), 0x0f0f_0f0f, 0);
        }
        if planes.pairs {
            let pairs = read_words(&bytes[planes.pairs_offset()..], idx / 4, row_idx);
            merge(quants, pairs, 2 * (idx % 4), 0x0303_0303, planes.upper_shift());
        }
        if planes.bits {
            let bits = read_words(&bytes[planes.bits_offset()..], 0, row_idx);
            merge(quants, bits, idx, 0x0101_0101, planes.bit_shift());
        }
    }
    quants
}

/// Takes the bits of a mask from every word, from `from` on, and puts them at `to` in the quants.
#[inline(always)]
fn merge<const N: usize>(quants: &mut [u32; N], words: [u32; N], from: usize, mask: u32, to: u32) {
    for (quant, word) in quants.iter_mut().zip(words) {
        *quant |= (word >> from & mask) << to;
    }
}

/// The scales and minimums of the two halves of a block, row by row.
#[inline(always)]
fn read_scales<const N: usize>(
    layout: QuantLayout,
    record: &[u8],
    block_idx: usize,
    row_idx: usize,
) -> ([[f32; N]; 2], [[f32; N]; 2]) {
    let zeros = [[0.0; N]; 2];
    if layout.scales == Scales::Exponent {
        return ([read_bytes(record, row_idx).map(exponent_scale); 2], zeros);
    }
    let unit = layout.unit_scale();
    let scales = read_halves::<N>(record, row_idx).map(|scale| scale * unit);
    let minimums = if layout.has_minimum() { read_halves::<N>(record, ROW_GROUP + row_idx) } else { [0.0; N] };
    let sub_scales_at = layout.sub_scales_offset() + block_idx * layout.sub_scale_bytes() * ROW_GROUP + row_idx;
    let sub_scales = |idx: usize| read_bytes::<N>(record, sub_scales_at + idx * ROW_GROUP);
    let scaled = |by: [f32; N]| times(scales, by);
    let signed = |idx: usize| scaled(sub_scales(idx).map(|byte| f32::from(byte.cast_signed())));
    match layout.scales {
        Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => ([scales; 2], [minimums; 2]),
        Scales::Sub => ([signed(0); 2], zeros),
        Scales::SubMinimum => {
            let [scale, minimum] = [0, 1].map(|idx| sub_scales(idx).map(f32::from));
            ([scaled(scale); 2], [times(minimums, minimum); 2])
        }
        Scales::SubPair => ([0, 1].map(signed), zeros),
        Scales::SubPairMinimum => (
            [0, 1].map(|idx| scaled(sub_scales(idx).map(|byte| f32::from(byte & 0x0f)))),
            [0, 1].map(|idx| times(minimums, sub_scales(idx).map(|byte| f32::from(byte >> 4)))),
        ),
        Scales::SubOddPair => {
            let odd = |half: u8| f32::from(2 * half + 1);
            let bytes = sub_scales(0);
            ([scaled(bytes.map(|byte| odd(byte & 0x0f))), scaled(bytes.map(|byte| odd(byte >> 4)))], zeros)
        }
    }
}

#[inline(always)]
fn times<const N: usize>(left: [f32; N], right: [f32; N]) -> [f32; N] {
    std::array::from_fn(|row| left[row] * right[row])
}

/// One element of a group of a floating-point matrix.
#[inline]
pub(crate) fn read_float(tensor_type: TensorType, group: &[u8], column: usize, row_idx: usize) -> f32 {
    let at = tensor_type.block_bytes() * float_index(tensor_type, column, row_idx);
    match tensor_type {
        TensorType::F32 => f32::from_le_bytes([group[at], group[at + 1], group[at + 2], group[at + 3]]),
        TensorType::F16 => f16::from_le_bytes([group[at], group[at + 1]]).to_f32(),
        TensorType::BF16 => bf16::from_le_bytes([group[at], group[at + 1]]).to_f32(),
        _ => unreachable!("{tensor_type:?} is not a floating-point type"),
    }
}

/// Columns of a group of a floating-point matrix, from `column` on: their sixteen rows.
#[inline(always)]
pub(crate) fn read_float_rows(
    tensor_type: TensorType,
    group: &[u8],
    column: usize,
    columns: &mut [[f32; ROW_GROUP]; BLOCK],
) {
    let elements = &group[column * ROW_GROUP * tensor_type.block_bytes()..];
    match tensor_type {
        TensorType::F32 => {
            for (element, bytes) in columns.as_flattened_mut().iter_mut().zip(elements.as_chunks().0) {
                *element = f32::from_le_bytes(*bytes);
            }
        }
        TensorType::F16 => {
            for (rows, bytes) in columns.iter_mut().zip(elements.as_chunks::<{ 2 * ROW_GROUP }>().0) {
                *rows = read_halves(bytes, 0);
            }
        }
        TensorType::BF16 => {
            for (pair, bytes) in columns.as_chunks_mut().0.iter_mut().zip(elements.as_chunks::<{ 4 * ROW_GROUP }>().0) {
                *pair = read_bf16_pair(bytes);
            }
        }
        _ => unreachable!("{tensor_type:?} is not a floating-point type"),
    }
}

/// Two columns of a BF16 matrix, which are stored row by row.
#[inline(always)]
fn read_bf16_pair(bytes: &[u8]) -> [[f32; ROW_GROUP]; 2] {
    let words = read_words(bytes, 0, 0);
    [words.map(|word| f32::from_bits(word << 16)), words.map(|word| f32::from_bits(word & 0xffff_0000))]
}

#[inline(always)]
fn read_bytes<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a record has sixteen rows")
}

/// `N` numbers from the f16 number `idx` on.
#[inline(always)]
fn read_halves<const N: usize>(bytes: &[u8], idx: usize) -> [f32; N] {
    let (halves, _) = bytes[2 * idx..].as_chunks();
    let halves: [f16; N] = std::array::from_fn(|row| f16::from_le_bytes(halves[row]));
    let mut numbers = [0.0; N];
    halves.convert_to_f32_slice(&mut numbers);
    numbers
}

/// The words with this index of `N` rows.
#[inline(always)]
fn read_words<const N: usize>(plane: &[u8], idx: usize, row_idx: usize) -> [u32; N] {
    let (words, _) = plane[4 * (idx * ROW_GROUP + row_idx)..].as_chunks();
    std::array::from_fn(|row| u32::from_le_bytes(words[row]))
}
