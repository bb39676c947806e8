//! What a judge says.

use serde::{Deserialize, Serialize};

use crate::envelope::RespondentId;

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
    /// What it took.
    #[serde(flatten)]
    pub judging: Judging,
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
