//! The states of the critic agent and the actions each allows. Unwanted answers are published ungraded, without the
//! judge.

use hone_judging::{CompareTask, GradeTask, JuryRun};
use hone_protocol::Grade;

use super::pairs::{Graded, Pair};
use crate::machine::state_machine;

state_machine! {
    "critic";
    rests {
        Idle: () = "IDLE",
        Grading: Box<(Graded, JuryRun<GradeTask>)> = "GRADING",
        Comparing: Box<(Pair, JuryRun<CompareTask>)> = "PAIRWISE_GRADING",
    }
    passes {
        Receiving: Graded = "RECEIVING",
        Publishing: (Graded, Grade) = "PUBLISHING",
        Error: () = "ERROR",
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
