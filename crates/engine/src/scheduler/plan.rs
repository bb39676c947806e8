//! The plan of a step, and its outcome.

use std::time::Duration;

use super::{ModelId, RequestId};

/// One step of one model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepPlan {
    /// The model.
    pub model: ModelId,
    /// Whether it begins or resumes.
    pub kind: StepKind,
    /// The requests that it advances, each listed once.
    pub entries: Vec<StepEntry>,
    /// When it is to be suspended, if the model supports that.
    pub pause: Pause,
    /// Seconds that it is expected to take.
    pub seconds: f64,
}

impl StepPlan {
    /// Whether a request is part of it.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.entries.iter().any(|entry| entry.request == id)
    }
}

/// Whether a step begins or resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// It begins, discarding the model's suspended step, if any.
    Begin,
    /// It resumes the model's suspended step.
    Resume,
}

/// A request's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepEntry {
    /// The request.
    pub request: RequestId,
    /// Number of its uncomputed tokens to compute, from the first on.
    pub n_tokens: usize,
    /// Whether these are all of its uncomputed tokens, so that the next token can be chosen.
    pub wants_logits: bool,
}

/// When a step is to be suspended at the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Never.
    Never,
    /// When a request has arrived.
    OnArrival,
    /// When a request has arrived, or when another slice would exceed this much time; after one slice at the earliest.
    After(Duration),
}

/// A request's progress after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestProgress {
    /// The request.
    pub request: RequestId,
    /// Number of its tokens in the KV cache.
    pub computed: usize,
    /// Tokens still to be computed: the rest of the prompt, or the token chosen last.
    pub uncomputed: usize,
    /// Tokens of its answer so far.
    pub generated: usize,
    /// Whether it has ended; it is then forgotten.
    pub has_ended: bool,
}
