//! Why an answer has no score, or a pair no comparison, and whether it may get one later.
//!
//! The reasons are texts, since people read them and the event log keeps them. The few final ones are named here. Every
//! other reason, including those of later versions, concerns the circumstances and not the answer.

/// The verdict is no longer wanted.
pub const CANCELLED: &str = "cancelled";

/// There is nothing to judge.
pub const EMPTY: &str = "the answer is empty";

/// The answer is not complete: its client executes the calls in it and sends another request.
pub const CALLS_TOOLS: &str = "the answer calls tools";

/// The text of a question was continued as it stands.
pub const RAW: &str = "it continues a text and answers no question";

/// There is nothing to compare an answer with.
pub const ALONE: &str = "there is no other answer to compare it with";

/// The judge wrote something else.
pub const NO_VERDICT: &str = "the judge wrote no verdict";

/// The judge's message when its context does not hold the question, however short the answer is shown.
pub const NO_ROOM: &str = "raise judge.context, or shorten the question or the rubric";

/// The conversation was left before the judge had its turn.
pub const SESSION_CLOSED: &str = "the session was closed";

/// The process was left before the judge had its turn.
pub const STOPPED: &str = "the judge was stopped";

/// A worker on another machine was asked, and has not judged the answer in time. Its verdict is still expected.
pub const LATE: &str = "no worker has judged it yet";

/// No worker on another machine can be asked, or none has answered for a long time.
pub const NO_WORKER: &str = "no worker can judge it now";

/// Questions and answers of this length are not sent to workers on other machines.
pub const TOO_LONG: &str = "question and answer are too long to be sent to a worker";

/// More answers waited than a judge agent's queue holds.
pub const TOO_MANY: &str = "too many answers wait for their grades";

/// The prospects of an answer without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// No verdict: another attempt would end the same way.
    Final,
    /// Perhaps a verdict: the second failure of this kind is final.
    Doubtful,
    /// A verdict: the judge was not asked, or was interrupted.
    Unjudged,
    /// A verdict, once the judge can work: it was missing, too slow, or failed.
    Failed,
}

impl Prospect {
    /// The prospects of an answer whose judging failed for this reason.
    pub fn of(failure: &str) -> Prospect {
        match failure {
            CANCELLED | EMPTY | CALLS_TOOLS | RAW | ALONE | TOO_LONG => Prospect::Final,
            SESSION_CLOSED | STOPPED | TOO_MANY | LATE | NO_WORKER => Prospect::Unjudged,
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
