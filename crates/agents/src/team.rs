//! All agents together, and the order in which they start and stop.
//!
//! Agents that record what happens subscribe first, so that they receive a message before any agent can react to it.
//! They stop last, so that messages sent by stopping agents are still remembered and recorded.

use std::io;
use std::sync::Arc;

use hone_bus::{Agent, AgentHandle, Bus, Overload, Subscription, spawn};
use hone_memory::MemoryStore;
use hone_protocol::{Embed, Generate, RespondentId, Subject};
use hone_quality::Judge;

use crate::critic::{self, CriticAgent};
use crate::extraction::{self, ExtractionAgent, ExtractionParts};
use crate::generator::{self, GeneratorAgent, GeneratorParts, Respondent};
use crate::memory::{self, MemoryAgent};
use crate::recall::Recaller;
use crate::recorder::{self, Recorder};
use crate::settings::MemorySettings;
use crate::thinking::ThinkingSettings;

/// How many messages may wait in an agent's mailbox, and as many deferred ones.
const CAPACITY: usize = 256;

/// The parts of a team.
pub struct TeamParts {
    /// The generator of answers.
    pub generator: Arc<dyn Generate>,
    /// How models mark their reasoning.
    pub thinking: ThinkingSettings,
    /// The second respondent, if answers are compared.
    pub respondent_b: Option<RespondentB>,
    /// The judge; `None` means no grades.
    pub judge: Option<Judge>,
    /// Where answers are remembered, if at all.
    pub memory: Option<MemoryParts>,
}

/// How the second respondent differs from the first.
#[derive(Clone, Debug, PartialEq)]
pub struct RespondentB {
    /// Its model; `None` means that of the question.
    pub model: Option<String>,
    /// Its temperature.
    pub temperature: f32,
}

/// The parts of memory.
pub struct MemoryParts {
    /// Where engrams and events are kept.
    pub store: MemoryStore,
    /// The embedder of texts; without one, engrams have no vectors and nothing is recalled.
    pub embedder: Option<Arc<dyn Embed>>,
    /// How memory is used.
    pub settings: MemorySettings,
}

/// Running agents. Dropping it stops them and waits until their threads have ended, by which time all answers are
/// remembered. Mailboxes with [`Overload::Wait`] must be read or dropped in the meantime.
pub struct Team {
    /// In the order in which they started.
    agents: Vec<AgentHandle>,
}

impl Team {
    /// Starts the agents. They receive everything that is published after this returns.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(bus: &Bus, parts: TeamParts) -> io::Result<Team> {
        let mut team = Team { agents: Vec::new() };
        let respondents = respondents(parts.respondent_b);
        let recaller = parts.memory.as_ref().and_then(recaller);
        if let Some(memory) = parts.memory {
            let extraction = ExtractionParts {
                store: memory.store.clone(),
                generator: Arc::clone(&parts.generator),
                settings: Arc::new(memory.settings.clone()),
                waits_for_grades: parts.judge.is_some(),
            };
            team.remember(bus, memory, extraction)?;
        }
        if let Some(judge) = parts.judge {
            let critics_bus = bus.clone();
            let make = move || CriticAgent::new(critics_bus.clone(), judge.clone());
            team.add(bus, critic::NAME, critic::SUBJECTS.to_vec(), make)?;
        }
        for respondent in respondents {
            let name = respondent.name;
            let parts = GeneratorParts {
                bus: bus.clone(),
                respondent,
                generator: Arc::clone(&parts.generator),
                thinking: parts.thinking.clone(),
                recaller: recaller.clone(),
            };
            team.add(bus, name, generator::SUBJECTS.to_vec(), move || GeneratorAgent::new(parts.clone()))?;
        }
        Ok(team)
    }

    /// Stops the agents, as dropping the team does.
    pub fn stop(self) {}

    fn remember(&mut self, bus: &Bus, memory: MemoryParts, extraction: ExtractionParts) -> io::Result<()> {
        let MemoryParts { store, embedder, settings } = memory;
        let records = store.clone();
        self.add(bus, recorder::NAME, recorder::subjects(), move || Recorder::new(records.clone()))?;
        let agents_bus = bus.clone();
        let make = move || MemoryAgent::new(agents_bus.clone(), store.clone(), embedder.clone());
        self.add(bus, memory::NAME, memory::SUBJECTS.to_vec(), make)?;
        if settings.extract {
            let make = move || ExtractionAgent::new(extraction.clone());
            self.add(bus, extraction::NAME, extraction::SUBJECTS.to_vec(), make)?;
        }
        Ok(())
    }

    fn add<A, F>(&mut self, bus: &Bus, name: &str, subjects: Vec<Subject>, make: F) -> io::Result<()>
    where
        A: Agent,
        F: FnMut() -> A + Send + 'static,
    {
        let subscription = Subscription {
            name: name.to_owned(),
            subjects,
            sessions: None,
            capacity: CAPACITY,
            overload: Overload::Wait,
        };
        self.agents.push(spawn(bus, subscription, make)?);
        Ok(())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        while let Some(agent) = self.agents.pop() {
            drop(agent);
        }
    }
}

fn respondents(b: Option<RespondentB>) -> Vec<Respondent> {
    let a = Respondent { id: RespondentId::A, name: "generator", model: None, temperature: None };
    let b = b.map(|b| Respondent {
        id: RespondentId::B,
        name: "respondent_b",
        model: b.model,
        temperature: Some(b.temperature),
    });
    [Some(a), b].into_iter().flatten().collect()
}

fn recaller(memory: &MemoryParts) -> Option<Recaller> {
    let embedder = Arc::clone(memory.embedder.as_ref()?);
    Some(Recaller { store: memory.store.clone(), embedder, settings: Arc::new(memory.settings.clone()) })
}
