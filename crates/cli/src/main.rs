//! `hone` on the command line: arguments, the terminal, and the commands on top of `hone-app` and `hone-server`.
//!
//! [`arguments`] defines the command line, [`invocation`] the context of commands, and [`commands`] the commands
//! themselves. [`failure`] defines outcomes and exit codes.

mod arguments;
mod badge;
mod chat;
mod commands;
mod completion;
mod evaluation;
mod events;
mod failure;
mod invocation;
mod logging;
mod terminal;
mod threads;

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::{Arguments, command_line, spelled_out};
use crate::failure::{Outcome, exit_code_of, is_broken_pipe};
use crate::terminal::Output;

fn main() -> ExitCode {
    // Comes first, before anything is read or started.
    if let Some(ended) = hone_app::workers::work() {
        return match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    completion::answer_shell();
    let (arguments, command) = parse();
    let output = Output::of_this_process();
    match run(arguments, &command, output) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            if !is_broken_pipe(&error) {
                output.error(&format!("{error:#}"));
            }
            ExitCode::from(exit_code_of(&error))
        }
    }
}

/// The arguments as they were typed, and the name of the command. Ends the process if they are wrong, or ask for help.
fn parse() -> (Arguments, String) {
    let words = match std::env::args_os().len() {
        1 if is_at_terminal() => vec!["hone".into(), "chat".into(), "--guide".into()],
        1 if is_piped_to() => vec!["hone".into(), "chat".into()],
        _ => spelled_out(std::env::args_os().collect()),
    };
    let matches = command_line().try_get_matches_from(&words);
    let matches = matches.unwrap_or_else(|error| with_advice(error, &words[1..]).exit());
    let command = matches.subcommand_name().unwrap_or_default().to_owned();
    (Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), command)
}

/// The error for a first word that is no command or a flag of none, with advice for a person who meant a question.
fn with_advice(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let typed: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let is_invalid = |kind| match (error.get(kind), typed.first()) {
        (Some(ContextValue::String(invalid)), Some(first)) => invalid == first,
        _ => false,
    };
    let is_first = is_invalid(ContextKind::InvalidSubcommand)
        || (error.kind() == ErrorKind::UnknownArgument && is_invalid(ContextKind::InvalidArg));
    if is_first {
        let chat = format!("`hone chat {}`", typed.join(" "));
        let is_flag = error.kind() == ErrorKind::UnknownArgument;
        let advice = if is_flag { format!("did you mean {chat}?") } else { format!("{chat} asks the model") };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

fn is_at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether stdin is no terminal, and holds something. What is looked at here is still read later.
fn is_piped_to() -> bool {
    let stdin = std::io::stdin();
    !stdin.is_terminal() && stdin.lock().fill_buf().is_ok_and(|text| !text.is_empty())
}

fn run(arguments: Arguments, command: &str, output: Output) -> anyhow::Result<Outcome> {
    logging::start(arguments.verbose, output)?;
    commands::run(arguments, command, output)
}
