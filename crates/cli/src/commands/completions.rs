//! `hone completions SHELL`.

use std::io::Write;

use crate::arguments::CompletionsArguments;
use crate::completion::write_script;
use crate::failure::Outcome;

/// Prints the completions.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    write_script(&arguments.shell.to_string(), &mut script)?;
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
