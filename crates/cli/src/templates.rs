//! `hone template-worker`: the process in which a model file's chat template runs.
//!
//! hone starts it itself, from its own executable; users never type it. So it is not a command of [`arguments`], and is
//! handled before them.
//!
//! [`arguments`]: crate::arguments

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use hone_engine::{TemplateHost, template_worker};

/// The argument that makes this program a template's process.
const WORKER: &str = "template-worker";
/// On Linux: this program's executable, even after another version has taken its place.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Whether this process was started for a template.
pub(crate) fn is_worker() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == WORKER)
}

/// Runs templates until there are no more requests.
pub(crate) fn work() -> ExitCode {
    match template_worker::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Where templates of model files run: in processes of this program.
///
/// # Errors
/// When this program's own file cannot be found.
pub(crate) fn host() -> anyhow::Result<TemplateHost> {
    Ok(TemplateHost::Process { program: this_program()?, arguments: vec![WORKER.into()] })
}

/// This program's own file.
///
/// # Errors
/// When it cannot be found.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let this_program = Path::new(THIS_PROGRAM);
    match this_program.exists() {
        true => Ok(this_program.to_owned()),
        false => std::env::current_exe().context("cannot find this program's own file"),
    }
}
