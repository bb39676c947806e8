//! The parts of a command that passes a gate to long-term memory.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hone_agents::{CriticStatistics, Decided, Gatekeeper, ModelWriter, NoteSettings, Rememberer};
use hone_app::Interrupt;
use hone_app::judging::Critic;
use hone_files::write_private;
use hone_memory::{EventFilter, MemoryError, MemoryStore};
use hone_protocol::{ContentType, CriticMode, Generate, Lane, Subject, Timestamp, VettingState};

use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;

/// Interval for checking whether work may resume.
const LOOK: Duration = Duration::from_millis(250);

/// The file of the figures about the critic, in the data folder.
const STATISTICS_FILE: &str = "critic_stats.json";

/// A gate and its dependencies.
pub(super) struct Gate<'a> {
    app: &'a Invocation,
    pub(super) store: MemoryStore,
    critic: Critic,
    pub(super) generator: Arc<dyn Generate>,
    lane: Lane,
    pub(super) interrupt: Interrupt,
}

impl Gate<'_> {
    /// The gate before the memory of this user; the critic is the one for the configured model's texts.
    ///
    /// # Errors
    /// When memory or the engine cannot be opened.
    pub(super) fn open(app: &Invocation, lane: Lane) -> anyhow::Result<Gate<'_>> {
        let store = app.memory_to_write()?;
        let generator = app.generator()?;
        let critic = Critic::new(app, Some(&app.config.engine.model), lane, Some(&generator));
        Ok(Gate { app, store, critic, generator, lane, interrupt: interrupt::install()? })
    }

    /// The gatekeeper.
    pub(super) fn keeper(&self) -> Gatekeeper<'_> {
        Gatekeeper {
            store: &self.store,
            critic: &self.critic,
            settings: &self.app.config.critique,
            is_batch: self.lane == Lane::Batch,
            clock: &Timestamp::now,
        }
    }

    /// The configured model, as a writer.
    pub(super) fn writer<'a>(&'a self, is_stopped: &'a (dyn Fn() -> bool + Sync)) -> ModelWriter<'a> {
        ModelWriter {
            generator: Arc::clone(&self.generator),
            model: self.app.config.engine.model.clone(),
            sampling: self.app.config.sampling.options(),
            lane: self.lane,
            is_stopped,
        }
    }

    /// The rememberer of notes, with vectors if there is an embedder.
    pub(super) fn rememberer(&self) -> Rememberer {
        let embedder = self.app.embedder();
        if let Err(error) = &embedder {
            self.app.output.note(&format!("notes are remembered without vectors: {error:#}"));
        }
        Rememberer { store: self.store.clone(), embedder: embedder.ok(), takes_facts: false }
    }

    /// Writes the figures about the critic into the data folder.
    ///
    /// # Errors
    /// When memory cannot be read, or the file cannot be written.
    pub(super) fn write_statistics(&self) -> anyhow::Result<()> {
        let path = self.app.data_folder().join(STATISTICS_FILE);
        let json = serde_json::to_vec_pretty(&CriticStatistics::of_memory(&self.store)?)?;
        write_private(&path, &json).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Waits until no question has arrived for a while and the critic may be asked; returns whether to continue.
///
/// # Errors
/// When memory cannot be read.
pub(super) fn wait_until_idle(
    keeper: &Gatekeeper<'_>,
    kind: ContentType,
    notes: &NoteSettings,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool, MemoryError> {
    let rest = Duration::from_secs_f64(notes.idle_minutes * 60.0);
    let asked = EventFilter { subjects: vec![Subject::QueryReceived], last: Some(1), ..EventFilter::default() };
    while !is_stopped() {
        let last = keeper.store.events(&asked, None)?.pop().map_or(0, |(_, envelope)| envelope.at.0);
        let is_idle = Timestamp::now().0.saturating_sub(last) >= u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
        if is_idle && keeper.refusal(kind)?.is_none() {
            return Ok(true);
        }
        thread::sleep(LOOK);
    }
    Ok(false)
}

/// The outcome of a command after a decision; not `Done` if a hard gate kept the text out of long-term memory.
pub(super) fn outcome(decided: &Decided) -> Outcome {
    match (decided.state, decided.mode) {
        (VettingState::Blocked, _) => Outcome::BelowThreshold,
        (VettingState::Unreviewed, CriticMode::Hard) => Outcome::Failed,
        _ => Outcome::Done,
    }
}

/// The decision, in a sentence.
pub(super) fn said(decided: &Decided) -> String {
    let reason = decided.reason.as_deref().unwrap_or_default();
    let level = decided.critique.as_ref().and_then(|critique| critique.level);
    match (decided.state, level) {
        (VettingState::Reviewed, Some(level)) => format!("reviewed: {level}"),
        (VettingState::Reviewed, None) => "reviewed".to_owned(),
        (VettingState::Blocked, _) => format!("blocked, it does not count as long-term memory: {reason}"),
        (VettingState::Unreviewed, _) => format!("not reviewed: {reason}"),
    }
}
