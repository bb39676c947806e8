//! What a judge says.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::RespondentId;
use crate::prospect::Prospect;

/// What it took to judge, and who did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judging {
    /// The model that judged; empty where none had begun when the judging failed.
    pub judge: String,
    /// Whether the judge is the model that also answered, standing in for a judge that is not installed.
    pub self_graded: bool,
    /// Tokens that the judge wrote.
    pub tokens: usize,
    /// Seconds from the start of the judging to its end, waiting included.
    pub seconds: f64,
    /// Those of them in which the judge had other work; its time limit does not count them.
    #[serde(default)]
    pub queue_seconds: f64,
    /// Why there is no verdict; `None` where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Judging {
    /// What says that there is no verdict, and why.
    pub fn failed(reason: impl Into<String>) -> Judging {
        Judging { failure: Some(reason.into()), ..Judging::default() }
    }

    /// What can still come of it; `None` where there is a verdict.
    pub fn prospect(&self) -> Option<Prospect> {
        self.failure.as_deref().map(Prospect::of)
    }
}

/// An answer's grade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// 1 to 5; `None` is unscored, which is neither a pass nor a 0.
    pub score: Option<u8>,
    /// The judge's reasons, without the verdict at their end.
    pub feedback: String,
    /// The mean of the scores 1 to 5, weighted with the judge's probabilities of them.
    pub expected_score: Option<f64>,
    /// Entropy of these probabilities, in nats: 0 is certain, `ln 5` a guess.
    pub entropy: Option<f64>,
    /// The rubric that was graded by.
    pub rubric: String,
    /// What makes the answer look as if it wanted to influence its judge; `None` where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicious: Option<Suspicion>,
    /// What it took.
    #[serde(flatten)]
    pub judging: Judging,
}

impl Grade {
    /// The grade of an answer that has no score, for this reason.
    pub fn unscored(reason: impl Into<String>) -> Grade {
        Grade { judging: Judging::failed(reason), ..Grade::default() }
    }
}

/// A passage of an answer that speaks to its judge, where it should speak to who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// What it does.
    pub kind: SuspicionKind,
    /// Whether it does so in a form that a reader does not see or does not read: invisible characters, look-alikes, encodings.
    #[serde(default)]
    pub is_hidden: bool,
    /// The passage as it reads, perhaps cut, without control characters.
    pub passage: String,
}

/// How a passage speaks to a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspicionKind {
    /// It has the form of a verdict, or of feedback with a verdict.
    ImitatesVerdict,
    /// It has the form of a part of the judge's prompt.
    ImitatesPrompt,
    /// It holds control tokens of chat templates.
    ControlTokens,
    /// It tells a grader what to do.
    OrdersGrader,
    /// It says which score the answer has or deserves.
    ClaimsScore,
    /// It is text in characters that are never seen.
    HiddenText,
    /// A later version knows what it does.
    #[serde(other)]
    Other,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SuspicionKind::ImitatesVerdict => "it imitates a verdict",
            SuspicionKind::ImitatesPrompt => "it imitates the judge's prompt",
            SuspicionKind::ControlTokens => "it holds control tokens",
            SuspicionKind::OrdersGrader => "it tells the grader what to do",
            SuspicionKind::ClaimsScore => "it claims a score",
            SuspicionKind::HiddenText => "it holds invisible text",
            SuspicionKind::Other => "it speaks to the judge",
        };
        let how = if self.is_hidden && self.kind != SuspicionKind::HiddenText { " in disguise" } else { "" };
        write!(f, "{what}{how}: “{}”", self.passage)
    }
}

/// Which of two answers is better.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    /// The better one; `None` is a tie, or no verdict where `judging.failure` says so.
    pub winner: Option<RespondentId>,
    /// Natural logarithm of the odds of A over B, the mean of both orders; positive where A is better.
    pub log_odds: f64,
    /// Whether the judge preferred the same answer in both orders.
    pub consistent: bool,
    /// The judge's reason, from the order that chose the winner; from the one in which A stood first where both did, or
    /// neither answer won. A reason from the order in which B stood first says so, since its letters are the other's.
    pub reason: String,
    /// What it took.
    #[serde(flatten)]
    pub judging: Judging,
}
