//! The sending end of a mailbox, and the policies for a full one.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crossbeam_channel::{Receiver, Sender, TrySendError, select};
use hone_protocol::{Envelope, Subject};

use crate::sessions::SessionSet;

/// The policy for a message to a full mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// The sender waits until there is room or the mailbox is gone. The owner of such a mailbox has to keep reading it,
    /// and must not send messages to itself.
    Wait,
    /// The message is dropped.
    DropNewest,
    /// The message replaces the oldest one.
    DropOldest,
    /// The mailbox is closed: its owner can still read the messages in it, then finds it disconnected and learns the
    /// reason from [`Mailbox::has_overflowed`](crate::Mailbox::has_overflowed). For readers that must neither miss a message nor delay senders.
    Close,
}

/// A subscriber's choice of messages and its mailbox.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Name of the mailbox, for error messages.
    pub name: String,
    /// The subjects; `Subject::ALL` for all messages.
    pub subjects: Vec<Subject>,
    /// The sessions; more can be added later. `None` for all.
    pub sessions: Option<SessionSet>,
    /// The capacity in messages; at least 1.
    pub capacity: usize,
    /// The policy when it is full.
    pub overload: Overload,
}

/// The state of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxState {
    /// Its name.
    pub name: String,
    /// Messages waiting in it.
    pub waiting: usize,
    /// Messages lost so far.
    pub dropped: u64,
}

/// A mailbox's unique rank in the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Watchers come first: `false` is less than `true`.
    pub(crate) takes_part: bool,
    pub(crate) number: u64,
}

/// The sending end of a subscription.
pub(crate) struct Subscriber {
    pub(crate) subscription: Subscription,
    pub(crate) rank: Rank,
    pub(crate) sender: Sender<Arc<Envelope>>,
    /// A clone of the receiver, from which senders remove the oldest message.
    pub(crate) oldest: Option<Receiver<Arc<Envelope>>>,
    /// Disconnected when the mailbox is gone, even while a clone of its receiver exists.
    pub(crate) closed: Receiver<Infallible>,
    pub(crate) dropped: AtomicU64,
    /// Whether the mailbox was closed because it was full.
    pub(crate) overflowed: Arc<AtomicBool>,
    pub(crate) waiting: Waiting,
}

/// The task that waits for a mailbox's next message.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Option<Waker>>>);

impl Waiting {
    pub(crate) fn register(&self, waker: &Waker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    pub(crate) fn wake(&self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Subscriber {
    pub(crate) fn hears(&self, subject: Subject) -> bool {
        self.subscription.subjects.contains(&subject)
    }

    /// Puts a message into the mailbox; returns whether nothing was lost. A closed mailbox loses nothing.
    pub(crate) fn deliver(&self, envelope: &Arc<Envelope>) -> bool {
        match self.subscription.overload {
            Overload::Wait => {
                select! {
                    send(self.sender, Arc::clone(envelope)) -> _ => {}
                    recv(self.closed) -> _ => {}
                }
                true
            }
            Overload::DropNewest => !matches!(self.sender.try_send(Arc::clone(envelope)), Err(TrySendError::Full(_))),
            Overload::DropOldest => self.displace(Arc::clone(envelope)),
            Overload::Close => {
                // A sender with an older list may arrive after the one that found the mailbox full.
                let is_open = !self.overflowed.load(Ordering::Relaxed);
                if is_open && let Err(TrySendError::Full(_)) = self.sender.try_send(Arc::clone(envelope)) {
                    self.overflowed.store(true, Ordering::Relaxed);
                    return false;
                }
                true
            }
        }
    }

    fn displace(&self, mut envelope: Arc<Envelope>) -> bool {
        let mut nothing_lost = true;
        while let Err(TrySendError::Full(refused)) = self.sender.try_send(envelope) {
            envelope = refused;
            // The owner may have made room in the meantime; then nothing is lost.
            if self.oldest.as_ref().is_some_and(|oldest| oldest.try_recv().is_ok()) {
                nothing_lost = false;
            }
        }
        nothing_lost
    }

    pub(crate) fn state(&self) -> MailboxState {
        MailboxState {
            name: self.subscription.name.clone(),
            waiting: self.sender.len(),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}
