//! The bus with its agents, for any number of clients; each client has its own [`Asker`].

use std::sync::Arc;

use anyhow::Context;
use hone_agents::{Asker, Expected, MemoryParts, Recaller, Team, TeamParts};
use hone_bus::{AgentHandle, Bus};
use hone_judging::Jury;
use hone_memory::MemoryStore;
use hone_protocol::Generate;

/// The number of messages that a terminal may leave unread: more than the pieces of two answers.
const UNREAD: usize = 32_768;

/// The running agents. Dropping it stops them, after memory has written everything.
pub struct Stack {
    bus: Bus,
    store: Option<MemoryStore>,
    recaller: Option<Recaller>,
    generator: Arc<dyn Generate>,
    jury: Option<Jury>,
    expected: Expected,
    _team: Team,
    // Dropped last: an answer of a moment ago counts, too.
    _speeds: Option<AgentHandle>,
}

impl Stack {
    /// Starts the agents.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(parts: TeamParts) -> anyhow::Result<Stack> {
        let bus = Bus::new();
        let memory = parts.memory.as_ref().filter(|memory| memory.remembers);
        let store = memory.map(|memory| memory.store.clone());
        let recaller = memory.and_then(recaller);
        let (generator, jury) = (Arc::clone(&parts.generator), parts.judge.clone());
        let expected = Expected {
            grades: parts.judge.is_some() || parts.graders.is_some(),
            respondent_b: parts.respondent_b.is_some(),
        };
        let team = Team::start(&bus, parts).context("cannot start the agents")?;
        Ok(Stack { bus, store, recaller, generator, jury, expected, _team: team, _speeds: None })
    }

    /// These agents, and one that notes how fast models generate.
    pub(crate) fn with_speeds(self, speeds: Option<AgentHandle>) -> Stack {
        Stack { _speeds: speeds, ..self }
    }

    /// The bus that the agents are on.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// A client's connection to the agents. It can hold every piece of a long answer while the terminal is blocked.
    pub fn asker(&self, name: &str) -> Asker {
        Asker::with_capacity(&self.bus, name, self.expected, UNREAD)
    }

    /// The memory, if answers are remembered.
    pub fn store(&self) -> Option<&MemoryStore> {
        self.store.as_ref()
    }

    /// Searches memory by meaning, if there is an embedder.
    pub fn recaller(&self) -> Option<&Recaller> {
        self.recaller.as_ref()
    }

    /// The engine.
    pub fn generator(&self) -> &Arc<dyn Generate> {
        &self.generator
    }

    /// The judge, or the jury, if answers are graded.
    pub fn jury(&self) -> Option<&Jury> {
        self.jury.as_ref()
    }

    /// The results expected after every question if nothing goes wrong.
    pub fn expected(&self) -> Expected {
        self.expected
    }
}

/// A memory that clients search.
#[derive(Clone)]
pub struct ServedMemory {
    /// The store of engrams and events.
    pub store: MemoryStore,
    /// Searches it by meaning, if there is an embedder.
    pub recaller: Option<Recaller>,
}

/// A search of memory by meaning, if there is an embedder.
pub(crate) fn recaller(memory: &MemoryParts) -> Option<Recaller> {
    let (store, settings) = (memory.store.clone(), Arc::new(memory.settings.clone()));
    Some(Recaller { store, embedder: memory.embedder.clone()?, settings })
}
