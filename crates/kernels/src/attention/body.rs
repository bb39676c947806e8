//! The work of one attention task, written once for all register widths.

use half::f16;

use super::kv_cache::{BLOCK_TOKENS, KvFormat, KvLayer, SCALE_ELEMENTS};
use super::plan::{Merge, Task};
use super::{Attention, Geometry};
use crate::elementwise::body::capped;
use crate::elementwise::vector::Vector;

/// Blocks between two updates of the softmax.
const CHUNK_BLOCKS: usize = 4;
const CHUNK_POSITIONS: usize = CHUNK_BLOCKS * BLOCK_TOKENS;

/// Below every score, and finite, so that differences between scores are finite too.
const LOWEST: f32 = -1e30;

/// The parts of a thread's memory: queries, scores, results, the largest score and sum of weights per query, and a
/// block of unpacked keys or values.
struct Scratch {
    queries: *mut f32,
    scores: *mut f32,
    results: *mut f32,
    largest: *mut f32,
    sums: *mut f32,
    unpacked: *mut f16,
}

/// Floats that a task of `n_rows` queries needs.
pub(super) fn scratch_floats(geometry: &Geometry, n_rows: usize) -> usize {
    n_rows * (geometry.head_dim + CHUNK_POSITIONS + geometry.padded_dim() + 2) + unpacked_floats(geometry)
}

/// Two half-precision numbers fit into a float.
fn unpacked_floats(geometry: &Geometry) -> usize {
    geometry.padded_dim() * BLOCK_TOKENS / 2
}

fn parts(geometry: &Geometry, n_rows: usize, scratch: &mut [f32]) -> Scratch {
    assert!(scratch.len() >= scratch_floats(geometry, n_rows), "the scratch is of another geometry");
    let (queries, rest) = scratch.split_at_mut(n_rows * geometry.head_dim);
    let (scores, rest) = rest.split_at_mut(n_rows * CHUNK_POSITIONS);
    let (results, rest) = rest.split_at_mut(n_rows * geometry.padded_dim());
    let (largest, rest) = rest.split_at_mut(n_rows);
    let (sums, rest) = rest.split_at_mut(n_rows);
    let unpacked = &mut rest[..unpacked_floats(geometry)];
    results.fill(0.0);
    largest.fill(LOWEST);
    sums.fill(0.0);
    Scratch {
        queries: queries.as_mut_ptr(),
        scores: scores.as_mut_ptr(),
        results: results.as_mut_ptr(),
        largest: largest.as_mut_ptr(),
        sums: sums.as_mut_ptr(),
        unpacked: unpacked.as_mut_ptr().cast(),
    }
}

/// # Safety
/// As [`super::AttentionKernels::attend`].
#[inline(always)]
pub(super) unsafe fn attend<V: Vector>(attention: &Attention<'_>, task: &Task, blocks: &[u32], scratch: &mut [f32]) {
    let geometry = &attention.geometry;
    let n_rows = task.n_tokens * geometry.group();
    let parts = parts(geometry, n_rows, scratch);
    // SAFETY: the caller's promise; the parts are as long as the rows need.
    unsafe {
        load_queries::<V>(attention, task, &parts);
        let mut first = task.blocks.start;
        while first < task.blocks.end {
            // Chunks start at the same positions in every task, so that a token's result does not depend on the task.
            let end = ((first / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS).min(task.blocks.end);
            let chunk = Chunk { first_block: first, blocks: &blocks[first..end], next: &blocks[end..task.blocks.end] };
            attend_chunk::<V>(attention, task, &chunk, n_rows, &parts);
            first = end;
        }
        match task.first_partial {
            Some(first_partial) => store_partials::<V>(attention, first_partial, n_rows, &parts),
            None => store_results::<V>(attention, task, &parts),
        }
    }
}

/// Copies the scaled queries into contiguous memory: all heads of the first token, then of the second.
#[inline(always)]
unsafe fn load_queries<V: Vector>(attention: &Attention<'_>, task: &Task, parts: &Scratch) {
    let Geometry { head_dim, scale, .. } = attention.geometry;
    let width = attention.geometry.group() * head_dim;
    for token in 0..task.n_tokens {
        // SAFETY: the token's queries exist, and the scratch has room for them.
        unsafe {
            let from = attention.queries.add((task.first_row + token) * attention.query_stride + task.kv_head * width);
            copy_scaled::<V>(from, scale, width, parts.queries.add(token * width));
        }
    }
}

/// Blocks between two updates of the softmax.
struct Chunk<'a> {
    first_block: usize,
    blocks: &'a [u32],
    /// The task's blocks after these.
    next: &'a [u32],
}

/// Computes the scores of up to [`CHUNK_BLOCKS`] blocks, updates the softmax, and adds the weighted values.
///
/// The hardware prefetcher falls behind the reads of the cache, so values are prefetched while scores are computed, and
/// the next chunk's keys while values are summed.
#[inline(always)]
unsafe fn attend_chunk<V: Vector>(
    attention: &Attention<'_>,
    task: &Task,
    chunk: &Chunk<'_>,
    n_rows: usize,
    parts: &Scratch,
) {
    let Geometry { head_dim, .. } = attention.geometry;
    let (layer, padded_dim) = (attention.layer, attention.geometry.padded_dim());
    let first_position = chunk.first_block * BLOCK_TOKENS;
    let end_position = task.position + task.n_tokens;
    // SAFETY: the scratch has room for the scores of a chunk, and the blocks exist.
    unsafe {
        for (index, block) in chunk.blocks.iter().enumerate() {
            let keys = Panel {
                start: keys::<V>(layer, *block, task.kv_head, parts.unpacked),
                stride: BLOCK_TOKENS,
                n_columns: BLOCK_TOKENS,
                depth: head_dim,
                read_next: layer.values(*block, task.kv_head).cast(),
            };
            let scores = FloatRows { start: parts.scores.add(index * BLOCK_TOKENS), stride: CHUNK_POSITIONS };
            product::<V, false>(FloatRows { start: parts.queries, stride: head_dim }, &keys, scores, n_rows);
        }
        softmax::<V>(attention, task, first_position, chunk.blocks.len() * BLOCK_TOKENS, n_rows, parts);
        for (index, block) in chunk.blocks.iter().enumerate() {
            let next = chunk.next.get(index).unwrap_or(block);
            let values = Panel {
                start: values::<V>(layer, *block, task.kv_head, parts.unpacked),
                stride: padded_dim,
                n_columns: padded_dim,
                depth: BLOCK_TOKENS.min(end_position - (first_position + index * BLOCK_TOKENS)),
                read_next: layer.keys(*next, task.kv_head).cast(),
            };
            let weights = FloatRows { start: parts.scores.add(index * BLOCK_TOKENS), stride: CHUNK_POSITIONS };
            product::<V, true>(weights, &values, FloatRows { start: parts.results, stride: padded_dim }, n_rows);
        }
    }
}

/// A block's keys in half precision: in place, or unpacked.
#[inline(always)]
unsafe fn keys<V: Vector>(layer: &KvLayer, block: u32, kv_head: usize, unpacked: *mut f16) -> *const f16 {
    let quants = layer.keys(block, kv_head);
    if layer.format() == KvFormat::F16 {
        return quants.cast();
    }
    // SAFETY: the offsets are those of the block, and there is room for it.
    unsafe {
        let mut scales = quants.add(layer.key_elements()).cast::<f16>();
        for first in (0..layer.key_elements()).step_by(SCALE_ELEMENTS * BLOCK_TOKENS) {
            let end = layer.key_elements().min(first + SCALE_ELEMENTS * BLOCK_TOKENS);
            for position in (0..BLOCK_TOKENS).step_by(2 * V::LANES) {
                let scales = V::load_f16_pair(scales.add(position));
                for at in (first + position..end).step_by(BLOCK_TOKENS) {
                    unpack::<V>(quants.add(at), scales, unpacked.add(at));
                }
            }
            scales = scales.add(BLOCK_TOKENS);
        }
    }
    unpacked
}

/// A block's values in half precision: in place, or unpacked.
#[inline(always)]
unsafe fn values<V: Vector>(layer: &KvLayer, block: u32, kv_head: usize, unpacked: *mut f16) -> *const f16 {
    let quants = layer.values(block, kv_head);
    if layer.format() == KvFormat::F16 {
        return quants.cast();
    }
    // SAFETY: the offsets are those of the block, and there is room for it.
    unsafe {
        let scales = quants.add(layer.value_elements()).cast::<f16>();
        for chunk in 0..layer.value_elements() / SCALE_ELEMENTS {
            let scale = V::splat((*scales.add(chunk)).to_f32_const());
            for at in (chunk * SCALE_ELEMENTS..(chunk + 1) * SCALE_ELEMENTS).step_by(2 * V::LANES) {
                unpack::<V>(quants.add(at), [scale; 2], unpacked.add(at));
            }
        }
    }
    unpacked
}

/// Multiplies two registers of 8-bit numbers with their scales.
#[inline(always)]
unsafe fn unpack<V: Vector>(quants: *const u8, scales: [V; 2], to: *mut f16) {
    // SAFETY: the caller has the instruction set, and the pointers are valid for two registers.
    unsafe {
        let quants = V::load_i8_pair(quants.cast());
        V::store_f16_pair([quants[0].multiply(scales[0]), quants[1].multiply(scales[1])], to);
    }
}

/// Turns the scores of a chunk into weights, and scales earlier results down to the new largest score.
#[inline(always)]
unsafe fn softmax<V: Vector>(
    attention: &Attention<'_>,
    task: &Task,
    first_position: usize,
    n_positions: usize,
    n_rows: usize,
    parts: &Scratch,
) {
    let geometry = &attention.geometry;
    for row in 0..n_rows {
        let position = task.position + row / geometry.group();
        let hidden_before = geometry.first_visible(position).saturating_sub(first_position).min(n_positions);
        let seen_until = (position + 1).saturating_sub(first_position).min(n_positions);
        // SAFETY: the row has as many scores as the chunk has positions, and a result of `padded_dim` floats.
        unsafe {
            let scores = parts.scores.add(row * CHUNK_POSITIONS);
            if let Some(cap) = geometry.soft_cap {
                cap_scores::<V>(scores, n_positions, cap);
            }
            for hidden in (0..hidden_before).chain(seen_until..n_positions) {
                *scores.add(hidden) = f32::NEG_INFINITY;
            }
            let (largest, sum) = (parts.largest.add(row), parts.sums.add(row));
            let before = *largest;
            *largest = before.max(largest_of::<V>(scores, n_positions));
            let added = exponentials::<V>(scores, n_positions, *largest);
            if *largest == before {
                *sum += added;
            } else {
                let factor = V::splat(before - *largest).exp();
                *sum = *sum * factor.largest() + added;
                scale::<V>(parts.results.add(row * geometry.padded_dim()), geometry.padded_dim(), factor);
            }
        }
    }
}

#[inline(always)]
unsafe fn cap_scores<V: Vector>(scores: *mut f32, n: usize, cap: f32) {
    for index in (0..n).step_by(V::LANES) {
        // SAFETY: n is a multiple of every register's width.
        unsafe { capped(V::load(scores.add(index)), cap).store(scores.add(index)) }
    }
}

#[inline(always)]
unsafe fn largest_of<V: Vector>(scores: *const f32, n: usize) -> f32 {
    // SAFETY: n is a multiple of every register's width.
    unsafe {
        let mut largest = V::load(scores);
        for index in (0..n).step_by(V::LANES).skip(1) {
            largest = largest.maximum(V::load(scores.add(index)));
        }
        largest.largest()
    }
}

/// Replaces scores by e^(score - largest), and returns their sum.
#[inline(always)]
unsafe fn exponentials<V: Vector>(scores: *mut f32, n: usize, largest: f32) -> f32 {
    // SAFETY: n is a multiple of every register's width.
    unsafe {
        let mut sum = V::splat(0.0);
        for index in (0..n).step_by(V::LANES) {
            let weight = V::load(scores.add(index)).subtract(V::splat(largest)).exp();
            weight.store(scores.add(index));
            sum = sum.add(weight);
        }
        sum.sum()
    }
}

#[inline(always)]
unsafe fn scale<V: Vector>(values: *mut f32, n: usize, factor: V) {
    for index in (0..n).step_by(V::LANES) {
        // SAFETY: n is a multiple of every register's width.
        unsafe { V::load(values.add(index)).multiply(factor).store(values.add(index)) }
    }
}

#[inline(always)]
unsafe fn copy_scaled<V: Vector>(from: *const f32, factor: f32, n: usize, to: *mut f32) {
    let whole = n - n % V::LANES;
    // SAFETY: every index is below n.
    unsafe {
        for index in (0..whole).step_by(V::LANES) {
            V::load(from.add(index)).multiply(V::splat(factor)).store(to.add(index));
        }
        for index in whole..n {
            *to.add(index) = *from.add(index) * factor;
        }
    }
}

/// Divides the results by the sums of the weights, and writes them to the heads' places in the output.
#[inline(always)]
unsafe fn store_results<V: Vector>(attention: &Attention<'_>, task: &Task, parts: &Scratch) {
    let geometry = &attention.geometry;
    let (group, head_dim) = (geometry.group(), geometry.head_dim);
    for row in 0..task.n_tokens * group {
        // SAFETY: the row's result is in the scratch, and its place in `out` is the task's.
        unsafe {
            let result = parts.results.add(row * geometry.padded_dim());
            let head = task.kv_head * group + row % group;
            let divisor = attention.divisor(head, *parts.largest.add(row), *parts.sums.add(row));
            copy_scaled::<V>(result, 1.0 / divisor, head_dim, out_of(attention, task.first_row + row / group, head));
        }
    }
}

#[inline(always)]
unsafe fn store_partials<V: Vector>(attention: &Attention<'_>, first_partial: usize, n_rows: usize, parts: &Scratch) {
    let geometry = &attention.geometry;
    for row in 0..n_rows {
        // SAFETY: the partial results of the task exist and are its own.
        unsafe {
            let partial = attention.partials.add((first_partial + row) * geometry.partial_width());
            copy_scaled::<V>(parts.results.add(row * geometry.padded_dim()), 1.0, geometry.padded_dim(), partial);
            *partial.add(geometry.padded_dim()) = *parts.largest.add(row);
            *partial.add(geometry.padded_dim() + 1) = *parts.sums.add(row);
        }
    }
}

/// # Safety
/// As [`super::AttentionKernels::merge`].
#[inline(always)]
pub(super) unsafe fn merge<V: Vector>(attention: &Attention<'_>, merge: &Merge) {
    let geometry = &attention.geometry;
    let (group, width) = (geometry.group(), geometry.partial_width());
    let n_rows = merge.n_tokens * group;
    for row in 0..n_rows {
        // SAFETY: all parts of the row exist, and its place in `out` is the merge's.
        unsafe {
            let part = |part: usize| attention.partials.add((merge.first_partial + part * n_rows + row) * width);
            let largest_of = |index: usize| *part(index).add(geometry.padded_dim());
            let sum_of = |index: usize| *part(index).add(geometry.padded_dim() + 1);
            let largest = (0..merge.n_parts).map(largest_of).fold(LOWEST, f32::max);
            let sum: f32 = (0..merge.n_parts).map(|index| sum_of(index) * (largest_of(index) - largest).exp()).sum();
            let head = merge.kv_head * group + row % group;
            let divisor = attention.divisor(head, largest, sum);
            let out = out_of(attention, merge.first_row + row / group, head);
            std::slice::from_raw_parts_mut(out, geometry.head_dim).fill(0.0);
            for index in 0..merge.n_parts {
                let factor = (largest_of(index) - largest).exp() / divisor;
                add_scaled::<V>(part(index), factor, geometry.head_dim, out);
            }
        }
    }
}

#[inline(always)]
unsafe fn add_scaled<V: Vector>(from: *const f32, factor: f32, n: usize, to: *mut f32) {
    let whole = n - n % V::LANES;
    // SAFETY: every index is below n.
    unsafe {
        for index in (0..whole).step_by(V::LANES) {
            V::load(from.add(index)).multiply_add(V::splat(factor), V::load(to.add(index))).store(to.add(index));
        }
        for index in whole..n {
            *to.add(index) += *from.add(index) * factor;
        }
    }
}

#[inline(always)]
unsafe fn out_of(attention: &Attention<'_>, row: usize, head: usize) -> *mut f32 {
    // SAFETY: the row is one of the step's.
    unsafe { attention.out.add(row * attention.out_stride + head * attention.geometry.head_dim) }
}

/// Rows of floats, `stride` apart.
#[derive(Clone, Copy)]
struct FloatRows {
    start: *mut f32,
    stride: usize,
}

/// A matrix in half precision, `[depth][n_columns]`, with rows `stride` apart; `n_columns` is a multiple of two
/// registers.
struct Panel {
    start: *const f16,
    stride: usize,
    n_columns: usize,
    depth: usize,
    /// The panel to be read next, of the same size, which is prefetched.
    read_next: *const f16,
}

/// out = rows · panel, or out += rows · panel, for `n_rows` rows.
#[inline(always)]
unsafe fn product<V: Vector, const ADD: bool>(rows: FloatRows, panel: &Panel, out: FloatRows, n_rows: usize) {
    let mut row = 0;
    while row < n_rows {
        let n_tile_rows = V::TILE_ROWS.min(n_rows - row);
        // SAFETY: the rows from here on are below n_rows.
        unsafe {
            let rows = FloatRows { start: rows.start.add(row * rows.stride), ..rows };
            let out = FloatRows { start: out.start.add(row * out.stride), ..out };
            if row == 0 {
                tile_rows::<V, ADD, true>(n_tile_rows, rows, panel, out);
            } else {
                tile_rows::<V, ADD, false>(n_tile_rows, rows, panel, out);
            }
        }
        row += n_tile_rows;
    }
}

/// The sums of a tile stay in registers, so its size must be known at compile time.
#[inline(always)]
unsafe fn tile_rows<V: Vector, const ADD: bool, const FETCH: bool>(
    n_rows: usize,
    rows: FloatRows,
    panel: &Panel,
    out: FloatRows,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match n_rows {
            1 => tile::<V, ADD, FETCH, 1>(rows, panel, out),
            2 => tile::<V, ADD, FETCH, 2>(rows, panel, out),
            3 => tile::<V, ADD, FETCH, 3>(rows, panel, out),
            4 => tile::<V, ADD, FETCH, 4>(rows, panel, out),
            5 => tile::<V, ADD, FETCH, 5>(rows, panel, out),
            6 => tile::<V, ADD, FETCH, 6>(rows, panel, out),
            7 => tile::<V, ADD, FETCH, 7>(rows, panel, out),
            8 => tile::<V, ADD, FETCH, 8>(rows, panel, out),
            9 => tile::<V, ADD, FETCH, 9>(rows, panel, out),
            10 => tile::<V, ADD, FETCH, 10>(rows, panel, out),
            11 => tile::<V, ADD, FETCH, 11>(rows, panel, out),
            _ => tile::<V, ADD, FETCH, 12>(rows, panel, out),
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Vector, const ADD: bool, const FETCH: bool, const N_ROWS: usize>(
    rows: FloatRows,
    panel: &Panel,
    out: FloatRows,
) {
    let mut read_next = panel.read_next;
    for column in (0..panel.n_columns).step_by(2 * V::LANES) {
        // SAFETY: the columns come in whole pairs of registers, and the rows exist.
        unsafe {
            let mut sums = [[V::splat(0.0); 2]; N_ROWS];
            let mut lines = Lines { next: panel.start.add(column), stride: panel.stride, read_next };
            const { assert!(V::N_FACTORS == 1 || V::N_FACTORS == 4) };
            let whole = panel.depth - panel.depth % V::N_FACTORS;
            for k in (0..whole).step_by(V::N_FACTORS) {
                let factors: [V; N_ROWS] =
                    std::array::from_fn(|row| V::load_factors(rows.start.add(row * rows.stride + k)));
                lines.add::<V, FETCH, 0, N_ROWS>(&factors, &mut sums);
                if V::N_FACTORS == 4 {
                    lines.add::<V, FETCH, 1, N_ROWS>(&factors, &mut sums);
                    lines.add::<V, FETCH, 2, N_ROWS>(&factors, &mut sums);
                    lines.add::<V, FETCH, 3, N_ROWS>(&factors, &mut sums);
                }
            }
            for k in whole..panel.depth {
                let factors: [V; N_ROWS] = std::array::from_fn(|row| V::splat(*rows.start.add(row * rows.stride + k)));
                lines.add::<V, FETCH, 0, N_ROWS>(&factors, &mut sums);
            }
            read_next = lines.read_next;
            for (row, sum) in sums.into_iter().enumerate() {
                let target = out.start.add(row * out.stride + column);
                for (half, sum) in sum.into_iter().enumerate() {
                    let target = target.add(half * V::LANES);
                    let sum = if ADD { sum.add(V::load(target)) } else { sum };
                    sum.store(target);
                }
            }
        }
    }
}

/// The part of a panel's rows that a tile covers, from one row on.
struct Lines {
    next: *const f16,
    stride: usize,
    read_next: *const f16,
}

impl Lines {
    /// Adds the products of the next row with a factor of every row of the tile.
    ///
    /// # Safety
    /// The panel has another row; the instruction set of `V`.
    #[inline(always)]
    unsafe fn add<V: Vector, const FETCH: bool, const LANE: i32, const N_ROWS: usize>(
        &mut self,
        factors: &[V; N_ROWS],
        sums: &mut [[V; 2]; N_ROWS],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let [left, right] = V::load_f16_pair(self.next);
            for (factors, sum) in factors.iter().zip(sums) {
                sum[0] = left.multiply_add_lane::<LANE>(*factors, sum[0]);
                sum[1] = right.multiply_add_lane::<LANE>(*factors, sum[1]);
            }
            // After the last row this may point past the end, where nothing is read.
            self.next = self.next.wrapping_add(self.stride);
            if FETCH {
                V::prefetch(self.read_next);
                self.read_next = self.read_next.wrapping_add(2 * V::LANES);
            }
        }
    }
}
