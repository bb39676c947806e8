//! Ctrl-C as an [`Interrupt`], which can be awaited together with an answer's tokens.
//!
//! This applies only while something listens. At any other time (a download, the loading of a model) Ctrl-C ends the
//! process, as it would by default.

use anyhow::Context;
use hone_app::Interrupt;

use super::keyboard;
use crate::failure::Outcome;

/// Installs the handler for Ctrl-C.
///
/// # Errors
/// When the system refuses, or it is already installed.
pub(crate) fn install() -> anyhow::Result<Interrupt> {
    let (interrupt, presser) = Interrupt::new();
    let handler = move || {
        // A second Ctrl-C ends the process too, if the first was not handled.
        if !presser.press() {
            keyboard::restore();
            std::process::exit(i32::from(Outcome::Interrupted.exit_code()));
        }
    };
    ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    #[cfg(unix)]
    restore_before_termination()?;
    Ok(interrupt)
}

/// Restores the terminal before SIGTERM or SIGHUP ends the process with its default action. Without a keyboard there is nothing
/// to restore. If the caller ignores the signal, it stays ignored.
#[cfg(unix)]
fn restore_before_termination() -> anyhow::Result<()> {
    use std::io::IsTerminal;

    use signal_hook::consts::{SIGHUP, SIGTERM};
    use signal_hook::low_level::emulate_default_handler;

    if !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP]).context("cannot listen for SIGTERM")?;
    let wait = move || {
        for signal in signals.forever() {
            keyboard::restore();
            // It fails only for signals that cannot be caught.
            let _ = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".to_string()).spawn(wait).context("cannot listen for SIGTERM")?;
    Ok(())
}
