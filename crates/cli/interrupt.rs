//! Ctrl-C as an event that an answer can wait for beside its tokens.

use anyhow::Context;
use crossbeam_channel::{Receiver, bounded};

use crate::failure::Outcome;

/// Each Ctrl-C as a message. One that nobody has taken when the next arrives means that nothing here listens, and the
/// process ends as it would have without us.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    pressed: Receiver<()>,
}

impl Interrupt {
    /// Takes Ctrl-C away from the operating system, which would end the process.
    ///
    /// # Errors
    /// When the system refuses, or it was done before.
    pub(crate) fn install() -> anyhow::Result<Interrupt> {
        let (sender, pressed) = bounded(1);
        let handler = move || {
            if sender.try_send(()).is_err() {
                std::process::exit(i32::from(Outcome::Interrupted.exit_code()));
            }
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        Ok(Interrupt { pressed })
    }

    /// One that a test presses.
    #[cfg(test)]
    pub(crate) fn from_channel(pressed: Receiver<()>) -> Interrupt {
        Interrupt { pressed }
    }

    /// The channel, for waiting on it beside others.
    pub(crate) fn pressed(&self) -> &Receiver<()> {
        &self.pressed
    }

    /// Forgets a Ctrl-C that came before there was anything to stop.
    pub(crate) fn forget(&self) {
        while self.pressed.try_recv().is_ok() {}
    }
}
