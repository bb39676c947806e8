//! The gate to long-term memory: memories are challenged before they count.
//!
//! An engram is remembered first, unreviewed. The gatekeeper asks the critic, unless a limit or a person prevents it,
//! and stores the outcome in one write. A critic can block and never changes a text.

use std::time::Duration;

use hone_judging::{CritiqueSettings, keeps_out};
use hone_memory::{Criticized, CritiqueRecord, Engram, MemoryError, MemoryStore, Vetting};
use hone_protocol::{ContentType, CriticDecision, CriticMode, CritiqueResult, Prospect, Timestamp, VettingState};

/// An hour, in milliseconds.
const HOUR: u64 = 60 * 60 * 1_000;

/// A critic of texts.
pub trait Criticize: Sync {
    /// Criticizes a text that was made from `context`. Failures are part of the result.
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult;

    /// Why its opinion of texts of this type does not count, such as a failed examination; `None` if it counts.
    fn unproven(&self, kind: ContentType) -> Option<String>;
}

/// Decides which engrams count as long-term memory.
pub struct Gatekeeper<'a> {
    /// The store of engrams, critiques and overrides.
    pub store: &'a MemoryStore,
    /// The critic.
    pub critic: &'a dyn Criticize,
    /// The modes and limits.
    pub settings: &'a CritiqueSettings,
    /// Whether no caller waits for its decisions.
    pub is_batch: bool,
    /// The current time.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
}

/// A temporary refusal to ask the critic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticRefusal {
    /// The reason, with the limit's setting.
    pub reason: String,
    /// When it is asked again.
    pub until: Timestamp,
}

/// The decision about an engram.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The engram's new state.
    pub state: VettingState,
    /// How much the critic's word counted.
    pub mode: CriticMode,
    /// The critique; `None` if the critic was not asked.
    pub critique: Option<CritiqueResult>,
    /// Why it is unreviewed or blocked; `None` if it passed.
    pub reason: Option<String>,
}

impl Decided {
    /// Whether the critic wanted it blocked, regardless of the mode.
    pub fn was_to_be_blocked(&self) -> bool {
        self.critique.as_ref().is_some_and(|result| result.should_block)
    }

    /// Whether other texts would fare no better now, because the critic cannot be asked or its opinion never counts. A
    /// verdict that is missing for this text alone says nothing about others.
    pub fn is_critics_fault(&self) -> bool {
        let is_of_text = |reason: &String| Prospect::of(reason) == Prospect::Doubtful;
        self.state == VettingState::Unreviewed && !self.reason.as_ref().is_some_and(is_of_text)
    }
}

impl Gatekeeper<'_> {
    /// How much the critic's word counts now: as a person has set it, or as configured. A configured critic without a
    /// passed examination is at most soft.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn mode(&self, kind: ContentType) -> Result<CriticMode, MemoryError> {
        let configured = || match self.settings.mode(kind) {
            CriticMode::Hard if self.critic.unproven(kind).is_some() => CriticMode::Soft,
            mode => mode,
        };
        Ok(self.store.critic_override()?.unwrap_or_else(configured))
    }

    /// Why the critic is not asked about a text of this type now; `None` if it is.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn refusal(&self, kind: ContentType) -> Result<Option<CriticRefusal>, MemoryError> {
        let now = (self.clock)();
        let window = HOUR.max(self.cooldown());
        let recent = self.store.critiques(Some(Timestamp(now.0.saturating_sub(window))))?;
        let recent: Vec<&CritiqueRecord> = recent.iter().filter(|record| record.content_type == kind).collect();
        Ok(self.cooling_down(kind, &recent, now).or_else(|| self.limited(kind, &recent, now)))
    }

    fn cooldown(&self) -> u64 {
        u64::try_from(Duration::from_secs_f64(self.settings.cooldown_minutes * 60.0).as_millis()).unwrap_or(u64::MAX)
    }

    fn cooling_down(&self, kind: ContentType, recent: &[&CritiqueRecord], now: Timestamp) -> Option<CriticRefusal> {
        let n_blocks = self.settings.blocks_before_cooldown;
        let last = recent.get(recent.len().checked_sub(n_blocks)?..)?;
        let until = Timestamp(last.last()?.at.0.saturating_add(self.cooldown()));
        let is_cooling = last.iter().all(|record| record.should_block) && until > now;
        is_cooling.then(|| CriticRefusal {
            reason: format!(
                "the critic has blocked the last {n_blocks} texts of type {kind}: something is wrong with what is \
                 written (critique.blocks_before_cooldown, critique.cooldown_minutes)"
            ),
            until,
        })
    }

    fn limited(&self, kind: ContentType, recent: &[&CritiqueRecord], now: Timestamp) -> Option<CriticRefusal> {
        let (limit, setting) = match self.is_batch {
            true => (self.settings.per_hour_in_batch, "critique.per_hour_in_batch"),
            false => (self.settings.per_hour, "critique.per_hour"),
        };
        let of_hour: Vec<&&CritiqueRecord> = recent.iter().filter(|record| record.at.0 + HOUR > now.0).collect();
        // When this critique's hour ends, one fewer than the limit remains.
        let first = of_hour.get(of_hour.len().checked_sub(limit)?)?;
        Some(CriticRefusal {
            reason: format!("{limit} texts of type {kind} were criticized within the last hour ({setting})"),
            until: Timestamp(first.at.0 + HOUR),
        })
    }

    /// Decides about a remembered engram whose text was made from `context`. An engram with an earlier decision is left
    /// as it is.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn decide(&self, engram: &Engram, kind: ContentType, context: &str) -> Result<Decided, MemoryError> {
        if self.mode(kind)? == CriticMode::Off {
            return self.store_decision(engram, kind, abstained(CriticMode::Off, None, "the critic is off".to_owned()));
        }
        if let Some(refusal) = self.refusal(kind)? {
            let mode = self.mode(kind)?;
            return self.store_decision(engram, kind, abstained(mode, None, refusal.reason));
        }
        self.conclude(engram, kind, self.critic.criticize(kind, &engram.answer, context))
    }

    /// Decides about a remembered engram according to the critic's result and the mode.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub(crate) fn conclude(
        &self,
        engram: &Engram,
        kind: ContentType,
        result: CritiqueResult,
    ) -> Result<Decided, MemoryError> {
        // A person may have changed it while the critic was thinking.
        let mode = self.mode(kind)?;
        self.store_decision(engram, kind, decided(mode, result))
    }

    fn store_decision(&self, engram: &Engram, kind: ContentType, decided: Decided) -> Result<Decided, MemoryError> {
        let Decided { state, mode, critique, reason } = &decided;
        let criticized = critique.as_ref().filter(|result| result.level.is_some());
        let criticized =
            criticized.map(|result| Box::new(Criticized { at: (self.clock)(), mode: *mode, result: result.clone() }));
        let note = reason.clone().filter(|_| *state == VettingState::Unreviewed);
        let vetting = Vetting { state: *state, critique: criticized, note, ruling: None };
        let said = critique.as_ref().map(|result| result.reasoning.clone()).unwrap_or_default();
        let decision = CriticDecision {
            content_type: kind,
            level: critique.as_ref().and_then(|result| result.level),
            validity_score: critique.as_ref().and_then(|result| result.validity_score),
            state: *state,
            mode: *mode,
            reason: reason.clone().unwrap_or(said),
        };
        self.store.vet(engram, vetting, decision)?;
        Ok(decided)
    }
}

/// Whether a critique keeps its text out of long-term memory.
fn blocks(result: &CritiqueResult) -> bool {
    let keeps_it_out = result.level.is_some_and(|level| keeps_out(result.content_type, level));
    result.should_block || (keeps_it_out && result.disregarded.is_none())
}

fn decided(mode: CriticMode, result: CritiqueResult) -> Decided {
    let result = CritiqueResult { should_block: blocks(&result), ..result };
    let failure = result.judging.failure.clone().or_else(|| result.disregarded.clone());
    if result.level.is_none() || failure.is_some() {
        let reason = failure.unwrap_or_else(|| "the critic gave no verdict".to_owned());
        return abstained(mode, Some(result), reason);
    }
    let state = match (blocks(&result), mode) {
        (false, _) => VettingState::Reviewed,
        (true, CriticMode::Hard) => VettingState::Blocked,
        (true, CriticMode::Soft | CriticMode::Off) => VettingState::Unreviewed,
    };
    let reason = (state != VettingState::Reviewed).then(|| result.reasoning.clone());
    Decided { state, mode, critique: Some(result), reason }
}

fn abstained(mode: CriticMode, critique: Option<CritiqueResult>, reason: String) -> Decided {
    Decided { state: VettingState::Unreviewed, mode, critique, reason: Some(reason) }
}
