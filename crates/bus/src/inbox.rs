//! An agent's pending and claimed messages: everything that survives when the agent panics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, Select};
use hone_protocol::Envelope;

use crate::bus::Mailbox;

/// An agent's messages. Messages that arrive while it works can be deferred, so that it keeps reading its mailbox, and
/// learns of cancellations, while work waits.
pub struct Inbox {
    mailbox: Mailbox,
    stop: Receiver<Infallible>,
    deferred: VecDeque<Arc<Envelope>>,
    claimed: Vec<Arc<Envelope>>,
}

/// The event that woke an agent.
#[derive(Debug)]
pub enum Wakeup<T> {
    /// A message arrived.
    Message(Arc<Envelope>),
    /// The channel with this number carried a result of the agent's own work, or is disconnected.
    Work(usize, Result<T, RecvError>),
}

impl Inbox {
    pub(crate) fn new(mailbox: Mailbox, stop: Receiver<Infallible>) -> Self {
        Inbox { mailbox, stop, deferred: VecDeque::new(), claimed: Vec::new() }
    }

    /// The messages that the agent has not seen yet.
    pub fn messages(&self) -> &Receiver<Arc<Envelope>> {
        self.mailbox.receiver()
    }

    /// Disconnected when the agent should stop.
    pub fn stop(&self) -> &Receiver<Infallible> {
        &self.stop
    }

    /// Waits for a message or for one of these numbered channels of the agent's own work; `None` when the agent should
    /// stop. If several are ready, a stop comes first, then messages, then the channels in order.
    pub fn wait<'a, T: 'a>(&self, work: impl IntoIterator<Item = (usize, &'a Receiver<T>)>) -> Option<Wakeup<T>> {
        let work: Vec<(usize, &Receiver<T>)> = work.into_iter().collect();
        let mut select = Select::new_biased();
        let (stop, message) = (select.recv(&self.stop), select.recv(self.messages()));
        for (_, channel) in &work {
            select.recv(channel);
        }
        let ready = select.select();
        match ready.index() {
            index if index == stop => {
                // The channel carries no values; it is disconnected.
                let _ = ready.recv(&self.stop);
                None
            }
            index if index == message => ready.recv(self.messages()).ok().map(Wakeup::Message),
            index => {
                let (number, channel) = work[index - message - 1];
                Some(Wakeup::Work(number, ready.recv(channel)))
            }
        }
    }

    /// Keeps a message for later.
    ///
    /// # Errors
    /// The message, when the number of deferred messages has reached the mailbox's capacity.
    pub fn defer(&mut self, message: Arc<Envelope>) -> Result<(), Arc<Envelope>> {
        if self.deferred.len() >= self.mailbox.capacity() {
            return Err(message);
        }
        self.deferred.push_back(message);
        Ok(())
    }

    /// The number of deferred messages.
    pub fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// Removes the oldest deferred message and returns it.
    pub fn next_deferred(&mut self) -> Option<Arc<Envelope>> {
        self.deferred.pop_front()
    }

    /// Removes the matching deferred messages and returns them, oldest first.
    pub fn take_deferred(&mut self, mut is_meant: impl FnMut(&Envelope) -> bool) -> Vec<Arc<Envelope>> {
        let (taken, left) = self.deferred.drain(..).partition::<Vec<_>, _>(|message| is_meant(message));
        self.deferred = left.into();
        taken
    }

    /// Marks a message as being worked on. If the agent panics, its replacement is told.
    pub fn claim(&mut self, message: &Arc<Envelope>) {
        self.claimed.push(Arc::clone(message));
    }

    /// Ends the work on the matching claimed messages and returns them, oldest first.
    pub fn release(&mut self, mut is_meant: impl FnMut(&Envelope) -> bool) -> Vec<Arc<Envelope>> {
        self.claimed.extract_if(.., |message| is_meant(message)).collect()
    }
}
