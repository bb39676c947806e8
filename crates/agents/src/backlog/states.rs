//! The states of the backlog agent and the actions each allows.

use hone_judging::{CompareTask, GradeTask, JuryRun};
use hone_memory::Engram;

use crate::judge::pairs::AnswerPair;
use crate::machine::state_machine;

/// A due answer that the judge is grading.
pub(crate) struct EngramAtJudge {
    pub(crate) engram: Engram,
    pub(crate) run: JuryRun<GradeTask>,
}

/// A due answer that the judge is comparing with respondent A's.
pub(crate) struct EngramPairAtJudge {
    pub(crate) engram: Engram,
    pub(crate) pair: AnswerPair,
    pub(crate) run: JuryRun<CompareTask>,
}

state_machine! {
    "backlog";
    rests {
        Idle = "IDLE",
        Grading(Box<EngramAtJudge>) = "GRADING",
        Comparing(Box<EngramPairAtJudge>) = "PAIRWISE_GRADING",
    }
    passes {
        Publishing = "PUBLISHING",
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
