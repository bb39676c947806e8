//! What the meaning agent may do in which state.

use crate::machine::state_machine;

state_machine! {
    "meaning";
    /// Where the agent stands.
    states {
        Idle = "IDLE",
        Extracting = "EXTRACTING",
        AnnotatingMeaning = "ANNOTATING_MEANING",
        Error = "ERROR",
    }
    /// What it does.
    actions {
        StartExtract = "START_EXTRACT",
        AnnotateMeaning = "ANNOTATE_MEANING",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + StartExtract => Extracting,
        Extracting + AnnotateMeaning => AnnotatingMeaning,
        Extracting + Fail => Error,
        AnnotatingMeaning + Reset => Idle,
        AnnotatingMeaning + Fail => Error,
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
    IDLE --> EXTRACTING: START_EXTRACT
    EXTRACTING --> ANNOTATING_MEANING: ANNOTATE_MEANING
    EXTRACTING --> ERROR: FAIL
    ANNOTATING_MEANING --> IDLE: RESET
    ANNOTATING_MEANING --> ERROR: FAIL
    ERROR --> IDLE: RESET
",
        );
    }
}
