//! The program as its users run it, and the rules of ARCHITECTURE.md. One binary, because each one that links the engine
//! takes minutes to build; a module for each part of the program.

#![allow(clippy::unwrap_used)]

mod architecture;
mod built_in_judge;
mod commands;
mod conversations;
mod decide;
mod engine;
#[cfg(unix)]
mod fleet;
mod jury;
mod mcp;
mod measured;
mod memory;
#[cfg(unix)]
mod postgres;
mod privacy;
mod report;
mod rerank;
mod research;
mod routing;
mod serve;
#[cfg(unix)]
mod serve_trouble;
mod stories;
mod support;
mod task;
mod task_stories;
mod templates;
mod terminal;
#[cfg(unix)]
mod torture;
