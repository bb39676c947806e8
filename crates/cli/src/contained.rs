//! `hone command-worker`: the process in which a tool that evaluates work is confined and run.
//!
//! hone starts it itself, from its own executable; users never type it. So it is handled before the arguments are read.

use std::process::ExitCode;

use hone_containment::Launcher;

use crate::templates;

/// The argument that makes this program a command's process.
const WORKER: &str = "command-worker";

/// Whether this process was started for a command.
pub(crate) fn is_worker() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == WORKER)
}

/// Runs the command that stdin names.
#[cfg(unix)]
pub(crate) fn work() -> ExitCode {
    match hone_containment::worker::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs nothing: this system has nothing to contain it.
#[cfg(not(unix))]
pub(crate) fn work() -> ExitCode {
    ExitCode::FAILURE
}

/// Starts such processes of this program.
///
/// # Errors
/// When this program's own file cannot be found.
pub(crate) fn launcher() -> anyhow::Result<Launcher> {
    let program = templates::this_program()?;
    Ok(Launcher { program, arguments: vec![WORKER.to_owned()], uses_namespaces: true })
}
