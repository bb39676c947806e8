//! What a judge can be asked, and what all such tasks have in common.

use hone_protocol::{Completion, Grade, Judging, Preference};

use crate::judge::{Form, Judge};
use crate::prompt::JudgePrompt;
use crate::suspicion::Examined;

/// Something that a judge can be asked. What a kind of verdict needs is said here; running requests, time and what is done
/// when the judge cannot answer is the same for all, and stands in `JudgeRun`.
pub trait Task {
    /// What comes of it.
    type Verdict: Verdict;

    /// What was asked.
    fn query(&self) -> &str;

    /// The answers that are judged.
    fn answers(&self) -> Vec<&str>;

    /// What the judge is asked, all at once. The texts that are `shown` are neutralized.
    fn requests(&self, judge: &Judge, shown: &Shown) -> Vec<(JudgePrompt, Form)>;

    /// The verdict before the judge has said anything about the answers.
    fn unjudged(judge: &Judge, examined: &[Examined]) -> Self::Verdict;

    /// What the judge says comes to, made of its verdict so far; `None` where more has to be heard. What was said to each of
    /// the requests is there when its request has ended.
    fn conclude(
        judge: &Judge,
        said: &[Option<&Completion>],
        shown: &Shown,
        unjudged: Self::Verdict,
    ) -> Option<Self::Verdict>;
}

/// What the judge is shown.
#[derive(Debug)]
pub struct Shown {
    /// What was asked.
    pub(crate) query: String,
    /// The answers, perhaps without their middle.
    pub(crate) answers: Vec<String>,
    /// How many characters of the answers that are not.
    pub(crate) left_out: usize,
}

/// What a judge says.
pub trait Verdict {
    /// What it took, and what failed where there is no verdict.
    fn judging(&self) -> &Judging;

    /// The same, to be filled in.
    fn judging_mut(&mut self) -> &mut Judging;

    /// The score, where it is one.
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

/// A verdict that only says what failed.
pub(crate) fn without_verdict<V: Verdict>(mut verdict: V, failure: &str) -> V {
    verdict.judging_mut().failure = Some(failure.to_owned());
    verdict
}

/// Says that the judge wrote no verdict, and what was expected of it.
pub(crate) fn no_verdict(expected: &str) -> String {
    format!("the judge wrote no verdict: expected {expected}")
}

/// Reasons without the label that prompts ask for, or end with.
pub(crate) fn without_label(text: &str) -> &str {
    const LABELS: [&str; 2] = ["feedback:", "reasoning:"];
    let bare = text.trim_start_matches(['#', '*', ' ']);
    let is_label = |label: &&&str| bare.get(..label.len()).is_some_and(|start| start.eq_ignore_ascii_case(label));
    match LABELS.iter().find(is_label) {
        Some(label) => bare[label.len()..].trim_start_matches('*').trim_start(),
        None => text,
    }
}
