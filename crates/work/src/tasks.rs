//! Carries tasks through their phases: an agent writes files, evaluators and critics examine them, and the gate
//! decides.
//!
//! A task is a [`TaskRecord`], a file that is replaced atomically after every step. It contains all changes by agents,
//! and the folder that tools run in is derived from it. So an interrupted run resumes where it stopped, and no change
//! is ever applied in part. The user's workspace is written once, when the last phase is accepted.

mod answering;
mod choosing;
mod delivery;
mod exploring;
mod learned;
mod outcome;
mod overview;
mod prompting;
mod record;
mod resolution;
mod runner;
mod staging;

#[cfg(test)]
pub(crate) use outcome::tests as outcome_tests;

pub use exploring::WorkToolCall;
pub use learned::LEARNED;
pub use outcome::AgentOutcome;
pub use record::{CandidateEvaluation, TaskError, TaskRecord, TaskState, TaskStore, WorkAttempt, WorkCandidate};
pub use resolution::Resolution;
pub use runner::{TaskProgress, TaskRunner};
