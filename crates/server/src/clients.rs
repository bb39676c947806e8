//! Who sends a request, what of the server's data is theirs, and how much of it they may take at once.
//!
//! Where keys are needed, a client is the holder of a key: what is asked, remembered or saved with one key belongs to
//! it, and is invisible to the others and to the person at the terminal. Where no keys are needed, everything belongs to
//! the person at the terminal, and clients are told apart by their addresses, for limits only.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hone_memory::Whose;
use hone_protocol::OwnerId;

use crate::RETRY_AFTER;
use crate::error::ApiError;

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The holder of a key.
    Key(OwnerId),
    /// Somebody at this address, where no keys are needed.
    Address(IpAddr),
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Client {
    /// Whom what the client asks belongs to; `None` for the person at the terminal.
    pub(crate) fn owner(self) -> Option<OwnerId> {
        match self {
            Client::Key(owner) => Some(owner),
            Client::Address(_) => None,
        }
    }

    /// What the client may see.
    pub(crate) fn whose(self) -> Whose {
        Whose::Of(self.owner())
    }
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = ApiError;

    /// The client, as the guard has recognized it.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Client, ApiError> {
        let unknown = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request has not passed the guard");
        parts.extensions.get().copied().ok_or_else(unknown)
    }
}

/// The responses that are being streamed to each client.
pub(crate) struct ClientStreams {
    open: Mutex<HashMap<Client, usize>>,
    /// The most for one client.
    most: usize,
}

/// A client's right to one stream, until it is dropped.
pub(crate) struct StreamSlot {
    streams: Arc<ClientStreams>,
    client: Client,
}

impl ClientStreams {
    /// No streams yet, and at most this many for one client.
    pub(crate) fn new(most: usize) -> ClientStreams {
        ClientStreams { open: Mutex::default(), most }
    }

    /// Lets a client have another stream.
    ///
    /// # Errors
    /// When it has as many as it may.
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
