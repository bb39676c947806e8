//! Cuts the attention of a step into tasks.
//!
//! A task is some neighbouring tokens of one sequence, one head of keys and values, and a range of the sequence's
//! blocks. Cutting a context changes the order of additions, so contexts are always cut at the same positions: a
//! token's results are bit-identical whatever else the step computes, however a prompt was cut into steps, and for any
//! number of threads.

use std::ops::Range;

use super::Geometry;
use super::kv_cache::BLOCK_TOKENS;

/// Target number of queries per task: enough to reuse each cache load many times, few enough for the first-level cache.
const TARGET_ROWS: usize = 64;
/// Blocks between two cuts: enough that merging the parts costs little in comparison.
const PART_BLOCKS: usize = 16;

/// One sequence of a step, as far as attention is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Row of its first new token in the step.
    pub first_row: usize,
    /// Position of that token.
    pub position: usize,
    /// New tokens.
    pub n_tokens: usize,
}

/// A unit of work for one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Index of the sequence in the step.
    pub(crate) sequence: usize,
    /// Row of its first token in the step.
    pub(crate) first_row: usize,
    /// Position of that token.
    pub(crate) position: usize,
    pub(crate) n_tokens: usize,
    pub(crate) kv_head: usize,
    /// The range of the sequence's blocks.
    pub(crate) blocks: Range<usize>,
    /// Where the partial results of its queries start, if its context is cut.
    pub(crate) first_partial: Option<usize>,
}

/// Partial results that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    pub(crate) first_row: usize,
    pub(crate) n_tokens: usize,
    pub(crate) kv_head: usize,
    /// Index of the first part's results; the results of the second part follow, and so on.
    pub(crate) first_partial: usize,
    pub(crate) n_parts: usize,
}

/// All tasks of a step for layers of one geometry. Kept between steps to reuse its memory.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) tasks: Vec<Task>,
    pub(crate) merges: Vec<Merge>,
    pub(crate) n_partials: usize,
}

/// Queries of the largest task.
pub(crate) fn task_rows(geometry: &Geometry) -> usize {
    task_tokens(geometry) * geometry.group()
}

fn task_tokens(geometry: &Geometry) -> usize {
    (TARGET_ROWS / geometry.group()).max(1)
}

impl Plan {
    /// Rebuilds the plan for the sequences of a step.
    pub(crate) fn make(&mut self, geometry: &Geometry, spans: &[Span]) {
        self.tasks.clear();
        self.merges.clear();
        self.n_partials = 0;
        for (sequence, span) in spans.iter().enumerate() {
            for tile in tiles(geometry, span) {
                for kv_head in 0..geometry.n_kv_heads {
                    self.add(geometry, sequence, &tile, kv_head);
                }
            }
        }
    }

    fn add(&mut self, geometry: &Geometry, sequence: usize, tile: &TokenTile, kv_head: usize) {
        let &TokenTile { first_row, position, n_tokens, ref blocks } = tile;
        let first_partial = self.n_partials;
        let origin = blocks.start / PART_BLOCKS * PART_BLOCKS;
        let n_parts = (blocks.end - origin).div_ceil(PART_BLOCKS);
        for part in 0..n_parts {
            let start = origin + part * PART_BLOCKS;
            let partial = (n_parts > 1).then(|| first_partial + part * n_tokens * geometry.group());
            let blocks = start.max(blocks.start)..(start + PART_BLOCKS).min(blocks.end);
            let task = Task { sequence, first_row, position, n_tokens, kv_head, blocks, first_partial: partial };
            self.tasks.push(task);
        }
        if n_parts > 1 {
            self.merges.push(Merge { first_row, n_tokens, kv_head, first_partial, n_parts });
            self.n_partials += n_parts * n_tokens * geometry.group();
        }
    }
}

/// Neighbouring tokens, and the blocks that any of them sees.
struct TokenTile {
    first_row: usize,
    position: usize,
    n_tokens: usize,
    blocks: Range<usize>,
}

/// The last tokens come first: they see the most, and long tasks should not start last.
fn tiles(geometry: &Geometry, span: &Span) -> impl Iterator<Item = TokenTile> {
    let (geometry, span, step) = (*geometry, *span, task_tokens(geometry));
    (0..span.n_tokens.div_ceil(step)).rev().map(move |index| {
        let start = index * step;
        let n_tokens = step.min(span.n_tokens - start);
        let position = span.position + start;
        let blocks = geometry.first_visible(position) / BLOCK_TOKENS..(position + n_tokens).div_ceil(BLOCK_TOKENS);
        TokenTile { first_row: span.first_row + start, position, n_tokens, blocks }
    })
}
