//! A judge's verdicts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::RespondentId;
use crate::prospect::Prospect;
use crate::remark::Remark;

/// The cost of a verdict, and the model that gave it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judging {
    /// The model that judged, or the names of the jurors; empty if judging failed before any of them had begun.
    pub judge: String,
    /// Whether the judge is the model that also answered, standing in for a judge that is not installed.
    pub self_graded: bool,
    /// Tokens that the judge wrote.
    pub tokens: usize,
    /// Seconds from the start of the judging to its end, including waiting.
    pub seconds: f64,
    /// Seconds in which the judge had other work; they do not count towards its time limit.
    #[serde(default)]
    pub queue_seconds: f64,
    /// Whether the judge was made to conclude, because its time limit was near.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub concluded_early: bool,
    /// How the verdict was reached.
    #[serde(default, skip_serializing_if = "JudgingMethod::is_prompted")]
    pub method: JudgingMethod,
    /// Why there is no verdict; `None` if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How a verdict was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgingMethod {
    /// A model was asked for it.
    #[default]
    Prompted,
    /// It was computed from the log-probabilities of the answer, and by rules.
    Likelihood,
    /// A reward model rated the answer.
    Reward,
}

impl JudgingMethod {
    /// Whether a model was asked, and gave a score from 1 to 5.
    pub fn is_prompted(&self) -> bool {
        *self == JudgingMethod::Prompted
    }
}

impl Judging {
    /// An absent verdict and its reason.
    pub fn failed(reason: impl Into<String>) -> Judging {
        Judging { failure: Some(reason.into()), ..Judging::default() }
    }

    /// Whether the same judge gave both verdicts in the same way, about itself or about others.
    pub fn is_by_same_judge(&self, other: &Judging) -> bool {
        self.judge == other.judge && self.method == other.method && self.self_graded == other.self_graded
    }

    /// The prospect of a later verdict; `None` if there is a verdict.
    pub fn prospect(&self) -> Option<Prospect> {
        self.failure.as_deref().map(Prospect::of)
    }
}

/// An answer's grade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// 1 to 5; `None` is unscored, which is neither a pass nor a 0.
    pub score: Option<u8>,
    /// The score as the judge wrote it, on its own scale, or the reward; `None` without either, and in records of
    /// versions with a single scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_score: Option<String>,
    /// The judge's reasons, without the verdict at their end.
    pub feedback: String,
    /// The mean of the judge's scores on the scale from 1 to 5, weighted by its probabilities; of a jury, the mean of
    /// the jurors'.
    pub expected_score: Option<f64>,
    /// Entropy of these probabilities, in nats: 0 is certain, the logarithm of the number of scores a guess.
    pub entropy: Option<f64>,
    /// The likelihood judge's or reward model's probability that the answer is right. They give no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The conclusion from it, if that is reliable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<Likely>,
    /// The rubric used.
    pub rubric: String,
    /// A passage that seems intended to influence the judge; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicious: Option<Suspicion>,
    /// The highest score of the jurors minus the lowest; `None` unless several of them gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<u8>,
    /// Whether the jurors disagree: the spread reaches `judge.disagreement`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disputed: bool,
    /// The members of the jury with their own grades; empty if a single judge graded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jury: Vec<Juror<Grade>>,
    /// Remarks on the answer, if a person asked about the grade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// The cost.
    #[serde(flatten)]
    pub judging: Judging,
}

/// A conclusion of the likelihood judge or a reward model, given only where at least 80 % of such conclusions are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Likely {
    /// The answer is probably right.
    Right,
    /// The answer is probably wrong.
    Wrong,
}

impl Likely {
    /// The serialized name.
    pub fn word(self) -> &'static str {
        match self {
            Likely::Right => "right",
            Likely::Wrong => "wrong",
        }
    }
}

impl fmt::Display for Likely {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "likely {}", self.word())
    }
}

/// A member of a jury, and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Juror<V> {
    /// The judge, as the configuration names it.
    pub name: String,
    /// Whether it is the stronger judge, whose verdict prevails if the jurors disagree.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_stronger: bool,
    /// Its own verdict.
    #[serde(flatten)]
    pub verdict: V,
}

impl Preference {
    /// No preference, for this reason.
    pub fn failed(reason: impl Into<String>) -> Preference {
        Preference { judging: Judging::failed(reason), ..Preference::default() }
    }
}

impl Grade {
    /// The score as the judge wrote it, if that differs from the score from 1 to 5. A reward is not a score.
    pub fn raw_score_of_its_own(&self) -> Option<&str> {
        let score = self.score?.to_string();
        self.raw_score.as_deref().filter(|raw| *raw != score)
    }

    /// Whether a judge has reached a verdict: a score, a probability, or a reward.
    pub fn is_verdict(&self) -> bool {
        self.score.is_some() || self.probability.is_some() || self.reward().is_some()
    }

    /// The reward, if a reward model gave one.
    pub fn reward(&self) -> Option<f64> {
        let is_reward = self.judging.method == JudgingMethod::Reward;
        self.raw_score.as_deref().filter(|_| is_reward).and_then(|raw| raw.parse().ok())
    }

    /// Whether there is a score without written reasons.
    pub fn lacks_reasons(&self) -> bool {
        self.score.is_some() && self.feedback.is_empty()
    }

    /// How incomplete it is: of two grades of an answer, the more complete one is shown.
    pub fn lack(&self) -> (bool, bool, bool, bool) {
        (self.score.is_none(), self.probability.is_none(), self.lacks_reasons(), self.remarks.is_empty())
    }

    /// Its value on the scale from 1 to 5, for statistics about judges: the expected score, or else the score, or else
    /// the probability that the answer is right, stretched over the scale.
    pub fn on_scale(&self) -> Option<f64> {
        let stretched = || self.probability.map(|probability| 1.0 + 4.0 * probability);
        self.expected_score.or(self.score.map(f64::from)).or_else(stretched)
    }

    /// Whether its score can be compared with the other one: scores of different judges, or by different rubrics, are
    /// on different scales.
    pub fn is_comparable(&self, other: &Grade) -> bool {
        self.rubric == other.rubric && self.judging.is_by_same_judge(&other.judging)
    }

    /// A grade without a score, for this reason.
    pub fn unscored(reason: impl Into<String>) -> Grade {
        Grade { judging: Judging::failed(reason), ..Grade::default() }
    }
}

/// A passage of an answer that addresses its judge instead of the person who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// How it addresses the judge.
    pub kind: SuspicionKind,
    /// Whether it is in a form that a reader does not see or would not read: invisible characters, look-alikes,
    /// encodings.
    #[serde(default)]
    pub is_hidden: bool,
    /// The passage as it reads, perhaps truncated, without control characters.
    pub passage: String,
}

/// How a passage addresses a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspicionKind {
    /// It has the form of a verdict, or of feedback with a verdict.
    ImitatesVerdict,
    /// It has the form of a part of the judge's prompt.
    ImitatesPrompt,
    /// It contains control tokens of chat templates.
    ControlTokens,
    /// It gives a grader instructions.
    OrdersGrader,
    /// It states which score the answer has or deserves.
    ClaimsScore,
    /// It is text in invisible characters.
    HiddenText,
    /// A kind defined by a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SuspicionKind::ImitatesVerdict => "it imitates a verdict",
            SuspicionKind::ImitatesPrompt => "it imitates the judge's prompt",
            SuspicionKind::ControlTokens => "it contains control tokens",
            SuspicionKind::OrdersGrader => "it tells the grader what to do",
            SuspicionKind::ClaimsScore => "it claims a score",
            SuspicionKind::HiddenText => "it contains invisible text",
            SuspicionKind::Other => "it addresses the judge",
        };
        let how = if self.is_hidden && self.kind != SuspicionKind::HiddenText { " in disguise" } else { "" };
        write!(f, "{what}{how}: “{}”", self.passage)
    }
}

/// Which of two answers is better.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    /// The better one; `None` means a tie, or no verdict if `judging.failure` is set.
    pub winner: Option<RespondentId>,
    /// Natural logarithm of the odds of A over B, averaged over both orders; positive if A is better.
    pub log_odds: f64,
    /// Whether the judge preferred the same answer in both orders; of a jury, whether every juror did.
    pub consistent: bool,
    /// The judge's reason, from the order that chose the winner; if both did, or neither answer won, from the one with
    /// A first. A reason given with B first says so, since its letters are swapped.
    pub reason: String,
    /// The members of the jury with their own preferences; empty if a single judge compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jury: Vec<Juror<Preference>>,
    /// The cost.
    #[serde(flatten)]
    pub judging: Judging,
}

fn is_false(value: &bool) -> bool {
    !value
}
