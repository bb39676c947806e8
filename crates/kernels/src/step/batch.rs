//! The batch of a step, checked and mapped to rows.

use super::{RowSet, Sequence, SequenceStates, StateAt, StepError};
use crate::attention::{BLOCK_TOKENS, Span};

/// The batch of a step: the contributions of all sequences. Kept between steps to reuse its memory.
#[derive(Default)]
pub struct Batch {
    tokens: Vec<u32>,
    positions: Vec<usize>,
    /// Block of every row's position.
    row_blocks: Vec<u32>,
    /// Rows whose results are wanted.
    selected: Vec<usize>,
    spans: Vec<Span>,
    /// Spans of the selected rows.
    selected_spans: Vec<Span>,
    /// Concatenated blocks of all sequences.
    blocks: Vec<u32>,
    /// Where each sequence's blocks end.
    block_ends: Vec<usize>,
    /// Blocks that are written to; only for the check.
    written: Vec<u32>,
    /// The state before every sequence's new tokens, and the range of the states that it writes.
    states: Vec<(Option<u32>, std::ops::Range<usize>)>,
    /// Concatenated written states of all sequences.
    written_states: Vec<StateAt>,
}

impl Batch {
    /// Takes the sequences of a step; stays empty if they are not valid. `states` tells whether a state exists, if the
    /// model keeps any.
    ///
    /// # Errors
    /// When a sequence is not valid, or conflicts with the others.
    pub fn fill<'a>(
        &mut self,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
        vocab_size: usize,
        states: Option<&dyn Fn(u32) -> bool>,
    ) -> Result<(), StepError> {
        let filled = self.try_fill(sequences, vocab_size, states);
        if filled.is_err() {
            self.clear();
        }
        filled
    }

    fn try_fill<'a>(
        &mut self,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
        vocab_size: usize,
        states: Option<&dyn Fn(u32) -> bool>,
    ) -> Result<(), StepError> {
        self.clear();
        for sequence in sequences {
            check(&sequence, vocab_size)?;
            self.add(&sequence);
            if let Some(exists) = states {
                self.add_states(&sequence, exists)?;
            }
        }
        self.check_written()?;
        self.check_states()
    }

    /// Adds a sequence's states. Its starting state must have been written before.
    fn add_states(&mut self, sequence: &Sequence<'_>, exists: &dyn Fn(u32) -> bool) -> Result<(), StepError> {
        let SequenceStates { before, written } = sequence.states.ok_or(StepError::States)?;
        let (position, end) = (sequence.position, sequence.position + sequence.tokens.len());
        let is_ascending = written.windows(2).all(|pair| pair[0].position < pair[1].position);
        let is_within = written.first().is_some_and(|first| first.position > position)
            && written.last().is_some_and(|last| last.position == end);
        let begins_somewhere = before.map_or(position == 0, exists);
        if !(is_ascending && is_within && begins_somewhere) {
            return Err(StepError::States);
        }
        let first = self.written_states.len();
        self.written_states.extend_from_slice(written);
        self.states.push((before, first..self.written_states.len()));
        Ok(())
    }

    /// Checks that a state is written only once, and not by a step that reads it.
    fn check_states(&mut self) -> Result<(), StepError> {
        self.written.clear();
        self.written.extend(self.written_states.iter().map(|written| written.state));
        self.written.sort_unstable();
        let is_written_twice = self.written.windows(2).any(|pair| pair[0] == pair[1]);
        let is_written = |state: &u32| self.written.binary_search(state).is_ok();
        if is_written_twice || self.states.iter().filter_map(|(before, _)| before.as_ref()).any(is_written) {
            return Err(StepError::States);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.row_blocks.clear();
        self.selected.clear();
        self.spans.clear();
        self.selected_spans.clear();
        self.blocks.clear();
        self.block_ends.clear();
        self.written.clear();
        self.states.clear();
        self.written_states.clear();
    }

    fn add(&mut self, sequence: &Sequence<'_>) {
        let &Sequence { tokens, position, blocks, first_selected, n_selected, .. } = sequence;
        let first_row = self.tokens.len();
        let positions = position..position + tokens.len();
        self.spans.push(Span { first_row, position, n_tokens: tokens.len() });
        let first_position = position + first_selected;
        let first = self.selected.len();
        self.selected_spans.push(Span { first_row: first, position: first_position, n_tokens: n_selected });
        self.selected.extend(first_row + first_selected..first_row + first_selected + n_selected);
        self.tokens.extend_from_slice(tokens);
        self.row_blocks.extend(positions.clone().map(|position| blocks[position / BLOCK_TOKENS]));
        if !tokens.is_empty() {
            self.written.extend(&blocks[position / BLOCK_TOKENS..positions.end.div_ceil(BLOCK_TOKENS)]);
        }
        self.positions.extend(positions);
        self.blocks.extend_from_slice(blocks);
        self.block_ends.push(self.blocks.len());
    }

    fn check_written(&mut self) -> Result<(), StepError> {
        self.written.sort_unstable();
        match self.written.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(StepError::SharedBlock { block: pair[0] }),
            None => Ok(()),
        }
    }

    /// New tokens of all sequences.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The number of the sequence that a row belongs to.
    pub fn sequence_of(&self, row: usize) -> usize {
        let after = self.spans.partition_point(|span| span.first_row <= row);
        // Sequences without tokens begin at the same row as the next one.
        after - 1
    }

    /// The states of a sequence.
    pub fn states_of(&self, sequence: usize) -> SequenceStates<'_> {
        let (before, written) = &self.states[sequence];
        SequenceStates { before: *before, written: &self.written_states[written.clone()] }
    }

    /// All states that the step writes.
    pub fn written_states(&self) -> impl Iterator<Item = u32> {
        self.written_states.iter().map(|written| written.state)
    }

    /// One more than the largest block number.
    pub fn n_blocks(&self) -> usize {
        self.blocks.iter().max().map_or(0, |block| *block as usize + 1)
    }

    /// All new tokens, and their positions.
    pub fn tokens(&self) -> (&[u32], &[usize]) {
        (&self.tokens, &self.positions)
    }

    pub(super) fn token(&self, row: usize) -> usize {
        self.tokens[row] as usize
    }

    pub(super) fn position(&self, set: RowSet, row: usize) -> usize {
        match set {
            RowSet::Tokens => self.positions[row],
            RowSet::Selected => self.positions[self.selected[row]],
            RowSet::Routed(_) => unreachable!("the builder has checked that the rows have positions"),
        }
    }

    /// Block of a row's position, and its place in the block.
    pub(super) fn slot(&self, row: usize) -> (u32, usize) {
        (self.row_blocks[row], self.positions[row] % BLOCK_TOKENS)
    }

    /// Rows whose results are wanted.
    pub fn selected(&self) -> &[usize] {
        &self.selected
    }

    /// The rows of each sequence.
    pub fn spans(&self, set: RowSet) -> &[Span] {
        match set {
            RowSet::Tokens => &self.spans,
            RowSet::Selected => &self.selected_spans,
            RowSet::Routed(_) => unreachable!("the builder has checked that the rows have positions"),
        }
    }

    /// The cache blocks of a sequence.
    pub fn blocks_of(&self, sequence: usize) -> &[u32] {
        let start = if sequence == 0 { 0 } else { self.block_ends[sequence - 1] };
        &self.blocks[start..self.block_ends[sequence]]
    }
}

fn check(sequence: &Sequence<'_>, vocab_size: usize) -> Result<(), StepError> {
    let &Sequence { tokens, position, blocks, first_selected, n_selected, .. } = sequence;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
        return Err(StepError::Token { token: *token, vocab_size });
    }
    let n_positions = position.saturating_add(tokens.len());
    if n_positions.div_ceil(BLOCK_TOKENS) > blocks.len() {
        return Err(StepError::Blocks { n_blocks: blocks.len(), n_positions });
    }
    let end = first_selected.saturating_add(n_selected);
    if end > tokens.len() {
        return Err(StepError::Selection { end, n_tokens: tokens.len() });
    }
    Ok(())
}
