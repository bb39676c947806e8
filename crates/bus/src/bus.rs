//! Mailboxes, and the bus that fills them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use hone_protocol::{Envelope, Subject};
use thiserror::Error;

use crate::subscriber::{MailboxState, Overload, Subscriber, Subscription, Waiting};
use crate::subscribers::Subscribers;

/// Messages were dropped because mailboxes were full. All other mailboxes have received the published message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("a message was dropped while {subject} was delivered, because these mailboxes are full: {names}", names = mailboxes.join(", "))]
pub struct Overloaded {
    /// Subject of the message that was published.
    pub subject: Subject,
    /// The mailboxes that lost a message: this one, or an older one with [`Overload::DropOldest`].
    pub mailboxes: Vec<String>,
}

/// The message bus. Clones share it.
#[derive(Clone, Default)]
pub struct Bus {
    subscribers: Subscribers,
}

/// The receiving end of a subscription. Dropping it ends the subscription and releases waiting senders.
pub struct Mailbox {
    bus: Bus,
    /// Only the bus holds the sender, so the receiver is disconnected when the bus closes the mailbox.
    subscriber: Weak<Subscriber>,
    receiver: Receiver<Arc<Envelope>>,
    capacity: usize,
    overflowed: Arc<AtomicBool>,
    waiting: Waiting,
    _open: Sender<Infallible>,
}

impl Bus {
    /// A bus without subscribers.
    pub fn new() -> Self {
        Bus::default()
    }

    /// A mailbox that receives everything published from now on.
    pub fn subscribe(&self, subscription: Subscription) -> Mailbox {
        let capacity = subscription.capacity.max(1);
        let (sender, receiver) = bounded(capacity);
        let (open, closed) = bounded(0);
        let oldest = (subscription.overload == Overload::DropOldest).then(|| receiver.clone());
        let overflowed = Arc::new(AtomicBool::new(false));
        let (dropped, waiting) = (AtomicU64::new(0), Waiting::default());
        let rank = self.subscribers.next_rank(subscription.overload == Overload::DropOldest);
        let subscriber = Arc::new(Subscriber {
            subscription,
            rank,
            sender,
            oldest,
            closed,
            dropped,
            overflowed: Arc::clone(&overflowed),
            waiting: waiting.clone(),
        });
        let mailbox = Mailbox {
            bus: self.clone(),
            subscriber: Arc::downgrade(&subscriber),
            receiver,
            capacity,
            overflowed,
            waiting,
            _open: open,
        };
        self.subscribers.insert(subscriber);
        mailbox
    }

    /// Delivers a message to every mailbox that subscribed to its subject. Mailboxes that only watch
    /// ([`Overload::DropOldest`]) come first, so they get every message before anything published in reply to it; the
    /// others follow in the order of subscription. Messages from one thread arrive in the order in which it publishes
    /// them.
    ///
    /// # Errors
    /// When mailboxes were full and dropped a message; the others have received it nevertheless.
    pub fn publish(&self, envelope: Envelope) -> Result<(), Overloaded> {
        let subject = envelope.subject();
        let envelope = Arc::new(envelope);
        let mut mailboxes = Vec::new();
        let hearers = self.subscribers.of(envelope.session_id);
        for subscriber in hearers.in_order().filter(|subscriber| subscriber.hears(subject)) {
            if !subscriber.deliver(&envelope) {
                subscriber.dropped.fetch_add(1, Ordering::Relaxed);
                mailboxes.push(subscriber.subscription.name.clone());
            }
            if subscriber.overflowed.load(Ordering::Relaxed) {
                self.subscribers.remove(subscriber);
            }
            subscriber.waiting.wake();
        }
        if mailboxes.is_empty() { Ok(()) } else { Err(Overloaded { subject, mailboxes }) }
    }

    /// The state of every mailbox, in the order of delivery.
    pub fn mailboxes(&self) -> Vec<MailboxState> {
        self.subscribers.all().iter().map(|subscriber| subscriber.state()).collect()
    }
}

impl Mailbox {
    /// The messages, oldest first.
    pub fn receiver(&self) -> &Receiver<Arc<Envelope>> {
        &self.receiver
    }

    /// The next message, for a task that must not block its thread; `None` if the mailbox was closed. One task at a
    /// time can wait for it.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Arc<Envelope>>> {
        if let Poll::Ready(next) = self.try_next() {
            return Poll::Ready(next);
        }
        self.waiting.register(context.waker());
        // A message may have arrived before the waker was registered.
        self.try_next()
    }

    fn try_next(&self) -> Poll<Option<Arc<Envelope>>> {
        match self.receiver.try_recv() {
            Ok(envelope) => Poll::Ready(Some(envelope)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            // The bus drops the sender after the task was woken, so a closed mailbox may not be disconnected yet.
            Err(TryRecvError::Empty) if self.has_overflowed() => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }

    /// The capacity in messages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether it was closed because it was full ([`Overload::Close`]).
    pub fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Some(subscriber) = self.subscriber.upgrade() {
            self.bus.subscribers.remove(&subscriber);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};
    use std::thread;

    use hone_protocol::{Nothing, Payload, SessionId, Stored};

    use super::*;
    use crate::sessions::SessionSet;

    fn subscription(name: &str, subjects: &[Subject], capacity: usize, overload: Overload) -> Subscription {
        Subscription { name: name.to_owned(), subjects: subjects.to_vec(), sessions: None, capacity, overload }
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

    /// Checks the contents of a mailbox for two after four messages, and the number of refused messages.
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
    fn who_only_watches_gets_every_message_before_its_reply() {
        let bus = Bus::new();
        let agent = bus.subscribe(subscription("agent", Subject::ALL, 2000, Overload::Wait));
        let watcher = bus.subscribe(subscription("watcher", Subject::ALL, 2000, Overload::DropOldest));
        let replies = bus.clone();
        let replying = thread::spawn(move || {
            for envelope in agent.receiver().iter().filter(|envelope| envelope.sender == "tester").take(500) {
                replies.publish(envelope.reply("agent", Payload::SessionClosed(Nothing {}))).unwrap();
            }
        });
        (0..500).for_each(|sequence| bus.publish(stored(sequence)).unwrap());
        replying.join().unwrap();
        let (mut said, mut replied) = (0, 0);
        for envelope in watcher.receiver().try_iter() {
            *if envelope.sender == "agent" { &mut replied } else { &mut said } += 1;
            assert!(replied <= said, "a reply came before what it replies to");
        }
        assert_eq!((said, replied), (500, 500));
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
    fn a_mailbox_that_must_miss_nothing_is_closed_when_it_is_full() {
        let bus = Bus::new();
        let slow = bus.subscribe(subscription("slow", &[Subject::MemoryStored], 2, Overload::Close));
        let roomy = bus.subscribe(subscription("roomy", Subject::ALL, 9, Overload::Wait));
        let refused: Vec<bool> = (1..=4).map(|sequence| bus.publish(stored(sequence)).is_err()).collect();
        assert_eq!(refused, [false, false, true, false], "it is lost to nobody else, and once");
        assert_eq!(sequences(&slow), [1, 2], "what came before can be read");
        assert!(slow.receiver().recv().is_err() && slow.has_overflowed());
        assert_eq!(sequences(&roomy), [1, 2, 3, 4]);
        assert_eq!(bus.mailboxes().len(), 1);
        assert!(!roomy.has_overflowed());
    }

    #[test]
    fn a_mailbox_hears_its_conversations_only() {
        let bus = Bus::new();
        let sessions = SessionSet::default();
        let mine = Subscription {
            sessions: Some(sessions.clone()),
            ..subscription("mine", &[Subject::MemoryStored], 9, Overload::Close)
        };
        let mailbox = bus.subscribe(mine);
        bus.publish(stored(1)).unwrap();
        sessions.insert(SessionId::from_bits(1));
        bus.publish(stored(2)).unwrap();
        assert_eq!(sequences(&mailbox), [2]);
        assert_eq!(sessions.all(), [SessionId::from_bits(1)]);
    }

    #[test]
    fn mailboxes_of_a_conversation_and_of_all_get_a_message_in_the_order_of_subscription() {
        let bus = Bus::new();
        let sessions = SessionSet::default();
        sessions.insert(SessionId::from_bits(1));
        let names = ["agent", "client", "late agent", "late client", "watcher", "client's watcher"];
        let of_one = |name: &str| name.contains("client").then(|| sessions.clone());
        let overload = |name: &str| if name.contains("watcher") { Overload::DropOldest } else { Overload::DropNewest };
        let full = |name: &str| Subscription {
            sessions: of_one(name),
            ..subscription(name, &[Subject::MemoryStored], 1, overload(name))
        };
        let mailboxes: Vec<Mailbox> = names.iter().map(|name| bus.subscribe(full(name))).collect();
        bus.publish(stored(1)).unwrap();
        let order = ["watcher", "client's watcher", "agent", "client", "late agent", "late client"];
        assert_eq!(bus.publish(stored(2)).unwrap_err().mailboxes, order);
        assert_eq!(bus.mailboxes().iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), order);
        drop(mailboxes);
        bus.publish(stored(3)).unwrap();
        assert!(bus.mailboxes().is_empty());
    }

    #[test]
    fn a_mailbox_that_is_gone_stays_gone_when_its_conversations_become_more() {
        let bus = Bus::new();
        let sessions = SessionSet::default();
        let of_one = || Subscription {
            sessions: Some(sessions.clone()),
            ..subscription("client", &[Subject::MemoryStored], 1, Overload::Close)
        };
        drop(bus.subscribe(of_one()));
        let mailbox = bus.subscribe(of_one());
        sessions.insert(SessionId::from_bits(1));
        bus.publish(stored(1)).unwrap();
        assert!(bus.publish(stored(2)).is_err(), "it is full, and closed");
        sessions.insert(SessionId::from_bits(2));
        sessions.insert(SessionId::from_bits(1));
        bus.publish(stored(3)).unwrap();
        assert_eq!(sequences(&mailbox), [1]);
        assert!(bus.mailboxes().is_empty());
    }

    #[test]
    fn a_task_is_woken_by_a_message_and_by_the_end() {
        struct Counter(AtomicU64);
        impl Wake for Counter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Counter(AtomicU64::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let bus = Bus::new();
        let mailbox = bus.subscribe(subscription("task", Subject::ALL, 1, Overload::Close));
        assert!(mailbox.poll_next(&mut context).is_pending());
        bus.publish(stored(1)).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(matches!(mailbox.poll_next(&mut context), Poll::Ready(Some(_))));
        assert!(mailbox.poll_next(&mut context).is_pending());
        bus.publish(stored(2)).unwrap();
        assert!(bus.publish(stored(3)).is_err());
        assert_eq!(woken.0.load(Ordering::Relaxed), 2, "a task is woken once for all that has come");
        assert!(matches!(mailbox.poll_next(&mut context), Poll::Ready(Some(_))));
        assert!(matches!(mailbox.poll_next(&mut context), Poll::Ready(None)));
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
