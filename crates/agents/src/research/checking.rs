//! Checks claims against the passages that they cite: in words and figures, and by a judge where one may decide.

use std::time::Duration;

use hone_judging::{Review, ReviewTask, SupportTask, support_of};
use hone_protocol::Support;
use serde::Serialize;

use super::answering::Claim;
use super::details::{missing_details, share_of_words};
use super::document::{Passage, Place};
use super::settings::ResearchSettings;

/// Gives a verdict on a claim.
pub type AskJudge<'a> = &'a dyn Fn(&ReviewTask) -> Review;

/// A claim, and whether its passages support it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedClaim {
    /// The claim.
    pub text: String,
    /// The places of the passages that it cites.
    pub citations: Vec<Place>,
    /// Whether they support it.
    pub support: Support,
    /// Why they do not, or what a judge says.
    pub reasons: Vec<String>,
    /// Whether a judge has decided.
    pub judged: bool,
}

/// Checked claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checked {
    pub(super) claims: Vec<CheckedClaim>,
    /// Why a judge has not decided on a claim that words and figures speak for.
    pub(super) unjudged: Option<String>,
}

/// Checks each claim until `show`, which is told how many are done, says that it is to stop.
pub(super) fn check(
    claims: &[Claim],
    passages: &[Passage],
    settings: &ResearchSettings,
    judge: AskJudge<'_>,
    show: &mut dyn FnMut(usize) -> bool,
) -> Checked {
    let mut checked = Checked::default();
    for claim in claims {
        let cited = cited(claim, passages);
        let mut result = by_words(claim, &cited, settings.least_words);
        if result.support == Support::Supported {
            let texts: Vec<&str> = cited.iter().map(|passage| passage.text.as_str()).collect();
            let task = SupportTask {
                prompt: &settings.claim_prompt,
                claim: &claim.text,
                passages: &texts.join("\n\n"),
                max_tokens: settings.claim_tokens,
                timeout: Duration::from_secs_f64(settings.claim_timeout),
            };
            match support_of(&judge(&task.review())) {
                Ok((support, reasoning)) => {
                    result.support = support;
                    result.judged = true;
                    result.reasons = vec![reasoning];
                }
                Err(reason) => checked.unjudged = Some(reason),
            }
        }
        checked.claims.push(result);
        if !show(checked.claims.len()) {
            break;
        }
    }
    checked
}

/// The passages that a claim cites, each once.
fn cited<'a>(claim: &Claim, passages: &'a [Passage]) -> Vec<&'a Passage> {
    let mut numbers: Vec<usize> = Vec::new();
    for number in &claim.citations {
        if !numbers.contains(number) {
            numbers.push(*number);
        }
    }
    numbers.iter().filter_map(|number| passages.get(number.checked_sub(1)?)).collect()
}

/// What words and figures say about a claim.
fn by_words(claim: &Claim, cited: &[&Passage], least_words: f64) -> CheckedClaim {
    let texts: Vec<&str> = cited.iter().map(|passage| passage.text.as_str()).collect();
    let mut reasons = Vec::new();
    let missing = missing_details(&claim.text, &texts);
    let share = share_of_words(&claim.text, &texts);
    if claim.text.trim().is_empty() {
        reasons.push("it says nothing".to_owned());
    } else if cited.is_empty() {
        reasons.push("it cites no passage".to_owned());
    } else if !missing.is_empty() {
        reasons.push(format!("the cited passages do not mention {}", missing.join(", ")));
    } else if share < least_words {
        reasons.push(format!("only {:.0} % of its words stand in the cited passages", share * 100.0));
    }
    CheckedClaim {
        text: claim.text.trim().to_owned(),
        citations: cited.iter().map(|passage| passage.place.clone()).collect(),
        support: if reasons.is_empty() { Support::Supported } else { Support::NotSupported },
        reasons,
        judged: false,
    }
}
