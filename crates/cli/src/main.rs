//! `hone` on the command line: the composition root, where arguments and configuration become the parts that the other
//! crates provide, wired together.
//!
//! [`arguments`] defines the command line, [`config`] the effective configuration, [`app`] what commands work with, and
//! [`commands`] the commands themselves. [`failure`] defines outcomes and exit codes.

mod app;
mod arguments;
mod badge;
mod chat;
mod commands;
mod completion;
mod config;
mod contained;
mod describe;
mod documents;
mod embedder;
mod evaluation;
mod events;
mod failure;
mod judge;
mod judging;
mod kept;
mod logging;
mod presets;
mod room;
mod running;
mod saved_prefixes;
mod stack;
mod story;
mod templates;
mod terminal;
mod threads;
mod toolbox;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::{Outcome, exit_code_of, is_broken_pipe};
use crate::terminal::Output;

fn main() -> ExitCode {
    // Comes first, before anything is read or started: a worker must be small and fast, and that of a
    // command must have a single thread.
    if templates::is_worker() {
        return templates::work();
    }
    if contained::is_worker() {
        return contained::work();
    }
    if documents::is_worker() {
        return documents::work();
    }
    completion::answer_shell();
    let arguments =
        if begins_alone() { Arguments::parse_from(["hone", "chat", "--guide"]) } else { Arguments::parse() };
    let output = Output::of_this_process();
    match run(arguments, output) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            if !is_broken_pipe(&error) {
                output.error(&format!("{error:#}"));
            }
            ExitCode::from(exit_code_of(&error))
        }
    }
}

/// Whether a person at a terminal started hone by its name alone.
fn begins_alone() -> bool {
    std::env::args_os().len() == 1
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
}

fn run(arguments: Arguments, output: Output) -> anyhow::Result<Outcome> {
    logging::start(arguments.verbose, output)?;
    commands::run(arguments.command, output)
}
