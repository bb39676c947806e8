//! Errors of transfers, as messages for users and as input to the decision whether to retry.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

/// The kind of server; the advice after a refusal depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The model hub.
    Hub,
    /// A package index.
    Index,
    /// Any other server.
    Web,
}

/// Why a transfer failed.
#[derive(Debug, Error)]
pub(crate) enum TransferError {
    /// The server answered with an error status.
    #[error("{}", describe_status(.url, *.status, *.retry_after, *.peer))]
    Status { url: String, status: u16, retry_after: Option<Duration>, peer: Peer },
    /// The server cannot be reached.
    #[error("{} cannot be reached ({reason})", host(.url))]
    Unreachable { url: String, reason: String },
    /// The server's certificate is not trusted.
    #[error(
        "the certificate of {} is not trusted ({reason}): if your network has its own certificate authority, set SSL_CERT_FILE to its certificate",
        host(.url)
    )]
    Untrusted { url: String, reason: String },
    /// There are no certificate authorities to trust.
    #[error("{0}")]
    Certificates(String),
    /// A proxy variable is not valid.
    #[error("{0}")]
    Proxy(String),
    /// The connection broke.
    #[error("the connection to {} broke ({reason})", host(.url))]
    Broken { url: String, reason: String },
    /// The server has no bytes beyond those already downloaded.
    #[error("the server has no bytes beyond those already downloaded")]
    RangeRefused,
    /// The server's answer is not valid.
    #[error("{url}: {reason}")]
    Protocol { url: String, reason: String },
    /// The bytes do not have the expected hash.
    #[error("{from} has the SHA-256 {actual}, expected {expected}: it was not installed")]
    WrongHash { from: String, expected: String, actual: String },
    /// There is not enough disk space.
    #[error(
        "{folder} has {available} bytes free, but {needed} more are needed: free some space, or set HONE_HOME to a larger disk"
    )]
    NoSpace { folder: PathBuf, needed: u64, available: u64 },
    /// A file could not be read or written.
    #[error("{path} cannot be read or written")]
    File { path: PathBuf, source: io::Error },
    /// The transfer is no longer wanted.
    #[error("it was cancelled")]
    Cancelled,
    /// The repository does not have the requested model.
    #[error("{0}")]
    Repository(String),
    /// The index, or its wheel, is not usable.
    #[error("{0}")]
    Wheel(String),
}

impl TransferError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// Converts a client error: the server cannot be reached, or the connection broke.
    pub(crate) fn connection(url: &str, error: ureq::Error) -> Self {
        let (url, reason) = (url.to_owned(), reason_of(&error));
        match error {
            error if is_about_certificates(&error) => Self::Untrusted { url, reason },
            ureq::Error::Io(error) if broke_while_talking(&error) => Self::Broken { url, reason },
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Io(_) => Self::Unreachable { url, reason },
            ureq::Error::Timeout(_) => Self::Broken { url, reason },
            _ => Self::Protocol { url, reason },
        }
    }
}

/// The host of an address, with its port if it names one.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit('@').next().unwrap_or(authority)
}

/// The message of a client error for users.
fn reason_of(error: &ureq::Error) -> String {
    let text = error.to_string();
    match text.contains("failed to lookup address") {
        true => "no address is known for this name: is the machine online?".to_owned(),
        false => text,
    }
}

fn is_about_certificates(error: &ureq::Error) -> bool {
    let cause = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    };
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether an error comes from an established connection. All others (no such host, no route, refused) mean that there
/// was none; some of them have no error kind of their own.
fn broke_while_talking(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, UnexpectedEof, WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | UnexpectedEof | WouldBlock
    )
}

fn describe_status(url: &str, status: u16, retry_after: Option<Duration>, peer: Peer) -> String {
    let advice = match (status, peer) {
        (401, Peer::Hub) => "it does not exist or needs a token: set HF_TOKEN to one from your hub account".to_owned(),
        (403, Peer::Hub) => {
            "access is not granted: accept the model's licence on its page on the hub and set HF_TOKEN".to_owned()
        }
        (404, Peer::Hub) => "there is no such repository, revision or file".to_owned(),
        (401 | 403, Peer::Index) => {
            "access is not granted: put a user and a password in the address of the index (PIP_INDEX_URL)".to_owned()
        }
        (404, Peer::Index) => "the index does not have it".to_owned(),
        (401 | 403, Peer::Web) => {
            "access is not granted: put a user and a password in the address if you have them".to_owned()
        }
        (404, Peer::Web) => "there is no such file".to_owned(),
        (407, _) => "the proxy requires a user and a password: put them in its address".to_owned(),
        (429, _) => match retry_after {
            Some(wait) => format!("too many requests: try again in {} seconds", wait.as_secs()),
            None => "too many requests: try again later".to_owned(),
        },
        (500..=599, _) => "the server has a problem: try again later".to_owned(),
        _ => "an unexpected status".to_owned(),
    };
    format!("{url} answered {status}: {advice}")
}
