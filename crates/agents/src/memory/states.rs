//! What the memory agent may do in which state.

use crate::machine::state_machine;

state_machine! {
    "memory";
    /// Where the agent stands.
    states {
        Idle = "IDLE",
        Writing = "WRITING",
        UpdatingScore = "UPDATING_SCORE",
        AnnotatingPairwise = "ANNOTATING_PAIRWISE",
        AnnotatingFeedback = "ANNOTATING_FEEDBACK",
        Embedding = "EMBEDDING",
        Error = "ERROR",
    }
    /// What it does.
    actions {
        Write = "WRITE",
        UpdateScore = "UPDATE_SCORE",
        AnnotatePairwise = "ANNOTATE_PAIRWISE",
        AnnotateFeedback = "ANNOTATE_FEEDBACK",
        Embed = "EMBED",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + Write => Writing,
        Idle + UpdateScore => UpdatingScore,
        Idle + AnnotatePairwise => AnnotatingPairwise,
        Idle + AnnotateFeedback => AnnotatingFeedback,
        Idle + Embed => Embedding,
        Writing + Reset => Idle,
        Writing + Fail => Error,
        UpdatingScore + Reset => Idle,
        UpdatingScore + Fail => Error,
        AnnotatingPairwise + Reset => Idle,
        AnnotatingPairwise + Fail => Error,
        AnnotatingFeedback + Reset => Idle,
        AnnotatingFeedback + Fail => Error,
        Embedding + Reset => Idle,
        Embedding + Fail => Error,
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
    IDLE --> WRITING: WRITE
    IDLE --> UPDATING_SCORE: UPDATE_SCORE
    IDLE --> ANNOTATING_PAIRWISE: ANNOTATE_PAIRWISE
    IDLE --> ANNOTATING_FEEDBACK: ANNOTATE_FEEDBACK
    IDLE --> EMBEDDING: EMBED
    WRITING --> IDLE: RESET
    WRITING --> ERROR: FAIL
    UPDATING_SCORE --> IDLE: RESET
    UPDATING_SCORE --> ERROR: FAIL
    ANNOTATING_PAIRWISE --> IDLE: RESET
    ANNOTATING_PAIRWISE --> ERROR: FAIL
    ANNOTATING_FEEDBACK --> IDLE: RESET
    ANNOTATING_FEEDBACK --> ERROR: FAIL
    EMBEDDING --> IDLE: RESET
    EMBEDDING --> ERROR: FAIL
    ERROR --> IDLE: RESET
",
        );
    }
}
