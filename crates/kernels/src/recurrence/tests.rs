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

/// A matrix in strips, from one whose rows are whole.
fn in_strips<T: Copy>(matrix: &[T]) -> Vec<T> {
    let strips = (0..WIDTH).step_by(STRIP_COLUMNS).map(|first| first..WIDTH.min(first + STRIP_COLUMNS));
    strips.flat_map(|strip| matrix.chunks(WIDTH).flat_map(move |row| row[strip.clone()].to_vec())).collect()
}

/// Tokens of a head, by the formula.
struct Naive {
    decay: f64,
    strength: f64,
    is_delta: bool,
}

impl Naive {
    /// Changes the matrix by one token, and returns the output.
    fn advance(&self, matrix: &mut [f64], [key, query, value]: [&[f32]; 3]) -> Vec<f64> {
        matrix.iter_mut().for_each(|weight| *weight *= self.decay);
        let times = |matrix: &[f64], vector: &[f32], column: usize| -> f64 {
            vector.iter().enumerate().map(|(row, x)| matrix[row * WIDTH + column] * f64::from(*x)).sum()
        };
        for column in 0..WIDTH {
            let known = if self.is_delta { times(matrix, key, column) } else { 0.0 };
            let added = self.strength * (f64::from(value[column]) - known);
            for (row, key) in key.iter().enumerate() {
                matrix[row * WIDTH + column] += f64::from(*key) * added;
            }
        }
        (0..WIDTH).map(|column| times(matrix, query, column)).collect()
    }
}

const N_TOKENS: usize = 3;

#[test]
fn matrices_decay_and_learn() {
    let [keys, queries] = [1, 2].map(|seed| numbers(seed, N_TOKENS * KEY_DIM, 0.4));
    let values = numbers(3, N_TOKENS * WIDTH, 1.0);
    let before = numbers(4, KEY_DIM * WIDTH, 1.0);
    for is_delta in [false, true] {
        let naive = Naive { decay: 0.8, strength: 0.6, is_delta };
        let mut matrix: Vec<f64> = before.iter().map(|weight| f64::from(*weight)).collect();
        let rows = keys.chunks(KEY_DIM).zip(queries.chunks(KEY_DIM)).zip(values.chunks(WIDTH));
        let output: Vec<f64> =
            rows.flat_map(|((key, query), value)| naive.advance(&mut matrix, [key, query, value])).collect();
        let (before, matrix) = (in_strips(&before), in_strips(&matrix));
        for kernels in available() {
            let (mut apart, mut out) = (vec![0.0; KEY_DIM * WIDTH], vec![0.0; N_TOKENS * WIDTH]);
            let (decay, strength) = (0.8, 0.6);
            let run = HeadRun {
                keys: RowsAt { pointer: keys.as_ptr(), stride: KEY_DIM },
                queries: RowsAt { pointer: queries.as_ptr(), stride: KEY_DIM },
                values: RowsAt { pointer: values.as_ptr(), stride: WIDTH },
                decays: RowsAt { pointer: &decay, stride: 0 },
                strengths: RowsAt { pointer: &strength, stride: 0 },
                out: RowsAt { pointer: out.as_mut_ptr(), stride: WIDTH },
                n_tokens: N_TOKENS,
                key_dim: KEY_DIM,
                value_dim: WIDTH,
                is_delta,
            };
            // SAFETY: all rows exist, both matrices are in strips and do not overlap.
            unsafe { kernels.recurrence.advance(&run, before.as_ptr(), apart.as_mut_ptr()) }
            assert_close(&apart, &matrix);
            assert_close(&out, &output);
            let mut in_place = before.clone();
            let pointer = in_place.as_mut_ptr();
            // SAFETY: as above; the memory is the same.
            unsafe { kernels.recurrence.advance(&run, pointer, pointer) }
            assert_eq!(in_place, apart, "{kernels:?}");
        }
    }
}
