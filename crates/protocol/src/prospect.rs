//! Why an answer has no score, or a pair no comparison, and whether it may get one later.
//!
//! The reasons are texts, since that is what a person reads and what the event log keeps. The few that are final are
//! named here; every other one, also one of a later version, says something about the circumstances and not about the
//! answer.

/// Nobody wants the verdict any more.
pub const CANCELLED: &str = "cancelled";

/// There is nothing to judge.
pub const EMPTY: &str = "the answer is empty";

/// The answer is not complete: its client carries out the calls in it and asks on.
pub const CALLS_TOOLS: &str = "the answer calls tools";

/// The text of a question was continued as it stands.
pub const RAW: &str = "it continues a text and answers no question";

/// There is nothing to compare an answer with.
pub const ALONE: &str = "there is no other answer to compare it with";

/// The judge wrote something else.
pub const NO_VERDICT: &str = "the judge wrote no verdict";

/// What a judge's message says whose context does not hold the question, however short the answer is shown.
pub const NO_ROOM: &str = "raise judge.context, or shorten the question or the rubric";

/// The conversation was left before the judge had its turn.
pub const SESSION_CLOSED: &str = "the session was closed";

/// The process was left before the judge had its turn.
pub const STOPPED: &str = "the judge was stopped";

/// Workers on other machines cannot be reached, or did not judge it in time.
pub const LATE: &str = "no worker has judged it yet";

/// Workers on other machines are not sent what is as long as this.
pub const TOO_LONG: &str = "question and answer are too long to be sent to a worker";

/// More answers waited than a judge agent keeps in mind.
pub const TOO_MANY: &str = "too many answers wait for their grades";

/// What can still come of an answer without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// Nothing: another attempt would end the same.
    Final,
    /// Perhaps a verdict: the second failure of this kind is final.
    Doubtful,
    /// A verdict: the judge was not asked, or not heard out.
    Unjudged,
    /// A verdict, once the judge can work: it was missing, too slow, or failed.
    Failed,
}

impl Prospect {
    /// What can still come of an answer for which this was the reason of the failure.
    pub fn of(failure: &str) -> Prospect {
        match failure {
            CANCELLED | EMPTY | CALLS_TOOLS | RAW | ALONE | TOO_LONG => Prospect::Final,
            SESSION_CLOSED | STOPPED | TOO_MANY | LATE => Prospect::Unjudged,
            other if other.ends_with(NO_ROOM) => Prospect::Final,
            other if other.starts_with(NO_VERDICT) => Prospect::Doubtful,
            _ => Prospect::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_be_final_is_tried_again() {
        let check = |failure: &str, expected| assert_eq!(Prospect::of(failure), expected, "{failure}");
        check("cancelled", Prospect::Final);
        check("the judge wrote no verdict", Prospect::Doubtful);
        check("the judge wrote no verdict: expected [RESULT] and a score from 1 to 5", Prospect::Doubtful);
        check("the session was closed", Prospect::Unjudged);
        check("timeout", Prospect::Failed);
        check("model \"prometheus:7b\" is not installed", Prospect::Failed);
        let no_room = "the prompt has 9 tokens, and the judge's context of 8 leaves room for 2: raise judge.context, or \
                       shorten the question or the rubric";
        check(no_room, Prospect::Final);
    }
}
