//! Decisions that hone makes for itself: yes or no, on one pair of short texts. Which model may make them is found by
//! examination: 200 pairs with known answers for each purpose, written for it, half of them right, and the wrong ones as
//! plausible as the right ones (`config/purposes`). Every other pair determines the probability from which the answer
//! is yes; the remaining pairs measure the model.

use std::fmt::Write as _;
use std::sync::Arc;

use hone_protocol::{
    AnswerTrait, Decision, DecisionKind, DecisionQuestion, DecisionRequest, Generate, GenerateError, Lane, OwnerId,
    hexadecimal,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::auc::{Auc, area_under_curve};
use crate::decisions::Decider;
use crate::report::Share;

/// The least share of right decisions, at the lower end of the 95 % interval, with which a model passes. Of 100 pairs
/// it must get 80 right.
const LEAST_RIGHT: f64 = 0.71;

/// A decision that hone makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Whether a passage supports a claim (`hone research`).
    Citation,
    /// Whether a statement contradicts a later one (`hone consolidate`).
    Contradiction,
    /// Whether a note helps to answer a question (recall).
    Relevance,
    /// Whether a reply addresses its question, rightly or wrongly (a remark).
    Addressed,
    /// Whether a reply declines to do what was asked (a remark).
    Refusal,
    /// Whether a reply contradicts itself (a remark).
    Inconsistency,
}

/// Two texts with a known answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PurposeCase {
    #[serde(alias = "passage", alias = "earlier", alias = "question")]
    first: String,
    #[serde(alias = "claim", alias = "later", alias = "note", alias = "reply")]
    second: String,
    /// The right answer.
    pub answer: bool,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 6] = [
        Purpose::Citation,
        Purpose::Contradiction,
        Purpose::Relevance,
        Purpose::Addressed,
        Purpose::Refusal,
        Purpose::Inconsistency,
    ];

    /// The purpose of a remark on an answer.
    pub fn of(about: AnswerTrait) -> Purpose {
        match about {
            AnswerTrait::Addressed => Purpose::Addressed,
            AnswerTrait::Refusal => Purpose::Refusal,
            AnswerTrait::Inconsistency => Purpose::Inconsistency,
        }
    }

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Citation => "a passage supports a claim",
            Purpose::Contradiction => "a statement replaces another",
            Purpose::Relevance => "a note answers a question",
            Purpose::Addressed => "a reply answers its question",
            Purpose::Refusal => "a reply refuses",
            Purpose::Inconsistency => "a reply contradicts itself",
        }
    }

    /// The pairs of the examination.
    ///
    /// # Panics
    /// If a file of `config/purposes` is invalid; a test checks them.
    pub fn cases(self) -> Vec<PurposeCase> {
        self.lines().lines().map(|line| serde_json::from_str(line).expect("a test reads every line")).collect()
    }

    /// Identifies the pairs of all purposes and how models are asked about them, in hexadecimal digits.
    pub fn digest() -> String {
        let mut sha256 = Sha256::new();
        for purpose in Purpose::ALL {
            [purpose.lines(), &purpose.question().instructions, &purpose.state("a", "b")]
                .iter()
                .for_each(|text| sha256.update(text));
        }
        sha256.update(Decider::digest());
        hexadecimal(sha256.finalize())
    }

    /// The pairs as stored, one JSON object per line.
    fn lines(self) -> &'static str {
        match self {
            Purpose::Citation => include_str!("../../../config/purposes/citation.jsonl"),
            Purpose::Contradiction => include_str!("../../../config/purposes/contradiction.jsonl"),
            Purpose::Relevance => include_str!("../../../config/purposes/relevance.jsonl"),
            Purpose::Addressed => include_str!("../../../config/purposes/addressed.jsonl"),
            Purpose::Refusal => include_str!("../../../config/purposes/refusal.jsonl"),
            Purpose::Inconsistency => include_str!("../../../config/purposes/inconsistency.jsonl"),
        }
    }

    /// The question about both texts. It never changes, so that a model's bias is measured once.
    fn question(self) -> DecisionQuestion {
        let instructions = match self {
            Purpose::Citation => "Does the passage say everything that the claim says?",
            Purpose::Contradiction => {
                "Does the later statement correct or replace the earlier one, so that both cannot be true now?"
            }
            Purpose::Relevance => "Does the note help to answer this very question?",
            Purpose::Addressed => {
                "Does the reply address the very question that was asked, whether rightly or wrongly?"
            }
            Purpose::Refusal => "Does the reply decline to do what was asked?",
            Purpose::Inconsistency => "Does the reply contradict itself?",
        };
        DecisionQuestion { instructions: instructions.to_owned(), kind: DecisionKind::YesNo { yes: None, no: None } }
    }

    /// Both texts with their names. The first is what several pairs share, so that a model reads it once.
    fn state(self, first: &str, second: &str) -> String {
        let names = match self {
            Purpose::Citation => ["Passage", "Claim"],
            Purpose::Contradiction => ["Earlier statement", "Later statement"],
            Purpose::Relevance => ["Question", "Note"],
            Purpose::Addressed | Purpose::Refusal | Purpose::Inconsistency => ["Question", "Reply"],
        };
        let mut state = String::new();
        for (name, text) in std::iter::zip(names, [first, second]) {
            let _ = write!(state, "{}{name}: {}", if state.is_empty() { "" } else { "\n\n" }, text.trim());
        }
        state
    }
}

/// The result of an examination for one purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurposeMarks {
    /// The probability of yes from which the answer is yes: the one with the most right answers in the fitted half.
    pub threshold: f64,
    /// The right answers in the measured half.
    pub right: Share,
    /// The answers yes that were wrong, of all that should have been no.
    pub wrongly_yes: Share,
    /// The answers no that were wrong, of all that should have been yes.
    pub wrongly_no: Share,
    /// How well the probability of yes separates the measured half.
    pub auc: Auc,
}

impl PurposeMarks {
    /// The marks of these decisions on the cases; `None` if one answer is missing among either half.
    pub fn of(cases: &[PurposeCase], decisions: &[Decision]) -> Option<PurposeMarks> {
        let marked: Vec<(f64, bool)> =
            std::iter::zip(cases, decisions).map(|(case, decision)| (decision.yes(), case.answer)).collect();
        let half = |half: usize| marked.iter().copied().skip(half).step_by(2).collect::<Vec<_>>();
        let (fitted, measured) = (half(0), half(1));
        let has_both = |half: &[(f64, bool)]| [true, false].iter().all(|answer| half.iter().any(|it| it.1 == *answer));
        if !has_both(&fitted) || !has_both(&measured) {
            return None;
        }
        let threshold = best_threshold(&fitted);
        let wrong = |answer: bool| {
            let of = measured.iter().filter(|(_, right)| *right == answer);
            let wrong = of.clone().filter(|(yes, _)| (*yes >= threshold) != answer).count();
            (wrong as u64, of.count() as u64)
        };
        let (wrongly_yes, wrongly_no) = (wrong(false), wrong(true));
        let n = measured.len() as u64;
        let of = |answer: bool| measured.iter().filter(move |(_, right)| *right == answer).map(|(yes, _)| *yes);
        // Equal in number, since the sets are balanced.
        let (goods, bads): (Vec<f64>, Vec<f64>) = std::iter::zip(of(true), of(false)).unzip();
        Some(PurposeMarks {
            threshold,
            right: Share::new(n - wrongly_yes.0 - wrongly_no.0, n),
            wrongly_yes: Share::new(wrongly_yes.0, wrongly_yes.1),
            wrongly_no: Share::new(wrongly_no.0, wrongly_no.1),
            auc: area_under_curve(&goods, &bads),
        })
    }

    /// Whether the model may decide.
    pub fn passes(&self) -> bool {
        self.right.interval.is_some_and(|[low, _]| low >= LEAST_RIGHT)
    }
}

/// A threshold that no probability reaches.
const ABOVE_ALL: f64 = 2.0;

/// The threshold with the most right answers, halfway between two probabilities; among equal ones the highest, since a
/// wrong yes does more harm than a wrong no.
fn best_threshold(fitted: &[(f64, bool)]) -> f64 {
    let mut by_probability = fitted.to_vec();
    by_probability.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut n_right = fitted.iter().filter(|(_, answer)| !answer).count();
    let mut best = (n_right, ABOVE_ALL);
    for (index, (probability, answer)) in by_probability.iter().enumerate() {
        n_right = if *answer { n_right + 1 } else { n_right - 1 };
        let next = by_probability.get(index + 1).map_or(0.0, |next| next.0);
        if next < *probability && n_right > best.0 {
            best = (n_right, probability.midpoint(next));
        }
    }
    best.1
}

/// A model that decides for one purpose.
#[derive(Clone)]
pub struct PurposeDecider {
    /// The model's engine.
    pub generator: Arc<dyn Generate>,
    /// The purpose.
    pub purpose: Purpose,
    /// The model's name.
    pub model: String,
    /// The probability from which the answer is yes.
    pub threshold: f64,
    /// The priority of its requests.
    pub lane: Lane,
    /// The owner of the texts, whose requests alone may use their KV cache.
    pub owner: Option<OwnerId>,
    /// Remembers its biases.
    pub decider: Arc<Decider>,
}

impl PurposeDecider {
    /// A model that is yet to be examined.
    pub fn unexamined(generator: Arc<dyn Generate>, purpose: Purpose, model: &str) -> Self {
        let (model, threshold, lane) = (model.to_owned(), 0.5, Lane::Batch);
        PurposeDecider { generator, purpose, model, threshold, lane, owner: None, decider: Arc::default() }
    }

    /// Sets the owner of the texts.
    pub fn of_owner(self, owner: Option<OwnerId>) -> Self {
        PurposeDecider { owner, ..self }
    }

    /// Whether the answer is yes for two texts: a passage and a claim, an earlier and a later statement, a question and
    /// a note, a question and a reply.
    ///
    /// # Errors
    /// When the texts are too long, the model cannot be asked, or nobody waits (`is_over`).
    pub fn decide(&self, first: &str, second: &str, is_over: &dyn Fn() -> bool) -> Result<bool, GenerateError> {
        Ok(self.probability(first, second, is_over)? >= self.threshold)
    }

    /// The probability of yes for two texts.
    ///
    /// # Errors
    /// As [`PurposeDecider::decide`].
    pub fn probability(&self, first: &str, second: &str, is_over: &dyn Fn() -> bool) -> Result<f64, GenerateError> {
        Ok(self.decision(first, second, is_over)?.yes())
    }

    /// The decision on a case of the examination.
    ///
    /// # Errors
    /// As [`PurposeDecider::decide`].
    pub fn examined(&self, case: &PurposeCase, is_over: &dyn Fn() -> bool) -> Result<Decision, GenerateError> {
        self.decision(&case.first, &case.second, is_over)
    }

    fn decision(&self, first: &str, second: &str, is_over: &dyn Fn() -> bool) -> Result<Decision, GenerateError> {
        let state = self.purpose.state(first, second);
        let request = DecisionRequest {
            lane: self.lane,
            owner: self.owner,
            ..DecisionRequest::new(self.model.clone(), state, vec![self.purpose.question()])
        };
        let mut answers = self.decider.decide(&*self.generator, &request, is_over)?.answers;
        Ok(answers.pop().unwrap_or(Decision { probabilities: vec![0.5, 0.5] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(purpose: Purpose, yes: impl Fn(usize, &PurposeCase) -> f64) -> PurposeMarks {
        let cases = purpose.cases();
        let decision = |(index, case)| Decision { probabilities: vec![1.0 - yes(index, case), yes(index, case)] };
        let decisions: Vec<Decision> = cases.iter().enumerate().map(decision).collect();
        PurposeMarks::of(&cases, &decisions).unwrap()
    }

    #[test]
    fn every_purpose_has_two_hundred_pairs_with_balanced_halves() {
        for purpose in Purpose::ALL {
            let cases = purpose.cases();
            assert_eq!(cases.len(), 200, "{purpose:?}");
            for half in 0..2 {
                let n_yes = cases.iter().skip(half).step_by(2).filter(|case| case.answer).count();
                assert_eq!(n_yes, 50, "{purpose:?}");
            }
            let mut pairs: Vec<_> = cases.iter().map(|case| (&case.first, &case.second)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), 200, "{purpose:?}");
        }
    }

    /// A model that judges by the length of the texts, or by the words that they share, must not pass.
    #[test]
    fn surface_tells_nothing_about_a_pair() {
        let words = |text: &str| -> Vec<String> {
            text.to_lowercase().split(|it: char| !it.is_alphanumeric()).map(str::to_owned).collect()
        };
        let shared = |case: &PurposeCase| {
            let (first, second) = (words(&case.first), words(&case.second));
            second.iter().filter(|word| first.contains(word)).count() as f64 / second.len() as f64
        };
        let lengths: [fn(&PurposeCase) -> usize; 2] = [|case| case.first.len(), |case| case.second.len()];
        for purpose in Purpose::ALL {
            for length in lengths {
                assert!(!marks(purpose, |_, case| length(case) as f64 / 1e4).passes(), "{purpose:?}");
                assert!(!marks(purpose, |_, case| 1.0 - length(case) as f64 / 1e4).passes(), "{purpose:?}");
            }
            assert!(!marks(purpose, |_, case| shared(case)).passes(), "{purpose:?}");
            assert!(!marks(purpose, |_, case| 1.0 - shared(case)).passes(), "{purpose:?}");
        }
    }

    #[test]
    fn who_knows_passes_and_who_guesses_or_always_agrees_does_not() {
        for purpose in Purpose::ALL {
            let knowing = marks(purpose, |_, case| if case.answer { 0.3 } else { 0.2 });
            assert!(knowing.passes() && knowing.auc.value == 1.0, "{knowing:?}");
            assert!(knowing.threshold > 0.2 && knowing.threshold < 0.3, "{knowing:?}");
            assert!(!marks(purpose, |_, _| 0.9).passes());
            assert!(!marks(purpose, |index, _| (index * 7919 % 97) as f64 / 97.0).passes());
            // Right in three of four.
            let mediocre = marks(purpose, |index, case| f64::from(u8::from((index / 2 % 4 == 0) != case.answer)));
            assert!(!mediocre.passes() && mediocre.right.share == Some(0.75), "{mediocre:?}");
            // Of the 100 measured pairs, it gets so many wrong.
            let wrong_in = |n: usize| {
                marks(purpose, |index, case| {
                    let is_wrong = index % 2 == 1 && index / 2 < n;
                    f64::from(u8::from(is_wrong != case.answer))
                })
            };
            assert!(wrong_in(20).passes() && !wrong_in(21).passes(), "{:?}", wrong_in(21));
        }
    }

    #[test]
    fn of_equally_good_thresholds_the_highest_counts() {
        assert_eq!(best_threshold(&[(0.9, true), (0.5, false), (0.1, false)]), 0.7);
        assert_eq!(best_threshold(&[(0.9, false), (0.5, true), (0.1, false)]), ABOVE_ALL);
        assert_eq!(best_threshold(&[(0.5, true), (0.5, true), (0.5, false)]), 0.25);
    }
}
