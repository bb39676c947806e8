//! What the critic agent may do in which state.

use crate::machine::state_machine;

state_machine! {
    "critic";
    /// Where the agent stands.
    states {
        Idle = "IDLE",
        Receiving = "RECEIVING",
        Grading = "GRADING",
        Publishing = "PUBLISHING",
        PairwiseGrading = "PAIRWISE_GRADING",
        Error = "ERROR",
    }
    /// What it does. An answer that nobody wants graded is published ungraded, without the judge.
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
        Idle + StartPairwise => PairwiseGrading,
        PairwiseGrading + PublishPairwise => Idle,
        PairwiseGrading + Fail => Error,
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
    IDLE --> RECEIVING: RECEIVE
    RECEIVING --> GRADING: START_GRADE
    RECEIVING --> PUBLISHING: PUBLISH
    GRADING --> PUBLISHING: PUBLISH
    GRADING --> ERROR: FAIL
    PUBLISHING --> IDLE: RESET
    IDLE --> PAIRWISE_GRADING: START_PAIRWISE
    PAIRWISE_GRADING --> IDLE: PUBLISH_PAIRWISE
    PAIRWISE_GRADING --> ERROR: FAIL
    ERROR --> IDLE: RESET
",
        );
    }
}
