//! The states of the judge agent and the actions each allows. Unwanted answers are published ungraded, without the
//! judge.

use hone_judging::{CompareTask, GradeTask, JuryRun};

use super::pairs::{AnswerPair, Graded};
use crate::machine::state_machine;

/// An answer that the judge is grading.
pub(crate) struct AnswerAtJudge {
    pub(crate) graded: Graded,
    pub(crate) run: JuryRun<GradeTask>,
}

/// Two answers that the judge is comparing.
pub(crate) struct PairAtJudge {
    pub(crate) pair: AnswerPair,
    pub(crate) run: JuryRun<CompareTask>,
}

state_machine! {
    "critic";
    rests {
        Idle = "IDLE",
        Grading(Box<AnswerAtJudge>) = "GRADING",
        Comparing(Box<PairAtJudge>) = "PAIRWISE_GRADING",
    }
    passes {
        Receiving = "RECEIVING",
        Publishing = "PUBLISHING",
        Error = "ERROR",
    }
    actions {
        Receive = "RECEIVE",
        StartGrade = "START_GRADE",
        Publish = "PUBLISH",
        StartPairwise = "START_PAIRWISE",
        PublishPairwise = "PUBLISH_PAIRWISE",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + Receive => Receiving,
        Receiving + StartGrade => Grading,
        Receiving + Publish => Publishing,
        Grading + Publish => Publishing,
        Grading + Fail => Error,
        Publishing + Reset => Idle,
        Idle + StartPairwise => Comparing,
        Comparing + PublishPairwise => Idle,
        Comparing + Fail => Error,
        Error + Reset => Idle,
    }
}
