//! The review of memories: exchanges, and notes that were left without a verdict.

use hone_memory::{Engram, EngramKind, Filters, MemoryError, MemoryStore, Whose, WithinScope};
use hone_protocol::{ContentType, CriticMode, VettingState};

use super::quoted;
use crate::gatekeeping::{Decided, Gatekeeper};
use crate::settings::{SCOPE_OF_CLIENTS, shortened};

/// The most characters of a source that the critic of a note is shown.
const SOURCE: usize = 1_000;

/// Reviews engrams that no critic has passed.
pub struct Vetter<'a> {
    /// The gatekeeper.
    pub gatekeeper: Gatekeeper<'a>,
}

impl Vetter<'_> {
    /// At most `n` engrams to review, newest first. Only engrams that may be recalled are included.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn pending(&self, n: usize) -> Result<Vec<Engram>, MemoryError> {
        self.gatekeeper.store.list(&to_review(), n)
    }

    /// At most `n` engrams that no critic has seen yet, newest first. Engrams of programs are left out, since only
    /// programs that ask for them recall them.
    pub(crate) fn untried(&self, n: usize) -> Result<Vec<Engram>, MemoryError> {
        let filters = Filters { scope: WithinScope::AllBut(SCOPE_OF_CLIENTS.to_owned()), untried: true, ..to_review() };
        self.gatekeeper.store.list(&filters, n)
    }

    /// Decides about an engram.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn decide(&self, engram: &Engram) -> Result<Decided, MemoryError> {
        self.gatekeeper.decide(engram, content_type(engram.kind), &self.context(engram)?)
    }

    /// Why the critic's opinion of an engram would not count; `None` if it counts, or the critic is off.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn unproven(&self, engram: &Engram) -> Result<Option<String>, MemoryError> {
        let (keeper, kind) = (&self.gatekeeper, content_type(engram.kind));
        let is_asked = keeper.mode(kind)? != CriticMode::Off;
        Ok(is_asked.then(|| keeper.critic.unproven(kind)).flatten())
    }

    /// The context of an engram for the critic: its origin.
    pub(crate) fn context(&self, engram: &Engram) -> Result<String, MemoryError> {
        context_of(self.gatekeeper.store, engram)
    }
}

/// Engrams that may be recalled and that no critic has passed.
fn to_review() -> Filters {
    Filters {
        whose: Whose::Of(None),
        vetting: Some(VettingState::Unreviewed),
        notes: true,
        worth_recalling: true,
        ..Filters::default()
    }
}

/// The content type of an engram for a critic.
pub(crate) fn content_type(kind: EngramKind) -> ContentType {
    match kind {
        EngramKind::Episodic | EngramKind::Fact => ContentType::General,
        EngramKind::Intention => ContentType::Intention,
        EngramKind::Research => ContentType::Research,
        EngramKind::Consolidation => ContentType::Consolidation,
    }
}

/// The origin of an engram: its question and its sources.
pub(super) fn context_of(store: &MemoryStore, engram: &Engram) -> Result<String, MemoryError> {
    let mut context = vec![engram.query.clone()];
    let sources = store.these(&engram.sources)?;
    context.extend(sources.iter().map(|(source, _)| quoted(&shortened(&source.text(), SOURCE))));
    Ok(context.join("\n\n"))
}
