//! The kinds of requests to a judge, and their shared interface.

use std::fmt;

use hone_protocol::prospect::NO_VERDICT;
use hone_protocol::{Completion, Grade, Judging, Preference};

use crate::judge::{Judge, VerdictOptions};
use crate::likelihood::Opinion;
use crate::prompt::JudgePrompt;
use crate::suspicion::ExaminedAnswer;

/// A request for a verdict. An implementation defines the specifics of a kind of verdict. Running requests, time limits
/// and fallbacks are common to all, and implemented in `JudgeRun`.
pub trait JudgeTask {
    /// The resulting verdict.
    type Verdict: Verdict;

    /// The question.
    fn query(&self) -> &str;

    /// The answers that are judged.
    fn answers(&self) -> Vec<&str>;

    /// The prompts for the judge, all sent at once. The texts in `shown` are neutralized.
    fn requests(&self, judge: &Judge, shown: &ShownTexts) -> Vec<(JudgePrompt, VerdictOptions)>;

    /// The verdict before the judge has said anything about the answers.
    fn unjudged(judge: &Judge, examined: &[ExaminedAnswer]) -> Self::Verdict;

    /// Derives the verdict from its state so far and the judge's responses; `None` if more responses are needed. The
    /// response to a request is available once the request has ended.
    fn conclude(
        judge: &Judge,
        said: &[Option<&Completion>],
        shown: &ShownTexts,
        unjudged: Self::Verdict,
    ) -> Option<Self::Verdict>;

    /// Derives the verdict from the likelihood judge's opinions of the answers.
    fn weigh(judge: &Judge, opinions: &[Opinion], unjudged: Self::Verdict) -> Self::Verdict;

    /// Derives the verdict from a reward model's rewards for the answers.
    fn rate(judge: &Judge, rewards: &[f64], unjudged: Self::Verdict) -> Self::Verdict;
}

/// The texts that the judge is shown.
#[derive(Debug)]
pub struct ShownTexts {
    /// The question.
    pub(crate) query: String,
    /// The answers, perhaps without their middles.
    pub(crate) answers: Vec<String>,
    /// The number of characters of the answers that are not shown.
    pub(crate) left_out: usize,
}

/// A judge's verdict.
pub trait Verdict: fmt::Debug {
    /// The cost, and the failure if there is no verdict.
    fn judging(&self) -> &Judging;

    /// Mutable access to the cost and the failure.
    fn judging_mut(&mut self) -> &mut Judging;

    /// The score, if the verdict has one.
    fn score(&self) -> Option<u8>;
}

impl Verdict for Grade {
    fn judging(&self) -> &Judging {
        &self.judging
    }

    fn judging_mut(&mut self) -> &mut Judging {
        &mut self.judging
    }

    fn score(&self) -> Option<u8> {
        self.score
    }
}

impl Verdict for Preference {
    fn judging(&self) -> &Judging {
        &self.judging
    }

    fn judging_mut(&mut self) -> &mut Judging {
        &mut self.judging
    }

    fn score(&self) -> Option<u8> {
        None
    }
}

/// A verdict that only states the failure.
pub(crate) fn without_verdict<V: Verdict>(mut verdict: V, failure: &str) -> V {
    verdict.judging_mut().failure = Some(failure.to_owned());
    verdict
}

/// The failure of a judge that wrote no verdict, with the expected form.
pub(crate) fn no_verdict(expected: &str) -> String {
    format!("{NO_VERDICT}: expected {expected}")
}

/// Reasons without the label that prompts request, or end with.
pub(crate) fn without_label(text: &str) -> &str {
    const LABELS: [&str; 2] = ["feedback:", "reasoning:"];
    let bare = text.trim_start_matches(['#', '*', ' ']);
    let is_label = |label: &&&str| bare.get(..label.len()).is_some_and(|start| start.eq_ignore_ascii_case(label));
    match LABELS.iter().find(is_label) {
        Some(label) => bare[label.len()..].trim_start_matches('*').trim_start(),
        None => text,
    }
}
