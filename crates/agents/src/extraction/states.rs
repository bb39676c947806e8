//! The states of the extraction agent and the actions each allows.

use hone_protocol::{Completion, Generation, QueryId};

use crate::machine::state_machine;

/// An extraction that the model is working on.
pub(crate) struct ExtractionInProgress {
    pub(crate) query_id: QueryId,
    pub(crate) generation: Generation,
    pub(crate) completion: Completion,
}

state_machine! {
    "extraction";
    rests {
        Idle = "IDLE",
        Extracting(Box<ExtractionInProgress>) = "EXTRACTING",
    }
    passes {
        Annotating = "ANNOTATING",
        Error = "ERROR",
    }
    actions {
        StartExtract = "START_EXTRACT",
        Annotate = "ANNOTATE",
        Withdraw = "WITHDRAW",
        Fail = "FAIL",
        Reset = "RESET",
    }
    transitions {
        Idle + StartExtract => Extracting,
        Extracting + Annotate => Annotating,
        Extracting + Fail => Error,
        Extracting + Withdraw => Idle,
        Annotating + Reset => Idle,
        Annotating + Fail => Error,
        Error + Reset => Idle,
    }
}
