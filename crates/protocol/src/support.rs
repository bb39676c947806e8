//! Whether the cited passages support a claim.

use serde::{Deserialize, Serialize};

/// The relation of passages to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// They support all of it.
    Supported,
    /// They support none of it, or only a part.
    NotSupported,
    /// They contradict it.
    Contradicted,
}

impl Support {
    /// All of them.
    pub const ALL: [Support; 3] = [Support::Supported, Support::NotSupported, Support::Contradicted];

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Support::Supported => "supported",
            Support::NotSupported => "not supported",
            Support::Contradicted => "contradicted",
        }
    }
}
