//! Quarantine: whether a memory counts as long-term memory, and the judgements of critics and people about it.
//!
//! An engram is written unreviewed. A critic's decision is one write, which changes the engram's state, stores the
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
    /// Its state.
    pub state: VettingState,
    /// The critique; `None` before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critique: Option<Box<Criticized>>,
    /// The reason why it is still unreviewed, or why a block did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// A person's ruling on the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
}

/// A critique of an engram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Criticized {
    /// When it was given.
    pub at: Timestamp,
    /// The mode that determined its effect.
    pub mode: CriticMode,
    /// The critic's result.
    #[serde(flatten)]
    pub result: CritiqueResult,
}

/// A person's ruling on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// The time of the ruling.
    pub at: Timestamp,
    /// Whether the block was right.
    pub is_right: bool,
}

/// The figures of a stored critique. They stay when its engram is forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CritiqueRecord {
    /// The engram.
    pub query_id: QueryId,
    /// When it was given.
    pub at: Timestamp,
    /// The kind of text that it is about.
    pub content_type: ContentType,
    /// The severity of the objections to the text.
    pub level: CritiqueLevel,
    /// How valid the text is, 0 to 1.
    pub validity_score: f64,
    /// Whether the critic wanted to block, and may.
    pub should_block: bool,
    /// The mode that determined its effect.
    pub mode: CriticMode,
    /// The engram's state after it.
    pub state: VettingState,
    /// A person's ruling on the block.
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

/// The vetting in an engram's fields.
pub(crate) fn vetting_in(fields: &Map<String, Value>) -> Result<Vetting, MemoryError> {
    match fields.get(VETTING) {
        None | Some(Value::Null) => Ok(Vetting::default()),
        Some(value) => serde_json::from_value(value.clone()).map_err(|error| damaged("a critique", &error.to_string())),
    }
}
