//! Checks whether passages support a claim, by a judge.

use std::time::Duration;

use hone_protocol::Support;
use serde::Deserialize;

use crate::review::{Review, ReviewForm, ReviewLimits, ReviewTask, Reviewed};

/// A claim to be checked.
#[derive(Clone, Copy, Debug)]
pub struct SupportTask<'a> {
    /// The prompt, with places for the claim (`content`) and the passages (`context`).
    pub prompt: &'a str,
    /// The claim.
    pub claim: &'a str,
    /// The passages that it cites.
    pub passages: &'a str,
    /// Maximum tokens of the verdict.
    pub max_tokens: usize,
    /// The time limit.
    pub timeout: Duration,
}

impl SupportTask<'_> {
    /// The review task for this claim.
    pub fn review(&self) -> ReviewTask {
        let texts = Reviewed { goal: self.passages, requirements: "", work: self.claim };
        let limits = ReviewLimits { max_tokens: self.max_tokens, timeout: self.timeout };
        ReviewTask::new(ReviewForm::Support, self.prompt, texts, limits)
    }
}

#[derive(Deserialize)]
struct SupportSaid {
    reasoning: String,
    verdict: Support,
}

/// The verdict of a review about a claim, and its reasoning.
///
/// # Errors
/// The reason why the review has no verdict.
pub fn support_of(review: &Review) -> Result<(Support, String), String> {
    let SupportSaid { reasoning, verdict } = review.read()?;
    Ok((verdict, reasoning))
}

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::Script;

    use super::*;
    use crate::scripted;
    use crate::settings::JudgeSettings;

    #[test]
    fn a_judge_sees_claim_and_passages_and_its_verdict_is_read() {
        for support in Support::ALL {
            let verdict = serde_json::to_value(support).unwrap();
            let says = format!(r#"{{"reasoning": "R", "verdict": {verdict}}}"#);
            let (judge, model) = scripted::judge(JudgeSettings::shipped(), move |_| Script::saying(&[&says]));
            let task = SupportTask {
                prompt: "CLAIM: {content} PASSAGES: {context}",
                claim: "It is red.",
                passages: "It was painted red.",
                max_tokens: 100,
                timeout: Duration::from_secs(5),
            };
            assert_eq!(support_of(&judge.judge(task.review(), "")), Ok((support, "R".to_owned())));
            let requests = model.requests();
            let turn = scripted::turn(&requests[0]);
            assert!(turn.contains("It is red.") && turn.contains("It was painted red."), "{turn}");
        }
        let (judge, _) = scripted::judge(JudgeSettings::shipped(), |_| Script::saying(&["{\"verdict\": \"yes\"}"]));
        let task = SupportTask {
            prompt: "{content}{context}",
            claim: "a",
            passages: "b",
            max_tokens: 9,
            timeout: Duration::from_secs(5),
        };
        assert!(support_of(&judge.judge(task.review(), "")).unwrap_err().contains("not in its form"));
    }
}
