//! Ids of envelopes, queries and sessions, the two respondents, and timestamps.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
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
    /// Names a process, or a part of one, that holds work which no other shall do meanwhile.
    HolderId
}

id! {
    /// Names the key of the server that a client has. What belongs to one key, no other sees.
    OwnerId
}

id! {
    /// Identifies a task for agents, through all of its phases and attempts.
    TaskId
}

/// Who answers a question: the one whose answer is shown, or the one that is compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RespondentId {
    /// The respondent of the conversation.
    A,
    /// The second respondent.
    B,
}

impl fmt::Display for RespondentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RespondentId::A => "A",
            RespondentId::B => "B",
        })
    }
}

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
