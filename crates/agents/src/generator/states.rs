//! What the generator agent may do in which state.

use crate::machine::state_machine;

state_machine! {
    "generator";
    /// Where the agent stands.
    states {
        Idle = "IDLE",
        Recalling = "RECALLING",
        Generating = "GENERATING",
        Publishing = "PUBLISHING",
        Error = "ERROR",
    }
    /// What it does. To recall leads back from generating when the model asks memory for something, or when the prompt has
    /// to be put together anew.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::check_table;

    #[test]
    fn every_transition() {
        check_table(
            &TABLE,
            "\
stateDiagram-v2
    [*] --> IDLE
    IDLE --> RECALLING: RECEIVE
    RECALLING --> GENERATING: START_GENERATE
    GENERATING --> RECALLING: RECALL
    GENERATING --> PUBLISHING: PUBLISH
    GENERATING --> ERROR: FAIL
    PUBLISHING --> IDLE: RESET
    ERROR --> IDLE: RESET
",
        );
    }
}
