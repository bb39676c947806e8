//! Bus messages as server-sent events. A disconnected client resumes after the last event that it has seen.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response as HttpResponse;
use futures_util::stream::unfold;
use hone_memory::EventFilter;
use hone_protocol::{Envelope, EnvelopeId, Subject, Timestamp};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::blocking;
use crate::clients::Client;
use crate::error::ApiError;
use crate::hub::{Heard, News};
use crate::shapes::ServerSentEvent;
use crate::{Shared, streams};

pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Maximum number of past events for a client.
const MOST_PAST: usize = 4096;

/// The longest silence on a stream, so that a lost connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How much earlier than the time in its id an event may have entered the log, in milliseconds.
const SLACK: u64 = 2_000;

/// The events that a client wants.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Their subjects, separated by commas; all if empty.
    #[serde(default)]
    subjects: String,
    /// The number of past events to send first.
    #[serde(default)]
    last: usize,
}

/// The past events to send first.
#[derive(Clone, Copy)]
enum Past {
    /// The events after this one.
    After(EnvelopeId),
    /// The last n.
    Last(usize),
}

/// Streams events as they occur.
#[utoipa::path(
    get,
    path = "/hone/v1/events",
    tag = "hone",
    params(Wanted, ("Last-Event-ID" = Option<String>, Header)),
    responses(
        (status = OK, body = ServerSentEvent, content_type = "text/event-stream"),
        (status = BAD_REQUEST),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn follow(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Query(Wanted { subjects, last }): Query<Wanted>,
    headers: HeaderMap,
) -> Result<HttpResponse, ApiError> {
    let subjects = parsed_subjects(&subjects)?;
    let past = match last_seen(&headers)? {
        Some(id) => Past::After(id),
        None => Past::Last(last.min(MOST_PAST)),
    };
    let slot = shared.streams.take(client)?;
    let stopping = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server stops");
    let Heard { latest, news } = shared.hub.hear(client.owner()).ok_or_else(stopping)?;
    let logged = logged(&shared, client, &latest, past, &subjects).await?;
    let told = unheard(&logged, &latest);
    let past = chosen(merged(&logged, latest), past, &subjects);
    let waiting = std::iter::once(":\n\n".to_owned()).chain(past).collect();
    let following = Following { waiting, told, news, subjects };
    Ok(streams::written_events(
        slot,
        unfold(following, async |mut following| Some((following.next().await?, following))),
    ))
}

fn parsed_subjects(text: &str) -> Result<Vec<Subject>, ApiError> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.parse().map_err(|unknown| ApiError::bad_request(format!("{unknown}")))).collect()
}

/// The last event that a client has seen.
fn last_seen(headers: &HeaderMap) -> Result<Option<EnvelopeId>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| ApiError::bad_request("the header Last-Event-ID is not the id of an event"))
}

/// The wanted events from the log, oldest first; none if the latest messages are enough.
async fn logged(
    shared: &Shared,
    client: Client,
    latest: &[Arc<Envelope>],
    past: Past,
    subjects: &[Subject],
) -> Result<Vec<Arc<Envelope>>, ApiError> {
    let is_enough = match past {
        Past::After(id) => latest.iter().any(|envelope| envelope.id == id),
        Past::Last(n) => latest.iter().filter(|envelope| is_wanted(envelope, subjects)).count() >= n,
    };
    let Some(memory) = shared.parts.memory.as_ref().filter(|_| !is_enough) else { return Ok(Vec::new()) };
    let (since, last) = match past {
        Past::After(id) => (Some(Timestamp(time_of(id).0.saturating_sub(SLACK))), MOST_PAST),
        Past::Last(n) => (None, n),
    };
    let filter = EventFilter {
        whose: client.whose(),
        subjects: subjects.to_vec(),
        since,
        last: Some(last),
        ..EventFilter::default()
    };
    let store = memory.store.clone();
    let events = blocking(move || store.events(&filter, None)).await?;
    Ok(events.into_iter().map(|(_, envelope)| Arc::new(envelope)).collect())
}

/// The logged events that are not among the latest messages, and may therefore arrive again: either may be ahead.
fn unheard(logged: &[Arc<Envelope>], latest: &[Arc<Envelope>]) -> HashSet<EnvelopeId> {
    let known: HashSet<EnvelopeId> = latest.iter().map(|envelope| envelope.id).collect();
    logged.iter().map(|envelope| envelope.id).filter(|id| !known.contains(id)).collect()
}

/// The events of both, without duplicates. The log may order messages of different agents differently: its order is
/// kept.
fn merged(logged: &[Arc<Envelope>], latest: Vec<Arc<Envelope>>) -> Vec<Arc<Envelope>> {
    let places: HashMap<EnvelopeId, usize> =
        logged.iter().enumerate().map(|(place, envelope)| (envelope.id, place)).collect();
    let earlier = latest.iter().find_map(|envelope| places.get(&envelope.id)).copied();
    let mut next = earlier.unwrap_or(logged.len());
    let mut all = logged[..next].to_vec();
    for envelope in latest {
        match places.get(&envelope.id) {
            // Concurrent messages may have different orders in the two lists.
            Some(&place) if place < next => {}
            Some(&place) => {
                all.extend_from_slice(&logged[next..=place]);
                next = place + 1;
            }
            None => all.push(envelope),
        }
    }
    all.extend_from_slice(&logged[next..]);
    all
}

/// The past events for a client, serialized.
fn chosen(mut all: Vec<Arc<Envelope>>, past: Past, subjects: &[Subject]) -> Vec<String> {
    match past {
        Past::After(id) => match all.iter().position(|envelope| envelope.id == id) {
            Some(place) => drop(all.drain(..=place)),
            // Ids are ordered by time.
            None => all.retain(|envelope| envelope.id > id),
        },
        Past::Last(_) => {}
    }
    all.retain(|envelope| is_wanted(envelope, subjects));
    if let Past::Last(n) = past {
        all.drain(..all.len().saturating_sub(n));
    }
    all.iter().map(|envelope| written(envelope)).collect()
}

fn is_wanted(envelope: &Envelope, subjects: &[Subject]) -> bool {
    subjects.is_empty() || subjects.contains(&envelope.subject())
}

/// The timestamp at the start of an id (UUID version 7, RFC 9562).
fn time_of(id: EnvelopeId) -> Timestamp {
    let milliseconds = id.as_bytes()[..6].iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    Timestamp(milliseconds)
}

fn written(envelope: &Envelope) -> String {
    format!("id: {}\ndata: {}\n\n", envelope.id, json!(envelope))
}

/// A client that follows the events.
struct Following {
    /// Texts to send before anything else.
    waiting: VecDeque<String>,
    /// Events already sent that may arrive again.
    told: HashSet<EnvelopeId>,
    news: News,
    subjects: Vec<Subject>,
}

impl Following {
    /// The next event or a keep-alive; `None` ends the stream: the server stops, or the client is too slow.
    async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.waiting.pop_front() {
            return Some(text);
        }
        loop {
            match timeout(HEARTBEAT, self.news.next()).await {
                Err(_) => return Some(":\n\n".to_owned()),
                Ok(Ok(envelope)) if self.told.remove(&envelope.id) => {}
                Ok(Ok(envelope)) if is_wanted(&envelope, &self.subjects) => return Some(written(&envelope)),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Payload, SessionId, Stored};

    use super::*;

    /// Merges two lists of numbered events.
    #[track_caller]
    fn check(logged: &[usize], latest: &[usize], expected: &[usize], again: &[usize]) {
        let said = |n| {
            Arc::new(Envelope::new("test", SessionId::fresh(), Payload::MemoryStored(Stored { sequence: n as u64 })))
        };
        let all: Vec<Arc<Envelope>> = (0..10).map(said).collect();
        let events = |numbers: &[usize]| -> Vec<Arc<Envelope>> { numbers.iter().map(|n| all[*n].clone()).collect() };
        let ids = |events: &[Arc<Envelope>]| -> Vec<EnvelopeId> { events.iter().map(|envelope| envelope.id).collect() };
        let (logged, latest) = (events(logged), events(latest));
        assert_eq!(unheard(&logged, &latest), ids(&events(again)).into_iter().collect());
        assert_eq!(ids(&merged(&logged, latest)), ids(&events(expected)));
    }

    #[test]
    fn the_log_and_what_was_heard_are_one_list() {
        check(&[], &[], &[], &[]);
        check(&[], &[0, 1], &[0, 1], &[]);
        check(&[0, 1, 2], &[1, 2], &[0, 1, 2], &[0]);
        // The log is behind.
        check(&[0, 1], &[1, 2, 3], &[0, 1, 2, 3], &[0]);
        check(&[0, 1], &[2, 3], &[0, 1, 2, 3], &[0, 1]);
        // The log is ahead: its extra events arrive again.
        check(&[0, 1, 2], &[0], &[0, 1, 2], &[1, 2]);
        check(&[0, 1], &[], &[0, 1], &[0, 1]);
        // Concurrent messages.
        check(&[0, 1, 2, 3], &[1, 3, 2, 4], &[0, 1, 2, 3, 4], &[0]);
        check(&[0, 1, 2], &[2, 0, 1], &[0, 1, 2], &[]);
        // Not everything is logged.
        check(&[0, 2, 4, 5], &[1, 2, 3, 4], &[0, 1, 2, 3, 4, 5], &[0, 5]);
        check(&[0, 1, 2, 3], &[0, 2, 1], &[0, 1, 2, 3], &[3]);
        check(&[0, 1], &[1, 0, 2], &[0, 1, 2], &[]);
    }
}
