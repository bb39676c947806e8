//! The states of the generator agent and the actions each allows. From generating, recalling is entered again when the
//! model searches memory, or when the prompt has to be rebuilt.

use super::answer::Round;
use super::question::QuestionInProgress;
use crate::machine::state_machine;

/// An answer that the model is writing.
pub(crate) struct AnswerInProgress {
    pub(crate) question: QuestionInProgress,
    pub(crate) round: Round,
}

state_machine! {
    "generator";
    rests {
        Idle = "IDLE",
        Generating(Box<AnswerInProgress>) = "GENERATING",
    }
    passes {
        Recalling = "RECALLING",
        Publishing = "PUBLISHING",
        Error = "ERROR",
    }
    actions {
        Receive = "RECEIVE",
        Recall = "RECALL",
        StartGenerate = "START_GENERATE",
        Publish = "PUBLISH",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + Receive => Recalling,
        Recalling + StartGenerate => Generating,
        Generating + Recall => Recalling,
        Generating + Publish => Publishing,
        Generating + Fail => Error,
        Publishing + Reset => Idle,
        Error + Reset => Idle,
    }
}
