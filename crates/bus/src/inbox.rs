//! What waits for an agent, and what it has claimed: everything that survives when the agent panics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, Select};
use hone_protocol::Envelope;

use crate::bus::Mailbox;

/// An agent's messages. Those that come while it works can be deferred, so that it reads its mailbox, and learns of
/// cancellations, while work waits.
pub struct Inbox {
    mailbox: Mailbox,
    stop: Receiver<Infallible>,
    deferred: VecDeque<Arc<Envelope>>,
    claimed: Vec<Arc<Envelope>>,
}

/// What an agent waits for.
#[derive(Debug)]
pub enum Wakeup<T> {
    /// A message has come.
    Message(Arc<Envelope>),
    /// The channel of this number has given something of the agent's own work, or is disconnected.
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

    /// Waits for a message, or for what one of these numbered channels of the agent's own work gives; `None` when the
    /// agent should stop. If several are ready, the end comes first, then messages, then the channels in their order.
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
                // It gives nothing; it is disconnected.
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
    /// With the message, when as many are deferred already as the mailbox holds.
    pub fn defer(&mut self, message: Arc<Envelope>) -> Result<(), Arc<Envelope>> {
        if self.deferred.len() >= self.mailbox.capacity() {
            return Err(message);
        }
        self.deferred.push_back(message);
        Ok(())
    }

    /// How many messages are deferred.
    pub fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// The message that was deferred first.
    pub fn next_deferred(&mut self) -> Option<Arc<Envelope>> {
        self.deferred.pop_front()
    }

    /// Takes out the deferred messages that are meant, oldest first.
    pub fn take_deferred(&mut self, mut is_meant: impl FnMut(&Envelope) -> bool) -> Vec<Arc<Envelope>> {
        let (taken, left) = self.deferred.drain(..).partition::<Vec<_>, _>(|message| is_meant(message));
        self.deferred = left.into();
        taken
    }

    /// Says that the agent works on a message from now on. Should it panic, the agent that takes its place is told.
    pub fn claim(&mut self, message: &Arc<Envelope>) {
        self.claimed.push(Arc::clone(message));
    }

    /// Says that the work on the claimed messages that are meant is done. Returns them, oldest first.
    pub fn release(&mut self, mut is_meant: impl FnMut(&Envelope) -> bool) -> Vec<Arc<Envelope>> {
        self.claimed.extract_if(.., |message| is_meant(message)).collect()
    }
}
