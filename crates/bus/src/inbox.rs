//! What waits for an agent, and what it has in hand: everything that survives when the agent panics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use hone_protocol::Envelope;

use crate::mailbox::Mailbox;

/// An agent's messages. Those that come while it works can be put aside, so that it reads its mailbox, and learns of
/// cancellations, while work waits.
pub struct Inbox {
    mailbox: Mailbox,
    stop: Receiver<Infallible>,
    waiting: VecDeque<Arc<Envelope>>,
    in_hand: Option<Arc<Envelope>>,
}

impl Inbox {
    pub(crate) fn new(mailbox: Mailbox, stop: Receiver<Infallible>) -> Self {
        Inbox { mailbox, stop, waiting: VecDeque::new(), in_hand: None }
    }

    /// The messages that the agent has not seen yet.
    pub fn messages(&self) -> &Receiver<Arc<Envelope>> {
        self.mailbox.receiver()
    }

    /// Disconnected when the agent shall stop.
    pub fn stop(&self) -> &Receiver<Infallible> {
        &self.stop
    }

    /// Keeps a message for later.
    ///
    /// # Errors
    /// With the message, when as many wait already as the mailbox holds.
    pub fn put_aside(&mut self, message: Arc<Envelope>) -> Result<(), Arc<Envelope>> {
        if self.waiting.len() >= self.mailbox.capacity() {
            return Err(message);
        }
        self.waiting.push_back(message);
        Ok(())
    }

    /// The message that was put aside first.
    pub fn next_waiting(&mut self) -> Option<Arc<Envelope>> {
        self.waiting.pop_front()
    }

    /// Takes out the messages that were put aside and are meant, oldest first.
    pub fn take_waiting(&mut self, mut is_meant: impl FnMut(&Envelope) -> bool) -> Vec<Arc<Envelope>> {
        let (taken, left) = self.waiting.drain(..).partition::<Vec<_>, _>(|message| is_meant(message));
        self.waiting = left.into();
        taken
    }

    /// Says which message the agent works on from now on. Should it panic, the agent that takes its place is told.
    pub fn take_up(&mut self, message: &Arc<Envelope>) {
        self.in_hand = Some(Arc::clone(message));
    }

    /// Says that the work on a message is done. Returns the message, where there was one.
    pub fn put_down(&mut self) -> Option<Arc<Envelope>> {
        self.in_hand.take()
    }
}
