//! Comparing: two answers, and which of them is better.
//!
//! Judges prefer what stands first, or second. So two requests run at once, one for each order, and the winner comes from
//! the mean of what both say.

use hone_protocol::{Completion, Preference, RespondentId};
use serde::{Deserialize, Serialize};

use crate::judge::{Form, Judge};
use crate::probabilities::log_odds_of_first;
use crate::prompt::JudgePrompt;
use crate::shorten::with_remark;
use crate::suspicion::Examined;
use crate::task::{Shown, Task, no_verdict, without_label, without_verdict};

/// Follows on a reason that was written where B stood first.
const SWAPPED: &str = "[The judge was shown the answers the other way round: its A is B, and its B is A.]";

/// Two answers to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompareTask {
    /// What was asked.
    pub query: String,
    /// What A answered.
    #[serde(rename = "a")]
    pub answer_a: String,
    /// What B answered.
    #[serde(rename = "b")]
    pub answer_b: String,
}

impl Task for CompareTask {
    type Verdict = Preference;

    fn query(&self) -> &str {
        &self.query
    }

    fn answers(&self) -> Vec<&str> {
        vec![&self.answer_a, &self.answer_b]
    }

    /// A first, B first.
    fn requests(&self, judge: &Judge, shown: &Shown) -> Vec<(JudgePrompt, Form)> {
        let profile = judge.profile();
        let (a, b) = (shown.answers[0].as_str(), shown.answers[1].as_str());
        let request = |first, second| {
            let texts = [("query", shown.query.as_str()), ("answer_a", first), ("answer_b", second)];
            let prompt = judge.prompt(&profile.pairwise_system, &profile.pairwise_prompt, &texts);
            (prompt, judge.form(&profile.choice, 0))
        };
        vec![request(a, b), request(b, a)]
    }

    fn unjudged(_: &Judge, _: &[Examined]) -> Preference {
        Preference::default()
    }

    /// One order without a verdict is enough to know that there is no winner.
    fn conclude(
        judge: &Judge,
        said: &[Option<&Completion>],
        shown: &Shown,
        unjudged: Preference,
    ) -> Option<Preference> {
        let mut orders = Vec::new();
        for completion in said.iter().flatten() {
            match order_verdict(judge, completion) {
                Ok(verdict) => orders.push(verdict),
                Err(expected) => return Some(without_verdict(unjudged, &no_verdict(&expected))),
            }
        }
        let [a_first, b_first] = orders.as_slice() else { return None };
        let log_odds = [a_first.log_odds_of_first, -b_first.log_odds_of_first];
        let mean = (log_odds[0] + log_odds[1]) / 2.0;
        let winner = winner(mean, judge.settings().tie_margin);
        Some(Preference {
            winner,
            log_odds: mean,
            consistent: log_odds[0] * log_odds[1] > 0.0,
            reason: with_remark(&reason(winner, a_first, b_first), shown.left_out, "answers"),
            ..unjudged
        })
    }
}

/// What the judge said in one of the orders.
#[derive(Clone, Debug)]
struct OrderVerdict {
    /// Log-odds of the answer that stood first.
    log_odds_of_first: f64,
    reason: String,
}

/// The reason of the order that chose the winner: the one in which A stood first where both did, or neither answer won.
/// The letters of the other order are the wrong way round, which is said behind its reason.
fn reason(winner: Option<RespondentId>, a_first: &OrderVerdict, b_first: &OrderVerdict) -> String {
    let was_chosen_a_first = match winner {
        Some(RespondentId::A) => a_first.log_odds_of_first > 0.0,
        Some(RespondentId::B) => a_first.log_odds_of_first < 0.0,
        None => true,
    };
    match was_chosen_a_first {
        true => a_first.reason.clone(),
        false if b_first.reason.is_empty() => String::new(),
        false => format!("{}\n{SWAPPED}", b_first.reason),
    }
}

/// The better answer by the odds of A; `None` where they are too even.
fn winner(log_odds: f64, tie_margin: f64) -> Option<RespondentId> {
    match log_odds {
        _ if log_odds.abs() < tie_margin => None,
        _ if log_odds > 0.0 => Some(RespondentId::A),
        _ if log_odds < 0.0 => Some(RespondentId::B),
        _ => None,
    }
}

/// What the judge said, or what was expected of it where it named no winner.
fn order_verdict(judge: &Judge, completion: &Completion) -> Result<OrderVerdict, String> {
    let form = &judge.profile().choice;
    let reading = form.read(&completion.text)?;
    Ok(OrderVerdict {
        log_odds_of_first: log_odds_of_first(form, &completion.logprobs, reading.label),
        reason: without_label(reading.reasons.trim()).trim().to_owned(),
    })
}
