//! Errors of a fleet.

use thiserror::Error;

/// The reason why a fleet cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FleetError {
    /// No server answers at the address. It may be started later.
    #[error("the NATS server at {url} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// A server answers, but cannot be used: it refuses this process, is not trusted, or is not a NATS server.
    #[error("the NATS server at {url} cannot be used: {reason}")]
    Connection {
        /// Its address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The file with the credentials cannot be read.
    #[error("the credentials {path} cannot be read: {reason}")]
    Credentials {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A stream, a consumer or a bucket cannot be created or read.
    #[error("{name} cannot be used on the NATS server: {reason}; hone needs JetStream (nats-server -js)")]
    JetStream {
        /// Its name.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// The system cannot create threads.
    #[error("the threads of the connection cannot be started: {0}")]
    Threads(String),
}
