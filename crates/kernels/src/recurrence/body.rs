//! The functions, written once for all register widths.

use super::{Convolution, HeadRun};
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

/// Goes through all tokens with a few columns of the matrix at a time, which stay in the first-level cache.
///
/// # Safety
/// As for the function of the same name in the table.
#[inline(always)]
pub(super) unsafe fn advance<V: Vector>(run: &HeadRun, before: *const f32, after: *mut f32) {
    let mut column = 0;
    // SAFETY: the columns are below the width of a row.
    unsafe {
        while column + 4 * V::LANES <= run.value_dim {
            advance_columns::<V, 4>(run, before, after, column);
            column += 4 * V::LANES;
        }
        while column + V::LANES <= run.value_dim {
            advance_columns::<V, 1>(run, before, after, column);
            column += V::LANES;
        }
        while column < run.value_dim {
            advance_columns::<f32, 1>(run, before, after, column);
            column += 1;
        }
    }
}

#[inline(always)]
unsafe fn advance_columns<V: Vector, const N: usize>(
    run: &HeadRun,
    mut before: *const f32,
    after: *mut f32,
    column: usize,
) {
    for token in 0..run.n_tokens {
        // SAFETY: the caller's promise; after the first token, its columns of the matrix are those in `after`.
        unsafe { advance_token::<V, N>(run, token, before, after, column) };
        before = after;
    }
}

/// Works on `N` registers of columns. What a column holds does not depend on its neighbours.
#[inline(always)]
unsafe fn advance_token<V: Vector, const N: usize>(
    run: &HeadRun,
    token: usize,
    before: *const f32,
    after: *mut f32,
    column: usize,
) {
    let width = run.value_dim;
    // SAFETY: the caller's promise.
    unsafe {
        let key = run.keys.pointer.add(token * run.keys.stride);
        let query = run.queries.pointer.add(token * run.queries.stride);
        let value = run.values.pointer.add(token * run.values.stride + column);
        let out = run.out.pointer.add(token * run.out.stride + column);
        let decay = V::splat(*run.decays.pointer.add(token * run.decays.stride));
        let strength = V::splat(*run.strengths.pointer.add(token * run.strengths.stride));
        let mut known = [V::splat(0.0); N];
        if run.is_delta {
            for row in 0..run.key_dim {
                let (line, key) = (before.add(row * width + column), V::splat(*key.add(row)));
                for (lane, known) in known.iter_mut().enumerate() {
                    *known = V::load(line.add(lane * V::LANES)).multiply_add(key, *known);
                }
            }
        }
        let mut added = [V::splat(0.0); N];
        for (lane, added) in added.iter_mut().enumerate() {
            let value = V::load(value.add(lane * V::LANES));
            *added = value.subtract(known[lane].multiply(decay)).multiply(strength);
        }
        let mut sums = [V::splat(0.0); N];
        for row in 0..run.key_dim {
            let (key, query) = (V::splat(*key.add(row)), V::splat(*query.add(row)));
            for (lane, sum) in sums.iter_mut().enumerate() {
                let at = row * width + column + lane * V::LANES;
                let weight = added[lane].multiply_add(key, V::load(before.add(at)).multiply(decay));
                weight.store(after.add(at));
                *sum = weight.multiply_add(query, *sum);
            }
        }
        for (lane, sum) in sums.into_iter().enumerate() {
            sum.store(out.add(lane * V::LANES));
        }
    }
}
