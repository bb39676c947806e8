//! What can go wrong with a fleet.

use thiserror::Error;

/// Why a fleet cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FleetError {
    /// The server cannot be reached, or does not let this process in.
    #[error("the NATS server at {url} cannot be used: {reason}")]
    Connection {
        /// Its address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The file with the credentials cannot be read.
    #[error("the credentials {path} cannot be read: {reason}")]
    Credentials {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A stream, a consumer or a bucket cannot be made or read.
    #[error("{name} cannot be used on the NATS server: {reason}; hone needs JetStream (nats-server -js)")]
    JetStream {
        /// Its name.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The system gives no threads.
    #[error("the threads of the connection cannot be started: {0}")]
    Threads(String),
}
