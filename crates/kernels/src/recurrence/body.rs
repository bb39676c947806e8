//! The functions, written once for all register widths.

use super::{Convolution, HeadStep};
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

/// # Safety
/// As for the function of the same name in the table.
#[inline(always)]
pub(super) unsafe fn advance<V: Vector>(step: &HeadStep<'_>, before: *const f32, after: *mut f32, out: &mut [f32]) {
    let n_columns = out.len();
    let mut column = 0;
    // SAFETY: the columns are below the width of a row.
    unsafe {
        while column + 4 * V::LANES <= n_columns {
            advance_columns::<V, 4>(step, before, after, out, column);
            column += 4 * V::LANES;
        }
        while column + V::LANES <= n_columns {
            advance_columns::<V, 1>(step, before, after, out, column);
            column += V::LANES;
        }
        while column < n_columns {
            advance_columns::<f32, 1>(step, before, after, out, column);
            column += 1;
        }
    }
}

/// Works on `N` registers of columns. What a column holds does not depend on its neighbours.
#[inline(always)]
unsafe fn advance_columns<V: Vector, const N: usize>(
    step: &HeadStep<'_>,
    before: *const f32,
    after: *mut f32,
    out: &mut [f32],
    column: usize,
) {
    let width = out.len();
    // SAFETY: the caller's promise.
    unsafe {
        let decay = V::splat(step.decay);
        let mut known = [V::splat(0.0); N];
        if step.is_delta {
            for (row, key) in step.key.iter().enumerate() {
                let line = before.add(row * width + column);
                for (lane, known) in known.iter_mut().enumerate() {
                    *known = V::load(line.add(lane * V::LANES)).multiply_add(V::splat(*key), *known);
                }
            }
        }
        let mut added = [V::splat(0.0); N];
        for (lane, added) in added.iter_mut().enumerate() {
            let value = V::load(step.value.as_ptr().add(column + lane * V::LANES));
            *added = value.subtract(known[lane].multiply(decay)).multiply(V::splat(step.strength));
        }
        let mut sums = [V::splat(0.0); N];
        for (row, (key, query)) in step.key.iter().zip(step.query).enumerate() {
            let at = row * width + column;
            for (lane, sum) in sums.iter_mut().enumerate() {
                let kept = V::load(before.add(at + lane * V::LANES)).multiply(decay);
                let weight = added[lane].multiply_add(V::splat(*key), kept);
                weight.store(after.add(at + lane * V::LANES));
                *sum = weight.multiply_add(V::splat(*query), *sum);
            }
        }
        for (lane, sum) in sums.into_iter().enumerate() {
            sum.store(out.as_mut_ptr().add(column + lane * V::LANES));
        }
    }
}
