//! Generator, judge and memory agents: explicit state machines on threads of their own.
//!
//! ```text
//! query.received ──► generator (and respondent B) ──► response.chunk … response.generation
//!                                                             │
//!                 judge  ◄────────────────────────────────────┤
//!                   │ critique.result, pairwise.result        ▼
//!                   └───────────────────────────────────► memory ──► memory.stored
//! ```
//!
//! If graders on other machines are used, the fleet agent replaces the judge agent.
//!
//! While no caller waits, the backlog agent has ungraded answers graded, and the critic agent has memories reviewed.
//!
//! Agents communicate only through the [bus](hone_bus). A [`Team`] starts and stops them. Each is in one of a few
//! states, which carry its work, and may take only the actions in its table ([`tables`]). It sleeps until a message,
//! its own work or a deadline arrives, and reads its mailbox before it resumes its work, so that a cancellation takes
//! effect within one token.

mod answer_text;
mod asker;
mod backlog;
mod critic;
mod critic_statistics;
mod exchange;
mod extraction;
mod fleet;
mod gatekeeping;
mod generator;
mod judge;
mod machine;
mod memory;
mod notes;
mod recall;
mod recorder;
mod remembering;
mod repetition;
pub mod research;
mod settings;
mod statements;
mod team;
mod thinking;
mod tool_calls;
mod topic;
mod whose;

pub use answer_text::AnswerText;
pub use asker::{Asker, TooSlow};
pub use critic::{BackgroundCritic, Unproven};
pub use critic_statistics::{CriticBlock, CriticStatistics, LEAST_RIGHT, LastBlock, MOST_BLOCKED};
pub use exchange::{Exchange, ExchangeChange, Expected, RespondentReply};
pub use fleet::Graders;
pub use gatekeeping::{CriticRefusal, Criticize, Decided, Gatekeeper};
pub use machine::StateTable;
pub use notes::{
    Consolidated, Consolidator, Contradiction, Intended, Intender, ModelWriter, NoteError, NoteSettings, StatedFact,
    Vetter, contradiction,
};
pub use recall::Recaller;
pub use remembering::Rememberer;
pub use settings::{InvalidMemorySettings, MemoryMode, MemorySettings, RecallPolicy};
pub use team::{Load, MemoryParts, RespondentB, Team, TeamParts};

/// The state tables of all agents.
pub fn tables() -> Vec<StateTable> {
    vec![
        generator::states::table(),
        judge::states::table(),
        memory::states::table(),
        backlog::states::table(),
        extraction::states::table(),
        critic::states::table(),
    ]
}
