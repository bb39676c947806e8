//! Messages between processes of hone: a length in 4 bytes, little-endian, followed by that many bytes of JSON.
//!
//! The messages are serialized types, not a stable protocol: both sides first compare their versions.

use std::io::{self, ErrorKind, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a message.
///
/// # Errors
/// When the connection is closed.
pub fn send(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)?)
}

/// Encodes a message.
///
/// # Errors
/// When it is longer than 4 GiB.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
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
pub fn receive<T: DeserializeOwned>(mut stream: impl Read) -> io::Result<T> {
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
        send(&mut bytes, &"one").unwrap();
        send(&mut bytes, &(2, "two")).unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(receive::<String>(&mut stream).unwrap(), "one");
        assert_eq!(receive::<(u8, String)>(&mut stream).unwrap(), (2, "two".to_owned()));
        assert!(receive::<String>(&mut stream).is_err());
    }

    #[test]
    fn a_message_that_is_cut_short_is_refused() {
        let bytes = frame(&"a message").unwrap();
        for length in 0..bytes.len() {
            assert!(receive::<String>(&bytes[..length]).is_err(), "{length}");
        }
        assert!(receive::<String>([255, 255, 255, 255, 1].as_slice()).is_err(), "a length that is too large");
        assert!(receive::<String>([1, 0, 0, 0, b'x'].as_slice()).is_err());
    }
}
