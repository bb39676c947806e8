//! The agents together, with scripted models and a real memory in a temporary folder.

#![allow(clippy::unwrap_used)]

mod asking;
mod backlog;
mod cancelling;
mod critic;
mod extraction;
mod fleet;
#[cfg(unix)]
mod fleet_without_memory;
mod gatekeeping;
mod notes;
mod quality_loop;
mod recalling;
mod recovering;
mod stage;
