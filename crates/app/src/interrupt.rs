//! Stops work that a user waits for: on Ctrl-C, when a client has gone, or when a question takes precedence. It can be
//! awaited together with the work's own events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

/// A button that stops work. It has an effect only while something listens.
#[derive(Clone, Debug)]
pub struct Interrupt {
    pressed: Receiver<()>,
    /// The number of listeners.
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
    /// A button, and a presser for it.
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

    /// Starts listening. Earlier presses are forgotten, unless something listened already: work of several parts
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
    /// Presses the button. Returns whether the press will be heard: something listens, and has taken the previous one.
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
