//! Generator, critic and memory agents: explicit state machines on threads of their own.
//!
//! ```text
//! query.received ──► generator (and respondent B) ──► response.chunk … response.generation
//!                                                             │
//!                 critic ◄────────────────────────────────────┤
//!                   │ critique.result, pairwise.result        ▼
//!                   └───────────────────────────────────► memory ──► memory.stored
//! ```
//!
//! Agents know each other through the [bus](hone_bus) alone. A [`Team`] starts and stops them. Each has a table of
//! states, actions and transitions ([`tables`]); it sleeps until a message, its own work or a deadline comes, and hears
//! its mailbox before it goes on with its work, so that a cancellation takes effect within one token.

mod asker;
mod critic;
mod exchange;
mod generator;
#[cfg(test)]
mod illegal_transitions;
mod machine;
mod meaning;
mod memory;
mod recall;
mod recorder;
mod settings;
mod team;
mod thinking;
mod tool_calls;
mod topic;

pub use asker::{Asker, TooSlow};
pub use exchange::{Change, Exchange, Expected, Reply};
pub use machine::StateTable;
pub use memory::text_to_embed;
pub use settings::{InvalidMemorySettings, MemoryMode, MemorySettings};
pub use team::{MemoryParts, RespondentB, Team, TeamParts};
pub use thinking::ThinkingSettings;

/// The state machine of every agent.
pub fn tables() -> Vec<StateTable> {
    vec![
        StateTable::of(&generator::states::TABLE),
        StateTable::of(&critic::states::TABLE),
        StateTable::of(&memory::states::TABLE),
        StateTable::of(&meaning::states::TABLE),
    ]
}
