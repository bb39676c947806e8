use super::*;
use crate::platform::{InstructionSet, Kernels};

/// The kernels of every instruction set that this machine has.
pub(crate) fn available() -> impl Iterator<Item = &'static Kernels> {
    InstructionSet::ALL.into_iter().filter_map(Kernels::of)
}

/// A size, or a smaller one under Miri, which is about a thousand times slower.
pub(crate) const fn sized(size: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { size }
}

/// The cases; under Miri, only the first few.
pub(crate) fn cases<T>(all: &[T], n_under_miri: usize) -> &[T] {
    &all[..sized(all.len(), n_under_miri)]
}

const LENGTHS: [usize; 12] = [1, 2, 7, 8, 15, 16, 31, 32, 64, 65, 100, 576];

/// Numbers between -spread and spread, the same in every run.
pub(crate) fn numbers(seed: u32, n: usize, spread: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..n).map(|_| (next() as f32 / u32::MAX as f32 * 2.0 - 1.0) * spread).collect()
}

/// Runs on every instruction set that this processor has and compares with the formula.
#[track_caller]
fn check(spread: f32, run: impl Fn(&Elementwise, &mut [f32]), expected: impl Fn(&[f32]) -> Vec<f64>) {
    for kernels in available() {
        for &n in cases(&LENGTHS, 8) {
            let values = numbers(n as u32, n, spread);
            let mut ours = values.clone();
            run(kernels.elementwise, &mut ours);
            for (index, (ours, theirs)) in ours.iter().zip(expected(&values)).enumerate() {
                let tolerance = 2e-6 * (theirs.abs() + f64::from(spread).min(1.0));
                let difference = (f64::from(*ours) - theirs).abs();
                assert!(difference <= tolerance, "{kernels:?}, {n}: element {index} is {ours}, not {theirs}");
            }
        }
    }
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn rms_norm_scales_to_the_root_mean_square() {
    let norm = |values: &[f32], epsilon: f64| {
        let values = doubles(values);
        let mean = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
        let weights = doubles(&numbers(9, values.len(), 1.0));
        values.iter().zip(weights).map(|(x, weight)| x / (mean + epsilon).sqrt() * weight).collect()
    };
    for (spread, epsilon) in [(1.0, 1e-5), (1e-4, 1e-6), (1e4, 1e-5)] {
        let run = |table: &Elementwise, values: &mut [f32]| {
            table.rms_norm(values, &numbers(9, values.len(), 1.0), epsilon);
        };
        check(spread, run, |values| norm(values, f64::from(epsilon)));
    }
}

#[test]
fn sums_and_scales() {
    let add = |table: &Elementwise, values: &mut [f32]| table.add(values, &numbers(9, values.len(), 1.0));
    check(1.0, add, |values| {
        doubles(values).iter().zip(doubles(&numbers(9, values.len(), 1.0))).map(|(a, b)| a + b).collect()
    });
    check(1.0, |table, values| table.scale(values, 3.5), |values| doubles(values).iter().map(|x| x * 3.5).collect());
}

#[test]
fn gates() {
    let up = |n| doubles(&numbers(9, n, 1.0));
    for spread in [1.0, 10.0, 200.0] {
        let silu = |table: &Elementwise, values: &mut [f32]| {
            table.gate(Activation::Silu, values, &numbers(9, values.len(), 1.0));
        };
        check(spread, silu, |values| {
            doubles(values).iter().zip(up(values.len())).map(|(x, up)| x / (1.0 + (-x).exp()) * up).collect()
        });
        let gelu = |table: &Elementwise, values: &mut [f32]| {
            table.gate(Activation::GeluTanh, values, &numbers(9, values.len(), 1.0));
        };
        let formula =
            |x: f64| x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
        check(spread, gelu, |values| {
            doubles(values).iter().zip(up(values.len())).map(|(x, up)| formula(*x) * up).collect()
        });
    }
}

#[test]
fn soft_caps() {
    for (spread, cap) in [(1.0, 3.0), (100.0, 30.0), (1e4, 50.0)] {
        let cap = |table: &Elementwise, values: &mut [f32]| table.soft_cap(values, cap);
        let formula = |x: f64| {
            let cap = if spread == 1.0 {
                3.0
            } else if spread == 100.0 {
                30.0
            } else {
                50.0
            };
            cap * (x / cap).tanh()
        };
        check(spread * 3.0, cap, |values| doubles(values).into_iter().map(formula).collect());
    }
}

#[test]
fn rotations() {
    let angles = |n: usize| numbers(5, n, 3.0);
    let halves = |table: &Elementwise, values: &mut [f32]| {
        let (sines, cosines): (Vec<f32>, Vec<f32>) = angles(values.len() / 2).iter().map(|x| x.sin_cos()).unzip();
        table.rotate_halves(values, &cosines, &sines);
    };
    check(1.0, halves, |values| {
        let (mut rotated, half) = (doubles(values), values.len() / 2);
        for (pair, angle) in angles(half).iter().enumerate() {
            let (sine, cosine) = f64::from(*angle).sin_cos();
            let (x, y) = (rotated[pair], rotated[half + pair]);
            (rotated[pair], rotated[half + pair]) = (x * cosine - y * sine, x * sine + y * cosine);
        }
        rotated
    });
    let neighbours = |table: &Elementwise, values: &mut [f32]| {
        let angles = angles(values.len() / 2);
        let cosines: Vec<f32> = angles.iter().flat_map(|x| [x.cos(), x.cos()]).collect();
        let sines: Vec<f32> = angles.iter().flat_map(|x| [-x.sin(), x.sin()]).collect();
        table.rotate_neighbours(values, &cosines, &sines);
    };
    check(1.0, neighbours, |values| {
        let mut rotated = doubles(values);
        for (pair, angle) in angles(values.len() / 2).iter().enumerate() {
            let (sine, cosine) = f64::from(*angle).sin_cos();
            let (x, y) = (rotated[2 * pair], rotated[2 * pair + 1]);
            (rotated[2 * pair], rotated[2 * pair + 1]) = (x * cosine - y * sine, x * sine + y * cosine);
        }
        rotated
    });
}

#[test]
fn halves_of_floats_are_rounded_to_the_nearest() {
    for kernels in available() {
        for &n in cases(&LENGTHS, 8) {
            let mut values = numbers(3, n, 1e5);
            values[0] = 1e-7;
            let mut ours = vec![f16::ZERO; n];
            kernels.elementwise.to_f16(&values, &mut ours);
            let theirs: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
            assert_eq!(ours, theirs, "{kernels:?}");
        }
    }
}

#[test]
fn exponentials_reach_zero_and_stay_finite() {
    for kernels in available() {
        let mut values = vec![-1e30, -200.0, -88.0, 88.5, 200.0, 1e30, f32::NAN];
        values.resize(32, 0.0);
        let up = vec![1.0; 32];
        kernels.elementwise.gate(Activation::Silu, &mut values, &up);
        let [least, less, few, many, more, most, nothing] = values[..7] else { unreachable!() };
        assert!([least, less, few].iter().all(|x| x.abs() < 1e-6), "{kernels:?}: {values:?}");
        assert_eq!((many, more, most), (88.5, 200.0, 1e30), "{kernels:?}");
        assert!(nothing.is_nan(), "{kernels:?}");
    }
}
