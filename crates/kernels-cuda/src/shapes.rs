//! The launch shapes of the kernels: blocks and threads. The comments of the kernels state their requirements.

use hone_kernels::step::Geometry;

use crate::arguments::StatesArguments;
use crate::device::Shape;

/// Blocks of a product that a large card runs at the same time. More would start late: every block takes rows until
/// none are left.
const PRODUCT_BLOCKS: usize = 132 * 4;

/// A product of few rows.
pub(crate) fn product(n_out: usize, n_tiles: usize) -> Shape {
    let blocks = n_out.div_ceil(8).min(PRODUCT_BLOCKS);
    Shape { grid: [blocks, n_tiles, 1], threads: 128, shared: 0 }
}

/// A product of many rows with our own kernel.
#[cfg(any(feature = "cuda", test))]
pub(crate) fn matmul(n_rows: usize, n_out: usize) -> Shape {
    Shape { grid: [n_out.div_ceil(128), n_rows.div_ceil(64), 1], threads: 128, shared: 0 }
}

/// Blocks take rows of the matrix until none are left.
pub(crate) fn dequantize(n_rows: usize) -> Shape {
    Shape { grid: [n_rows.min(1 << 16), 1, 1], threads: 256, shared: 0 }
}

pub(crate) fn plan_routes() -> Shape {
    Shape { grid: [1, 1, 1], threads: 1024, shared: 0 }
}

pub(crate) fn spread(n_ranks: usize) -> Shape {
    Shape { grid: [n_ranks, 1, 1], threads: 128, shared: 0 }
}

/// Attention of few rows, each cut into parts of its context.
pub(crate) fn attend_split(n_rows: usize, n_splits: usize, geometry: &Geometry) -> Shape {
    Shape { grid: [geometry.n_kv_heads, n_rows, n_splits], threads: 128, shared: 0 }
}

pub(crate) fn merge_splits(n_rows: usize, geometry: &Geometry) -> Shape {
    let threads = geometry.head_dim.next_multiple_of(32).min(512) as u32;
    Shape { grid: [geometry.n_heads, n_rows, 1], threads, shared: 0 }
}

/// Head widths that kernels are compiled for; wider heads than the last of `SPLIT_WIDTHS` are processed in parts.
pub(crate) const SPLIT_WIDTHS: [usize; 2] = [64, 128];
/// Head widths that kernels for prompts are compiled for.
pub(crate) const PROMPT_WIDTHS: [usize; 4] = [64, 128, 256, 512];

/// The smallest width that heads fit into, or the largest.
pub(crate) fn width_for(head_dim: usize, widths: &[usize]) -> usize {
    let fitting = widths.iter().find(|width| head_dim <= **width);
    *fitting.or(widths.last()).expect("there are widths")
}

/// Attention of many rows, in tiles of the pairs of tokens and heads of a group.
pub(crate) fn attend_prompt(n_rows: usize, n_sequences: usize, geometry: &Geometry) -> Shape {
    let (tile, shared) = match geometry.head_dim {
        0..=64 => (128, 32_768),
        65..=128 => (128, 65_536),
        129..=256 => (64, 98_304),
        _ => (32, 98_304),
    };
    let group = geometry.n_heads / geometry.n_kv_heads;
    Shape { grid: [n_rows * group / tile + n_sequences, geometry.n_kv_heads, 1], threads: 128, shared }
}

pub(crate) fn convolve(n_tokens: usize, n_channels: usize) -> Shape {
    Shape { grid: [n_tokens, n_channels.div_ceil(256), 1], threads: 256, shared: 0 }
}

pub(crate) fn recur(n_sequences: usize, states: &StatesArguments) -> Shape {
    let slice = if states.key_dim <= 128 { 32 } else { 16 };
    let n_slices = (states.value_dim as usize).div_ceil(slice);
    Shape { grid: [states.n_heads as usize, n_sequences, n_slices], threads: 128, shared: 0 }
}
