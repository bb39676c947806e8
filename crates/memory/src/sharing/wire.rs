//! The messages between the owner and its clients, carried by [`hone_files::frames`].

use serde::{Deserialize, Serialize};

use crate::error::MemoryError;
use crate::request::{Reply, Request};

/// Both sides must have the same version, because requests and answers are serialized types of this crate and not a
/// stable protocol.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/7");

/// A message from a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ClientMessage<R> {
    /// The first message: the client's version.
    Hello(String),
    /// A request, and whether it may have been received before.
    Ask(R, bool),
}

/// A request to be sent.
pub(super) type SentRequest<'a> = ClientMessage<&'a Request>;

/// A received request.
pub(super) type ReceivedRequest = ClientMessage<Request>;

/// A message from the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OwnerMessage {
    /// The owner's version; the connection is closed if the client's differs.
    Hello(String),
    /// A heartbeat: the owner is working on the answer. Repeated until the answer is sent.
    Working,
    /// The answer.
    Answer(Result<Reply, MemoryError>),
}
