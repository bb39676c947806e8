//! Joins neighbouring pieces of a text, the best pair first: shared by byte-level BPE and SentencePiece.
//!
//! The `tokenizers` crate does the same, but copies the vocabulary's texts several times while building, and treats
//! every way to split a SentencePiece token in two as a merge. Here a pair is looked up in place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// A stretch of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    start: u32,
    /// Equal to the start once another piece has absorbed this one.
    end: u32,
    /// Its token, if joining depends on it.
    pub(super) id: u32,
    previous: u32,
    next: u32,
}

impl Piece {
    pub(super) fn new(range: Range<usize>, id: u32) -> Self {
        Piece { start: range.start as u32, end: range.end as u32, id, previous: NONE, next: NONE }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Two neighbours that can be joined. The one with the lowest rank comes first, the leftmost among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    left: u32,
    end: u32,
    id: u32,
}

/// Joins pieces as long as `join` returns, for two neighbours, a rank and the token that they become.
pub(super) fn merge(pieces: &mut Vec<Piece>, join: impl Fn(&Piece, &Piece) -> Option<(u32, u32)>) {
    link(pieces);
    let candidate = |pieces: &[Piece], left: u32| {
        let first = pieces.get(left as usize)?;
        let second = pieces.get(first.next as usize)?;
        join(first, second).map(|(rank, id)| Reverse(Merge { rank, left, end: second.end, id }))
    };
    let mut candidates: BinaryHeap<_> = (0..pieces.len() as u32).filter_map(|left| candidate(pieces, left)).collect();
    while let Some(Reverse(Merge { left, end, id, .. })) = candidates.pop() {
        if take_next_in(pieces, left, end, id) {
            let previous = pieces[left as usize].previous;
            candidates.extend([previous, left].into_iter().filter_map(|left| candidate(pieces, left)));
        }
    }
    pieces.retain(|piece| piece.start < piece.end);
}

fn link(pieces: &mut [Piece]) {
    let n_pieces = pieces.len() as u32;
    for (index, piece) in (0..n_pieces).zip(pieces) {
        piece.previous = index.checked_sub(1).unwrap_or(NONE);
        piece.next = if index + 1 < n_pieces { index + 1 } else { NONE };
    }
}

/// Joins a piece with its neighbour, if both are unchanged since the join was planned.
fn take_next_in(pieces: &mut [Piece], left: u32, end: u32, id: u32) -> bool {
    let Piece { start, end: middle, next, .. } = pieces[left as usize];
    let Some(second) = pieces.get_mut(next as usize) else { return false };
    if start == middle || second.end != end {
        return false;
    }
    let after = second.next;
    second.end = second.start;
    if let Some(after) = pieces.get_mut(after as usize) {
        after.previous = left;
    }
    let first = &mut pieces[left as usize];
    (first.end, first.next, first.id) = (end, after, id);
    true
}
