//! The states of the memory agent and the actions each allows.

use crate::machine::state_machine;

state_machine! {
    "memory";
    rests {
        Idle = "IDLE",
    }
    passes {
        Writing = "WRITING",
        UpdatingScore = "UPDATING_SCORE",
        AnnotatingPairwise = "ANNOTATING_PAIRWISE",
        AnnotatingFeedback = "ANNOTATING_FEEDBACK",
        Embedding = "EMBEDDING",
        AddingFacts = "ADDING_FACTS",
        Error = "ERROR",
    }
    actions {
        Write = "WRITE",
        UpdateScore = "UPDATE_SCORE",
        AnnotatePairwise = "ANNOTATE_PAIRWISE",
        AnnotateFeedback = "ANNOTATE_FEEDBACK",
        EmbedOne = "EMBED",
        AddFacts = "ADD_FACTS",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + Write => Writing,
        Idle + UpdateScore => UpdatingScore,
        Idle + AnnotatePairwise => AnnotatingPairwise,
        Idle + AnnotateFeedback => AnnotatingFeedback,
        Idle + EmbedOne => Embedding,
        Idle + AddFacts => AddingFacts,
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
        AddingFacts + Reset => Idle,
        AddingFacts + Fail => Error,
        Error + Reset => Idle,
    }
}
