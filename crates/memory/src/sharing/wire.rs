//! The wire format: a length in 4 bytes, little-endian, followed by that many bytes of JSON.

use std::io::{self, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::MemoryError;
use crate::request::{Reply, Request};

/// Both sides must have the same version, because requests and answers are serialized types of this crate and not a
/// stable protocol.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/4");

/// A message from a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ClientMessage<R> {
    /// The first message: the client's version.
    Hello(String),
    /// A request, and whether it may have been received before.
    Ask(R, bool),
}

/// A request as it is sent.
pub(super) type SentRequest<'a> = ClientMessage<&'a Request>;

/// A request as it is received.
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

/// Writes a message.
///
/// # Errors
/// When the connection is closed.
pub(super) fn send(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)?)
}

/// Encodes a message.
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
/// When the connection is closed or the message is malformed.
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
        assert!(receive::<ReceivedRequest>([255, 255, 255, 255, 1].as_slice()).is_err(), "a length that is too large");
        assert!(receive::<ReceivedRequest>([1, 0, 0, 0, b'x'].as_slice()).is_err());
    }
}
