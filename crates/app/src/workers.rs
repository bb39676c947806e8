//! Processes of this program that handle untrusted input, within limits. hone starts them itself, from its own
//! executable; users never type them. So a front end must call [`work`] before it reads its arguments.

pub mod commands;
pub mod documents;
pub mod templates;

use std::path::{Path, PathBuf};

use anyhow::Context;

/// On Linux: this program's executable, even after another version has taken its place.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Does the work of the worker as which this process was started; `None` if it is not a worker.
///
/// It must be called before anything is read or started: a worker must be small and fast, and a command's worker must
/// have a single thread.
pub fn work() -> Option<Result<(), String>> {
    let name = std::env::args_os().nth(1)?;
    match name.to_str()? {
        templates::WORKER => Some(templates::work()),
        commands::WORKER => Some(commands::work()),
        documents::WORKER => Some(documents::work()),
        _ => None,
    }
}

/// This program's own file.
///
/// # Errors
/// When it cannot be found.
fn this_program() -> anyhow::Result<PathBuf> {
    let this_program = Path::new(THIS_PROGRAM);
    match this_program.exists() {
        true => Ok(this_program.to_owned()),
        false => std::env::current_exe().context("cannot find this program's own file"),
    }
}
