//! The gate to long-term memory: what is remembered is challenged before it counts.
//!
//! An engram is remembered first, unreviewed. The gatekeeper asks the critic, unless a limit or a person keeps it from
//! that, and stores what comes of it in one write. A critic can block and never changes a text.

use std::time::Duration;

use hone_judging::{CritiqueSettings, keeps_out};
use hone_memory::{Criticized, CritiqueRecord, Engram, MemoryError, MemoryStore, Vetting};
use hone_protocol::{ContentType, CriticDecision, CriticMode, CritiqueResult, Prospect, Timestamp, VettingState};

/// An hour, in milliseconds.
const HOUR: u64 = 60 * 60 * 1_000;

/// What criticizes texts.
pub trait Criticize: Sync {
    /// Criticizes a text that `context` has led to. Failures are part of the result.
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult;

    /// Why what it says of texts of this type counts for nothing, such as that it has not passed its examination; `None` if
    /// it counts.
    fn unproven(&self, kind: ContentType) -> Option<String>;
}

/// Decides what counts as long-term memory.
pub struct Gatekeeper<'a> {
    /// Where engrams, critiques and overrides are.
    pub store: &'a MemoryStore,
    /// Who is asked.
    pub critic: &'a dyn Criticize,
    /// The modes and limits.
    pub settings: &'a CritiqueSettings,
    /// Whether nobody waits for what it decides.
    pub is_batch: bool,
    /// What time it is.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
}

/// Why the critic is not asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticRefusal {
    /// The reason, with the limit's setting.
    pub reason: String,
    /// From when on it is asked again.
    pub until: Timestamp,
}

/// What was decided about an engram.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// What it is now.
    pub state: VettingState,
    /// How much the critic's word counted.
    pub mode: CriticMode,
    /// What the critic said; `None` if it was not asked.
    pub critique: Option<CritiqueResult>,
    /// Why it is unreviewed or blocked; `None` if it passed.
    pub reason: Option<String>,
}

impl Decided {
    /// Whether the critic wanted it blocked, whatever its word counted.
    pub fn was_to_be_blocked(&self) -> bool {
        self.critique.as_ref().is_some_and(|result| result.should_block)
    }

    /// Whether another text would fare no better now: the critic cannot be asked, or its word never counts. A verdict that
    /// is missing for this text alone says nothing about others.
    pub fn is_critics_fault(&self) -> bool {
        let is_of_text = |reason: &String| Prospect::of(reason) == Prospect::Doubtful;
        self.state == VettingState::Unreviewed && !self.reason.as_ref().is_some_and(is_of_text)
    }
}

impl Gatekeeper<'_> {
    /// How much the critic's word counts now: as a person has set it, or as it is configured; one that has not been proven to
    /// be any good is at most soft.
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
        // With the end of this one's hour, one less than the limit is left.
        let first = of_hour.get(of_hour.len().checked_sub(limit)?)?;
        Some(CriticRefusal {
            reason: format!("{limit} texts of type {kind} were criticized within the last hour ({setting})"),
            until: Timestamp(first.at.0 + HOUR),
        })
    }

    /// Decides about a remembered engram whose text was made from `context`. An engram that has been decided about is
    /// left as it is.
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

    /// Decides about a remembered engram as the critic's result and the mode say.
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
