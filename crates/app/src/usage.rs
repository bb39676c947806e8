//! The kind of error that means that the caller must change something.

use thiserror::Error;

/// Wrong usage: the caller must change something for it to work.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UsageError(String);

/// An error for wrong usage.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(message.into()))
}
