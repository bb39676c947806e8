//! The functions, written once for all register widths.

use super::{Convolution, HeadRun, STRIP_COLUMNS};
use crate::elementwise::vector::Vector;

/// # Safety
/// As for the function of the same name in the table.
#[inline(always)]
pub(super) unsafe fn convolve<V: Vector>(convolution: &Convolution<'_>, out: &mut [f32]) {
    let whole = out.len() - out.len() % V::LANES;
    for channel in (0..whole).step_by(V::LANES) {
        // SAFETY: all inputs, taps and the output have these channels.
        unsafe { convolve_at::<V>(convolution, out, channel) }
    }
    for channel in whole..out.len() {
        // SAFETY: as above.
        unsafe { convolve_at::<f32>(convolution, out, channel) }
    }
}

#[inline(always)]
unsafe fn convolve_at<V: Vector>(convolution: &Convolution<'_>, out: &mut [f32], channel: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = convolution.bias.map_or(V::splat(0.0), |bias| V::load(bias.as_ptr().add(channel)));
        for (tap, input) in convolution.inputs.iter().enumerate() {
            if let Some(input) = input {
                let weight = V::load(convolution.taps.as_ptr().add(tap * out.len() + channel));
                sum = V::load(input.as_ptr().add(channel)).multiply_add(weight, sum);
            }
        }
        if convolution.has_silu {
            sum = sum.divide(V::splat(0.0).subtract(sum).exp().add(V::splat(1.0)));
        }
        sum.store(out.as_mut_ptr().add(channel));
    }
}

/// Processes all tokens strip by strip, so that a strip of the matrix stays in the first-level cache, with `N`
/// registers of its columns at a time.
///
/// # Safety
/// As for the function of the same name in the table.
#[inline(always)]
pub(super) unsafe fn advance<V: Vector, const N: usize>(run: &HeadRun, before: *const f32, after: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        if run.is_delta {
            advance_strips::<V, N, true>(run, before, after);
        } else {
            advance_strips::<V, N, false>(run, before, after);
        }
    }
}

#[inline(always)]
unsafe fn advance_strips<V: Vector, const N: usize, const IS_DELTA: bool>(
    run: &HeadRun,
    before: *const f32,
    after: *mut f32,
) {
    const { assert!(STRIP_COLUMNS.is_multiple_of(N * V::LANES)) };
    for first in (0..run.value_dim).step_by(STRIP_COLUMNS) {
        let start = first * run.key_dim;
        let width = STRIP_COLUMNS.min(run.value_dim - first);
        let at = |within: usize| Columns {
            before: before.wrapping_add(start + within),
            after: after.wrapping_add(start + within),
            width,
            first: first + within,
        };
        // SAFETY: the caller's promise; a strip has a row of `width` columns for every element of the key.
        unsafe {
            if width == STRIP_COLUMNS {
                let steps = (0..width).step_by(N * V::LANES);
                steps.for_each(|within| advance_columns::<V, N, IS_DELTA>(run, &at(within)));
            } else {
                (0..width).for_each(|within| advance_columns::<f32, 1, IS_DELTA>(run, &at(within)));
            }
        }
    }
}

/// Neighbouring columns of a strip.
struct Columns {
    /// The first row before the run, and the destination of the first row after it.
    before: *const f32,
    after: *mut f32,
    /// Floats from one row to the next.
    width: usize,
    /// Index of the first column in the whole matrix.
    first: usize,
}

/// Processes `N` registers of columns. A column does not depend on its neighbours, and the prediction for a token is
/// the same sum whether it is computed here or with the token before it.
#[inline(always)]
unsafe fn advance_columns<V: Vector, const N: usize, const IS_DELTA: bool>(run: &HeadRun, columns: &Columns) {
    let mut before = columns.before;
    // SAFETY: the caller's promise; after the first token, its columns of the matrix are those in `after`.
    unsafe {
        let mut known = [V::splat(0.0); N];
        if IS_DELTA && run.n_tokens > 0 {
            known = known_of_first::<V, N>(run, columns);
        }
        for token in 0..run.n_tokens {
            known = advance_token::<V, N, IS_DELTA>(run, token, known, before, columns);
            before = columns.after;
        }
    }
}

/// The matrix's prediction for the first token: Mᵀk.
#[inline(always)]
unsafe fn known_of_first<V: Vector, const N: usize>(run: &HeadRun, columns: &Columns) -> [V; N] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut known = [V::splat(0.0); N];
        for row in 0..run.key_dim {
            let (line, key) = (columns.before.add(row * columns.width), V::splat(*run.keys.pointer.add(row)));
            for (lane, known) in known.iter_mut().enumerate() {
                *known = V::load(line.add(lane * V::LANES)).multiply_add(key, *known);
            }
        }
        known
    }
}

/// Adds a token, for which the matrix predicts `known`, to the columns in `before`, and returns the prediction for the
/// next token.
#[inline(always)]
unsafe fn advance_token<V: Vector, const N: usize, const IS_DELTA: bool>(
    run: &HeadRun,
    token: usize,
    known: [V; N],
    before: *const f32,
    columns: &Columns,
) -> [V; N] {
    // The last token has no successor; its own key stands in, and the result is never read.
    let next = (token + 1).min(run.n_tokens - 1);
    // SAFETY: the caller's promise.
    unsafe {
        let key = run.keys.pointer.add(token * run.keys.stride);
        let next_key = run.keys.pointer.add(next * run.keys.stride);
        let query = run.queries.pointer.add(token * run.queries.stride);
        let value = run.values.pointer.add(token * run.values.stride + columns.first);
        let out = run.out.pointer.add(token * run.out.stride + columns.first);
        let decay = V::splat(*run.decays.pointer.add(token * run.decays.stride));
        let strength = V::splat(*run.strengths.pointer.add(token * run.strengths.stride));
        let mut added = [V::splat(0.0); N];
        for (lane, added) in added.iter_mut().enumerate() {
            let value = V::load(value.add(lane * V::LANES));
            *added = value.subtract(known[lane].multiply(decay)).multiply(strength);
        }
        let mut known_of_next = [V::splat(0.0); N];
        let mut sums = [V::splat(0.0); N];
        for row in 0..run.key_dim {
            let (key, query) = (V::splat(*key.add(row)), V::splat(*query.add(row)));
            let next_key = V::splat(*next_key.add(row));
            let mut weights = [V::splat(0.0); N];
            for (lane, weight) in weights.iter_mut().enumerate() {
                let old = V::load(before.add(row * columns.width + lane * V::LANES));
                *weight = added[lane].multiply_add(key, old.multiply(decay));
            }
            for (lane, weight) in weights.into_iter().enumerate() {
                weight.store(columns.after.add(row * columns.width + lane * V::LANES));
                sums[lane] = weight.multiply_add(query, sums[lane]);
                if IS_DELTA {
                    known_of_next[lane] = weight.multiply_add(next_key, known_of_next[lane]);
                }
            }
        }
        for (lane, sum) in sums.into_iter().enumerate() {
            sum.store(out.add(lane * V::LANES));
        }
        known_of_next
    }
}
