//! Reward models as judges. Their heads give a number for a question and its answer in one pass: higher is better, on a
//! scale that each model has for itself. The difference of two rewards is the log-odds that a person prefers the first
//! answer (the Bradley–Terry model that they are trained by; Ouyang et al. 2022, "Training language models to follow
//! instructions with human feedback"). The meaning of a single reward is learnt from the model's examination.

use hone_protocol::{GenerateRequest, Likely, Message, Prompt, Role};
use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;

/// The share of true conclusions that a threshold needs in the half of the questions that it was not fitted to.
const LEAST_CORRECT: f64 = 0.8;
/// The share of the other answers that it may mark.
const MOST_MISMARKED: f64 = 0.05;
/// Minimum number of answers that it marks, to be worth anything.
const LEAST_MARKED: usize = 5;

/// The meaning of a model's rewards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewardScale {
    map: Calibration,
    /// Answers with this reward or less are likely wrong; `None` if that is never reliable.
    likely_wrong: Option<RewardThreshold>,
    /// Answers with this reward or more are likely right; `None` if that is never reliable.
    likely_right: Option<RewardThreshold>,
}

/// A reward from which a conclusion is reliable, with its results in the half of the questions that it was not fitted
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RewardThreshold {
    reward: f64,
    /// The number of answers that it marked.
    marked: usize,
    /// The number of them for which the conclusion was true.
    correct: usize,
}

/// The rewards of the answers to one question of an examination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionRewards {
    /// Of the good answer.
    pub(crate) good: f64,
    /// Of the bad answer.
    pub(crate) bad: f64,
}

impl RewardScale {
    /// Learns the scale from the rewards of an examination's answers: probabilities from all questions, thresholds from
    /// every other one, measured with the rest.
    pub(crate) fn fit(rewards: &[QuestionRewards]) -> RewardScale {
        let half = |first: usize| {
            let questions = rewards.iter().skip(first).step_by(2);
            let (goods, bads): (Vec<f64>, Vec<f64>) = questions.map(|one| (one.good, one.bad)).unzip();
            [goods, bads]
        };
        let (fitted, measured) = (half(0), half(1));
        let negated = |values: &[Vec<f64>; 2]| {
            let [goods, bads] = values.each_ref().map(|values| values.iter().map(|value| -value).collect());
            [bads, goods]
        };
        let likely_wrong = threshold(&negated(&fitted), &negated(&measured));
        let points = rewards.iter().flat_map(|one| [(one.good, true), (one.bad, false)]);
        RewardScale {
            map: Calibration::of_points(points.collect()),
            likely_wrong: likely_wrong.map(|threshold| RewardThreshold { reward: -threshold.reward, ..threshold }),
            likely_right: threshold(&fitted, &measured),
        }
    }

    /// The probability that an answer with this reward is good.
    pub(crate) fn probability(&self, reward: f64) -> f64 {
        self.map.probability(reward)
    }

    /// The conclusion from a reward, where it is reliable.
    pub(crate) fn likely(&self, reward: f64) -> Option<Likely> {
        let is_wrong = self.likely_wrong.is_some_and(|threshold| reward <= threshold.reward);
        let is_right = self.likely_right.is_some_and(|threshold| reward >= threshold.reward);
        match (is_wrong, is_right) {
            (true, _) => Some(Likely::Wrong),
            (false, true) => Some(Likely::Right),
            (false, false) => None,
        }
    }
}

/// The lowest number that few of the second kind of values reach in `fitted`; `None` if it does not hold in `measured`.
fn threshold(fitted: &[Vec<f64>; 2], measured: &[Vec<f64>; 2]) -> Option<RewardThreshold> {
    let [meant, others] = fitted;
    let mut others = others.clone();
    others.sort_by(|a, b| b.total_cmp(a));
    let bar = *others.get((MOST_MISMARKED * others.len() as f64) as usize)?;
    let lowest = meant.iter().copied().filter(|value| *value > bar).min_by(f64::total_cmp)?;
    let reward = bar.midpoint(lowest);
    let n_above = |values: &[f64]| values.iter().filter(|value| **value >= reward).count();
    let (correct, wrong) = (n_above(&measured[0]), n_above(&measured[1]));
    let found = RewardThreshold { reward, marked: correct + wrong, correct };
    let is_reliable = correct as f64 >= LEAST_CORRECT * found.marked as f64
        && wrong as f64 <= MOST_MISMARKED * measured[1].len() as f64;
    (is_reliable && found.marked >= LEAST_MARKED).then_some(found)
}

/// The request for the reward of an answer.
pub(crate) fn request(model: &str, query: &str, answer: &str) -> GenerateRequest {
    let conversation = vec![Message::new(Role::User, query), Message::new(Role::Assistant, answer)];
    GenerateRequest { wants_reward: true, ..GenerateRequest::new(model, Prompt::Chat(conversation)) }
}

/// The meaning of a reward of this model, for a person.
pub(crate) fn about(reward: f64, scale: Option<&RewardScale>, model: &str) -> String {
    match scale {
        Some(scale) => format!(
            "Its reward is {reward:.2}. In the model's examination, {:.0} % of the answers with such a reward were good.",
            100.0 * scale.probability(reward)
        ),
        None => format!("Its reward is {reward:.2}. `hone judge exam {model}` finds out what that means."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewards(of: impl Fn(usize) -> [f64; 2]) -> Vec<QuestionRewards> {
        (0..60).map(of).map(|[good, bad]| QuestionRewards { good, bad }).collect()
    }

    /// Values that spread evenly from 0 to 1.
    fn spread(index: usize) -> f64 {
        (index * 37 % 60) as f64 / 59.0
    }

    #[test]
    fn a_model_that_knows_marks_both_sides_and_leaves_the_middle_open() {
        // Good answers lie from 1 to 5, bad ones from -3 to 1.5.
        let scale = RewardScale::fit(&rewards(|n| [1.0 + 4.0 * spread(n), -3.0 + 4.5 * spread(n + 7)]));
        assert_eq!(scale.likely(4.0), Some(Likely::Right), "{scale:?}");
        assert_eq!(scale.likely(-2.0), Some(Likely::Wrong), "{scale:?}");
        assert_eq!(scale.likely(1.2), None, "{scale:?}");
        assert!(scale.probability(4.0) > 0.9 && scale.probability(-2.0) < 0.1, "{scale:?}");
        let right = scale.likely_right.unwrap();
        assert!(right.correct as f64 >= LEAST_CORRECT * right.marked as f64, "{right:?}");
    }

    #[test]
    fn a_model_that_guesses_concludes_nothing() {
        let scale = RewardScale::fit(&rewards(|n| [spread(n), spread(n + 31)]));
        assert!((0..60).all(|n| scale.likely(spread(n)).is_none()), "{scale:?}");
        let constant = RewardScale::fit(&rewards(|_| [1.0, 1.0]));
        assert_eq!((constant.likely(1.0), constant.probability(1.0)), (None, 0.5), "{constant:?}");
    }

    #[test]
    fn a_threshold_that_fails_on_the_other_questions_is_dropped() {
        // Only the even questions, to which it is fitted, are told apart.
        let scale = RewardScale::fit(&rewards(|n| if n % 2 == 0 { [5.0, -5.0] } else { [-6.0, 6.0] }));
        assert_eq!((scale.likely(9.0), scale.likely(-9.0)), (None, None), "{scale:?}");
    }
}
