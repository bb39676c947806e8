//! The features of an answer that separate good ones from bad ones, one per row.

use hone_protocol::TokenLogprobs;

use super::{form, rules};

/// The evidence about an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerEvidence<'a> {
    pub(super) query: &'a str,
    pub(super) answer: &'a str,
    pub(super) is_suspicious: bool,
    /// The tokens of the answer after the question.
    pub(super) after: &'a [TokenLogprobs],
    /// The tokens of the answer without the question.
    pub(super) alone: &'a [TokenLogprobs],
}

/// A feature.
pub(super) struct Feature {
    /// Its name in `config/likelihood.toml`.
    pub(super) name: &'static str,
    /// The meaning of a high value.
    high: &'static str,
    /// The meaning of a low value.
    low: &'static str,
    /// Its value.
    pub(super) compute: fn(&AnswerEvidence<'_>) -> f64,
}

/// All features. Log-probabilities are natural logarithms.
pub(super) const FEATURES: [Feature; 15] = [
    Feature {
        name: "mean_logprob",
        high: "the model finds its words likely",
        low: "the model finds its words unlikely",
        compute: |evidence| mean(evidence.after()),
    },
    Feature {
        name: "lowest_logprob",
        high: "no word of it surprises the model",
        low: "a word of it surprises the model",
        compute: |evidence| evidence.after().fold(0.0, f64::min),
    },
    Feature {
        name: "lowest_of_short",
        high: "no word of so short an answer surprises the model",
        low: "a word of it surprises the model",
        compute: |evidence| match evidence.after.len() {
            ..=SHORT => evidence.after().fold(0.0, f64::min),
            _ => LOWEST_OF_LONG,
        },
    },
    Feature {
        name: "unlikely_share",
        high: "many of its words surprise the model",
        low: "few of its words surprise the model",
        compute: |evidence| share(evidence.after(), |logprob| logprob < UNLIKELY),
    },
    Feature {
        name: LIKELIEST_SHARE,
        high: "the model would often have said the same",
        low: "the model would have said something else",
        compute: |evidence| share(evidence.after.iter(), is_likeliest),
    },
    Feature {
        name: INFORMATION,
        high: "it belongs to this question",
        low: "it hardly belongs to this question",
        compute: |evidence| evidence.information().sum::<f64>() / (evidence.after.len().max(1) as f64).sqrt(),
    },
    Feature {
        name: HINDERED_SHARE,
        high: "the question makes many of its words less likely",
        low: "its words follow from the question",
        compute: |evidence| share(evidence.information(), |information| information < HINDERED),
    },
    Feature {
        name: "log_length",
        high: "it is long",
        low: "it is short",
        compute: |evidence| (evidence.after.len().max(1) as f64).ln(),
    },
    Feature {
        name: "repetition",
        high: "it repeats itself",
        low: "it does not repeat itself",
        compute: |evidence| rules::repetition(evidence.answer),
    },
    Feature {
        name: "overlap",
        high: "it repeats the words of the question",
        low: "it says more than the question does",
        compute: |evidence| rules::overlap(evidence.query, evidence.answer),
    },
    Feature {
        name: "absolutes",
        high: "it makes sweeping claims",
        low: "it makes few sweeping claims",
        compute: |evidence| rules::absolutes(evidence.answer),
    },
    Feature {
        name: "breaks_off",
        high: "it breaks off",
        low: "it is complete",
        compute: |evidence| f64::from(rules::breaks_off(evidence.answer)),
    },
    Feature {
        name: "wrong_arithmetic",
        high: "its arithmetic is wrong",
        low: "no arithmetic in it is wrong",
        compute: |evidence| f64::from(rules::wrong_equations(evidence.answer) > 0),
    },
    Feature {
        name: "ignores_form",
        high: "it does not have the form that was asked for",
        low: "it has the form that was asked for",
        compute: |evidence| f64::from(form::ignores_form(evidence.query, evidence.answer)),
    },
    Feature {
        name: "addresses_judge",
        high: "it speaks to its judge",
        low: "it does not speak to its judge",
        compute: |evidence| f64::from(evidence.is_suspicious),
    },
];

/// The feature that needs the likeliest token at each position.
pub(super) const LIKELIEST_SHARE: &str = "likeliest_share";
/// The features that need the log-probabilities of the answer without its question.
pub(super) const COMPARING: [&str; 2] = [INFORMATION, HINDERED_SHARE];
const INFORMATION: &str = "information";
const HINDERED_SHARE: &str = "hindered_share";
/// A token below this log-probability surprises the model: less than one chance in fifty.
const UNLIKELY: f64 = -4.0;
/// A token that the question makes less likely by more than this contradicts it.
const HINDERED: f64 = -0.5;
/// Maximum tokens of a short answer. In a longer one, every model is surprised somewhere.
const SHORT: usize = 20;
/// Replaces the value of the least likely token for longer answers: roughly typical.
const LOWEST_OF_LONG: f64 = -10.0;

/// The feature with this name.
pub(super) fn named(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}

/// The meaning of the model's reading of the answer, given its contribution to the log-odds.
pub(super) fn reason_of_reading(share: f64) -> &'static str {
    if share > 0.0 { "the model reads it as a good answer" } else { "the model reads it as a bad answer" }
}

impl Feature {
    /// The meaning of its value, given its distance above the mean.
    pub(super) fn reason(&self, above_mean: f64) -> &'static str {
        if above_mean > 0.0 { self.high } else { self.low }
    }
}

impl AnswerEvidence<'_> {
    /// All features by name.
    pub(super) fn features(&self) -> impl Iterator<Item = (&'static str, f64)> {
        FEATURES.iter().map(|feature| (feature.name, (feature.compute)(self)))
    }

    /// The mean of the states that predict the answer's tokens; empty if they were not requested.
    pub(super) fn state(&self) -> Vec<f64> {
        let size = self.after.first().map_or(0, |token| token.state.len());
        (0..size).map(|place| mean(self.after.iter().map(|token| f64::from(token.state[place])))).collect()
    }

    fn after(&self) -> impl Iterator<Item = f64> {
        self.after.iter().map(|token| f64::from(token.logprob))
    }

    /// How much likelier the question makes each token.
    fn information(&self) -> impl Iterator<Item = f64> {
        std::iter::zip(self.after, self.alone).map(|(after, alone)| f64::from(after.logprob - alone.logprob))
    }
}

fn is_likeliest(token: &TokenLogprobs) -> bool {
    token.top.first().is_some_and(|likeliest| likeliest.id == token.id)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

fn share<T>(values: impl Iterator<Item = T>, is_counted: impl Fn(T) -> bool) -> f64 {
    mean(values.map(|value| f64::from(is_counted(value))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hone_protocol::TokenLogprob;

    use super::*;

    fn token(logprob: f32, is_likeliest: bool) -> TokenLogprobs {
        let top = TokenLogprob { id: u32::from(!is_likeliest), logprob: 0.0, text: String::new() };
        TokenLogprobs { logprob, top: vec![top], state: vec![logprob, 1.0], ..TokenLogprobs::default() }
    }

    #[test]
    fn log_probabilities_become_features() {
        let after = [token(-1.0, true), token(-5.0, false)];
        let alone = [token(-2.0, true), token(-8.0, false)];
        let evidence = AnswerEvidence {
            query: "How hot?",
            answer: "Very hot.",
            is_suspicious: true,
            after: &after,
            alone: &alone,
        };
        let value = |name: &str| (named(name).unwrap().compute)(&evidence);
        assert_eq!((value("mean_logprob"), value("lowest_logprob")), (-3.0, -5.0));
        assert_eq!((value("lowest_of_short"), value("hindered_share")), (-5.0, 0.0));
        assert_eq!((value("unlikely_share"), value("likeliest_share")), (0.5, 0.5));
        assert!((value("information") - 4.0 / 2.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!((value("addresses_judge"), value("log_length")), (1.0, 2.0_f64.ln()));
        assert_eq!(evidence.state(), [-3.0, 1.0]);
    }

    #[test]
    fn an_answer_without_tokens_has_finite_features() {
        let evidence = AnswerEvidence { query: "", answer: "", is_suspicious: false, after: &[], alone: &[] };
        assert!(evidence.features().all(|(_, value)| value.is_finite()));
        let names: BTreeSet<&str> = FEATURES.iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), FEATURES.len());
    }
}
