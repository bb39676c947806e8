//! The bodies of requests, which are read whole before anything else happens.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Shared;
use crate::error::ApiError;

/// Reads the body of a request, which must not be longer than allowed, nor come too slowly.
pub(crate) async fn read(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match whole(&shared, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn whole(shared: &Shared, request: Request) -> Result<Request, ApiError> {
    let settings = &shared.settings;
    let most = settings.most_body.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let (head, body) = request.into_parts();
    let reading = to_bytes(body, most);
    let read = match settings.patience {
        Some(patience) => tokio::time::timeout(patience, reading)
            .await
            .map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time"))?,
        None => reading.await,
    };
    let too_long = |_| {
        let what = format!("the body is longer than {most} bytes (server.most_body), or it broke off");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    };
    Ok(Request::from_parts(head, Body::from(read.map_err(too_long)?)))
}
