//! `hone command-worker`: the process in which a tool that evaluates work is confined and run.

use hone_containment::Launcher;

/// The argument that makes this program a command's process.
pub(super) const WORKER: &str = "command-worker";

/// Runs the command that stdin names.
#[cfg(unix)]
pub(super) fn work() -> Result<(), String> {
    hone_containment::worker::serve().map_err(|error| error.to_string())
}

/// Runs nothing: this system cannot contain commands.
#[cfg(not(unix))]
pub(super) fn work() -> Result<(), String> {
    Err("this system cannot contain commands".to_owned())
}

/// The launcher of command workers.
///
/// # Errors
/// When this program's own file cannot be found.
pub fn launcher() -> anyhow::Result<Launcher> {
    let program = super::this_program()?;
    Ok(Launcher { program, arguments: vec![WORKER.to_owned()], uses_namespaces: true })
}
