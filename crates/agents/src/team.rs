//! All agents together, and the order in which they start and stop.
//!
//! Agents that record what happens subscribe first, so that they receive a message before any agent can react to it.
//! They stop last, so that messages sent by stopping agents are still remembered and recorded.

use std::io;
use std::sync::Arc;

use hone_bus::{Agent, AgentHandle, Bus, Overload, Subscription, spawn};
use hone_judging::Jury;
use hone_memory::{Holder, MemoryStore};
use hone_protocol::{Embed, Generate, RespondentId, Subject};

use crate::backlog::{self, BacklogAgent, BacklogParts};
use crate::critic::{self, BackgroundCritic, CriticAgent, CriticParts};
use crate::extraction::{self, ExtractionAgent, ExtractionParts};
use crate::fleet::{self, FleetAgent, FleetParts, Graders, SharedRequests};
use crate::generator::{self, GeneratorAgent, GeneratorParts, Respondent};
use crate::judge::pairs::SharedPairs;
use crate::judge::{self, JudgeAgent};
use crate::memory::{self, MemoryAgent, WhoGrades};
use crate::recall::Recaller;
use crate::recorder::{self, EventRecorder};
use crate::remembering::Rememberer;
use crate::settings::MemorySettings;

/// How many messages may wait in an agent's mailbox, and as many deferred ones; more for a respondent that may be asked more.
const CAPACITY: usize = 256;

/// The parts of a team.
pub struct TeamParts {
    /// The generator of answers.
    pub generator: Arc<dyn Generate>,
    /// The second respondent, if answers are compared.
    pub respondent_b: Option<RespondentB>,
    /// The judge, or several; without one, and without graders elsewhere, there are no grades.
    pub judge: Option<Jury>,
    /// Graders on other machines, which grade in place of the judge.
    pub graders: Option<Arc<dyn Graders>>,
    /// Where answers are remembered, if at all.
    pub memory: Option<MemoryParts>,
    /// Whether the judge also grades answers from earlier whose grades are due, while nobody waits.
    pub works_off_backlog: bool,
    /// What reviews what is remembered while nobody waits, if anything does.
    pub critic: Option<BackgroundCritic>,
    /// How many questions each respondent takes.
    pub load: Load,
}

/// How many questions a respondent takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many it answers at once; at least one.
    pub most_answers: usize,
    /// How many may be in progress, waiting ones included. Of a few hundred, none is refused whatever this says.
    pub most_questions: usize,
}

impl Load {
    /// That of a person, who asks one question after the other.
    pub const PERSON: Load = Load { most_answers: 1, most_questions: 1 };
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
    /// Whether what happens is remembered; otherwise memory is only recalled from.
    pub remembers: bool,
    /// Whether the grades of answers are due that no judge of this team gives.
    pub grades_due: bool,
}

/// Running agents. Dropping it stops them and waits until their threads have ended, by which time all answers are
/// remembered. Mailboxes with [`Overload::Wait`] must be read or dropped in the meantime.
pub struct Team {
    /// In the order in which they started.
    agents: Vec<AgentHandle>,
    /// What the team works on; it is free again when the agents have stopped.
    _holder: Option<Arc<Holder>>,
}

impl Team {
    /// Starts the agents. They receive everything that is published after this returns.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(bus: &Bus, parts: TeamParts) -> io::Result<Team> {
        let grades = parts.judge.is_some() || parts.graders.is_some();
        let recaller = parts.memory.as_ref().and_then(recaller);
        let memory = parts.memory.filter(|memory| memory.remembers);
        let held = memory.as_ref().filter(|_| grades);
        let holder = held.map(|memory| Holder::new(&memory.store)).transpose()?.map(Arc::new);
        let mut team = Team { agents: Vec::new(), _holder: holder.clone() };
        let store = memory.as_ref().map(|memory| memory.store.clone());
        let respondents = respondents(parts.respondent_b);
        if let Some(memory) = memory {
            let extraction = ExtractionParts {
                store: memory.store.clone(),
                generator: Arc::clone(&parts.generator),
                settings: Arc::new(memory.settings.clone()),
                waits_for_grades: grades,
            };
            let judging = match &holder {
                Some(holder) => WhoGrades::By(holder.id()),
                None if memory.grades_due => WhoGrades::Later,
                None => WhoGrades::Never,
            };
            team.remember(bus, memory, judging, extraction)?;
        }
        // Without grades, nobody hears when a question is done with.
        if let (Some(store), Some(critic), true) = (&store, parts.critic, grades) {
            let (name, subjects) = (critic::NAME, backlog::SUBJECTS.to_vec());
            let parts = CriticParts { store: store.clone(), critic };
            team.add(bus, name, subjects, move || CriticAgent::new(parts.clone()))?;
        }
        if let Some(graders) = parts.graders {
            let (bus_of_fleet, due, pairs) = (bus.clone(), store.zip(holder), SharedPairs::default());
            let works_off_backlog = parts.works_off_backlog;
            let parts = FleetParts {
                bus: bus_of_fleet,
                graders,
                due,
                works_off_backlog,
                pairs,
                asked: SharedRequests::default(),
            };
            team.add(bus, fleet::NAME, fleet::SUBJECTS.to_vec(), move || FleetAgent::new(parts.clone()))?;
        } else if let Some(judge) = parts.judge.clone() {
            if let (Some(store), Some(holder), true) = (store, holder, parts.works_off_backlog) {
                let (bus, judge, in_hand) = (bus.clone(), judge.clone(), Arc::default());
                team.work_off(BacklogParts { bus, store, judge, holder, in_hand })?;
            }
            let (judges_bus, pairs) = (bus.clone(), SharedPairs::default());
            let make = move || JudgeAgent::new(judges_bus.clone(), judge.clone(), pairs.clone());
            team.add(bus, judge::NAME, judge::SUBJECTS.to_vec(), make)?;
        }
        let load = parts.load;
        for respondent in respondents {
            let name = respondent.name;
            let parts = GeneratorParts {
                bus: bus.clone(),
                respondent,
                generator: Arc::clone(&parts.generator),
                recaller: recaller.clone(),
                most_answers: load.most_answers,
            };
            let make = move || GeneratorAgent::new(parts.clone());
            let capacity = CAPACITY.max(load.most_questions);
            team.add_with_capacity(bus, name, generator::SUBJECTS.to_vec(), capacity, make)?;
        }
        Ok(team)
    }

    /// Stops the agents, as dropping the team does.
    pub fn stop(self) {}

    fn work_off(&mut self, parts: BacklogParts) -> io::Result<()> {
        let bus = parts.bus.clone();
        self.add(&bus, backlog::NAME, backlog::SUBJECTS.to_vec(), move || BacklogAgent::new(parts.clone()))
    }

    fn remember(
        &mut self,
        bus: &Bus,
        memory: MemoryParts,
        judging: WhoGrades,
        extraction: ExtractionParts,
    ) -> io::Result<()> {
        let MemoryParts { store, embedder, settings, .. } = memory;
        let records = store.clone();
        self.add(bus, recorder::NAME, recorder::subjects(), move || EventRecorder::new(records.clone()))?;
        let agents_bus = bus.clone();
        let rememberer = Rememberer { store, embedder, takes_facts: settings.facts };
        let make = move || MemoryAgent::new(agents_bus.clone(), rememberer.clone(), judging);
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
        self.add_with_capacity(bus, name, subjects, CAPACITY, make)
    }

    fn add_with_capacity<A, F>(
        &mut self,
        bus: &Bus,
        name: &str,
        subjects: Vec<Subject>,
        capacity: usize,
        make: F,
    ) -> io::Result<()>
    where
        A: Agent,
        F: FnMut() -> A + Send + 'static,
    {
        let subscription =
            Subscription { name: name.to_owned(), subjects, sessions: None, capacity, overload: Overload::Wait };
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
