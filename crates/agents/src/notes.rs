//! Notes that a model writes from memory and a critic reviews: the intention of a day, and consolidations. Also the
//! review of the exchanges that notes are written from.

mod clusters;
mod consolidation;
mod contradictions;
mod intention;
mod vetting;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use hone_judging::has_place;
use hone_memory::{Engram, EngramKind, MemoryError};
use hone_protocol::{
    Completion, Constraint, Generate, GenerateError, GenerateRequest, Generation, Lane, Message, Prompt, QueryId,
    Response, Role, SamplingOptions, SessionId, Timings,
};
use serde::Deserialize;
use thiserror::Error;

pub use consolidation::{Consolidated, Consolidator};
pub use contradictions::{Contradiction, StatedFact, contradiction};
pub use intention::{Intended, Intender};
pub use vetting::Vetter;
pub(crate) use vetting::content_type;

use crate::gatekeeping::CriticRefusal;

/// Polling interval for cancellation.
const LOOK: Duration = Duration::from_millis(100);

/// How notes are written: `notes.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteSettings {
    /// The most tokens of an intention.
    pub intention_tokens: usize,
    /// The latest answers that an intention is written from.
    pub intention_answers: usize,
    /// The latest facts that it is written from.
    pub intention_facts: usize,
    /// The most tokens of a consolidation.
    pub consolidation_tokens: usize,
    /// The most exchanges that a consolidation is written from.
    pub cluster_size: usize,
    /// The most characters of each of them.
    pub cluster_characters: usize,
    /// The minimum cosine similarity of an exchange to the others of its group.
    pub cluster_similarity: f32,
    /// The most days between exchanges of a group.
    pub cluster_days: f64,
    /// The fewest exchanges that are consolidated.
    pub cluster_least: usize,
    /// Minutes without a question before idle work begins.
    pub idle_minutes: f64,
    /// The prompt of an intention; holds `{state}` and `{day}`.
    pub intention_prompt: String,
    /// The addition after a block; holds `{intention}` and `{challenges}`.
    pub intention_again: String,
    /// The prompt of a consolidation; holds `{memories}` and `{contradictions}`.
    pub consolidation_prompt: String,
}

impl NoteSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// The first invalid value, and the values that are allowed.
    pub fn check(&self) -> Result<(), String> {
        for (key, value, least) in [
            ("intention_tokens", self.intention_tokens, 1),
            ("consolidation_tokens", self.consolidation_tokens, 1),
            ("cluster_characters", self.cluster_characters, 1),
            ("cluster_least", self.cluster_least, 2),
            ("cluster_size", self.cluster_size, self.cluster_least),
        ] {
            if value < least {
                return Err(format!("{key} is {value}: it must be {least} or more"));
            }
        }
        if !(-1.0..=1.0).contains(&self.cluster_similarity) {
            return Err("cluster_similarity must be -1 to 1".to_owned());
        }
        for (key, value) in [("cluster_days", self.cluster_days), ("idle_minutes", self.idle_minutes)] {
            if !(0.0..=1e6).contains(&value) {
                return Err(format!("{key} is {value}: it must be 0 or more"));
            }
        }
        for (key, prompt, places) in [
            ("intention_prompt", &self.intention_prompt, ["state", "day"]),
            ("intention_again", &self.intention_again, ["intention", "challenges"]),
            ("consolidation_prompt", &self.consolidation_prompt, ["memories", "contradictions"]),
        ] {
            if let Some(place) = places.into_iter().find(|place| !has_place(prompt, place)) {
                return Err(format!("{key} has no place for {place}: write {{{place}}} where it belongs"));
            }
        }
        Ok(())
    }
}

/// Why a note was not written.
#[derive(Debug, Error)]
pub enum NoteError {
    /// Memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The model failed.
    #[error("{model} cannot write it: {reason}")]
    Model {
        /// The model.
        model: String,
        /// Why.
        reason: String,
    },
    /// A hard gate would block any text written now.
    #[error("{}", .0.reason)]
    Refused(CriticRefusal),
    /// The person has stopped it.
    #[error("stopped")]
    Stopped,
}

/// The writing model.
#[derive(Clone)]
pub struct ModelWriter<'a> {
    /// The engine.
    pub generator: Arc<dyn Generate>,
    /// The model.
    pub model: String,
    /// How it chooses tokens.
    pub sampling: SamplingOptions,
    /// The priority of its requests.
    pub lane: Lane,
    /// Whether the person has stopped it.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl ModelWriter<'_> {
    /// Writes an answer to a prompt.
    fn write(&self, prompt: &str, max_tokens: usize, constraint: Option<Constraint>) -> Result<Completion, NoteError> {
        let request = GenerateRequest {
            sampling: self.sampling.clone(),
            max_tokens: Some(max_tokens),
            constraint,
            lane: self.lane,
            ..GenerateRequest::new(&self.model, Prompt::Chat(vec![Message::new(Role::User, prompt)]))
        };
        let failed = |error: GenerateError| NoteError::Model { model: self.model.clone(), reason: error.to_string() };
        self.complete(request).map_err(failed)?.ok_or(NoteError::Stopped)
    }

    /// The model's answer to a request; `None` if the person has stopped it.
    pub(crate) fn complete(&self, request: GenerateRequest) -> Result<Option<Completion>, GenerateError> {
        let generation = Generation::start(&*self.generator, request);
        let mut completion = Completion::default();
        loop {
            match generation.events().recv_timeout(LOOK) {
                Ok(event) => {
                    if completion.take(event)? {
                        return Ok(Some(completion));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(GenerateError::Stopped),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if (self.is_stopped)() {
                return Ok(None);
            }
        }
    }

    /// The note of this title and text.
    pub(crate) fn note(
        &self,
        kind: EngramKind,
        title: String,
        text: &str,
        timings: Timings,
        sources: Vec<QueryId>,
    ) -> Engram {
        // A note cut off by the token limit is still a note; the critic decides about it.
        let response = Response { sampling: self.sampling.clone(), timings, ..Response::new(title, text, &self.model) };
        Engram::note(kind, SessionId::fresh(), &response, sources)
    }
}

/// A text as data: none of its lines can be mistaken for the surrounding text.
pub(crate) fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// A time as a day, `2026-11-24`, in UTC.
fn day(at: hone_protocol::Timestamp) -> String {
    let seconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
    time::OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| at.0.to_string(), |at| at.date().to_string())
}
