//! The index of mailboxes by session. There may be thousands of mailboxes, one for each client, and a message concerns
//! a few of them: those for all sessions, and those for its own session, which the index finds.

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, Weak};

use hone_protocol::SessionId;

use crate::subscriber::{Rank, Subscriber};

/// The mailboxes of a bus. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Subscribers {
    lists: Arc<RwLock<Lists>>,
    number: Arc<AtomicU64>,
}

/// Mailboxes in the order of delivery. A list is replaced as a whole, so that a sender that waits for a full mailbox holds no
/// lock.
type List = Arc<Vec<Arc<Subscriber>>>;

#[derive(Default)]
struct Lists {
    all: BTreeMap<Rank, Arc<Subscriber>>,
    /// The mailboxes for all sessions.
    of_all: List,
    /// The mailboxes for single sessions.
    of_one: HashMap<SessionId, List>,
}

/// The mailboxes that receive a session's messages.
pub(crate) struct Hearers {
    of_all: List,
    of_one: List,
}

impl Subscribers {
    /// The next rank, behind all others of its kind.
    pub(crate) fn next_rank(&self, only_watches: bool) -> Rank {
        Rank { takes_part: !only_watches, number: self.number.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn insert(&self, subscriber: Arc<Subscriber>) {
        let mut lists = self.write();
        lists.all.insert(subscriber.rank, Arc::clone(&subscriber));
        let Some(sessions) = subscriber.subscription.sessions.clone() else { return lists.hear(None, &subscriber) };
        drop(lists);
        let (lists, subscriber) = (Arc::downgrade(&self.lists), Arc::downgrade(&subscriber));
        sessions.listen(Box::new(move |session| hear(&lists, &subscriber, session)));
    }

    pub(crate) fn remove(&self, subscriber: &Arc<Subscriber>) {
        self.write().all.remove(&subscriber.rank);
        // A session added from now on finds the mailbox removed.
        let sessions = subscriber.subscription.sessions.as_ref();
        let sessions = sessions.map_or(vec![None], |sessions| sessions.all().into_iter().map(Some).collect());
        let mut lists = self.write();
        sessions.into_iter().for_each(|session| lists.forget(session, subscriber));
    }

    /// The mailboxes that receive a session's messages.
    pub(crate) fn of(&self, session: SessionId) -> Hearers {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        Hearers { of_all: Arc::clone(&lists.of_all), of_one: lists.of_one.get(&session).cloned().unwrap_or_default() }
    }

    /// All mailboxes, in the order of delivery.
    pub(crate) fn all(&self) -> Vec<Arc<Subscriber>> {
        self.lists.read().unwrap_or_else(PoisonError::into_inner).all.values().cloned().collect()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Lists> {
        self.lists.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    /// Adds a mailbox to a session, or to all sessions.
    fn hear(&mut self, session: Option<SessionId>, subscriber: &Arc<Subscriber>) {
        let list = Arc::make_mut(self.list(session));
        if let Err(index) = list.binary_search_by_key(&subscriber.rank, |other| other.rank) {
            list.insert(index, Arc::clone(subscriber));
        }
    }

    fn forget(&mut self, session: Option<SessionId>, subscriber: &Arc<Subscriber>) {
        let list = Arc::make_mut(self.list(session));
        list.retain(|other| !Arc::ptr_eq(other, subscriber));
        if let (true, Some(session)) = (list.is_empty(), session) {
            self.of_one.remove(&session);
        }
    }

    fn list(&mut self, session: Option<SessionId>) -> &mut List {
        match session {
            None => &mut self.of_all,
            Some(session) => self.of_one.entry(session).or_default(),
        }
    }
}

impl Hearers {
    /// Both lists merged, in the order of delivery.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        let (mut of_all, mut of_one) = (self.of_all.iter().peekable(), self.of_one.iter().peekable());
        iter::from_fn(move || match (of_all.peek(), of_one.peek()) {
            (Some(one), Some(other)) if other.rank < one.rank => of_one.next(),
            (Some(_), _) => of_all.next(),
            (None, _) => of_one.next(),
        })
    }
}

/// Adds a mailbox to a session; returns whether the mailbox still exists.
fn hear(lists: &Weak<RwLock<Lists>>, subscriber: &Weak<Subscriber>, session: SessionId) -> bool {
    let (Some(lists), Some(subscriber)) = (lists.upgrade(), subscriber.upgrade()) else { return false };
    let mut lists = lists.write().unwrap_or_else(PoisonError::into_inner);
    // A closed mailbox receives nothing more, even while its owner still reads it.
    let exists = lists.all.contains_key(&subscriber.rank);
    if exists {
        lists.hear(Some(session), &subscriber);
    }
    exists
}
