use super::*;
use crate::elementwise::tests::{available, numbers, sized};

const WIDTH: usize = sized(83, 5);
const KEY_DIM: usize = sized(24, 3);

#[track_caller]
fn assert_close(ours: &[f32], expected: &[f64]) {
    for (ours, expected) in ours.iter().zip(expected) {
        assert!((f64::from(*ours) - expected).abs() < 1e-5, "{ours} and not {expected}");
    }
}

#[test]
fn convolutions_are_weighted_sums_over_time() {
    let inputs: Vec<Vec<f32>> = (0..3).map(|seed| numbers(seed, WIDTH, 1.0)).collect();
    let (taps, bias) = (numbers(7, 4 * WIDTH, 1.0), numbers(8, WIDTH, 1.0));
    let met = [None, Some(inputs[0].as_slice()), Some(&inputs[1]), Some(&inputs[2])];
    for (bias, has_silu) in [(None, false), (None, true), (Some(bias.as_slice()), true)] {
        let expected = (0..WIDTH).map(|channel| {
            let met = |tap: usize| met[tap].map_or(0.0, |input| f64::from(input[channel]));
            let products = (0..4).map(|tap| f64::from(taps[tap * WIDTH + channel]) * met(tap));
            let sum = products.sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[channel]));
            if has_silu { sum / (1.0 + (-sum).exp()) } else { sum }
        });
        let expected: Vec<f64> = expected.collect();
        for kernels in available() {
            let mut out = vec![0.0; WIDTH];
            kernels.recurrence.convolve(&Convolution { inputs: &met, taps: &taps, bias, has_silu }, &mut out);
            assert_close(&out, &expected);
        }
    }
}

/// The matrix after a token and the output, in the order of the formula.
fn expected(step: &HeadStep<'_>, matrix: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let decayed: Vec<f64> = matrix.iter().map(|weight| weight * f64::from(step.decay)).collect();
    let times = |matrix: &[f64], vector: &[f32], column: usize| -> f64 {
        vector.iter().enumerate().map(|(row, x)| matrix[row * WIDTH + column] * f64::from(*x)).sum()
    };
    let added = |column: usize| {
        let known = if step.is_delta { times(&decayed, step.key, column) } else { 0.0 };
        f64::from(step.strength) * (f64::from(step.value[column]) - known)
    };
    let after = |(at, weight): (usize, &f64)| weight + f64::from(step.key[at / WIDTH]) * added(at % WIDTH);
    let after: Vec<f64> = decayed.iter().enumerate().map(after).collect();
    let out = (0..WIDTH).map(|column| times(&after, step.query, column)).collect();
    (after, out)
}

#[test]
fn matrices_decay_and_learn() {
    let (key, query, value) = (numbers(1, KEY_DIM, 0.4), numbers(2, KEY_DIM, 0.4), numbers(3, WIDTH, 1.0));
    let before = numbers(4, KEY_DIM * WIDTH, 1.0);
    for is_delta in [false, true] {
        let step = HeadStep { key: &key, query: &query, value: &value, decay: 0.8, strength: 0.6, is_delta };
        let (matrix, output) = expected(&step, &before.iter().map(|weight| f64::from(*weight)).collect::<Vec<_>>());
        for kernels in available() {
            let (mut apart, mut out) = (vec![0.0; KEY_DIM * WIDTH], vec![0.0; WIDTH]);
            // SAFETY: both matrices have a row for every element of the key, and do not overlap.
            unsafe { kernels.recurrence.advance(&step, before.as_ptr(), apart.as_mut_ptr(), &mut out) }
            assert_close(&apart, &matrix);
            assert_close(&out, &output);
            let mut in_place = before.clone();
            let pointer = in_place.as_mut_ptr();
            // SAFETY: as above; the memory is the same.
            unsafe { kernels.recurrence.advance(&step, pointer, pointer, &mut out) }
            assert_eq!(in_place, apart, "{kernels:?}");
        }
    }
}
