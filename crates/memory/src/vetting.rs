//! Quarantine: whether a memory counts as long-term memory, and what critics and people have said of it.
//!
//! An engram is written unreviewed. What a critic decides is one write, which changes the engram's state, stores the
//! critique with it, adds a [`CritiqueRecord`] and appends an event: a crash leaves all of them or none.

use hone_protocol::{ContentType, CriticMode, CritiqueLevel, CritiqueResult, QueryId, Timestamp, VettingState};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::MemoryError;
use crate::records::damaged;

/// The field of an engram that holds its [`Vetting`].
pub(crate) const VETTING: &str = "vetting";

/// Whether an engram counts as long-term memory, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vetting {
    /// Whether it does.
    pub state: VettingState,
    /// What the critic said; `None` until one has said something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critique: Option<Box<Criticized>>,
    /// Why it is still unreviewed, or why a block did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What a person said of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
}

/// A critique of an engram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Criticized {
    /// When it was given.
    pub at: Timestamp,
    /// How much it counted.
    pub mode: CriticMode,
    /// What the critic said.
    #[serde(flatten)]
    pub result: CritiqueResult,
}

/// What a person says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// When.
    pub at: Timestamp,
    /// Whether it was right to block.
    pub is_right: bool,
}

/// The figures of a critique that was stored. They stay when its engram is forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CritiqueRecord {
    /// The engram.
    pub query_id: QueryId,
    /// When it was given.
    pub at: Timestamp,
    /// What kind of text it is about.
    pub content_type: ContentType,
    /// How much speaks against the text.
    pub level: CritiqueLevel,
    /// How valid the text is, 0 to 1.
    pub validity_score: f64,
    /// Whether the critic wanted to block, and may.
    pub should_block: bool,
    /// How much it counted.
    pub mode: CriticMode,
    /// What the engram was after it.
    pub state: VettingState,
    /// What a person said of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
}

impl CritiqueRecord {
    /// The figures of the critique of an engram; `None` if there is no verdict.
    pub(crate) fn of(query_id: QueryId, vetting: &Vetting) -> Option<CritiqueRecord> {
        let Criticized { at, mode, result } = vetting.critique.as_deref()?;
        Some(CritiqueRecord {
            query_id,
            at: *at,
            content_type: result.content_type,
            level: result.level?,
            validity_score: result.validity_score.unwrap_or_default(),
            should_block: result.should_block,
            mode: *mode,
            state: vetting.state,
            ruling: vetting.ruling,
        })
    }
}

/// What the fields of an engram say of its vetting.
pub(crate) fn vetting_in(fields: &Map<String, Value>) -> Result<Vetting, MemoryError> {
    match fields.get(VETTING) {
        None | Some(Value::Null) => Ok(Vetting::default()),
        Some(value) => serde_json::from_value(value.clone()).map_err(|error| damaged("a critique", &error.to_string())),
    }
}
