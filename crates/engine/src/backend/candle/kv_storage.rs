//! The storage behind a layer's cache blocks.
//!
//! Storage grows in segments of many blocks, each allocated when one of its blocks is first written, so that a large
//! context costs nothing until it is used. Neighbouring blocks are written and read in one piece.

use candle_core::{DType, Device, Tensor};

use super::sequence::SequenceView;
use crate::backend::BackendError;
use crate::kv_cache::{BLOCK_TOKENS, BlockId};

const SEGMENT_TOKENS: usize = 32 * BLOCK_TOKENS;

/// Keys and values of one layer, f16, in segments of `[SEGMENT_TOKENS, width]`.
pub(super) struct KvStorage {
    width: usize,
    device: Device,
    segments: Vec<Option<Segment>>,
}

struct Segment {
    keys: Tensor,
    values: Tensor,
}

/// Positions that are contiguous both in a sequence and in a segment.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    segment: usize,
    /// First row in the segment.
    row: usize,
    n_tokens: usize,
}

impl KvStorage {
    pub(super) fn new(width: usize, device: &Device) -> Self {
        KvStorage { width, device: device.clone(), segments: Vec::new() }
    }

    /// Writes the new keys and values `[n_tokens of all sequences, width]` to their places.
    pub(super) fn write(&mut self, views: &[SequenceView], keys: &Tensor, values: &Tensor) -> Result<(), BackendError> {
        let keys = keys.to_dtype(DType::F16)?.contiguous()?;
        let values = values.to_dtype(DType::F16)?.contiguous()?;
        let mut row = 0;
        for view in views {
            for run in runs(view.blocks(), view.position(), view.n_new()) {
                self.write_run(&run, &keys.narrow(0, row, run.n_tokens)?, &values.narrow(0, row, run.n_tokens)?)?;
                row += run.n_tokens;
            }
        }
        Ok(())
    }

    /// Keys and values of `n_tokens` positions from `first` on, `[n_tokens, width]`, f16.
    pub(super) fn read(
        &self,
        blocks: &[BlockId],
        first: usize,
        n_tokens: usize,
    ) -> Result<(Tensor, Tensor), BackendError> {
        let mut keys = Vec::new();
        let mut values = Vec::new();
        for run in runs(blocks, first, n_tokens) {
            let segment = self.segments.get(run.segment).and_then(Option::as_ref);
            let segment = segment.ok_or_else(|| candle_core::Error::Msg("a cache block was never written".into()))?;
            keys.push(segment.keys.narrow(0, run.row, run.n_tokens)?);
            values.push(segment.values.narrow(0, run.row, run.n_tokens)?);
        }
        Ok((join(keys)?, join(values)?))
    }

    pub(super) fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        let (keys, values) = self.read(&[from], 0, BLOCK_TOKENS)?;
        let target = runs(&[to], 0, BLOCK_TOKENS);
        // The copies keep source and target apart when both lie in one segment.
        target.iter().try_for_each(|run| self.write_run(run, &keys.copy()?, &values.copy()?))
    }

    fn write_run(&mut self, run: &Run, keys: &Tensor, values: &Tensor) -> Result<(), BackendError> {
        if self.segments.len() <= run.segment {
            self.segments.resize_with(run.segment + 1, || None);
        }
        let segment = match &mut self.segments[run.segment] {
            Some(segment) => segment,
            empty => empty.insert(Segment::zeros(self.width, &self.device)?),
        };
        segment.keys.slice_set(&keys.contiguous()?, 0, run.row)?;
        segment.values.slice_set(&values.contiguous()?, 0, run.row)?;
        Ok(())
    }
}

impl Segment {
    fn zeros(width: usize, device: &Device) -> Result<Self, BackendError> {
        let zeros = || Tensor::zeros((SEGMENT_TOKENS, width), DType::F16, device);
        Ok(Segment { keys: zeros()?, values: zeros()? })
    }
}

fn join(parts: Vec<Tensor>) -> Result<Tensor, BackendError> {
    match <[Tensor; 1]>::try_from(parts) {
        Ok([whole]) => Ok(whole),
        Err(parts) => Ok(Tensor::cat(&parts, 0)?),
    }
}

/// Where `n_tokens` positions starting at `first` are stored.
fn runs(blocks: &[BlockId], first: usize, n_tokens: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut position = first;
    while position < first + n_tokens {
        let within = position % BLOCK_TOKENS;
        let slot = blocks[position / BLOCK_TOKENS] as usize * BLOCK_TOKENS + within;
        let length = (BLOCK_TOKENS - within).min(first + n_tokens - position);
        let (segment, row) = (slot / SEGMENT_TOKENS, slot % SEGMENT_TOKENS);
        match runs.last_mut() {
            Some(last) if last.segment == segment && last.row + last.n_tokens == row => last.n_tokens += length,
            _ => runs.push(Run { segment, row, n_tokens: length }),
        }
        position += length;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &[BlockId], first: usize, n_tokens: usize, expected: &[(usize, usize, usize)]) {
        let expected: Vec<Run> =
            expected.iter().map(|&(segment, row, n_tokens)| Run { segment, row, n_tokens }).collect();
        assert_eq!(runs(blocks, first, n_tokens), expected);
    }

    #[test]
    fn neighbouring_blocks_are_one_run() {
        check(&[4, 5, 6], 3, 70, &[(0, 4 * BLOCK_TOKENS + 3, 70)]);
    }

    #[test]
    fn runs_break_where_blocks_or_segments_do() {
        check(&[4, 9], 31, 2, &[(0, 4 * BLOCK_TOKENS + 31, 1), (0, 9 * BLOCK_TOKENS, 1)]);
        check(&[31, 32], 0, 64, &[(0, 31 * BLOCK_TOKENS, 32), (1, 0, 32)]);
        check(&[1], 0, 0, &[]);
    }
}
