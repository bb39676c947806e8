//! Attention of new tokens over the cached keys and values of their sequences.
//!
//! The cache is cut into blocks of [`BLOCK_TOKENS`] positions ([`kv_cache`]). A step's attention is cut into tasks of
//! about equal cost ([`plan`]): some tokens of one sequence, one head of keys and values with all query heads that
//! share it, and a range of blocks. A task goes over its blocks once, with an online softmax (`body`), so that no
//! matrix of scores ever exists (<https://arxiv.org/abs/2205.14135>). If a context is cut, its tasks leave partial
//! results, which are merged afterwards.

mod body;
pub(crate) mod kv_cache;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use kv_cache::KvLayer;
use plan::{Merge, Task};

pub use kv_cache::{BLOCK_TOKENS, KvFormat};
pub use plan::Span;

/// Which positions before its own a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The latest positions, this many including its own.
    Sliding(usize),
    /// The positions of its own chunk, where positions are cut into chunks of this length.
    Chunk(usize),
}

impl Window {
    /// Positions in a window.
    pub fn length(self) -> usize {
        match self {
            Window::Sliding(length) | Window::Chunk(length) => length,
        }
    }

    /// The first position that the token at `position` sees.
    pub fn first_visible(self, position: usize) -> usize {
        match self {
            Window::Sliding(length) => (position + 1).saturating_sub(length),
            Window::Chunk(length) => position - position % length,
        }
    }
}

/// How the queries of a layer attend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Query heads.
    pub n_heads: usize,
    /// Heads of keys and values; neighbouring query heads share one.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Multiplies the products of queries and keys.
    pub scale: f32,
    /// Scores x become cap · tanh(x / cap).
    pub soft_cap: Option<f32>,
    /// The window of visible positions; `None` means all positions before the token, and its own.
    pub window: Option<Window>,
}

impl Geometry {
    /// Query heads that share a head of keys and values.
    pub(crate) fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The first position that the token at `position` sees.
    pub(crate) fn first_visible(&self, position: usize) -> usize {
        self.window.map_or(0, |window| window.first_visible(position))
    }

    /// Width of a head's values in the cache and in partial results: whole pairs of the widest registers.
    pub(crate) fn padded_dim(&self) -> usize {
        kv_cache::padded(self.head_dim)
    }

    /// Floats of a partial result of one query: its values, the largest score, the sum of the weights.
    pub(crate) fn partial_width(&self) -> usize {
        self.padded_dim() + 2
    }
}

/// Inputs and outputs shared by all tasks of a phase.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) layer: &'a KvLayer,
    /// Queries of the step's first token; a token's heads are contiguous.
    pub(crate) queries: *const f32,
    /// Floats from one token's queries to the next's.
    pub(crate) query_stride: usize,
    /// Where the results of the step's first token are written, in the order of the heads.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    /// Partial results, [`Geometry::partial_width`] floats each.
    pub(crate) partials: *mut f32,
    /// One extra score per query head that takes part in the softmax without a value
    /// (<https://arxiv.org/abs/2309.17453>).
    pub(crate) sinks: Option<&'a [f32]>,
}

impl Attention<'_> {
    /// The divisor of a query's sum of weighted values, given its largest score and the sum of its weights relative to
    /// that. On overflow the values vanish, which is the limit.
    fn divisor(&self, head: usize, largest: f32, sum: f32) -> f32 {
        self.sinks.map_or(sum, |sinks| sum + (sinks[head] - largest).exp())
    }
}

/// One thread's memory, large enough for the largest task.
pub(crate) struct Scratch(Vec<f32>);

impl Scratch {
    /// Allocates enough for all of these geometries.
    pub(crate) fn new<'a>(geometries: impl Iterator<Item = &'a Geometry>) -> Self {
        let n_floats = geometries.map(|geometry| body::scratch_floats(geometry, plan::task_rows(geometry)));
        Scratch(vec![0.0; n_floats.max().unwrap_or(0)])
    }
}

/// Attention for one instruction set.
pub(crate) struct AttentionKernels {
    attend: unsafe fn(&Attention<'_>, &Task, &[u32], &mut [f32]),
    merge: unsafe fn(&Attention<'_>, &Merge),
}

impl AttentionKernels {
    /// Carries out one task of a plan.
    ///
    /// # Safety
    /// The processor has the instruction set. The pointers are valid for all rows that the plan was made for.
    /// Meanwhile, no one writes the queries or the cache, and no one else touches the task's part of `out` or
    /// `partials`. `blocks` are the blocks of the task's sequence, and are allocated in the layer. The scratch memory
    /// was made for this geometry.
    pub(crate) unsafe fn attend(&self, attention: &Attention<'_>, task: &Task, blocks: &[u32], scratch: &mut Scratch) {
        // SAFETY: the caller's promise.
        unsafe { (self.attend)(attention, task, blocks, &mut scratch.0) }
    }

    /// Merges the partial results of some queries.
    ///
    /// # Safety
    /// As [`AttentionKernels::attend`], and the tasks whose results are merged are done.
    pub(crate) unsafe fn merge(&self, attention: &Attention<'_>, merge: &Merge) {
        // SAFETY: the caller's promise.
        unsafe { (self.merge)(attention, merge) }
    }
}

/// Compiles the bodies for one instruction set.
macro_rules! table {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        pub(crate) mod $name {
            use super::{Attention, AttentionKernels, Merge, Task, body};

            pub(crate) static TABLE: AttentionKernels = AttentionKernels { attend, merge };

            /// # Safety
            /// As [`AttentionKernels::attend`].
            $(#[target_feature(enable = $features)])?
            unsafe fn attend(attention: &Attention<'_>, task: &Task, blocks: &[u32], scratch: &mut [f32]) {
                // SAFETY: the caller's promise.
                unsafe { body::attend::<$vector>(attention, task, blocks, scratch) }
            }

            /// # Safety
            /// As [`AttentionKernels::merge`].
            $(#[target_feature(enable = $features)])?
            unsafe fn merge(attention: &Attention<'_>, merge: &Merge) {
                // SAFETY: the caller's promise.
                unsafe { body::merge::<$vector>(attention, merge) }
            }
        }
    };
}

table!(portable, wide::f32x4);
#[cfg(target_arch = "x86_64")]
table!(avx2, std::arch::x86_64::__m256, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
table!(avx512, std::arch::x86_64::__m512, "avx512f");
#[cfg(target_arch = "aarch64")]
table!(neon, std::arch::aarch64::float32x4_t, "neon");
