//! Writes rows of a GGUF tensor in the packed order, in pieces that the threads of a pool share.

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use super::formats::{SourceBlock, group_bytes, quant_layout};
use super::layout::{QuantLayout, ROW_GROUP, Scales};
use crate::TensorType;
use crate::buffer::Buffer;
use crate::pool::Pool;

/// Source bytes that a thread packs at once: enough to be worth a task, few enough that little of the file is in memory
/// along with its packed form.
const PIECE_BYTES: usize = 512 << 10;

/// Packs `bytes`, whose length fits the shape, into a new, fully initialized buffer of whole row groups. `packed` is
/// called with every part of `bytes` that is no longer needed.
pub(super) fn pack(
    pool: &mut Pool,
    tensor_type: TensorType,
    n_rows: usize,
    n_columns: usize,
    bytes: &[u8],
    packed: &(dyn Fn(&[u8]) + Sync),
) -> Buffer {
    let group_bytes = group_bytes(tensor_type, n_columns);
    let n_groups = n_rows.div_ceil(ROW_GROUP);
    let mut buffer = Buffer::for_weights(n_groups * group_bytes);
    if bytes.is_empty() {
        return buffer;
    }
    let packer = Packer { tensor_type, row_bytes: bytes.len() / n_rows, group_bytes };
    let groups_in_a_piece = (PIECE_BYTES / (ROW_GROUP * packer.row_bytes)).max(1);
    let groups_of_a_thread = n_groups.div_ceil(pool.n_threads());
    let n_piece_groups = groups_in_a_piece.min(groups_of_a_thread);
    let sources = bytes.chunks(n_piece_groups * ROW_GROUP * packer.row_bytes);
    let destinations = buffer.as_uninit_mut().chunks_mut(n_piece_groups * group_bytes);
    let pieces: Vec<_> = sources.zip(destinations.map(Mutex::new)).collect();
    pool.for_each(pieces.len(), |task, _thread| {
        let (source, destination) = &pieces[task];
        // Every piece is packed by one task, so there is no contention.
        packer.pack_groups(source, &mut destination.lock().unwrap_or_else(PoisonError::into_inner));
        packed(source);
    });
    drop(pieces);
    buffer
}

#[derive(Clone, Copy)]
struct Packer {
    tensor_type: TensorType,
    row_bytes: usize,
    group_bytes: usize,
}

impl Packer {
    /// Packs whole rows into whole groups; missing rows of the last group become zero.
    fn pack_groups(self, source: &[u8], destination: &mut [MaybeUninit<u8>]) {
        let groups = destination.chunks_exact_mut(self.group_bytes);
        for (group, rows) in groups.zip(source.chunks(ROW_GROUP * self.row_bytes)) {
            let group = zero(group);
            for (row_idx, row) in rows.chunks_exact(self.row_bytes).enumerate() {
                if self.tensor_type.is_float() {
                    self.pack_float_row(row, row_idx, group);
                } else {
                    self.pack_quant_row(row, row_idx, group);
                }
            }
        }
    }

    fn pack_float_row(self, row: &[u8], row_idx: usize, group: &mut [u8]) {
        let n_bytes = self.tensor_type.block_bytes();
        for (column, element) in row.chunks_exact(n_bytes).enumerate() {
            let at = n_bytes * float_index(self.tensor_type, column, row_idx);
            group[at..at + n_bytes].copy_from_slice(element);
        }
    }

    fn pack_quant_row(self, row: &[u8], row_idx: usize, group: &mut [u8]) {
        let layout = quant_layout(self.tensor_type);
        let mut block = SourceBlock::default();
        let records = group.chunks_exact_mut(layout.record_bytes());
        for (record, bytes) in records.zip(row.chunks_exact(self.tensor_type.block_bytes())) {
            block.read(self.tensor_type, bytes);
            write_record(&block, layout, row_idx, record);
        }
    }
}

fn zero(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    bytes.fill(MaybeUninit::new(0));
    // SAFETY: every byte has just been set.
    unsafe { bytes.assume_init_mut() }
}

/// The position of an element of a floating-point matrix in its group, counted in elements.
pub(super) fn float_index(tensor_type: TensorType, column: usize, row_idx: usize) -> usize {
    if tensor_type == TensorType::BF16 {
        column / 2 * (2 * ROW_GROUP) + 2 * row_idx + column % 2
    } else {
        column * ROW_GROUP + row_idx
    }
}

fn write_record(block: &SourceBlock, layout: QuantLayout, row_idx: usize, record: &mut [u8]) {
    if layout.scales == Scales::Exponent {
        record[row_idx] = block.exponent;
    } else {
        write_half(record, row_idx, block.scale);
    }
    if layout.has_minimum() {
        write_half(record, ROW_GROUP + row_idx, block.minimum);
    }
    let sub_scales = block.sub_scales.iter().take(layout.record_blocks());
    let sub_scales = sub_scales.flat_map(|sub_scales| &sub_scales[..layout.sub_scale_bytes()]);
    for (idx, sub_scale) in sub_scales.enumerate() {
        record[layout.sub_scales_offset() + idx * ROW_GROUP + row_idx] = *sub_scale;
    }
    let planes = record[layout.planes_offset()..].chunks_exact_mut(layout.planes.block_bytes());
    for (plane, quants) in planes.zip(&block.quants) {
        write_planes(quants, layout, row_idx, plane);
    }
}

/// Writes the quants of one row and 32 columns into the planes that [`super::layout`] describes.
fn write_planes(quants: &[u32; 8], layout: QuantLayout, row_idx: usize, destination: &mut [u8]) {
    let planes = layout.planes;
    if planes.bytes {
        quants.iter().enumerate().for_each(|(idx, &word)| write_word(destination, idx, row_idx, word));
        return;
    }
    if planes.nibbles {
        for idx in 0..4 {
            let word = (quants[idx] & 0x0f0f_0f0f) | ((quants[idx + 4] & 0x0f0f_0f0f) << 4);
            write_word(destination, idx, row_idx, word);
        }
    }
    if planes.pairs {
        let shift = planes.upper_shift();
        for (idx, words) in quants.chunks_exact(4).enumerate() {
            let pair = |word: usize| ((words[word] >> shift) & 0x0303_0303) << (2 * word);
            write_word(&mut destination[planes.pairs_offset()..], idx, row_idx, pair(0) | pair(1) | pair(2) | pair(3));
        }
    }
    if planes.bits {
        let shift = planes.bit_shift();
        let bits = quants.iter().enumerate().map(|(idx, word)| ((word >> shift) & 0x0101_0101) << idx);
        write_word(&mut destination[planes.bits_offset()..], 0, row_idx, bits.fold(0, |all, bit| all | bit));
    }
}

fn write_half(record: &mut [u8], idx: usize, half: u16) {
    record[2 * idx..2 * idx + 2].copy_from_slice(&half.to_le_bytes());
}

fn write_word(plane: &mut [u8], idx: usize, row_idx: usize, word: u32) {
    let at = 4 * (idx * ROW_GROUP + row_idx);
    plane[at..at + 4].copy_from_slice(&word.to_le_bytes());
}
