//! Comparing: decides which of two answers is better.
//!
//! Judges favor the answer in a certain position. So two requests run concurrently, one for each order, and the winner
//! is determined by the mean of both verdicts.

use std::cmp::Ordering;

use hone_protocol::{Completion, Likely, Preference, RespondentId};
use serde::{Deserialize, Serialize};

use crate::form::VerdictForm;
use crate::judge::{Judge, VerdictOptions};
use crate::likelihood::Opinion;
use crate::probabilities::log_odds_of_first;
use crate::prompt::JudgePrompt;
use crate::shorten::with_remark;
use crate::suspicion::ExaminedAnswer;
use crate::task::{JudgeTask, ShownTexts, no_verdict, without_label, without_verdict};

/// Appended to a reason written with B first.
const SWAPPED: &str = "[The judge was shown the answers the other way round: its A is B, and its B is A.]";

/// Two answers to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompareTask {
    /// The question.
    pub query: String,
    /// A's answer.
    #[serde(rename = "a")]
    pub answer_a: String,
    /// B's answer.
    #[serde(rename = "b")]
    pub answer_b: String,
}

impl JudgeTask for CompareTask {
    type Verdict = Preference;

    fn query(&self) -> &str {
        &self.query
    }

    fn answers(&self) -> Vec<&str> {
        vec![&self.answer_a, &self.answer_b]
    }

    /// One request with A first, one with B first.
    fn requests(&self, judge: &Judge, shown: &ShownTexts) -> Vec<(JudgePrompt, VerdictOptions)> {
        let (profile, feedback) = (judge.profile(), judge.feedback());
        let (template, form) = (profile.pairwise(feedback), profile.choice_form(feedback));
        let (a, b) = (shown.answers[0].as_str(), shown.answers[1].as_str());
        let request = |first, second| {
            let texts = [("query", shown.query.as_str()), ("answer_a", first), ("answer_b", second)];
            let prompt = judge.prompt(&profile.pairwise_system, &template, &texts);
            (prompt, judge.form(&form, 0))
        };
        vec![request(a, b), request(b, a)]
    }

    fn unjudged(_: &Judge, _: &[ExaminedAnswer]) -> Preference {
        Preference::default()
    }

    /// If one order has no verdict, there is no winner.
    fn conclude(
        judge: &Judge,
        said: &[Option<&Completion>],
        shown: &ShownTexts,
        unjudged: Preference,
    ) -> Option<Preference> {
        let form = judge.profile().choice_form(judge.feedback());
        let mut orders = Vec::new();
        for completion in said.iter().flatten() {
            match order_verdict(&form, completion) {
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

    /// The likelihood judge sees each answer by itself, so order cannot matter. It prefers an answer only if its
    /// assessments of the two differ.
    fn weigh(_: &Judge, opinions: &[Opinion], unjudged: Preference) -> Preference {
        let [a, b] = opinions else { return unjudged };
        let winner = match standing(a).cmp(&standing(b)) {
            Ordering::Greater => Some(RespondentId::A),
            Ordering::Less => Some(RespondentId::B),
            Ordering::Equal => None,
        };
        let about = |opinion: &Opinion| match opinion.likely {
            Some(likely) => format!("{likely}. {}", opinion.reason()),
            None => opinion.reason(),
        };
        let reason = format!("A: {} B: {}", about(a), about(b));
        Preference { winner, log_odds: a.log_odds - b.log_odds, consistent: true, reason, ..unjudged }
    }

    /// The reward model sees each answer by itself, too.
    fn rate(judge: &Judge, rewards: &[f64], unjudged: Preference) -> Preference {
        let [a, b] = rewards else { return unjudged };
        let (log_odds, reason) = (a - b, format!("The rewards are {a:.2} for A and {b:.2} for B."));
        let winner = winner(log_odds, judge.settings().tie_margin);
        Preference { winner, log_odds, consistent: true, reason, ..unjudged }
    }
}

/// The likelihood judge's assessment of an answer, as a rank.
fn standing(opinion: &Opinion) -> i8 {
    match opinion.likely {
        Some(Likely::Wrong) => -1,
        None => 0,
        Some(Likely::Right) => 1,
    }
}

/// The judge's verdict in one of the orders.
#[derive(Clone, Debug)]
struct OrderVerdict {
    /// Log-odds of the first answer.
    log_odds_of_first: f64,
    reason: String,
}

/// The reason given in the order that chose the winner; if both did, or neither answer won, the reason with A first. In
/// the other order the letters are swapped, so a note is appended.
fn reason(winner: Option<RespondentId>, a_first: &OrderVerdict, b_first: &OrderVerdict) -> String {
    let was_chosen_a_first = match winner {
        Some(RespondentId::A) => a_first.log_odds_of_first > 0.0,
        Some(_) => a_first.log_odds_of_first < 0.0,
        None => true,
    };
    match was_chosen_a_first {
        true => a_first.reason.clone(),
        false if b_first.reason.is_empty() => String::new(),
        false => format!("{}\n{SWAPPED}", b_first.reason),
    }
}

/// The better answer by the log-odds of A; `None` if they are within the margin.
pub(crate) fn winner(log_odds: f64, tie_margin: f64) -> Option<RespondentId> {
    match log_odds {
        _ if log_odds.abs() < tie_margin => None,
        _ if log_odds > 0.0 => Some(RespondentId::A),
        _ if log_odds < 0.0 => Some(RespondentId::B),
        _ => None,
    }
}

/// The judge's verdict, or the expected form where it named no winner.
fn order_verdict(form: &VerdictForm, completion: &Completion) -> Result<OrderVerdict, String> {
    let reading = form.read(&completion.text)?;
    Ok(OrderVerdict {
        log_odds_of_first: log_odds_of_first(form, &completion.logprobs, reading.label),
        reason: without_label(reading.reasons.trim()).trim().to_owned(),
    })
}
