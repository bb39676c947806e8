//! `hone completions SHELL`.

use std::io::Write;

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::failure::Outcome;

/// Prints the completions.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Outcome> {
    // Generated into memory first, because the generator panics when a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "hone", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
