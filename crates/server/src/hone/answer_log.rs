//! The events of an answer in progress. Pages can follow them from any event; the answer continues without any page.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{Stream, unfold};
use serde_json::Value;
use tokio::sync::watch;

/// Event types of which only the latest event is kept for pages that connect later.
const SUPERSEDED: [&str; 3] = ["html", "loading", "prefill"];

/// The events of an answer so far.
pub(super) struct AnswerLog {
    told: Mutex<Told>,
    /// Changed with every new event; true once no more will follow.
    news: watch::Sender<bool>,
}

#[derive(Default)]
struct Told {
    /// Ordered by number.
    events: Vec<Event>,
    n_told: u64,
}

#[derive(Clone)]
struct Event {
    number: u64,
    /// Its index in [`SUPERSEDED`], if any.
    superseded: Option<usize>,
    /// Its JSON, serialized once for all pages.
    text: Arc<str>,
}

impl AnswerLog {
    pub(super) fn new() -> Arc<AnswerLog> {
        Arc::new(AnswerLog { told: Mutex::default(), news: watch::Sender::new(false) })
    }

    pub(super) fn tell(&self, event: &Value) {
        let superseded = SUPERSEDED.iter().position(|kind| event["type"] == *kind);
        let text = event.to_string().into();
        let mut told = self.lock();
        // From the end: the previous one is among the latest events.
        let before = superseded.and_then(|_| told.events.iter().rposition(|other| other.superseded == superseded));
        if let Some(before) = before {
            told.events.remove(before);
        }
        told.n_told += 1;
        let number = told.n_told;
        told.events.push(Event { number, superseded, text });
        drop(told);
        self.news.send_modify(|_| {});
    }

    /// Whether there are any events yet.
    pub(super) fn has_begun(&self) -> bool {
        self.lock().n_told > 0
    }

    /// Ends the log: no more events follow.
    pub(super) fn end(&self) {
        self.news.send_replace(true);
    }

    /// Waits until the log has ended.
    pub(super) async fn ended(&self) {
        // The sender lives as long as the log.
        let _ = self.news.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// The events after this number, with their numbers, until the end.
    pub(super) fn follow(self: &Arc<AnswerLog>, after: u64) -> impl Stream<Item = (u64, Arc<str>)> + Send + use<> {
        let (log, news) = (Arc::clone(self), self.news.subscribe());
        let state = (log, news, after, VecDeque::<Event>::new());
        unfold(state, async |(log, mut news, mut after, mut unsent)| {
            loop {
                if let Some(event) = unsent.pop_front() {
                    return Some(((event.number, event.text), (log, news, after, unsent)));
                }
                let is_over = *news.borrow_and_update();
                unsent.extend(log.after(after));
                match unsent.back() {
                    Some(event) => after = event.number,
                    None if is_over => return None,
                    // The sender is not dropped before it has announced the end.
                    None => news.changed().await.unwrap_or_default(),
                }
            }
        })
    }

    fn after(&self, number: u64) -> Vec<Event> {
        let told = self.lock();
        let first = told.events.partition_point(|event| event.number <= number);
        told.events[first..].to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use serde_json::json;

    use super::*;

    async fn all(log: &Arc<AnswerLog>, after: u64) -> Vec<(u64, String)> {
        log.follow(after).map(|(number, text)| (number, text.replace('"', ""))).collect().await
    }

    #[tokio::test]
    async fn a_page_that_comes_later_is_told_what_it_missed_and_the_rest() {
        let log = AnswerLog::new();
        for event in ["begun", "prefill", "prefill", "text", "html", "text", "html"] {
            log.tell(&json!({"type": event}));
        }
        let late = tokio::spawn({
            let log = Arc::clone(&log);
            async move { all(&log, 4).await }
        });
        tokio::task::yield_now().await;
        log.tell(&json!({"type": "answered"}));
        log.end();
        let of = |number, name: &str| (number, format!("{{type:{name}}}"));
        let rest = vec![of(6, "text"), of(7, "html"), of(8, "answered")];
        assert_eq!(late.await.unwrap(), rest);
        let expected = [&[of(1, "begun"), of(3, "prefill"), of(4, "text")][..], &rest].concat();
        assert_eq!(all(&log, 0).await, expected);
        assert_eq!(all(&log, 8).await, []);
    }
}
