//! `/api/pull`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use hone_app::models::{ModelError, PullStep};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use utoipa::ToSchema;

use super::models::Named;
use super::shapes::OllamaPulled;
use crate::clients::Client;
use crate::error::ApiError;
use crate::pulls::PullState;
use crate::requests::parsed;
use crate::{Shared, streams};

/// The time between two lines: otherwise, a fast download would send a line for every few kilobytes.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of a digest that are shown in a line.
const SHOWN_DIGEST: usize = 12;

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaPullRequest)]
struct PullRequest {
    #[serde(flatten)]
    named: Named,
    #[serde(default)]
    stream: Option<bool>,
}

/// Pulls a model.
#[utoipa::path(
    post,
    path = "/api/pull",
    tag = "Ollama",
    request_body = PullRequest,
    responses(
        (status = OK, content((OllamaPulled = "application/json"), (String = "application/x-ndjson"))),
        (status = NOT_FOUND),
        (status = TOO_MANY_REQUESTS)
    )
)]
pub(super) async fn pull(State(shared): State<Arc<Shared>>, client: Client, body: Bytes) -> Result<Response, ApiError> {
    let PullRequest { named, stream } = parsed(body).await?;
    let reference = named.model()?;
    let checked = reference.clone();
    shared.on_models(move |models| models.check_reference(&checked)).await?;
    let slot = stream.unwrap_or(true).then(|| shared.streams.take(client)).transpose()?;
    let pulling = Pulling::new(shared.pulls.join(&shared.parts.models, &reference)?);
    if let Some(slot) = slot {
        let lines = unfold(pulling, async |mut pulling| Some((pulling.next_line().await?, pulling)));
        return Ok(streams::lines(slot, lines).into_response());
    }
    pulling.whole().await?;
    Ok(Json(success()).into_response())
}

/// A download that a client follows. Dropping it leaves the download.
struct Pulling {
    states: watch::Receiver<PullState>,
    is_over: bool,
}

impl Pulling {
    fn new(mut states: watch::Receiver<PullState>) -> Pulling {
        // The client has not been told of the current state.
        states.mark_changed();
        Pulling { states, is_over: false }
    }

    /// The next line; `None` after the last.
    async fn next_line(&mut self) -> Option<Value> {
        if self.is_over {
            return None;
        }
        Some(match self.next().await {
            PullState::Step(step) => {
                tokio::time::sleep(PAUSE).await;
                line(&step)
            }
            PullState::Ended(ended) => {
                self.is_over = true;
                ended.map_or_else(|error| ApiError::from(error).to_ollama(), |()| success())
            }
        })
    }

    /// Waits for the end.
    async fn whole(mut self) -> Result<(), ApiError> {
        loop {
            if let PullState::Ended(ended) = self.next().await {
                return ended.map_err(ApiError::from);
            }
        }
    }

    async fn next(&mut self) -> PullState {
        match self.states.changed().await {
            Ok(()) => self.states.borrow_and_update().clone(),
            Err(_) => PullState::Ended(Err(ModelError::Failed("the download stopped".to_owned()))),
        }
    }
}

fn success() -> Value {
    json!({"status": "success"})
}

fn line(step: &PullStep) -> Value {
    match step {
        PullStep::Remark(text) => json!({"status": text}),
        PullStep::Bytes { file, digest, done, total } => {
            let shown = digest.as_ref().and_then(|digest| digest.get(..SHOWN_DIGEST)).unwrap_or(file);
            let mut line = json!({"status": format!("pulling {shown}"), "completed": done});
            if let Some(digest) = digest {
                line["digest"] = json!(format!("sha256:{digest}"));
            }
            if let Some(total) = total {
                line["total"] = json!(total);
            }
            line
        }
    }
}
