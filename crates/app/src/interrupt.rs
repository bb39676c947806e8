//! What stops work that somebody waits for: Ctrl-C, a client that has gone, or a question that comes first. It can be
//! awaited together with the work's own events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

/// A button that stops work. It counts only while something listens.
#[derive(Clone, Debug)]
pub struct Interrupt {
    pressed: Receiver<()>,
    /// How many listen.
    listening: Arc<AtomicUsize>,
}

/// While this exists, a press is an event.
#[derive(Debug)]
pub struct Listening<'a> {
    interrupt: &'a Interrupt,
}

/// Presses an [`Interrupt`].
#[derive(Debug)]
pub struct Presser {
    sender: Sender<()>,
    listening: Arc<AtomicUsize>,
}

impl Interrupt {
    /// A button, and what presses it.
    pub fn new() -> (Interrupt, Presser) {
        let (sender, pressed) = bounded(1);
        let interrupt = Interrupt::from_channel(pressed);
        let listening = Arc::clone(&interrupt.listening);
        (interrupt, Presser { sender, listening })
    }

    /// A button that is pressed over a channel.
    pub fn from_channel(pressed: Receiver<()>) -> Interrupt {
        Interrupt { pressed, listening: Arc::default() }
    }

    /// Listens from now on. Presses from before are forgotten, unless something listened already: work of several parts
    /// listens throughout, so that a press between two of them stops it.
    pub fn listen(&self) -> Listening<'_> {
        if self.listening.load(Ordering::SeqCst) == 0 {
            while self.pressed.try_recv().is_ok() {}
        }
        self.listening.fetch_add(1, Ordering::SeqCst);
        Listening { interrupt: self }
    }
}

impl Presser {
    /// Presses it. Returns whether something will hear that: something listens, and has taken the press before this one.
    pub fn press(&self) -> bool {
        self.listening.load(Ordering::SeqCst) > 0 && self.sender.try_send(()).is_ok()
    }
}

impl Listening<'_> {
    /// The channel, for waiting on it together with others.
    pub fn pressed(&self) -> &Receiver<()> {
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

    #[test]
    fn a_press_that_nothing_hears_is_said_to_be_lost() {
        let (interrupt, presser) = Interrupt::new();
        assert!(!presser.press(), "nothing listens");
        let listening = interrupt.listen();
        assert!(presser.press());
        assert!(!presser.press(), "the first one was not taken");
        assert!(listening.pressed().try_recv().is_ok());
        assert!(presser.press());
    }
}
