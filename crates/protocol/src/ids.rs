//! Ids of envelopes, queries and sessions, respondents, and timestamps.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

macro_rules! id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new, unique id. Later ones sort after earlier ones (UUID version 7, RFC 9562).
            pub fn fresh() -> Self {
                $name(Uuid::now_v7())
            }

            /// The id with these 128 bits.
            pub const fn from_bits(bits: u128) -> Self {
                $name(Uuid::from_u128(bits))
            }

            /// The id's 16 bytes, most significant first, so that they sort as the id does.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text).map($name)
            }
        }
    };
}

id! {
    /// Identifies an envelope.
    EnvelopeId
}
id! {
    /// Identifies a question to one respondent, its answer, and the engram that stores both.
    QueryId
}
id! {
    /// Identifies a conversation, from its first question until it is closed.
    SessionId
}

id! {
    /// Names a process, or a part of one, that holds work that no other may do in the meantime.
    HolderId
}

id! {
    /// Names a client's key for the server. Data of one key is invisible to all others.
    OwnerId
}

id! {
    /// Identifies a task for agents, through all of its phases and attempts.
    TaskId
}

/// The name of the respondent that answers a question. A conversation has the respondents [`RespondentId::A`], whose
/// answer is shown, and [`RespondentId::B`], whose answer is compared with it; answers from elsewhere have other names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RespondentId {
    /// The name in UTF-8, followed by zeros.
    name: [u8; RespondentId::LONGEST],
}

impl RespondentId {
    /// The most bytes of a name.
    pub const LONGEST: usize = 64;
    /// The respondent of the conversation.
    pub const A: RespondentId = RespondentId::of_letter(b'A');
    /// The second respondent.
    pub const B: RespondentId = RespondentId::of_letter(b'B');

    const fn of_letter(letter: u8) -> RespondentId {
        let mut name = [0; RespondentId::LONGEST];
        name[0] = letter;
        RespondentId { name }
    }

    /// The name.
    pub fn name(&self) -> &str {
        let length = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        std::str::from_utf8(&self.name[..length]).unwrap_or_default()
    }
}

impl FromStr for RespondentId {
    type Err = InvalidRespondent;

    /// The respondent with this name: 1 to 64 bytes without control characters, and without surrounding blanks.
    fn from_str(text: &str) -> Result<Self, InvalidRespondent> {
        let mut name = [0; RespondentId::LONGEST];
        let is_valid = !text.is_empty() && text == text.trim() && !text.chars().any(char::is_control);
        match name.get_mut(..text.len()).filter(|_| is_valid) {
            Some(bytes) => bytes.copy_from_slice(text.as_bytes()),
            None => return Err(InvalidRespondent(text.to_owned())),
        }
        Ok(RespondentId { name })
    }
}

impl TryFrom<String> for RespondentId {
    type Error = InvalidRespondent;

    fn try_from(text: String) -> Result<Self, InvalidRespondent> {
        text.parse()
    }
}

impl From<RespondentId> for String {
    fn from(respondent: RespondentId) -> String {
        respondent.name().to_owned()
    }
}

impl fmt::Display for RespondentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for RespondentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that cannot name a respondent.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} cannot name a respondent: a name has 1 to 64 bytes, no control characters, and no blanks around it")]
pub struct InvalidRespondent(String);

/// A moment, in milliseconds since the start of 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The current time, by the system's clock; 0 if that clock is before 1970.
    pub fn now() -> Self {
        Timestamp::from(SystemTime::now())
    }
}

impl From<SystemTime> for Timestamp {
    /// The moment; 0 if it is before 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_respondents_of_earlier_versions_are_read_and_written_as_before() {
        for (respondent, json) in [(RespondentId::A, "\"A\""), (RespondentId::B, "\"B\"")] {
            assert_eq!(serde_json::to_string(&respondent).unwrap(), json);
            assert_eq!(serde_json::from_str::<RespondentId>(json).unwrap(), respondent);
        }
        assert!(RespondentId::A < RespondentId::B);
    }

    #[test]
    fn a_respondent_has_any_sensible_name() {
        let longest = "x".repeat(RespondentId::LONGEST);
        for name in ["C", "qwen3:8b", "zweite Stimme", "Ä", &longest] {
            let respondent: RespondentId = name.parse().unwrap();
            assert_eq!((respondent.name(), respondent.to_string().as_str()), (name, name));
            let json = serde_json::to_string(&respondent).unwrap();
            assert_eq!(serde_json::from_str::<RespondentId>(&json).unwrap(), respondent);
        }
        for name in ["", " ", " A", "A\n", "a\0b", &format!("{longest}x")] {
            assert!(name.parse::<RespondentId>().is_err(), "{name:?}");
        }
    }
}
