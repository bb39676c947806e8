//! Predicts the time of a step from earlier steps.
//!
//! A step's time is modelled as linear in its contents: a fixed part (the weights are read once), a part per prompt
//! token, one per decoded sequence, and one per attended position. The four coefficients are fitted by least squares to
//! the measured steps, with these weights:
//!
//! - Errors count relative to the step's time, so that short steps are predicted as well as long ones.
//! - Old measurements are forgotten, so that the model adapts when the device becomes slower.
//! - A step that took far longer than similar ones (something else ran on the machine) counts little.
//! - A coefficient that recent steps do not determine keeps its value.
//! - No coefficient is ever negative: more work never takes less time.

use std::ops::Add;

/// The contents of a step that determine its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepShape {
    /// Tokens of prompts.
    pub prefill_tokens: usize,
    /// Sequences that are extended by one token.
    pub decode_sequences: usize,
    /// Positions attended to, summed over all tokens.
    pub positions_attended: usize,
}

impl StepShape {
    /// `n_tokens` of a prompt, the first of which is at `position`.
    pub(crate) fn prefill(position: usize, n_tokens: usize) -> Self {
        let positions_attended = n_tokens * position + n_tokens * (n_tokens + 1) / 2;
        StepShape { prefill_tokens: n_tokens, decode_sequences: 0, positions_attended }
    }

    /// One more token of an answer, at `position`.
    pub(crate) fn decode(position: usize) -> Self {
        StepShape { prefill_tokens: 0, decode_sequences: 1, positions_attended: position + 1 }
    }

    fn features(self) -> Coefficients {
        [1.0, self.prefill_tokens as f64, self.decode_sequences as f64, self.positions_attended as f64]
    }
}

impl Add for StepShape {
    type Output = StepShape;

    fn add(self, other: StepShape) -> StepShape {
        StepShape {
            prefill_tokens: self.prefill_tokens + other.prefill_tokens,
            decode_sequences: self.decode_sequences + other.decode_sequences,
            positions_attended: self.positions_attended + other.positions_attended,
        }
    }
}

const N_COEFFICIENTS: usize = 4;
type Coefficients = [f64; N_COEFFICIENTS];

/// Factor by which each later measurement scales an earlier one's weight: half remains after about 14.
const REMEMBERED: f64 = 0.95;
/// How strongly a coefficient resists change, relative to one measurement that contradicts it.
const INERTIA: f64 = 0.02;
/// A measurement counts fully while its error is within this multiple of the usual error.
const TOLERATED_DEVIATIONS: f64 = 3.0;
/// Lower bound of the usual relative error.
const SMALLEST_DEVIATION: f64 = 0.05;
/// How fast the usual error adapts to the observed errors.
const DEVIATION_RATE: f64 = 0.1;
/// Iterations of the coordinate descent; it resumes from the result of the last measurement.
const DESCENT_ROUNDS: usize = 30;

/// Predicts the seconds of one model's steps.
#[derive(Clone, Debug)]
pub(crate) struct CostModel {
    /// Seconds per step, prompt token, decoded sequence and attended position.
    coefficients: Coefficients,
    /// A small fraction of the first guess, below which a coefficient's size means nothing.
    floors: Coefficients,
    /// Weighted sums of products of features with each other, and of features with times.
    moments: [Coefficients; N_COEFFICIENTS],
    targets: Coefficients,
    /// Usual relative error of recent steps.
    deviation: f64,
    is_measured: bool,
    largest_prefill: usize,
}

impl CostModel {
    /// A model with these coefficients: seconds per step, prompt token, decoded sequence and attended position.
    pub(crate) fn with_coefficients(coefficients: [f64; 4]) -> Self {
        CostModel {
            coefficients,
            floors: coefficients.map(|coefficient| (coefficient * 1e-3).max(1e-12)),
            moments: [[0.0; N_COEFFICIENTS]; N_COEFFICIENTS],
            targets: [0.0; N_COEFFICIENTS],
            // Nothing has been measured, so no measurement is an outlier yet.
            deviation: 1.0,
            is_measured: false,
            largest_prefill: 0,
        }
    }

    /// A first guess for a model whose weights have this many bytes: a processor that reads 8 GB/s and computes 100
    /// billion operations per second. The first measured steps correct it.
    pub(crate) fn for_weights(n_bytes: u64) -> Self {
        let n_bytes = n_bytes as f64;
        Self::with_coefficients([n_bytes / 8e9, n_bytes / 28e9, n_bytes / 28e9, n_bytes * 2.5e-15])
    }

    /// Seconds that a step is expected to take.
    pub(crate) fn seconds(&self, shape: StepShape) -> f64 {
        self.coefficients.iter().zip(shape.features()).map(|(coefficient, feature)| coefficient * feature).sum()
    }

    /// Whether a step has been measured yet.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The largest prefill for which a prediction can be relied on: twice the largest ever measured.
    pub(crate) fn reliable_prefill(&self) -> usize {
        2 * self.largest_prefill
    }

    /// Learns from a step. Times that are not valid (zero, infinite) are ignored.
    pub(crate) fn measure(&mut self, shape: StepShape, seconds: f64) {
        if !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        let predicted = self.seconds(shape);
        let error = (seconds - predicted).abs() / seconds.max(predicted);
        let weight = self.weight(error) / seconds.max(predicted).powi(2);
        self.deviation += DEVIATION_RATE * (error - self.deviation);
        self.remember(shape.features(), seconds, weight);
        self.fit();
        self.is_measured = true;
        self.largest_prefill = self.largest_prefill.max(shape.prefill_tokens);
    }

    fn weight(&self, error: f64) -> f64 {
        let tolerated = TOLERATED_DEVIATIONS * self.deviation.max(SMALLEST_DEVIATION);
        if error > tolerated { tolerated / error } else { 1.0 }
    }

    fn remember(&mut self, features: Coefficients, seconds: f64, weight: f64) {
        for (i, feature) in features.into_iter().enumerate() {
            for (j, other) in features.into_iter().enumerate() {
                self.moments[i][j] = REMEMBERED * self.moments[i][j] + weight * feature * other;
            }
            self.targets[i] = REMEMBERED * self.targets[i] + weight * feature * seconds;
        }
    }

    /// Finds the best non-negative coefficients for the moments: each is set in turn to its best value while the others
    /// are held fixed, which converges because the sum of squares is convex.
    fn fit(&mut self) {
        let before = self.coefficients;
        for _ in 0..DESCENT_ROUNDS {
            for (i, before) in before.into_iter().enumerate() {
                let inertia = INERTIA / before.max(self.floors[i]).powi(2);
                let explained: f64 =
                    (0..N_COEFFICIENTS).filter(|j| *j != i).map(|j| self.moments[i][j] * self.coefficients[j]).sum();
                let pull = self.targets[i] - explained + inertia * before;
                self.coefficients[i] = (pull / (self.moments[i][i] + inertia)).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: [f64; 4] = [6e-3, 1e-3, 5e-4, 2e-7];
    const STEPS: [StepShape; 4] = [
        StepShape { prefill_tokens: 0, decode_sequences: 1, positions_attended: 300 },
        StepShape { prefill_tokens: 200, decode_sequences: 0, positions_attended: 20_000 },
        StepShape { prefill_tokens: 0, decode_sequences: 6, positions_attended: 3_000 },
        StepShape { prefill_tokens: 40, decode_sequences: 3, positions_attended: 9_000 },
    ];

    fn measure_all(cost: &mut CostModel, device: &CostModel, rounds: usize) {
        for shape in STEPS.into_iter().cycle().take(rounds * STEPS.len()) {
            cost.measure(shape, device.seconds(shape));
        }
    }

    #[track_caller]
    fn check_close(cost: &CostModel, device: &CostModel, tolerance: f64) {
        for shape in STEPS {
            let (ours, theirs) = (cost.seconds(shape), device.seconds(shape));
            assert!((ours - theirs).abs() < tolerance * theirs, "{shape:?}: {ours} instead of {theirs}");
        }
    }

    #[test]
    fn the_costs_of_a_device_are_learnt_from_a_guess_far_off() {
        let device = CostModel::with_coefficients(TRUE);
        for factor in [0.05, 20.0] {
            let mut cost = CostModel::with_coefficients(TRUE.map(|coefficient| factor * coefficient));
            measure_all(&mut cost, &device, 10);
            check_close(&cost, &device, 0.05);
        }
    }

    #[test]
    fn a_device_that_becomes_slower_is_believed() {
        let (mut cost, device) = (CostModel::with_coefficients(TRUE), CostModel::with_coefficients(TRUE));
        measure_all(&mut cost, &device, 50);
        let slower = CostModel::with_coefficients(TRUE.map(|coefficient| 4.0 * coefficient));
        measure_all(&mut cost, &slower, 50);
        check_close(&cost, &slower, 0.1);
    }

    #[test]
    fn a_step_that_was_held_up_changes_little() {
        let (mut cost, device) = (CostModel::with_coefficients(TRUE), CostModel::with_coefficients(TRUE));
        measure_all(&mut cost, &device, 20);
        cost.measure(STEPS[0], 50.0 * device.seconds(STEPS[0]));
        check_close(&cost, &device, 0.15);
    }

    #[test]
    fn what_is_not_measured_stays_as_it_was_guessed() {
        let mut cost = CostModel::with_coefficients(TRUE);
        let decode = |position| StepShape::decode(position);
        (0..500).for_each(|position| cost.measure(decode(position), 12e-3));
        assert!((cost.seconds(decode(250)) - 12e-3).abs() < 1e-3);
        let prefill = cost.seconds(StepShape::prefill(0, 100)) - cost.seconds(StepShape::default());
        assert!((0.09..0.13).contains(&prefill), "100 tokens at 1 ms each, {prefill}");
    }

    #[test]
    fn times_that_are_no_times_teach_nothing_and_nothing_is_negative() {
        let mut cost = CostModel::with_coefficients(TRUE);
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            cost.measure(STEPS[0], seconds);
        }
        assert_eq!(cost.coefficients, TRUE);
        // Time falls as tokens increase: the best slope is negative, but no coefficient goes below zero.
        for n_tokens in (1..400).rev() {
            cost.measure(StepShape::prefill(0, n_tokens), 1.0 / n_tokens as f64);
        }
        assert!(cost.coefficients.iter().all(|coefficient| *coefficient >= 0.0), "{:?}", cost.coefficients);
    }

    #[test]
    fn shapes_count_what_is_attended_to() {
        assert_eq!(StepShape::prefill(10, 3).positions_attended, 11 + 12 + 13);
        assert_eq!(StepShape::decode(10).positions_attended, 11);
        let both = StepShape::prefill(0, 2) + StepShape::decode(4);
        assert_eq!(both, StepShape { prefill_tokens: 2, decode_sequences: 1, positions_attended: 8 });
    }
}
