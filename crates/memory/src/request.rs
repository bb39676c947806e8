//! Requests to memory and their replies, as data: the owner's process answers the same requests for itself and, over
//! its socket, for its clients.

use hone_protocol::{
    Comparison, CriticMode, Envelope, EnvelopeId, Grade, HolderId, QueryId, Rating, RecalledEngram, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::backlog::{BacklogEntry, Lease, Wanted};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::filters::{EventFilter, Filters, Whose};
use crate::options::{Matching, Ranking};
use crate::outline::Outline;
use crate::statistics::{Statistics, Verification};
use crate::vetting::{CritiqueRecord, Ruling, Vetting};

/// A vector and its embedding model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub(crate) model: String,
    pub(crate) values: Vec<f32>,
}

impl Vector {
    /// The vector scaled to length 1.
    ///
    /// # Errors
    /// When it has no direction.
    pub(crate) fn normalized(self) -> Result<Vector, MemoryError> {
        let length = self.values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        if !length.is_finite() || length == 0.0 {
            let reason = format!("has {} dimensions but no direction: its length is {length}", self.values.len());
            return Err(MemoryError::Vector { model: self.model, reason });
        }
        if (length - 1.0).abs() < 1e-6 {
            return Ok(self);
        }
        let values = self.values.iter().map(|value| (f64::from(*value) / length) as f32).collect();
        Ok(Vector { values, ..self })
    }
}

/// A fact that the user stated in a question, as sent to the owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatedFact {
    pub(crate) text: String,
    pub(crate) is_update: bool,
    pub(crate) vector: Option<Vector>,
}

/// A question to recall engrams for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) text: String,
    pub(crate) vector: Vector,
    /// Texts already in the conversation.
    pub(crate) known: Vec<String>,
    pub(crate) matching: Matching,
    pub(crate) keeps_all: bool,
}

/// A line of an export: an engram with all of its fields, and its vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportedEngram {
    pub(crate) engram: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vector: Option<Vector>,
}

/// The relation of a line of an import to memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    New,
    AlreadyThere,
    /// It cannot be imported, for this reason.
    Refused(String),
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// The engram was updated.
    Merged,
    /// The engram or document does not exist, or a document was not written because its name is taken or another process
    /// has written it.
    Missing,
    /// Memory cannot be reached; the update is applied later, see [`crate::MemoryStore::keeping`].
    Kept,
}

/// A document's list entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The time of the write.
    pub(crate) at: Timestamp,
    /// Distinguishes a repeated write from a new one.
    pub(crate) write: EnvelopeId,
}

/// A request to memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Remember {
        engram: Box<Engram>,
        vector: Option<Vector>,
        /// The lease of the process that does its pending work.
        #[serde(default)]
        lease: Option<Lease>,
        /// The user's statements in the question; `None` if it was not searched for facts.
        #[serde(default)]
        facts: Option<Vec<StatedFact>>,
    },
    SetVector {
        id: QueryId,
        vector: Vector,
    },
    Get {
        id: QueryId,
    },
    Fields {
        id: QueryId,
    },
    UpdateScore {
        id: QueryId,
        grade: Grade,
    },
    AnnotatePairwise {
        comparison: Comparison,
    },
    AnnotateFeedback {
        id: QueryId,
        rating: Option<Rating>,
    },
    AnnotateMeaning {
        id: QueryId,
        intent: Option<String>,
        entities: Vec<String>,
    },
    Search {
        vector: Vector,
        n: usize,
        filters: Filters,
        ranking: Ranking,
    },
    Recall {
        question: Box<Question>,
        n: usize,
        filters: Filters,
        ranking: Ranking,
    },
    List {
        filters: Filters,
        n: usize,
    },
    Remove {
        ids: Vec<QueryId>,
    },
    WithoutVector {
        model: String,
        n: usize,
    },
    WithoutFacts {
        n: usize,
    },
    AddFacts {
        id: QueryId,
        facts: Vec<StatedFact>,
    },
    Resolve {
        prefix: String,
    },
    Abbreviate {
        ids: Vec<QueryId>,
    },
    Statistics {
        whose: Whose,
    },
    Outlines {
        whose: Whose,
        with_feedback: bool,
    },
    Verify,
    Export {
        after: u64,
        n: usize,
    },
    /// Engrams with their vectors.
    These {
        ids: Vec<QueryId>,
    },
    Compare {
        engrams: Vec<ExportedEngram>,
    },
    Import {
        engrams: Vec<ExportedEngram>,
    },
    AppendEvent {
        envelope: Box<Envelope>,
    },
    Events {
        filter: EventFilter,
        after: Option<u64>,
    },
    LastEvent,
    AwaitEvents {
        filter: EventFilter,
        after: u64,
        milliseconds: u64,
    },
    Backlog,
    Claim {
        lease: Lease,
        wanted: Wanted,
    },
    Renew {
        lease: Lease,
    },
    Release {
        holder: HolderId,
    },
    MakeDue {
        ids: Vec<QueryId>,
    },
    Vet {
        id: QueryId,
        vetting: Box<Vetting>,
        event: Box<Envelope>,
    },
    Rule {
        id: QueryId,
        ruling: Ruling,
        event: Box<Envelope>,
    },
    Critiques {
        since: Option<Timestamp>,
    },
    /// Events as stored, including those that this version does not know.
    ExportEvents {
        after: u64,
        n: usize,
    },
    ImportEvents {
        events: Vec<(u64, Value)>,
    },
    PutDocument {
        name: String,
        listed: Listed,
        content: Value,
        /// Whether an existing document of this name stays instead; if the request was kept for later, both are merged.
        is_new: bool,
        /// The write that this one must replace. If the document comes from another one, it stays; if the request was
        /// kept for later, both are merged. `None` replaces any earlier write.
        #[serde(default)]
        replaced: Option<EnvelopeId>,
    },
    Document {
        name: String,
    },
    Documents {
        folder: String,
    },
    RenameDocument {
        name: String,
        new_name: String,
    },
    RemoveDocument {
        name: String,
    },
    CriticOverride,
    SetCriticOverride {
        mode: Option<CriticMode>,
        event: Box<Envelope>,
    },
}

impl Request {
    /// Whether the request goes on the due list if memory cannot take it.
    pub(crate) fn can_be_kept(&self) -> bool {
        match self {
            Request::Remember { .. }
            | Request::UpdateScore { .. }
            | Request::AnnotatePairwise { .. }
            | Request::AnnotateFeedback { .. }
            | Request::AppendEvent { .. }
            | Request::PutDocument { .. } => true,
            Request::SetVector { .. }
            | Request::Get { .. }
            | Request::Fields { .. }
            | Request::AnnotateMeaning { .. }
            | Request::Search { .. }
            | Request::Recall { .. }
            | Request::List { .. }
            | Request::Remove { .. }
            | Request::WithoutVector { .. }
            | Request::WithoutFacts { .. }
            | Request::AddFacts { .. }
            | Request::Resolve { .. }
            | Request::Abbreviate { .. }
            | Request::Statistics { .. }
            | Request::Outlines { .. }
            | Request::Verify
            | Request::Export { .. }
            | Request::These { .. }
            | Request::Compare { .. }
            | Request::Import { .. }
            | Request::Events { .. }
            | Request::LastEvent
            | Request::AwaitEvents { .. }
            | Request::Backlog
            | Request::Claim { .. }
            | Request::Renew { .. }
            | Request::Release { .. }
            | Request::MakeDue { .. }
            | Request::Vet { .. }
            | Request::Rule { .. }
            | Request::Critiques { .. }
            | Request::ExportEvents { .. }
            | Request::ImportEvents { .. }
            | Request::Document { .. }
            | Request::Documents { .. }
            | Request::RenameDocument { .. }
            | Request::RemoveDocument { .. }
            | Request::CriticOverride
            | Request::SetCriticOverride { .. } => false,
        }
    }
}

/// The reply to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Number(u64),
    /// Memory cannot be reached; the request is on the due list.
    Kept,
    Engram(Option<Box<Engram>>),
    Fields(Option<Map<String, Value>>),
    Engrams(Vec<Engram>),
    Recalled(Vec<RecalledEngram>),
    Updates(Vec<Update>),
    Ids(Vec<QueryId>),
    Lengths(Vec<usize>),
    Statistics(Box<Statistics>),
    Outlines(Vec<Outline>),
    Verification(Verification),
    Exported {
        engrams: Vec<ExportedEngram>,
        last: u64,
    },
    Standings(Vec<Standing>),
    Events(Vec<(u64, Envelope)>),
    Backlog(Vec<BacklogEntry>),
    Critiques(Vec<CritiqueRecord>),
    ExportedEvents(Vec<(u64, Value)>),
    /// The content, and the write that it comes from.
    Document(Option<(EnvelopeId, Value)>),
    Documents(Vec<(String, Timestamp)>),
    CriticOverride(Option<CriticMode>),
    /// Events, and the number up to which all were examined.
    News {
        events: Vec<(u64, Envelope)>,
        seen: u64,
    },
}
