//! Ctrl-C as an event that can be awaited together with an answer's tokens.
//!
//! This applies only while something listens. At any other time (a download, the loading of a model) Ctrl-C ends the
//! process, as it would by default.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use crossbeam_channel::{Receiver, bounded};

use super::keyboard;
use crate::failure::Outcome;

/// Ctrl-C.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    pressed: Receiver<()>,
    /// How many listen.
    listening: Arc<AtomicUsize>,
}

/// While this exists, Ctrl-C is an event.
#[derive(Debug)]
pub(crate) struct Listening<'a> {
    interrupt: &'a Interrupt,
}

impl Interrupt {
    /// Installs the handler for Ctrl-C.
    ///
    /// # Errors
    /// When the system refuses, or it is already installed.
    pub(crate) fn install() -> anyhow::Result<Interrupt> {
        let (sender, pressed) = bounded(1);
        let interrupt = Interrupt { pressed, listening: Arc::default() };
        let listening = Arc::clone(&interrupt.listening);
        let handler = move || {
            // A second Ctrl-C ends the process too, if the first was not handled.
            if listening.load(Ordering::SeqCst) == 0 || sender.try_send(()).is_err() {
                keyboard::restore();
                std::process::exit(i32::from(Outcome::Interrupted.exit_code()));
            }
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        #[cfg(unix)]
        restore_before_termination()?;
        Ok(interrupt)
    }

    /// A Ctrl-C that something else than a keyboard presses.
    pub(crate) fn from_channel(pressed: Receiver<()>) -> Interrupt {
        Interrupt { pressed, listening: Arc::default() }
    }

    /// Listens from now on. Presses from before are forgotten, unless something listened already: work of several parts
    /// listens throughout, so that a press between two of them stops it.
    pub(crate) fn listen(&self) -> Listening<'_> {
        if self.listening.load(Ordering::SeqCst) == 0 {
            while self.pressed.try_recv().is_ok() {}
        }
        self.listening.fetch_add(1, Ordering::SeqCst);
        Listening { interrupt: self }
    }
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

impl Listening<'_> {
    /// The channel, for waiting on it together with others.
    pub(crate) fn pressed(&self) -> &Receiver<()> {
        &self.interrupt.pressed
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.interrupt.listening.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_press_between_two_parts_of_some_work_is_not_forgotten() {
        let (press, pressed) = bounded(1);
        let interrupt = Interrupt::from_channel(pressed);
        let throughout = interrupt.listen();
        drop(interrupt.listen());
        press.send(()).unwrap();
        assert!(interrupt.listen().pressed().try_recv().is_ok());
        drop(throughout);
        press.send(()).unwrap();
        assert!(interrupt.listen().pressed().try_recv().is_err(), "nothing listened when it came");
    }
}
