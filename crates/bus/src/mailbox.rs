//! Mailboxes, and the bus that fills them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};
use hone_protocol::{Envelope, Subject};
use thiserror::Error;

/// What happens to a message for a mailbox that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Its sender waits until there is room or the mailbox is gone. The owner of such a mailbox has to read it for as long
    /// as it lives, and must not send itself messages.
    Wait,
    /// It is dropped.
    DropNewest,
    /// It takes the place of the message that waits longest.
    DropOldest,
}

/// What somebody wants to hear about.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Name of the mailbox, for error messages.
    pub name: String,
    /// The subjects; `Subject::ALL` taps everything.
    pub subjects: Vec<Subject>,
    /// How many messages can wait; at least 1.
    pub capacity: usize,
    /// What happens to more of them.
    pub overload: Overload,
}

/// Messages were dropped because mailboxes were full. All other mailboxes have the message that was published.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("a message was dropped while {subject} was delivered, because these mailboxes are full: {names}", names = mailboxes.join(", "))]
pub struct Overloaded {
    /// Subject of the message that was published.
    pub subject: Subject,
    /// The mailboxes that lost a message: this one, or with [`Overload::DropOldest`] an older one.
    pub mailboxes: Vec<String>,
}

/// How a mailbox stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxState {
    /// Its name.
    pub name: String,
    /// Messages that wait in it.
    pub waiting: usize,
    /// Messages that it has lost so far.
    pub dropped: u64,
}

/// Where agents meet. Clones are the same bus.
#[derive(Clone, Default)]
pub struct Bus {
    // A list that is replaced as a whole, so that a sender who waits for a full mailbox holds no lock.
    entrances: Arc<RwLock<Arc<Vec<Arc<Entrance>>>>>,
}

/// The receiving end of a subscription. Dropping it ends the subscription and lets waiting senders go on.
pub struct Mailbox {
    bus: Bus,
    entrance: Arc<Entrance>,
    receiver: Receiver<Arc<Envelope>>,
    _open: Sender<Infallible>,
}

/// The sending end of a subscription.
struct Entrance {
    subscription: Subscription,
    sender: Sender<Arc<Envelope>>,
    /// The receiving end again, where senders take the oldest message out.
    oldest: Option<Receiver<Arc<Envelope>>>,
    /// Disconnected when the mailbox is gone, even while somebody keeps a clone of its receiver.
    closed: Receiver<Infallible>,
    dropped: AtomicU64,
}

impl Bus {
    /// A bus that nobody listens to yet.
    pub fn new() -> Self {
        Bus::default()
    }

    /// A mailbox that receives what is published from now on.
    pub fn subscribe(&self, subscription: Subscription) -> Mailbox {
        let (sender, receiver) = bounded(subscription.capacity.max(1));
        let (open, closed) = bounded(0);
        let oldest = (subscription.overload == Overload::DropOldest).then(|| receiver.clone());
        let entrance = Arc::new(Entrance { subscription, sender, oldest, closed, dropped: AtomicU64::new(0) });
        self.change(|entrances| entrances.push(Arc::clone(&entrance)));
        Mailbox { bus: self.clone(), entrance, receiver, _open: open }
    }

    /// Delivers a message to every mailbox that subscribed to its subject. Messages that one thread publishes arrive in
    /// that order.
    ///
    /// # Errors
    /// When mailboxes were full and dropped a message; the others have it nevertheless.
    pub fn publish(&self, envelope: Envelope) -> Result<(), Overloaded> {
        let subject = envelope.subject();
        let envelope = Arc::new(envelope);
        let mut mailboxes = Vec::new();
        for entrance in self.entrances().iter().filter(|entrance| entrance.subscription.subjects.contains(&subject)) {
            if !entrance.deliver(&envelope) {
                entrance.dropped.fetch_add(1, Ordering::Relaxed);
                mailboxes.push(entrance.subscription.name.clone());
            }
        }
        if mailboxes.is_empty() { Ok(()) } else { Err(Overloaded { subject, mailboxes }) }
    }

    /// How every mailbox stands, in the order of their subscriptions.
    pub fn mailboxes(&self) -> Vec<MailboxState> {
        self.entrances().iter().map(|entrance| entrance.state()).collect()
    }

    fn entrances(&self) -> Arc<Vec<Arc<Entrance>>> {
        Arc::clone(&self.entrances.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Entrance>>)) {
        let mut entrances = self.entrances.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut entrances));
    }
}

impl Mailbox {
    /// The messages, oldest first.
    pub fn receiver(&self) -> &Receiver<Arc<Envelope>> {
        &self.receiver
    }

    /// How many messages can wait.
    pub fn capacity(&self) -> usize {
        self.entrance.subscription.capacity.max(1)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.bus.change(|entrances| entrances.retain(|other| !Arc::ptr_eq(other, &self.entrance)));
    }
}

impl Entrance {
    /// Puts a message into the mailbox; returns whether nothing was lost. A mailbox that is gone loses nothing.
    fn deliver(&self, envelope: &Arc<Envelope>) -> bool {
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
        }
    }

    fn displace(&self, mut envelope: Arc<Envelope>) -> bool {
        let mut nothing_lost = true;
        while let Err(TrySendError::Full(refused)) = self.sender.try_send(envelope) {
            envelope = refused;
            // The owner may have made room in the meantime, and then nothing is lost.
            if self.oldest.as_ref().is_some_and(|oldest| oldest.try_recv().is_ok()) {
                nothing_lost = false;
            }
        }
        nothing_lost
    }

    fn state(&self) -> MailboxState {
        MailboxState {
            name: self.subscription.name.clone(),
            waiting: self.sender.len(),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::thread;

    use hone_protocol::{Nothing, Payload, SessionId, Stored};

    use super::*;

    fn subscription(name: &str, subjects: &[Subject], capacity: usize, overload: Overload) -> Subscription {
        Subscription { name: name.to_owned(), subjects: subjects.to_vec(), capacity, overload }
    }

    fn stored(sequence: u64) -> Envelope {
        Envelope::new("tester", SessionId::from_bits(1), Payload::MemoryStored(Stored { sequence }))
    }

    fn sequences(mailbox: &Mailbox) -> Vec<u64> {
        let sequence = |envelope: Arc<Envelope>| match envelope.payload {
            Payload::MemoryStored(Stored { sequence }) => sequence,
            _ => panic!("only memory.stored was subscribed to"),
        };
        mailbox.receiver().try_iter().map(sequence).collect()
    }

    /// What is in a mailbox for two after four messages, and how many publishings were refused.
    #[track_caller]
    fn check_overload(overload: Overload, expected: &[u64], dropped: u64) {
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("small", &[Subject::MemoryStored], 2, overload));
        let roomy = bus.subscribe(subscription("roomy", Subject::ALL, 9, Overload::Wait));
        let refused: Vec<Overloaded> = (1..=4).filter_map(|sequence| bus.publish(stored(sequence)).err()).collect();
        let small = MailboxState { name: "small".to_owned(), waiting: 2, dropped };
        assert_eq!(bus.mailboxes()[0], small);
        assert_eq!(sequences(&mailbox), expected);
        assert_eq!(sequences(&roomy), [1, 2, 3, 4], "the others lose nothing");
        let expected = Overloaded { subject: Subject::MemoryStored, mailboxes: vec!["small".to_owned()] };
        assert_eq!(refused, vec![expected; usize::try_from(dropped).unwrap()]);
    }

    #[test]
    fn a_full_mailbox_loses_what_it_said_it_would() {
        check_overload(Overload::DropNewest, &[1, 2], 2);
        check_overload(Overload::DropOldest, &[3, 4], 2);
    }

    #[test]
    fn a_mailbox_receives_its_subjects_only() {
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("one", &[Subject::SessionClosed], 9, Overload::Wait));
        bus.publish(stored(1)).unwrap();
        bus.publish(Envelope::new("tester", SessionId::from_bits(1), Payload::SessionClosed(Nothing {}))).unwrap();
        let subjects: Vec<Subject> = mailbox.receiver().try_iter().map(|envelope| envelope.subject()).collect();
        assert_eq!(subjects, [Subject::SessionClosed]);
    }

    #[test]
    fn a_sender_waits_for_room() {
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("small", &[Subject::MemoryStored], 1, Overload::Wait));
        let sender = thread::spawn({
            let bus = bus.clone();
            move || (1..=100).for_each(|sequence| bus.publish(stored(sequence)).unwrap())
        });
        let received: Vec<u64> = (0..100).map(|_| mailbox.receiver().recv().unwrap()).flat_map(of_sequence).collect();
        assert_eq!(received, (1..=100).collect::<Vec<_>>());
        sender.join().unwrap();
    }

    fn of_sequence(envelope: Arc<Envelope>) -> Option<u64> {
        match envelope.payload {
            Payload::MemoryStored(Stored { sequence }) => Some(sequence),
            _ => None,
        }
    }

    #[test]
    fn a_waiting_sender_is_released_when_the_mailbox_is_dropped() {
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("small", &[Subject::MemoryStored], 1, Overload::Wait));
        let kept = mailbox.receiver().clone();
        let sender = thread::spawn({
            let bus = bus.clone();
            move || (1..=3).for_each(|sequence| bus.publish(stored(sequence)).unwrap())
        });
        assert_eq!(of_sequence(kept.recv().unwrap()), Some(1));
        drop(mailbox);
        sender.join().unwrap();
        assert!(bus.mailboxes().is_empty());
    }

    #[test]
    fn messages_of_one_sender_keep_their_order_beside_other_senders() {
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("all", &[Subject::MemoryStored], 8, Overload::Wait));
        let senders: Vec<_> = (0..4_u64)
            .map(|sender| {
                let bus = bus.clone();
                thread::spawn(move || (0..50).for_each(|n| bus.publish(stored(sender * 1000 + n)).unwrap()))
            })
            .collect();
        let received: Vec<u64> = (0..200).flat_map(|_| of_sequence(mailbox.receiver().recv().unwrap())).collect();
        for sender in 0..4 {
            let own: Vec<u64> = received.iter().copied().filter(|sequence| sequence / 1000 == sender).collect();
            assert_eq!(own, (0..50).map(|n| sender * 1000 + n).collect::<Vec<_>>());
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }

    #[test]
    fn an_early_subscriber_has_a_message_before_a_late_one_can_react_to_it() {
        let bus = Bus::new();
        let both = [Subject::MemoryStored, Subject::SessionClosed];
        let early = bus.subscribe(subscription("early", &both, 2000, Overload::Wait));
        let late = bus.subscribe(subscription("late", &[Subject::MemoryStored], 2000, Overload::Wait));
        let reactor = thread::spawn({
            let bus = bus.clone();
            move || {
                for message in late.receiver().iter().take(500) {
                    bus.publish(message.reply("late", Payload::SessionClosed(Nothing {}))).unwrap();
                }
            }
        });
        (0..500).for_each(|sequence| bus.publish(stored(sequence)).unwrap());
        reactor.join().unwrap();
        let mut lead = 0;
        for message in early.receiver().try_iter() {
            lead += if message.subject() == Subject::MemoryStored { 1 } else { -1 };
            assert!(lead >= 0, "a reaction came before its cause");
        }
        assert_eq!(lead, 0);
    }
}
