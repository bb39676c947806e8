//! What the backlog agent may do in which state.

use hone_judging::{CompareTask, GradeTask, JuryRun};
use hone_memory::Engram;
use hone_protocol::Grade;

use crate::critic::pairs::Pair;
use crate::machine::state_machine;

state_machine! {
    "backlog";
    rests {
        Idle: () = "IDLE",
        Grading: Box<(Engram, JuryRun<GradeTask>)> = "GRADING",
        Comparing: Box<(Engram, Pair, JuryRun<CompareTask>)> = "PAIRWISE_GRADING",
    }
    passes {
        Publishing: (Engram, Grade) = "PUBLISHING",
    }
    actions {
        StartGrade = "START_GRADE",
        Publish = "PUBLISH",
        StartPairwise = "START_PAIRWISE",
        PublishPairwise = "PUBLISH_PAIRWISE",
        Withdraw = "WITHDRAW",
        Reset = "RESET",
    }
    transitions {
        Idle + StartGrade => Grading,
        Grading + Publish => Publishing,
        Publishing + Reset => Idle,
        Idle + StartPairwise => Comparing,
        Comparing + PublishPairwise => Idle,
        Grading + Withdraw => Idle,
        Comparing + Withdraw => Idle,
    }
}
