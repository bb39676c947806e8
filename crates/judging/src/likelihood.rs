//! A judge that is not asked a question: it evaluates how likely a model finds an answer, and a few rules. It gives no
//! score: it says that an answer is likely wrong, or likely right, or makes no statement.
//!
//! A knowledgeable model finds a right answer more likely than a wrong one, and its internal states differ while it
//! reads them. The log-probabilities of the answer's tokens, after the question and without it, become [`features`]; so
//! does the output of a linear probe of the states (the residual stream, averaged over the answer); rules about the
//! text add some more. A logistic model over the features gives the probability that the answer is good. Its
//! coefficients belong to the model that computes the log-probabilities. They are in `config/likelihood.toml`, which
//! `scripts/record.sh likelihood` writes together with the marks of the held-out examination.

mod features;
mod form;
mod rules;

use std::collections::BTreeMap;

use hone_protocol::{
    Completion, Generate, GenerateError, GenerateRequest, Generation, Likely, LogprobOptions, Message, Prompt, Role,
    hexadecimal,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

pub(crate) use features::AnswerEvidence;

use crate::auc::Auc;
use crate::suspicion::suspicion;

/// The name of this judge, in place of a model's name.
pub const LIKELIHOOD: &str = "likelihood";
/// The shipped coefficients.
const SHIPPED: &str = include_str!("../../../config/likelihood.toml");
/// Replaces the question when the answer's likelihood without it is computed.
const NO_QUESTION: &str = "Write something.";
/// Maximum number of reasons in an opinion.
const REASONS: usize = 3;
/// Smaller contributions to the log-odds are not mentioned.
const LEAST_REASON: f64 = 0.1;

/// The likelihood judge of one model, based on the log-probabilities that this model computes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Likelihood {
    /// Catalog name of the model that computes the log-probabilities.
    pub name: String,
    /// For answers of the same model. It finds most of its own answers likely, so other differences decide.
    pub own: Fit,
    /// For answers of people and other models.
    pub foreign: Fit,
}

/// A logistic model over the features of an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Log-odds of an answer whose features are all average.
    intercept: f64,
    /// The weight of each feature.
    features: BTreeMap<String, FeatureWeight>,
    /// The contribution of the model's states.
    #[serde(default)]
    reading: Option<StateProbe>,
    /// How well it separates good answers from bad ones in held-out data.
    pub auc: Auc,
    /// The probability up to which it says that an answer is wrong; `None` if that is never reliable.
    #[serde(default)]
    pub likely_wrong: Option<Threshold>,
    /// The probability from which it says that an answer is right; `None` if that is never reliable.
    #[serde(default)]
    pub likely_right: Option<Threshold>,
}

/// A probability from which the judge is reliable, with its results on held-out answers: at least 80 % of its
/// statements are true, and at most 5 % of the answers to which they do not apply are marked.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// The probability that the answer is right.
    pub probability: f64,
    /// The number of answers with this statement.
    pub marked: usize,
    /// The number of them for which it was true.
    pub correct: usize,
}

/// Contribution of a feature to the log-odds: `weight * (value - mean) / deviation`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeatureWeight {
    mean: f64,
    deviation: f64,
    weight: f64,
}

/// Contribution of the model's states, averaged over an answer, to the log-odds: `offset + weights · state`, 0 for an
/// average answer. A linear probe of a middle layer separates true statements from false ones better than the model's
/// own assessment does (Azaria and Mitchell, "The Internal State of an LLM Knows When It's Lying", 2023).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateProbe {
    offset: f64,
    weights: Vec<f64>,
}

impl StateProbe {
    /// The contribution of a state; 0 for a state of another size.
    fn contribution(&self, state: &[f64]) -> f64 {
        match state.len() == self.weights.len() {
            true => {
                self.offset + std::iter::zip(&self.weights, state).map(|(weight, value)| weight * value).sum::<f64>()
            }
            false => 0.0,
        }
    }
}

/// The judge's opinion of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Opinion {
    /// Logarithm of the odds that the answer is good.
    pub(crate) log_odds: f64,
    /// The conclusion, where it is reliable.
    pub(crate) likely: Option<Likely>,
    /// The deciding features, in descending order of weight.
    reasons: Vec<Reason>,
}

/// A reason for or against an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reason {
    /// The contribution to the log-odds.
    share: f64,
    text: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Likelihood>,
}

impl Likelihood {
    /// All shipped likelihood judges.
    ///
    /// # Panics
    /// If `config/likelihood.toml` is invalid; a test checks it.
    pub fn shipped() -> Vec<Likelihood> {
        let file: File = toml::from_str(SHIPPED).expect("config/likelihood.toml is checked by a test");
        file.model
    }

    /// A digest of everything that all verdicts depend on, in hexadecimal digits.
    pub fn digest() -> String {
        hexadecimal(Sha256::digest(SHIPPED))
    }

    /// The likelihood judge for log-probabilities computed by `model`.
    pub fn of_model(model: &str) -> Option<Likelihood> {
        Likelihood::shipped().into_iter().find(|likelihood| likelihood.name == model)
    }
}

/// The request to `model` for the log-probabilities of an answer to a question, optionally with the likeliest token and
/// the model's state at each position.
fn request(model: &str, question: &str, answer: &str, wants_likeliest: bool, state: bool) -> GenerateRequest {
    GenerateRequest {
        forced_answer: Some(answer.to_owned()),
        logprobs: LogprobOptions {
            top: Some(usize::from(wants_likeliest)),
            named: Vec::new(),
            state,
            of_prompt: false,
        },
        ..GenerateRequest::new(model, Prompt::Chat(vec![Message::new(Role::User, question)]))
    }
}

/// The data to fit coefficients to.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// The features by name.
    pub named: Vec<(&'static str, f64)>,
    /// The mean of the model's states over the answer.
    pub state: Vec<f64>,
}

/// The features of an answer with the log-probabilities of `model`.
///
/// # Errors
/// When the model cannot be asked.
pub fn features_of(
    generator: &dyn Generate,
    model: &str,
    query: &str,
    answer: &str,
) -> Result<Features, GenerateError> {
    let ask = |question, state| Generation::start(generator, request(model, question, answer, true, state)).complete();
    let (after, alone) = (ask(query, true)?, ask(NO_QUESTION, false)?);
    let is_suspicious = suspicion(query, answer).is_some();
    let said = [&after, &alone];
    let evidence = AnswerEvidence::of(query, answer, is_suspicious, &said);
    Ok(Features { named: evidence.features().collect(), state: evidence.state() })
}

impl Fit {
    /// The requests to `model` needed for its features: the answer after its question and, if a feature needs the
    /// comparison, without the question.
    pub(crate) fn requests(&self, model: &str, query: &str, answer: &str) -> Vec<GenerateRequest> {
        let compares = features::COMPARING.iter().any(|name| self.features.contains_key(*name));
        let questions = [Some(query), compares.then_some(NO_QUESTION)];
        let wants_likeliest = self.features.contains_key(features::LIKELIEST_SHARE);
        let requests = questions.into_iter().flatten().zip([self.reading.is_some(), false]);
        requests.map(|(question, state)| request(model, question, answer, wants_likeliest, state)).collect()
    }

    /// Its opinion of an answer.
    pub(crate) fn opinion(&self, evidence: &AnswerEvidence<'_>) -> Opinion {
        let of_feature = |(name, weight): (&String, &FeatureWeight)| {
            let feature = features::named(name)?;
            let value = (feature.compute)(evidence);
            let above_mean = if value.is_finite() { (value - weight.mean) / weight.deviation } else { 0.0 };
            Some(Reason { share: weight.weight * above_mean, text: feature.reason(above_mean) })
        };
        let reading = self.reading.as_ref().map(|reading| reading.contribution(&evidence.state()));
        let reading = reading.map(|share| Reason { share, text: features::reason_of_reading(share) });
        let mut reasons: Vec<Reason> = self.features.iter().filter_map(of_feature).chain(reading).collect();
        let log_odds = self.intercept + reasons.iter().map(|reason| reason.share).sum::<f64>();
        reasons.retain(|reason| reason.share.abs() >= LEAST_REASON);
        reasons.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
        reasons.truncate(REASONS);
        Opinion { log_odds, likely: self.likely(probability(log_odds)), reasons }
    }

    /// The conclusion from a probability, where it is reliable.
    fn likely(&self, probability: f64) -> Option<Likely> {
        let is_wrong = self.likely_wrong.is_some_and(|threshold| probability <= threshold.probability);
        let is_right = self.likely_right.is_some_and(|threshold| probability >= threshold.probability);
        match (is_wrong, is_right) {
            (true, _) => Some(Likely::Wrong),
            (false, true) => Some(Likely::Right),
            (false, false) => None,
        }
    }
}

fn probability(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

impl Opinion {
    /// The probability that the answer is good.
    pub(crate) fn probability(&self) -> f64 {
        probability(self.log_odds)
    }

    /// The deciding features, in sentences.
    pub(crate) fn reason(&self) -> String {
        let side = |begins: &str, is_meant: fn(f64) -> bool| {
            let texts: Vec<&str> =
                self.reasons.iter().filter(|reason| is_meant(reason.share)).map(|reason| reason.text).collect();
            (!texts.is_empty()).then(|| format!("{begins}: {}.", texts.join("; ")))
        };
        let sides = [side("Against it", |share| share < 0.0), side("In its favour", |share| share > 0.0)];
        let sides: Vec<String> = sides.into_iter().flatten().collect();
        match sides.is_empty() {
            true => "Nothing about the answer stands out.".to_owned(),
            false => sides.join(" "),
        }
    }
}

impl<'a> AnswerEvidence<'a> {
    /// The evidence about an answer from the completions of the [requests](Fit::requests).
    pub(crate) fn of(query: &'a str, answer: &'a str, is_suspicious: bool, said: &[&'a Completion]) -> Self {
        let logprobs = |index: usize| said.get(index).map_or(&[][..], |completion| completion.logprobs.as_slice());
        AnswerEvidence { query, answer, is_suspicious, after: logprobs(0), alone: logprobs(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_coefficients_name_features_that_exist() {
        for likelihood in Likelihood::shipped() {
            for fit in [&likelihood.own, &likelihood.foreign] {
                assert!(fit.features.keys().all(|name| features::named(name).is_some()), "{fit:?}");
                assert!(fit.features.values().all(|weight| weight.deviation > 0.0), "{fit:?}");
                let n_requests = fit.requests("m", "q", "a").len();
                let compares = features::COMPARING.iter().any(|name| fit.features.contains_key(*name));
                assert_eq!(n_requests, 1 + usize::from(compares), "{fit:?}");
                assert!(fit.auc.low < fit.auc.value && fit.auc.value < fit.auc.high, "{fit:?}");
                for threshold in [fit.likely_wrong, fit.likely_right].into_iter().flatten() {
                    assert!(threshold.correct as f64 >= 0.8 * threshold.marked as f64, "{threshold:?}");
                }
                assert!(fit.likely_wrong.is_some() || fit.likely_right.is_some(), "it would never say anything");
            }
        }
    }
}
