//! The examination of a model that makes decisions: texts and questions with known answers, written for this purpose
//! (`config/decision-examination`). Every other case is used to fit the temperature of the distributions; the remaining
//! cases are measured.

use hone_protocol::{Decision, DecisionForm, DecisionQuestion, DecisionTuning, DecisionType, hexadecimal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::auc::{Auc, area_under_curve};
use crate::random::SplitMix;
use crate::report::Share;

/// Bins of the expected calibration error.
const BINS: usize = 10;
/// The number of bootstrap resamples that estimate the variance of a figure.
const RESAMPLES: usize = 1000;
/// Smallest distinguishable probability; the probability of a right answer might be 0.
const LEAST: f64 = 1e-9;
/// The range of temperatures to search, as logarithms: from 1/8 to 64.
const LOG_TEMPERATURES: [f64; 2] = [-2.08, 4.16];
/// Steps of the search for the best temperature; each narrows the range to 62 %.
const SEARCH_STEPS: usize = 40;

/// A text and a question with a known answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LabelledDecision {
    /// The text.
    pub state: String,
    /// The question.
    #[serde(flatten)]
    pub question: DecisionQuestion,
    /// The index of the right option.
    pub answer: usize,
}

impl LabelledDecision {
    /// Identifies all shipped cases, in hexadecimal digits.
    pub fn digest() -> String {
        let mut sha256 = Sha256::new();
        DecisionType::ALL.into_iter().for_each(|kind| sha256.update(lines_of(kind)));
        hexadecimal(sha256.finalize())
    }

    /// The shipped cases of a kind.
    ///
    /// # Panics
    /// If a file of `config/decision-examination` is invalid; a test checks them.
    pub fn shipped(kind: DecisionType) -> Vec<LabelledDecision> {
        let lines = lines_of(kind);
        lines.lines().map(|line| serde_json::from_str(line).expect("a test reads every line")).collect()
    }
}

/// The cases of a kind as stored, one JSON object per line.
fn lines_of(kind: DecisionType) -> &'static str {
    match kind {
        DecisionType::YesNo => include_str!("../../../config/decision-examination/yes-no.jsonl"),
        DecisionType::Choice => include_str!("../../../config/decision-examination/choice.jsonl"),
        DecisionType::Score => include_str!("../../../config/decision-examination/score.jsonl"),
    }
}

/// The result of an examination of a model's decisions of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionMarks {
    /// How the model answered.
    pub form: DecisionForm,
    /// Mean negative log-likelihood of the right answers in the fitted half of the cases, in nats; the form with the
    /// lower value is better.
    pub fitted_loss: f64,
    /// The number of measured cases.
    pub cases: usize,
    /// The share of them whose likeliest option is right.
    pub accuracy: Share,
    /// The accuracy of guessing.
    pub chance: f64,
    /// How well the probability of yes separates right statements from wrong ones; `None` for other kinds.
    pub auc: Option<Auc>,
    /// The mean distance of the score from the right level; `None` for other kinds.
    pub mean_error: Option<Estimate>,
    /// The temperature fitted to the other half of the cases; above 1, the model is overconfident.
    pub temperature: f64,
    /// Sum of squared differences from the right answer (Brier 1950), at that temperature.
    pub brier: Estimate,
    /// The distance between the probability of the likeliest option and its accuracy (Guo et al. 2017), at that
    /// temperature.
    pub calibration_error: Estimate,
    /// The calibration error without the temperature.
    pub raw_calibration_error: Estimate,
    /// The calibration error, at that temperature, of a perfectly calibrated model with this number of cases.
    pub least_calibration_error: f64,
    /// Bias towards the first option; `None` where options have no order or no labels.
    pub order_bias: Option<OrderBias>,
}

/// The excess probability of the first option.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderBias {
    /// With the options in a single order.
    pub one_order: Estimate,
    /// With the model's responses averaged over several orders.
    pub averaged: Estimate,
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval.
    pub interval: [f64; 2],
}

impl Estimate {
    /// The value of `figure` over these cases, with its bootstrap interval (Efron 1979).
    fn of<T>(cases: &[T], figure: impl Fn(&[&T]) -> f64) -> Estimate {
        let all: Vec<&T> = cases.iter().collect();
        let mut random = SplitMix::seeded(1);
        let mut drawn = || (0..cases.len()).map(|_| &cases[random.below(cases.len())]).collect::<Vec<_>>();
        let mut values: Vec<f64> = (0..RESAMPLES).map(|_| figure(&drawn())).collect();
        values.sort_by(f64::total_cmp);
        Estimate { value: figure(&all), interval: [values[RESAMPLES / 40], values[RESAMPLES - 1 - RESAMPLES / 40]] }
    }
}

/// The excess probability of the first option over its actual frequency.
pub fn first_option_excess(cases: &[LabelledDecision], decisions: &[Decision]) -> Estimate {
    let excess = |(case, decision): (&LabelledDecision, &Decision)| {
        decision.probabilities[0] - f64::from(u8::from(case.answer == 0))
    };
    let excesses: Vec<f64> = std::iter::zip(cases, decisions).map(excess).collect();
    Estimate::of(&excesses, |cases| mean(cases, |excess| *excess))
}

/// A decision with the right answer.
#[derive(Clone)]
struct Marked {
    probabilities: Vec<f64>,
    answer: usize,
}

impl DecisionMarks {
    /// The marks of decisions about these cases, which are of one kind and were requested in this form; `None` if there
    /// are too few cases.
    pub fn of(form: DecisionForm, cases: &[LabelledDecision], decisions: &[Decision]) -> Option<DecisionMarks> {
        let marked = |(case, decision): (&LabelledDecision, &Decision)| Marked {
            probabilities: decision.probabilities.clone(),
            answer: case.answer,
        };
        let marked: Vec<Marked> = std::iter::zip(cases, decisions).map(marked).collect();
        let halves = |half: usize| (0..marked.len()).filter(move |index| index % 2 == half);
        let fitted: Vec<&Marked> = halves(0).map(|index| &marked[index]).collect();
        let raw: Vec<Marked> = halves(1).map(|index| marked[index].at(1.0)).collect();
        if fitted.is_empty() || raw.is_empty() {
            return None;
        }
        let temperature = temperature_of(&fitted);
        let measured: Vec<Marked> = raw.iter().map(|marked| marked.at(temperature)).collect();
        let kind = cases.first()?.question.kind.kind();
        let n_right = measured.iter().filter(|marked| marked.is_right()).count();
        let mean_error = |cases: &[&Marked]| mean(cases, |marked| (marked.score() - marked.answer as f64).abs());
        Some(DecisionMarks {
            form,
            fitted_loss: mean(&fitted, |marked| marked.at(temperature).loss()),
            cases: measured.len(),
            accuracy: Share::new(n_right as u64, measured.len() as u64),
            chance: mean(&measured.iter().collect::<Vec<_>>(), |marked| 1.0 / marked.probabilities.len() as f64),
            auc: (kind == DecisionType::YesNo).then(|| auc_of(&measured)),
            mean_error: (kind == DecisionType::Score).then(|| Estimate::of(&measured, mean_error)),
            temperature,
            brier: Estimate::of(&measured, |cases| mean(cases, |marked| marked.brier())),
            calibration_error: Estimate::of(&measured, calibration_error),
            raw_calibration_error: Estimate::of(&raw, calibration_error),
            least_calibration_error: least_calibration_error(&measured),
            order_bias: None,
        })
    }

    /// The settings for asking the model.
    pub fn tuning(&self) -> DecisionTuning {
        DecisionTuning { form: self.form, temperature: self.temperature }
    }

    /// Whether it is better than chance, with 95 % confidence.
    pub fn is_above_chance(&self) -> bool {
        self.accuracy.interval.is_some_and(|[low, _]| low > self.chance)
    }
}

impl Marked {
    /// Divides the logarithms of the probabilities by a temperature.
    fn at(&self, temperature: f64) -> Marked {
        let powers: Vec<f64> =
            self.probabilities.iter().map(|value| value.max(LEAST).powf(1.0 / temperature)).collect();
        let total: f64 = powers.iter().sum();
        Marked { probabilities: powers.into_iter().map(|power| power / total).collect(), answer: self.answer }
    }

    fn likeliest(&self) -> usize {
        Decision { probabilities: self.probabilities.clone() }.likeliest()
    }

    fn is_right(&self) -> bool {
        self.likeliest() == self.answer
    }

    fn score(&self) -> f64 {
        Decision { probabilities: self.probabilities.clone() }.score()
    }

    fn brier(&self) -> f64 {
        let wanted = |option: usize| f64::from(u8::from(option == self.answer));
        self.probabilities.iter().enumerate().map(|(option, value)| (value - wanted(option)).powi(2)).sum()
    }

    /// Replaces the answer with the option at this position of the cumulative distribution.
    fn drawn(&self, place: f64) -> Marked {
        let mut left = place;
        let is_passed = |probability: &&f64| {
            left -= **probability;
            left >= 0.0
        };
        let answer = self.probabilities.iter().take_while(is_passed).count().min(self.probabilities.len() - 1);
        Marked { answer, ..self.clone() }
    }

    fn loss(&self) -> f64 {
        -self.probabilities[self.answer].max(LEAST).ln()
    }
}

fn mean<T>(cases: &[&T], value: impl Fn(&T) -> f64) -> f64 {
    cases.iter().map(|case| value(case)).sum::<f64>() / cases.len() as f64
}

/// The temperature that maximizes the likelihood of the right answers (golden-section search: the loss has one
/// minimum).
fn temperature_of(cases: &[&Marked]) -> f64 {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let loss = |log: f64| mean(cases, |marked| marked.at(log.exp()).loss());
    let [mut low, mut high] = LOG_TEMPERATURES;
    for _ in 0..SEARCH_STEPS {
        let width = ratio * (high - low);
        if loss(high - width) < loss(low + width) { high = low + width } else { low = high - width }
    }
    low.midpoint(high).exp()
}

/// How well the probability of yes separates the cases.
fn auc_of(cases: &[Marked]) -> Auc {
    let of = |answer: usize| {
        cases.iter().filter(move |marked| marked.answer == answer).map(|marked| marked.probabilities[1])
    };
    // Equal in number, since the set is balanced.
    let (goods, bads): (Vec<f64>, Vec<f64>) = std::iter::zip(of(1), of(0)).unzip();
    area_under_curve(&goods, &bads)
}

/// The distance between confidence and accuracy, averaged over bins and weighted by their cases.
fn calibration_error(cases: &[&Marked]) -> f64 {
    let mut bins = [(0.0, 0.0); BINS];
    for marked in cases {
        let confidence = marked.probabilities[marked.likeliest()];
        let bin = &mut bins[((confidence * BINS as f64) as usize).min(BINS - 1)];
        bin.0 += confidence;
        bin.1 += f64::from(u8::from(marked.is_right()));
    }
    bins.iter().map(|(confidence, right)| (confidence - right).abs()).sum::<f64>() / cases.len() as f64
}

/// The mean calibration error when the right answers are drawn from the probabilities themselves.
fn least_calibration_error(cases: &[Marked]) -> f64 {
    let mut random = SplitMix::seeded(2);
    let mut error = || {
        let drawn: Vec<Marked> = cases.iter().map(|marked| marked.drawn(random.fraction())).collect();
        calibration_error(&drawn.iter().collect::<Vec<_>>())
    };
    (0..RESAMPLES).map(|_| error()).sum::<f64>() / RESAMPLES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(kind: DecisionType, decide: impl Fn(usize, &LabelledDecision) -> Vec<f64>) -> DecisionMarks {
        let cases = LabelledDecision::shipped(kind);
        let decided = |(index, case)| Decision { probabilities: decide(index, case) };
        let decisions: Vec<Decision> = cases.iter().enumerate().map(decided).collect();
        DecisionMarks::of(DecisionForm::Labels, &cases, &decisions).unwrap()
    }

    fn sure(case: &LabelledDecision, option: usize) -> Vec<f64> {
        let n = case.question.kind.n_options();
        (0..n).map(|index| if index == option { 0.9 } else { 0.1 / (n - 1) as f64 }).collect()
    }

    #[test]
    fn the_shipped_cases_are_questions_with_answers_in_no_pattern() {
        for kind in DecisionType::ALL {
            let cases = LabelledDecision::shipped(kind);
            assert!(cases.len() >= 80, "{kind:?}");
            assert!(cases.iter().all(|case| case.answer < case.question.kind.n_options() && !case.state.is_empty()));
            for half in 0..2 {
                let first = cases.iter().skip(half).step_by(2).filter(|case| case.answer == 0).count();
                assert!(first * 2 <= cases.len() / 2 + 2, "{kind:?}: {first} of a half have the first option");
                // Each yes is compared with a no.
                assert!(kind != DecisionType::YesNo || first * 4 == cases.len(), "{first} of a half are no");
            }
        }
    }

    #[test]
    fn who_knows_is_told_from_who_guesses_and_who_prefers_a_place() {
        for kind in DecisionType::ALL {
            let perfect = marks(kind, |_, case| sure(case, case.answer));
            assert!(perfect.is_above_chance() && perfect.accuracy.share == Some(1.0), "{perfect:?}");
            assert!(perfect.temperature < 0.2 && perfect.calibration_error.value < 0.01, "{perfect:?}");
            assert!(perfect.auc.is_none_or(|auc| auc.value == 1.0));

            let biased = marks(kind, |_, case| sure(case, 0));
            assert!(!biased.is_above_chance(), "{kind:?}: {biased:?}");
            assert!(biased.temperature > 2.0 && biased.raw_calibration_error.value > 0.3, "{biased:?}");
            assert!(biased.calibration_error.value < biased.raw_calibration_error.value, "{biased:?}");

            let guessing =
                marks(kind, |index, case| sure(case, (index * 7919 + 3) % 97 % case.question.kind.n_options()));
            assert!(!guessing.is_above_chance(), "{kind:?}: {guessing:?}");
        }
    }

    #[test]
    fn a_temperature_makes_probabilities_honest() {
        // Right in three of four cases, but nearly certain in all.
        let overconfident = marks(DecisionType::YesNo, |index, case| {
            let option = if index / 2 % 4 == 0 { 1 - case.answer } else { case.answer };
            (0..2).map(|index| if index == option { 0.99 } else { 0.01 }).collect()
        });
        assert!(overconfident.temperature > 3.0, "{overconfident:?}");
        assert!(overconfident.raw_calibration_error.value > 0.2, "{overconfident:?}");
        assert!(overconfident.calibration_error.value < 0.02, "{overconfident:?}");
        assert!(overconfident.is_above_chance());
        // With sixty cases, a rate of 3 in 4 does not always give 45.
        let least = overconfident.least_calibration_error;
        assert!(0.02 < least && least < 0.08, "{overconfident:?}");
    }
}
