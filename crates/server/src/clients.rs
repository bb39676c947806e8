//! Clients: their identity, the data that they own, and their limits on concurrent streams.
//!
//! If keys are required, a client is the holder of a key: its questions, memories and conversations belong to that key,
//! and are invisible to other keys and to the terminal user. If no keys are required, everything belongs to the
//! terminal user, and clients are distinguished by address, for limits only.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use hone_memory::Whose;
use hone_protocol::OwnerId;

use crate::RETRY_AFTER;
use crate::error::ApiError;

/// The header that asks for recollections of what programs asked before, for the same owner.
const RECALL: &str = "x-hone-recall";

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The holder of a key.
    Key(OwnerId),
    /// A client at this address, where no keys are required.
    Address(IpAddr),
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Client {
    /// The owner of the client's questions; `None` for the terminal user.
    pub(crate) fn owner(self) -> Option<OwnerId> {
        match self {
            Client::Key(owner) => Some(owner),
            Client::Address(_) => None,
        }
    }

    /// The data that the client may see.
    pub(crate) fn whose(self) -> Whose {
        Whose::Of(self.owner())
    }
}

/// The header by which a program asks for memory.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub(crate) struct RecallHeader {
    /// Whether what programs of the same owner asked under the same instructions is recalled for this question.
    #[param(rename = "x-hone-recall")]
    recall: Option<bool>,
}

/// The sender of a question over a third-party API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    /// Whether memory may add recollections to the question.
    pub(crate) recalls: bool,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Caller, ApiError> {
        let recalls = match parts.headers.get(RECALL).map(HeaderValue::as_bytes) {
            Some(b"true") => true,
            Some(b"false") | None => false,
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return Err(ApiError::bad_request(format!("{RECALL} is {other:?}: it must be true or false")));
            }
        };
        Ok(Caller { client: Client::from_request_parts(parts, state).await?, recalls })
    }
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = ApiError;

    /// The client, as recognized by the guard.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Client, ApiError> {
        let unknown = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request has not passed the guard");
        parts.extensions.get().copied().ok_or_else(unknown)
    }
}

/// The open streams of each client.
pub(crate) struct ClientStreams {
    open: Mutex<HashMap<Client, usize>>,
    /// The limit per client.
    most: usize,
}

/// A client's slot for one stream, released on drop.
pub(crate) struct StreamSlot {
    streams: Arc<ClientStreams>,
    client: Client,
}

impl ClientStreams {
    /// No streams yet, and a limit per client.
    pub(crate) fn new(most: usize) -> ClientStreams {
        ClientStreams { open: Mutex::default(), most }
    }

    /// Takes a slot for another stream of a client.
    ///
    /// # Errors
    /// When the client has reached its limit.
    pub(crate) fn take(self: &Arc<Self>, client: Client) -> Result<StreamSlot, ApiError> {
        let mut open = self.lock();
        let n_open = open.entry(client).or_default();
        if *n_open >= self.most {
            let most = self.most;
            let reason = format!("{most} responses are being streamed to this client (server.most_streams): end one");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, reason).retried_after(RETRY_AFTER));
        }
        *n_open += 1;
        Ok(StreamSlot { streams: Arc::clone(self), client })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(n_open) = open.get_mut(&self.client) {
            *n_open -= 1;
            if *n_open == 0 {
                open.remove(&self.client);
            }
        }
    }
}
