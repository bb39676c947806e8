//! Whether what is claimed is supported by what is cited.

use serde::{Deserialize, Serialize};

/// What passages say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// All of it.
    Supported,
    /// Nothing, or only a part of it.
    NotSupported,
    /// Something else.
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
