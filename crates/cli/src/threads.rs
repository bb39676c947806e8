//! The number of compute threads of the candle backend.
//!
//! candle reads it from the environment when it first computes, and the environment of a running process cannot be
//! changed safely. So if the configuration specifies a different number, the process restarts itself with the variable
//! set, before it has read or written anything. The native backend is configured directly.

use std::process::Command;

use anyhow::Context;
use hone_engine::{BackendChoice, ModelOptions};

/// The variable that candle and its matrix products read.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Makes sure that the configured number of threads is used; returns once it is.
///
/// # Errors
/// When the process cannot be restarted.
pub(crate) fn apply(options: &ModelOptions) -> anyhow::Result<()> {
    // `auto` is candle only on other devices than the processor.
    let Some(threads) = options.n_threads.filter(|_| options.backend == BackendChoice::Candle) else { return Ok(()) };
    if std::env::var(VARIABLE).is_ok_and(|value| value == threads.to_string()) {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(VARIABLE, threads.to_string());
    start_instead(command).context("cannot restart with the requested number of threads")
}

#[cfg(unix)]
fn start_instead(mut command: Command) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec().into())
}

#[cfg(not(unix))]
fn start_instead(mut command: Command) -> anyhow::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}
