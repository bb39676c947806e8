//! Streamed response bodies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::time::timeout;

use crate::answering::{Answering, Piece};
use crate::clients::StreamSlot;
use crate::error::ApiError;

/// How long a stream may be silent before it sends a keep-alive. Clients and proxies give up after some 30 seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// How long to wait for the first piece of a stream before the stream begins without it. Some clients give up on a
/// server that is silent while it computes a long prompt.
pub(crate) const OPENING: Duration = Duration::from_secs(1);

/// A comment, which readers of events skip.
pub(crate) const COMMENT: &str = ":\n\n";

/// Events as `text/event-stream`; each text becomes the data of one. Comments are sent during silence.
pub(crate) fn events(slot: StreamSlot, texts: impl Stream<Item = String> + Send + 'static) -> Response {
    let texts = texts.map(|text| format!("data: {text}\n\n"));
    body(slot, "text/event-stream", kept_alive(texts, SILENCE, || COMMENT.to_owned()))
}

/// Numbered events as `text/event-stream`, which a client can resume. Comments are sent during silence.
pub(crate) fn numbered_events(
    slot: StreamSlot,
    texts: impl Stream<Item = (u64, Arc<str>)> + Send + 'static,
) -> Response {
    let texts = texts.map(|(number, text)| format!("id: {number}\ndata: {text}\n\n"));
    body(slot, "text/event-stream", kept_alive(texts, SILENCE, || COMMENT.to_owned()))
}

/// Events as `text/event-stream`, each named by its `type`. During silence, `sign_of_life` is sent, for clients that
/// ignore comments; a comment if it gives `None`.
pub(crate) fn typed_events(
    slot: StreamSlot,
    values: impl Stream<Item = Value> + Send + 'static,
    mut sign_of_life: impl FnMut() -> Option<Value> + Send + 'static,
) -> Response {
    let sign = move || sign_of_life().map_or_else(|| COMMENT.to_owned(), typed);
    body(slot, "text/event-stream", kept_alive(values.map(typed), SILENCE, sign))
}

/// An event that is named by its `type`.
fn typed(value: Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// The first piece of a streamed answer: it shows whether the answer has failed, and so determines the HTTP status.
/// `None` if it takes so long that the stream should begin without it.
///
/// # Errors
/// When there is no answer.
pub(crate) async fn first_piece(answering: &mut Answering) -> Result<Option<Piece>, ApiError> {
    match timeout(OPENING, answering.next()).await {
        Ok(Piece::Failed(error)) => Err(error),
        Ok(piece) => Ok(Some(piece)),
        Err(_) => Ok(None),
    }
}

/// Serialized events.
pub(crate) fn written_events(slot: StreamSlot, texts: impl Stream<Item = String> + Send + 'static) -> Response {
    body(slot, "text/event-stream", texts)
}

/// Values as JSON, one per line.
pub(crate) fn lines(slot: StreamSlot, values: impl Stream<Item = Value> + Send + 'static) -> Response {
    body(slot, "application/x-ndjson", values.map(|value| format!("{value}\n")))
}

/// The texts, and `sign_of_life` whenever none has arrived for a while.
fn kept_alive(
    texts: impl Stream<Item = String> + Send + 'static,
    silence: Duration,
    sign_of_life: impl FnMut() -> String + Send + 'static,
) -> impl Stream<Item = String> + Send + 'static {
    unfold((Box::pin(texts), sign_of_life), move |(mut texts, mut sign_of_life)| async move {
        let text = match timeout(silence, texts.next()).await {
            Ok(text) => text?,
            Err(_) => sign_of_life(),
        };
        Some((text, (texts, sign_of_life)))
    })
}

/// A body that holds the slot until it is sent or its client is gone.
fn body(slot: StreamSlot, kind: &'static str, texts: impl Stream<Item = String> + Send + 'static) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
    let texts = texts.map(move |text| {
        let _slot = &slot;
        Ok::<_, Infallible>(text)
    });
    (headers, Body::from_stream(texts)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_stream_says_that_it_is_alive() {
        let texts = unfold(0, async |number| {
            tokio::time::sleep(Duration::from_millis(number * 300)).await;
            (number < 2).then(|| (number.to_string(), number + 1))
        });
        let texts: Vec<String> = kept_alive(texts, Duration::from_millis(100), || "-".to_owned()).collect().await;
        let said: String = texts.concat();
        assert!(said.starts_with("0-") && said.contains("-1-") && said.ends_with('-'), "{said}");
    }
}
