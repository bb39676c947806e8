//! What goes over the socket: a length in 4 bytes, least significant first, and as many bytes of JSON.

use std::io::{self, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::MemoryError;
use crate::request::{Reply, Request};

/// Both sides have to be of one version: requests and answers are those of the code, not of a specification.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/3");

/// What a guest sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromGuest<R> {
    /// The first thing: its version.
    Hello(String),
    /// A request, and whether it may have arrived before.
    Ask(R, bool),
}

/// A request as it is sent.
pub(super) type SentRequest<'a> = FromGuest<&'a Request>;

/// A request as it is received.
pub(super) type ReceivedRequest = FromGuest<Request>;

/// What the owner sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromOwner {
    /// Its version; the connection ends where it is not the guest's.
    Hello(String),
    /// It works on the answer; said again and again until there is one.
    Working,
    /// What was asked for.
    Answer(Result<Reply, MemoryError>),
}

/// Writes a message.
///
/// # Errors
/// When the other side is gone.
pub(super) fn send(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)?)
}

/// A message as it is written.
///
/// # Errors
/// When it is longer than 4 GiB.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Reads a message.
///
/// # Errors
/// When the other side is gone, or says what makes no sense.
pub(super) fn receive<T: DeserializeOwned>(mut stream: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut frame = Vec::new();
    if stream.take(length).read_to_end(&mut frame)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&frame)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        send(&mut bytes, &SentRequest::Hello(VERSION.to_owned())).unwrap();
        send(&mut bytes, &SentRequest::Ask(&Request::Statistics, true)).unwrap();
        let mut stream = bytes.as_slice();
        assert!(matches!(receive(&mut stream).unwrap(), ReceivedRequest::Hello(version) if version == VERSION));
        assert!(matches!(receive(&mut stream).unwrap(), ReceivedRequest::Ask(Request::Statistics, true)));
        assert!(receive::<ReceivedRequest>(&mut stream).is_err());
    }

    #[test]
    fn a_message_that_is_cut_short_is_refused() {
        let mut bytes = Vec::new();
        send(&mut bytes, &SentRequest::Hello(VERSION.to_owned())).unwrap();
        for length in 0..bytes.len() {
            assert!(receive::<ReceivedRequest>(&bytes[..length]).is_err(), "{length}");
        }
        assert!(receive::<ReceivedRequest>([255, 255, 255, 255, 1].as_slice()).is_err(), "a length that is a lie");
        assert!(receive::<ReceivedRequest>([1, 0, 0, 0, b'x'].as_slice()).is_err());
    }
}
