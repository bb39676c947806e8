//! The bus with its agents, for a chat or a story; each client has its own [`Asker`].

use anyhow::Context;
use hone_agents::{Asker, Expected, Team, TeamParts};
use hone_bus::Bus;
use hone_memory::MemoryStore;

/// How many messages a terminal may leave unread: more than two answers have pieces.
const UNREAD: usize = 32_768;

/// The running agents. Dropping it stops them, after memory has written what it was told.
pub(crate) struct Stack {
    bus: Bus,
    store: Option<MemoryStore>,
    expected: Expected,
    _team: Team,
}

impl Stack {
    /// Starts the agents.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub(crate) fn start(parts: TeamParts) -> anyhow::Result<Stack> {
        let bus = Bus::new();
        let store = parts.memory.as_ref().map(|memory| memory.store.clone());
        let expected = Expected { grades: parts.judge.is_some(), respondent_b: parts.respondent_b.is_some() };
        let team = Team::start(&bus, parts).context("cannot start the agents")?;
        Ok(Stack { bus, store, expected, _team: team })
    }

    /// A line to the agents for a client. It can hold every piece of a long answer while the terminal is blocked.
    pub(crate) fn asker(&self, name: &str) -> Asker {
        Asker::with_capacity(&self.bus, name, self.expected, UNREAD)
    }

    /// The memory, if enabled.
    pub(crate) fn store(&self) -> Option<&MemoryStore> {
        self.store.as_ref()
    }

    /// What follows every question if nothing goes wrong.
    pub(crate) fn expected(&self) -> Expected {
        self.expected
    }
}
