//! The section `server`, validated (`config/server.toml` has every key).

use std::net::SocketAddr;
use std::time::Duration;

use hone_protocol::configured::{not_negative, seconds_or_none, size};
use hone_protocol::{OwnerId, hexadecimal};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The server's addresses, keys and limits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// The address to listen on.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// An additional port for clients of Ollama; 0 for none.
    pub compat_port: u16,
    /// The accepted keys; if the list is empty, a request needs no key.
    #[serde(rename = "key_hashes")]
    pub keys: Vec<KeyHash>,
    /// Host names that a request may use in addition to those of the listening address.
    pub hosts: Vec<String>,
    /// The maximum number of questions answered at once.
    #[serde(deserialize_with = "positive")]
    pub most_answers: usize,
    /// The maximum number of questions in progress, including waiting ones; more are refused.
    #[serde(deserialize_with = "positive")]
    pub most_questions: usize,
    /// The maximum size of a request's body, in bytes; `None` for no limit.
    #[serde(deserialize_with = "size")]
    pub most_body: Option<u64>,
    /// The maximum number of connections; more wait until one ends.
    #[serde(deserialize_with = "positive")]
    pub most_connections: usize,
    /// The maximum number of responses streamed to one client at once; more are refused.
    #[serde(deserialize_with = "positive")]
    pub most_streams: usize,
    /// How long a client may take to send a request, or leave a response unread; `None` for no limit.
    #[serde(deserialize_with = "seconds_or_none")]
    pub patience: Option<Duration>,
    /// How long answers in progress may take once the server is told to stop; `None` ends them at once.
    #[serde(deserialize_with = "seconds_or_none")]
    pub drain: Option<Duration>,
    /// Whether the second respondent also answers the questions of the page, unless the page says otherwise.
    pub respondent_b: bool,
    /// Its model; empty for the question's model.
    pub model_b: String,
    /// Its temperature.
    pub temperature_b: f32,
}

/// The hash of an accepted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        KeyHash::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a SHA-256 hash in hexadecimal")))
    }
}

impl KeyHash {
    /// Parses 64 hexadecimal digits.
    fn parse(text: &str) -> Option<KeyHash> {
        let digits: Vec<u8> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        (digits.len() == 64).then(|| bytes.try_into().ok().map(KeyHash)).flatten()
    }

    /// The hash in hexadecimal.
    pub fn to_hexadecimal(&self) -> String {
        hexadecimal(self.0)
    }

    /// The hash of `key`.
    pub fn of(key: &str) -> KeyHash {
        KeyHash(Sha256::digest(key).into())
    }

    /// The id under which everything of the key's holder is kept: the first half of its hash.
    pub fn owner(&self) -> OwnerId {
        let bits = self.0[..16].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
        OwnerId::from_bits(bits)
    }

    /// Whether this is the hash of `key`, compared in constant time.
    pub fn is_of(&self, key: &str) -> bool {
        let KeyHash(other) = KeyHash::of(key);
        std::iter::zip(self.0, other).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// Settings that contradict each other.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InvalidSettings {
    /// Other machines could use the server without a key.
    #[error(
        "{0} can be reached by other machines: add a key to server.key_hashes (`hone serve --new-key` makes one), or listen on \
         127.0.0.1"
    )]
    Open(SocketAddr),
    /// The temperature is not valid.
    #[error("temperature_b is {0}: it must be 0 or more")]
    Temperature(f32),
}

impl ServerSettings {
    /// The address for clients of Ollama.
    pub fn compat_address(&self) -> Option<SocketAddr> {
        (self.compat_port != 0).then(|| SocketAddr::new(self.listen.ip(), self.compat_port))
    }

    /// Checks that other machines need a key, and that the second respondent can be asked.
    ///
    /// # Errors
    /// When either check fails.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if !(self.temperature_b >= 0.0 && self.temperature_b.is_finite()) {
            return Err(InvalidSettings::Temperature(self.temperature_b));
        }
        match self.listen.ip().is_loopback() || !self.keys.is_empty() {
            true => Ok(()),
            false => Err(InvalidSettings::Open(self.listen)),
        }
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| D::Error::custom(format!("{text:?} is not an address with a port, such as 127.0.0.1:11435")))
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match not_negative(deserializer)? {
        0 => Err(D::Error::custom("0 is too few, expected 1 or more")),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = KeyHash::of("one");
        assert_eq!(KeyHash::parse(&hash.to_hexadecimal()), Some(hash));
        assert_eq!((KeyHash::parse("ab"), KeyHash::parse(&"x".repeat(64))), (None, None));
    }
}
