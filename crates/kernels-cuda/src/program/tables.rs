//! The tables that describe the batch of a step to the device, sent in one upload.

use std::ops::Range;

use hone_kernels::step::{Batch, RowSet};

use super::memory::States;
use crate::arguments::{BatchTables, StatesArguments};
use crate::device::{Address, Buffer, DeviceError, SharedDevice};

/// The tables of the current step, on the device.
pub(super) struct Tables {
    buffer: Buffer,
    bytes: Vec<u8>,
    pub(super) batch: BatchTables,
    /// The part that is the same for all layers.
    pub(super) states: StatesArguments,
}

impl Tables {
    pub(super) fn new(device: &SharedDevice) -> Result<Self, DeviceError> {
        let (batch, states) = (BatchTables::default(), StatesArguments::default());
        Ok(Tables { buffer: Buffer::new(device, 0)?, bytes: Vec::new(), batch, states })
    }

    /// The address of the tables and of the blocks in them: all that launches depend on.
    pub(super) fn place(&self) -> (Address, Address) {
        (self.buffer.address(), self.batch.blocks)
    }

    /// Writes the tables of a batch and uploads them.
    pub(super) fn fill(
        &mut self,
        device: &SharedDevice,
        batch: &Batch,
        states: Option<&States>,
    ) -> Result<(), DeviceError> {
        self.bytes.clear();
        let places = self.write(batch, states);
        if self.bytes.len() > self.buffer.n_bytes() {
            self.buffer = Buffer::new(device, self.bytes.len().next_power_of_two())?;
        }
        self.buffer.upload(0, &self.bytes)?;
        let n_sequences = batch.spans(RowSet::Tokens).len() as u32;
        let at = |place: &Range<usize>| self.buffer.address() + place.start as Address;
        self.batch = BatchTables {
            tokens: at(&places.tokens),
            positions: at(&places.positions),
            sequence_of: at(&places.sequence_of),
            selected: at(&places.selected),
            blocks: at(&places.blocks),
            block_starts: at(&places.block_starts),
            first_rows: at(&places.first_rows),
            first_selected: at(&places.first_selected),
            n_tokens: batch.n_tokens() as u32,
            n_selected: batch.selected().len() as u32,
            n_sequences,
            reserved: 0,
        };
        self.states = StatesArguments {
            batch: self.batch,
            before: at(&places.before),
            written: at(&places.written),
            written_after: at(&places.written_after),
            written_starts: at(&places.written_starts),
            ..StatesArguments::default()
        };
        Ok(())
    }

    fn write(&mut self, batch: &Batch, states: Option<&States>) -> Places {
        let spans = batch.spans(RowSet::Tokens);
        let n_sequences = spans.len();
        let mut places = Places::default();
        let (mut before, mut written): (Vec<Address>, Vec<Address>) = (Vec::new(), Vec::new());
        let (mut written_after, mut written_starts) = (Vec::new(), vec![0]);
        if let Some(states) = states {
            for (sequence, span) in spans.iter().enumerate() {
                let of = batch.states_of(sequence);
                before.push(of.before.map_or(0, |state| states.address(state)));
                written.extend(of.written.iter().map(|at| states.address(at.state)));
                written_after.extend(of.written.iter().map(|at| (at.position - span.position) as u32));
                written_starts.push(written.len() as u32);
            }
        }
        places.before = self.append(before);
        places.written = self.append(written);
        let (tokens, positions) = batch.tokens();
        places.tokens = self.append(tokens.iter().copied());
        places.positions = self.append(positions.iter().map(|position| *position as u32));
        let sequences = spans.iter().enumerate();
        let sequence_of = sequences.flat_map(|(sequence, span)| std::iter::repeat_n(sequence as u32, span.n_tokens));
        places.sequence_of = self.append(sequence_of);
        places.selected = self.append(batch.selected().iter().map(|row| *row as u32));
        let mut starts = Vec::with_capacity(n_sequences);
        let mut n_blocks = 0;
        for sequence in 0..n_sequences {
            starts.push(n_blocks as u32);
            n_blocks += batch.blocks_of(sequence).len();
        }
        places.block_starts = self.append(starts);
        let first = |set: RowSet, end: usize| {
            let rows = batch.spans(set).iter().map(|span| span.first_row as u32);
            rows.chain([end as u32]).collect::<Vec<u32>>()
        };
        places.first_rows = self.append(first(RowSet::Tokens, batch.n_tokens()));
        places.first_selected = self.append(first(RowSet::Selected, batch.selected().len()));
        places.written_after = self.append(written_after);
        places.written_starts = self.append(written_starts);
        // Data that grows with the context comes last, so that everything else keeps its place from token to token.
        let blocks = (0..n_sequences).flat_map(|sequence| batch.blocks_of(sequence).iter().copied());
        places.blocks = self.append(blocks);
        places
    }

    /// Appends numbers, aligned to 16 bytes, and returns their place.
    fn append<T: bytemuck::NoUninit>(&mut self, values: impl IntoIterator<Item = T>) -> Range<usize> {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        let start = self.bytes.len();
        for value in values {
            self.bytes.extend_from_slice(bytemuck::bytes_of(&value));
        }
        start..self.bytes.len()
    }
}

/// The places of the tables among the bytes.
#[derive(Default)]
struct Places {
    tokens: Range<usize>,
    positions: Range<usize>,
    sequence_of: Range<usize>,
    selected: Range<usize>,
    blocks: Range<usize>,
    block_starts: Range<usize>,
    first_rows: Range<usize>,
    first_selected: Range<usize>,
    before: Range<usize>,
    written: Range<usize>,
    written_after: Range<usize>,
    written_starts: Range<usize>,
}
