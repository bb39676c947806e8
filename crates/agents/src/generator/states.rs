//! The states of the generator agent and the actions each allows. From generating, recalling is entered again when the
//! model searches memory, or when the prompt has to be rebuilt.

use hone_protocol::{GenerateError, Response};

use super::answer::Round;
use super::question::Question;
use crate::machine::state_machine;
use crate::topic::Topic;

state_machine! {
    "generator";
    rests {
        Idle: () = "IDLE",
        Generating: Box<(Question, Round)> = "GENERATING",
    }
    passes {
        Recalling: Question = "RECALLING",
        Publishing: (Topic, Response) = "PUBLISHING",
        Error: (Topic, GenerateError) = "ERROR",
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
