//! The common base of all front ends, the terminal and the server alike: the configuration ([`config`]), the parts of
//! the other crates wired together ([`App`]), conversations, presets, judges, tools, stories, and an engine that
//! processes share.
//!
//! It knows nothing of arguments, terminals and HTTP, and prints nothing: output for the user goes to a [`Progress`],
//! and work that may be stopped listens to an [`Interrupt`].

pub mod answering;
mod app;
pub mod authoring;
pub mod config;
pub mod conversations;
pub mod decisions;
pub mod describe;
mod elsewhere;
mod embedder;
pub mod estimates;
pub mod evaluation;
pub mod fleet;
mod interrupt;
pub mod isolation;
pub mod judge;
pub mod judging;
pub mod kept;
pub mod machine;
mod memory_options;
pub mod models;
pub mod presets;
mod progress;
pub mod room;
pub mod routing;
pub mod running;
mod saved_prefixes;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
mod stack;
pub mod story;
pub mod toolbox;
pub mod tools;
mod usage;
pub mod workers;

pub use app::{App, FindCritic, PARALLEL_SEQUENCES, StackOptions};
pub use embedder::SharedEmbedder;
pub use interrupt::{Interrupt, Listening, Presser};
pub use memory_options::memory_options;
pub use progress::{Activity, LoadListener, Progress, Silent, TransferListener};
pub use saved_prefixes::SavedPrefixes;
pub use stack::{ServedMemory, Stack};
pub use usage::{UsageError, usage};
