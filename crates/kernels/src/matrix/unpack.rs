//! Reads packed weights back, one row at a time and without vector instructions.
//!
//! The portable product and the embedding lookup both read through here, so that a mistake in the packed order cannot
//! hide in one of them.

use half::{bf16, f16};

use super::layout::{BLOCK, QuantLayout, ROW_GROUP, Scales};
use super::pack::float_index;
use crate::TensorType;
use crate::quantized::exponent_scale;

/// Thirty-two columns of one row: `weight = scale · quant + minimum`, with one scale and one minimum per 16 columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowBlock {
    pub(crate) quants: [i16; BLOCK],
    pub(crate) scales: [f32; 2],
    pub(crate) minimums: [f32; 2],
}

impl RowBlock {
    /// Reads the block `block_idx` (within the record) of the row `row_idx` (within the group).
    #[inline]
    pub(crate) fn read(layout: QuantLayout, record: &[u8], block_idx: usize, row_idx: usize) -> RowBlock {
        let planes_at = layout.planes_offset() + block_idx * layout.planes.block_bytes();
        let mut quants = [0; BLOCK];
        for (word, four) in
            read_planes(layout, &record[planes_at..], row_idx).into_iter().zip(quants.chunks_exact_mut(4))
        {
            for (byte, quant) in word.to_le_bytes().into_iter().zip(four) {
                let stored = layout.codebook.map_or(byte, |codebook| codebook[usize::from(byte)]);
                let stored = if layout.is_signed() { i16::from(stored.cast_signed()) } else { i16::from(stored) };
                *quant = stored - layout.offset_shift.map_or(0, |shift| 1 << shift);
            }
        }
        let (scales, minimums) = read_scales(layout, record, block_idx, row_idx);
        RowBlock { quants, scales, minimums }
    }

    /// The weight of a column of the block.
    pub(crate) fn weight(&self, column: usize) -> f32 {
        self.scales[column / 16] * f32::from(self.quants[column]) + self.minimums[column / 16]
    }
}

/// The words of a row's quants, assembled from its planes.
#[inline]
fn read_planes(layout: QuantLayout, bytes: &[u8], row_idx: usize) -> [u32; 8] {
    let planes = layout.planes;
    let mut quants = [0; 8];
    for (idx, quant) in quants.iter_mut().enumerate() {
        if planes.bytes {
            *quant = read_word(bytes, idx, row_idx);
        }
        if planes.nibbles {
            *quant = (read_word(bytes, idx % 4, row_idx) >> (4 * (idx / 4))) & 0x0f0f_0f0f;
        }
        if planes.pairs {
            let pairs = read_word(&bytes[planes.pairs_offset()..], idx / 4, row_idx) >> (2 * (idx % 4));
            *quant |= (pairs & 0x0303_0303) << planes.upper_shift();
        }
        if planes.bits {
            let bits = read_word(&bytes[planes.bits_offset()..], 0, row_idx) >> idx;
            *quant |= (bits & 0x0101_0101) << planes.bit_shift();
        }
    }
    quants
}

/// The scales and minimums of the two halves of a block.
#[inline]
fn read_scales(layout: QuantLayout, record: &[u8], block_idx: usize, row_idx: usize) -> ([f32; 2], [f32; 2]) {
    if layout.scales == Scales::Exponent {
        return ([exponent_scale(record[row_idx]); 2], [0.0; 2]);
    }
    let scale = read_half(record, row_idx) * layout.unit_scale();
    let minimum = if layout.has_minimum() { read_half(record, ROW_GROUP + row_idx) } else { 0.0 };
    let sub_scales_at = layout.sub_scales_offset() + block_idx * layout.sub_scale_bytes() * ROW_GROUP + row_idx;
    let sub_scale = |idx: usize| record[sub_scales_at + idx * ROW_GROUP];
    match layout.scales {
        Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => ([scale; 2], [minimum; 2]),
        Scales::Sub => ([scale * f32::from(sub_scale(0).cast_signed()); 2], [0.0; 2]),
        Scales::SubMinimum => ([scale * f32::from(sub_scale(0)); 2], [minimum * f32::from(sub_scale(1)); 2]),
        Scales::SubPair => ([0, 1].map(|idx| scale * f32::from(sub_scale(idx).cast_signed())), [0.0; 2]),
        Scales::SubPairMinimum => (
            [0, 1].map(|idx| scale * f32::from(sub_scale(idx) & 0x0f)),
            [0, 1].map(|idx| minimum * f32::from(sub_scale(idx) >> 4)),
        ),
        Scales::SubOddPair => {
            let byte = sub_scale(0);
            ([byte & 0x0f, byte >> 4].map(|half| scale * f32::from(2 * half + 1)), [0.0; 2])
        }
    }
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

fn read_half(record: &[u8], idx: usize) -> f32 {
    f16::from_le_bytes([record[2 * idx], record[2 * idx + 1]]).to_f32()
}

fn read_word(plane: &[u8], idx: usize, row_idx: usize) -> u32 {
    let at = 4 * (idx * ROW_GROUP + row_idx);
    u32::from_le_bytes([plane[at], plane[at + 1], plane[at + 2], plane[at + 3]])
}
