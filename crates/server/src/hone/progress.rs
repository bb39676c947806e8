//! The events of an answer in progress. Pages follow them from any one on, and the answer goes on without any page.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{Stream, unfold};
use serde_json::Value;
use tokio::sync::watch;

/// Events of which only the latest is kept for pages that come later.
const SUPERSEDED: [&str; 3] = ["html", "loading", "prefill"];

/// What has been told of an answer so far.
pub(super) struct Progress {
    told: Mutex<Told>,
    /// Changed whenever something is told; true once nothing more will be.
    news: watch::Sender<bool>,
}

#[derive(Default)]
struct Told {
    events: Vec<(u64, Value)>,
    n_told: u64,
}

impl Progress {
    pub(super) fn new() -> Arc<Progress> {
        Arc::new(Progress { told: Mutex::default(), news: watch::Sender::new(false) })
    }

    pub(super) fn tell(&self, event: Value) {
        let mut told = self.lock();
        if SUPERSEDED.iter().any(|kind| event["type"] == *kind) {
            told.events.retain(|(_, other)| other["type"] != event["type"]);
        }
        told.n_told += 1;
        let number = told.n_told;
        told.events.push((number, event));
        drop(told);
        self.news.send_modify(|_| {});
    }

    /// Whether anything has been told.
    pub(super) fn has_begun(&self) -> bool {
        self.lock().n_told > 0
    }

    /// Nothing more will be told.
    pub(super) fn end(&self) {
        self.news.send_replace(true);
    }

    /// The events after the one with this number, with their numbers, until the end.
    pub(super) fn follow(self: &Arc<Progress>, after: u64) -> impl Stream<Item = (u64, String)> + Send + use<> {
        let (progress, news) = (Arc::clone(self), self.news.subscribe());
        let state = (progress, news, after, VecDeque::new());
        unfold(state, async |(progress, mut news, mut after, mut unsent)| {
            loop {
                if let Some((number, event)) = unsent.pop_front() {
                    return Some(((number, event), (progress, news, after, unsent)));
                }
                let is_over = *news.borrow_and_update();
                unsent.extend(progress.after(after));
                match unsent.back() {
                    Some((number, _)) => after = *number,
                    None if is_over => return None,
                    // It is not dropped before it has said that it is over.
                    None => news.changed().await.unwrap_or_default(),
                }
            }
        })
    }

    fn after(&self, number: u64) -> Vec<(u64, String)> {
        let told = self.lock();
        told.events
            .iter()
            .filter(|(other, _)| *other > number)
            .map(|(other, event)| (*other, event.to_string()))
            .collect()
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

    async fn all(progress: &Arc<Progress>, after: u64) -> Vec<(u64, String)> {
        progress.follow(after).map(|(number, text)| (number, text.replace('"', ""))).collect().await
    }

    #[tokio::test]
    async fn a_page_that_comes_later_is_told_what_it_missed_and_the_rest() {
        let progress = Progress::new();
        for event in ["begun", "prefill", "prefill", "text", "html", "text", "html"] {
            progress.tell(json!({"type": event}));
        }
        let late = tokio::spawn({
            let progress = Arc::clone(&progress);
            async move { all(&progress, 4).await }
        });
        tokio::task::yield_now().await;
        progress.tell(json!({"type": "answered"}));
        progress.end();
        let of = |number, name: &str| (number, format!("{{type:{name}}}"));
        let rest = vec![of(6, "text"), of(7, "html"), of(8, "answered")];
        assert_eq!(late.await.unwrap(), rest);
        let expected = [&[of(1, "begun"), of(3, "prefill"), of(4, "text")][..], &rest].concat();
        assert_eq!(all(&progress, 0).await, expected);
        assert_eq!(all(&progress, 8).await, []);
    }
}
