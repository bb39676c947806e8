//! Decisions of critics and people.

use hone_protocol::{
    BlockRuling, CriticDecision, CriticMode, CriticOverride, Envelope, Payload, RespondentId, SessionId, Timestamp,
    VettingState,
};

use super::{MemoryStore, unexpected};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::request::{Reply, Request, Update};
use crate::vetting::{CritiqueRecord, Ruling, Vetting};

/// The sender of events about decisions.
const SENDER: &str = "critic";

impl MemoryStore {
    /// Stores a critic's decision about an unreviewed engram: its state, the critique, its figures and the event
    /// `critic.*` in one write. An earlier decision stands.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn vet(&self, engram: &Engram, vetting: Vetting, decision: CriticDecision) -> Result<Update, MemoryError> {
        let payload = match vetting.state {
            VettingState::Unreviewed => Payload::CriticAbstained(decision),
            VettingState::Reviewed => Payload::CriticPassed(decision),
            VettingState::Blocked => Payload::CriticBlocked(decision),
        };
        let event = Box::new(event_about(engram, payload));
        self.update(Request::Vet { id: engram.query_id, vetting: Box::new(vetting), event })
    }

    /// Stores a person's ruling on a block. A wrongly blocked engram counts as long-term memory from then on.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn rule_on_block(&self, engram: &Engram, is_right: bool) -> Result<Update, MemoryError> {
        let ruling = Ruling { at: Timestamp::now(), is_right };
        let state = if is_right { VettingState::Blocked } else { VettingState::Reviewed };
        let event = Box::new(event_about(engram, Payload::CriticReviewed(BlockRuling { is_right, state })));
        self.update(Request::Rule { id: engram.query_id, ruling, event })
    }

    /// The figures of every critique since then, oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn critiques(&self, since: Option<Timestamp>) -> Result<Vec<CritiqueRecord>, MemoryError> {
        expect!(self.ask(Request::Critiques { since }), Reply::Critiques(records) => records)
    }

    /// The mode that a person has set for every gate; `None` for the configured ones.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn critic_override(&self) -> Result<Option<CriticMode>, MemoryError> {
        expect!(self.ask(Request::CriticOverride), Reply::CriticOverride(mode) => mode)
    }

    /// Sets the mode of every gate; every process that has this memory open sees it with its next decision.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_critic_override(&self, mode: Option<CriticMode>) -> Result<(), MemoryError> {
        let payload = Payload::CriticOverridden(CriticOverride { mode });
        let event = Box::new(Envelope::new(SENDER, SessionId::fresh(), payload));
        self.number(Request::SetCriticOverride { mode, event }).map(drop)
    }
}

fn event_about(engram: &Engram, payload: Payload) -> Envelope {
    Envelope::new(SENDER, engram.session_id, payload)
        .about(engram.query_id, engram.correlation_id, RespondentId::A)
        .owned_by(engram.owner)
}
