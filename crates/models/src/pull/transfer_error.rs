//! Why a source did not give a file, as a person reads it and as the next attempt needs to know it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

/// Whom a client talks to; what to do about a refusal differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The model hub.
    Hub,
    /// A package index.
    Index,
}

/// A source did not give a file.
#[derive(Debug, Error)]
pub(crate) enum TransferError {
    /// The server answered with something else than the file.
    #[error("{}", describe_status(.url, *.status, *.retry_after, *.peer))]
    Status { url: String, status: u16, retry_after: Option<Duration>, peer: Peer },
    /// The server could not be reached at all.
    #[error("{url} cannot be reached ({reason})")]
    Unreachable { url: String, reason: String },
    /// The server's certificate does not convince.
    #[error(
        "the certificate of {url} is not trusted ({reason}): where your network has an authority of its own, set SSL_CERT_FILE to its certificate"
    )]
    Untrusted { url: String, reason: String },
    /// There is nobody to trust.
    #[error("{0}")]
    Certificates(String),
    /// A variable names no proxy.
    #[error("{0}")]
    Proxy(String),
    /// The connection broke.
    #[error("the connection to {url} broke ({reason})")]
    Broken { url: String, reason: String },
    /// The server does not have the bytes beyond those that are here.
    #[error("the server has no bytes beyond those that are here")]
    RangeRefused,
    /// The server answered with something that makes no sense.
    #[error("{url}: {reason}")]
    Protocol { url: String, reason: String },
    /// The bytes are not those that were expected.
    #[error("{from} has the SHA-256 {actual} and not {expected}: it was not installed")]
    WrongHash { from: String, expected: String, actual: String },
    /// The disk is too small.
    #[error(
        "{folder} has {available} bytes free and {needed} more are needed: free some space, or set HONE_HOME to a larger disk"
    )]
    NoSpace { folder: PathBuf, needed: u64, available: u64 },
    /// A file could not be read or written.
    #[error("{path} cannot be read or written")]
    File { path: PathBuf, source: io::Error },
    /// The index, or the wheel that it gave, is to blame.
    #[error("{0}")]
    Wheel(String),
}

impl TransferError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// What an error of the client means: nobody there, or a connection that broke.
    pub(crate) fn connection(url: &str, error: ureq::Error) -> Self {
        let (url, reason) = (url.to_owned(), error.to_string());
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

fn is_about_certificates(error: &ureq::Error) -> bool {
    let cause = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    };
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether an error comes from a connection that stood; all others (no such host, no route, refused) mean that there was
/// none, and some of them have no kind of their own to be told by.
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
            "access is not granted: put a user and a password into the address of the index (PIP_INDEX_URL)".to_owned()
        }
        (404, Peer::Index) => "the index does not have it".to_owned(),
        (407, _) => "the proxy wants a user and a password: put them into its address".to_owned(),
        (429, _) => match retry_after {
            Some(wait) => format!("too many requests: try again in {} seconds", wait.as_secs()),
            None => "too many requests: try again later".to_owned(),
        },
        (500..=599, _) => "the server has a problem: try again later".to_owned(),
        _ => "an answer that is not understood".to_owned(),
    };
    format!("{url} answered {status}: {advice}")
}
