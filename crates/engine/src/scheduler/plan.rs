//! What a step is to do, and what has come of it.

use std::time::Duration;

use super::{ModelId, RequestId};

/// One step of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// The model.
    pub model: ModelId,
    /// Whether it begins or goes on.
    pub kind: StepKind,
    /// The requests that it advances, each once.
    pub entries: Vec<StepEntry>,
    /// When it is to be suspended, where the model can be.
    pub pause: Pause,
    /// Seconds that it is expected to take.
    pub seconds: f64,
}

impl StepPlan {
    /// Whether a request is part of it.
    pub fn contains(&self, id: RequestId) -> bool {
        self.entries.iter().any(|entry| entry.request == id)
    }
}

/// Whether a step begins or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// It begins. A suspended step of the model is void with that.
    Begin,
    /// It is the model's suspended step.
    Resume,
}

/// What a request contributes to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEntry {
    /// The request.
    pub request: RequestId,
    /// How many of its tokens that are not computed yet, from the first on.
    pub n_tokens: usize,
    /// Whether they are all of them, so that the next token can be chosen.
    pub wants_logits: bool,
}

/// When a step is to be suspended at the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It is not.
    Never,
    /// When a request has arrived.
    OnArrival,
    /// When a request has arrived, or when another slice would take it beyond this much time; after one slice at the
    /// earliest.
    After(Duration),
}

/// Where a request stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The request.
    pub request: RequestId,
    /// Tokens of it that the KV cache holds.
    pub computed: usize,
    /// Tokens that are to be computed: what is left of the prompt, or what was chosen last.
    pub uncomputed: usize,
    /// Tokens of its answer so far.
    pub generated: usize,
    /// Whether it has ended; it is forgotten then.
    pub has_ended: bool,
}
