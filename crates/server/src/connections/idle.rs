//! Connections without a request in progress. When there is no room for another connection, the one that has been idle
//! longest gives way.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

/// The idle connections, the longest idle first.
#[derive(Debug)]
pub(super) struct IdleConnections {
    /// How long an idle connection is spared: its request may be on its way.
    grace: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    idle: BTreeMap<u64, Idle>,
    next: u64,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    dismissal: Arc<Notify>,
}

impl IdleConnections {
    pub(super) fn new(grace: Duration) -> IdleConnections {
        IdleConnections { grace, queue: Mutex::default() }
    }

    /// Dismisses the connection that has been idle longest, if it has been idle long enough. Returns how long to wait
    /// for room before trying again.
    pub(super) fn dismiss_one(&self) -> Duration {
        let mut queue = self.lock();
        let Some(oldest) = queue.idle.first_entry() else { return self.grace };
        let rest = self.grace.saturating_sub(oldest.get().since.elapsed());
        if !rest.is_zero() {
            return rest;
        }
        oldest.remove().dismissal.notify_one();
        self.grace
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that may be dismissed while it is idle. It starts idle.
#[derive(Debug)]
pub(super) struct Seat {
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    connections: Arc<IdleConnections>,
    dismissal: Arc<Notify>,
    /// Its number in the queue, while it is idle.
    number: Mutex<Option<u64>>,
}

impl Seat {
    pub(super) fn new(connections: &Arc<IdleConnections>) -> Seat {
        let (connections, dismissal) = (Arc::clone(connections), Arc::new(Notify::new()));
        let waiting = Arc::new(Waiting { connections, dismissal, number: Mutex::default() });
        waiting.enter();
        Seat { waiting }
    }

    /// Completes once the connection must close.
    pub(super) async fn dismissed(&self) {
        self.waiting.dismissal.notified().await;
    }

    /// Marks the start of a request: the connection is busy until the returned value is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.waiting.leave();
        Busy { waiting: Arc::clone(&self.waiting) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiting.leave();
    }
}

impl Waiting {
    fn enter(&self) {
        let mut queue = self.connections.lock();
        let number = queue.next;
        queue.next += 1;
        queue.idle.insert(number, Idle { since: Instant::now(), dismissal: Arc::clone(&self.dismissal) });
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
    }

    fn leave(&self) {
        let mut queue = self.connections.lock();
        if let Some(number) = self.number.lock().unwrap_or_else(PoisonError::into_inner).take() {
            queue.idle.remove(&number);
        }
    }
}

/// A connection's request in progress.
#[derive(Debug)]
pub(super) struct Busy {
    waiting: Arc<Waiting>,
}

impl Busy {
    /// The response body, which keeps the connection busy until it is sent.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Body::new(Sending { body, _busy: self })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // If the connection has ended, no task waits for its dismissal, and its seat has left.
        if Arc::strong_count(&self.waiting) > 1 {
            self.waiting.enter();
        }
    }
}

struct Sending {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_dismissed(seat: &Seat) -> bool {
        tokio::time::timeout(Duration::from_millis(1), seat.dismissed()).await.is_ok()
    }

    #[tokio::test]
    async fn the_longest_idle_gives_way_and_no_busy_one() {
        let patient = Arc::new(IdleConnections::new(Duration::from_secs(60)));
        let seat = Seat::new(&patient);
        assert!(patient.dismiss_one() > Duration::from_secs(50) && !is_dismissed(&seat).await, "it has just come");
        let connections = Arc::new(IdleConnections::new(Duration::ZERO));
        let [first, second, third] = std::array::from_fn(|_| Seat::new(&connections));
        let busy = first.busy();
        connections.dismiss_one();
        assert_eq!([is_dismissed(&first).await, is_dismissed(&second).await], [false, true]);
        let body = busy.until_sent(Body::from("answer"));
        drop(second);
        connections.dismiss_one();
        assert!(is_dismissed(&third).await, "the first one still answers");
        connections.dismiss_one();
        assert!(!is_dismissed(&first).await);
        drop(body);
        connections.dismiss_one();
        assert!(is_dismissed(&first).await);
        drop(first);
        connections.dismiss_one();
        assert!(connections.lock().idle.is_empty());
    }
}
