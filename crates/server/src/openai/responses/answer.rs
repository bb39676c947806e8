//! Answers a response: whole, as a stream, or in the background.

use std::sync::Arc;

use axum::response::Response as HttpResponse;
use futures_util::stream::unfold;
use hone_protocol::QueryId;
use serde_json::Value;

use super::draft::Draft;
use super::kept::Kept;
use super::running::Running;
use crate::Shared;
use crate::answering::Answering;
use crate::clients::{Client, StreamSlot};
use crate::error::ApiError;
use crate::streams::{first_piece, typed_events};
use crate::threads::apart;

/// A response in progress. Dropping it ends the answer.
pub(super) struct Answer {
    shared: Arc<Shared>,
    client: Client,
    id: QueryId,
    answering: Answering,
    running: Arc<Running>,
    /// The items that it answers, if the response is to be kept.
    input: Option<Vec<Value>>,
}

impl Answer {
    /// Begins a response. It is kept with its `input`, if that is given.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        client: Client,
        answering: Answering,
        draft: Draft,
        input: Option<Vec<Value>>,
    ) -> Answer {
        let id = answering.id();
        let running = shared.running.add((client.owner(), id), draft);
        Answer { shared: Arc::clone(shared), client, id, answering, running, input }
    }

    /// The response in its current state.
    pub(super) fn object(&self) -> Value {
        self.running.draft().object()
    }

    /// Waits for the first piece of a stream: it shows whether the answer has failed, and so determines the HTTP
    /// status.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) async fn first(&mut self) -> Result<(), ApiError> {
        if let Some(piece) = first_piece(&mut self.answering).await? {
            self.running.draft().take(piece);
        }
        Ok(())
    }

    /// Waits for the end and returns the whole response.
    ///
    /// # Errors
    /// When the response failed; it is then not kept, as its client does not know it.
    pub(super) async fn whole(mut self) -> Result<Value, ApiError> {
        self.end().await;
        let failure = self.running.draft().failure();
        if let Some(error) = failure {
            return Err(error);
        }
        self.keep().await;
        Ok(self.object())
    }

    /// Completes a response that its client asks for later.
    pub(super) async fn kept(mut self) {
        self.end().await;
        self.keep().await;
    }

    /// The events, as a body.
    pub(super) fn streamed(self, slot: StreamSlot) -> HttpResponse {
        let running = Arc::clone(&self.running);
        let events = unfold(self, async |mut answer| Some((answer.next().await?, answer)));
        typed_events(slot, events, move || running.draft().sign_of_life())
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            // Kept before the end is announced, so that a client can refer to it at once.
            if self.has_ended() {
                self.keep().await;
            }
            let event = self.running.draft().next_event();
            match event {
                Some(event) => return Some(event),
                None if self.has_ended() => return None,
                None => self.step().await,
            }
        }
    }

    async fn end(&mut self) {
        while !self.has_ended() {
            self.step().await;
            self.running.draft().forget_events();
        }
    }

    fn has_ended(&self) -> bool {
        self.running.draft().has_ended()
    }

    /// Waits for the next piece, or until the response is cancelled.
    async fn step(&mut self) {
        tokio::select! {
            piece = self.answering.next() => self.running.draft().take(piece),
            () = self.running.cancelled.notified() => {}
        }
    }

    /// Keeps the response, once.
    async fn keep(&mut self) {
        let Some(input) = self.input.take() else { return };
        let (id, kept) = (self.id, Kept { response: self.object(), input });
        let responses = self.shared.responses.of(self.client.owner());
        if let Ok(Err(error)) = apart(move || responses.keep(id, &kept)).await {
            tracing::warn!(%id, "a response is not kept: {error}");
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.shared.running.remove((self.client.owner(), self.id));
    }
}
