//! All agents together, and the order in which they start and stop.
//!
//! Recording agents subscribe first, so that they receive a message before any agent can react to it. They stop last,
//! so that messages sent by stopping agents are still remembered and recorded.

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

/// The most messages in an agent's mailbox, and the most deferred ones; more for a respondent that takes more
/// questions.
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
    /// Whether the judge also grades due answers from earlier, while no caller waits.
    pub works_off_backlog: bool,
    /// The critic that reviews remembered texts while no caller waits, if there is one.
    pub critic: Option<BackgroundCritic>,
    /// The load limits of each respondent.
    pub load: Load,
}

/// The load limits of a respondent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The most questions that it answers at once; at least one.
    pub most_answers: usize,
    /// The most questions in progress, including waiting ones. A few hundred are always accepted, whatever the limit.
    pub most_questions: usize,
}

impl Load {
    /// The load of a person, who asks one question at a time.
    pub const PERSON: Load = Load { most_answers: 1, most_questions: 1 };
}

/// How the second respondent differs from the first.
#[derive(Clone, Debug, PartialEq)]
pub struct RespondentB {
    /// Its model; `None` means the question's model.
    pub model: Option<String>,
    /// Its temperature.
    pub temperature: f32,
}

/// The parts of memory.
pub struct MemoryParts {
    /// The store of engrams and events.
    pub store: MemoryStore,
    /// The embedder of texts; without one, engrams have no vectors and nothing is recalled.
    pub embedder: Option<Arc<dyn Embed>>,
    /// How memory is used.
    pub settings: MemorySettings,
    /// Whether new exchanges are remembered; otherwise memory is only recalled from.
    pub remembers: bool,
    /// Whether answers become due for a grade if no judge of this team grades them.
    pub grades_due: bool,
}

/// A memory with answers that are due, and the right to grade them.
type Due = (MemoryStore, Arc<Holder>);

/// Running agents. Dropping the team stops them and waits until their threads have ended, by which time all answers are
/// remembered. Mailboxes with [`Overload::Wait`] must be read or dropped in the meantime.
pub struct Team {
    /// The agents in the order in which they started.
    agents: Vec<AgentHandle>,
    /// The team's claim on answers that it grades, released once the agents have stopped.
    _holder: Option<Arc<Holder>>,
}

impl Team {
    /// Starts the agents. They receive everything that is published after this returns.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(bus: &Bus, parts: TeamParts) -> io::Result<Team> {
        let TeamParts { generator, respondent_b, judge, graders, memory, works_off_backlog, critic, load } = parts;
        let grades = judge.is_some() || graders.is_some();
        let recaller = memory.as_ref().and_then(recaller);
        let memory = memory.filter(|memory| memory.remembers);
        let store = memory.as_ref().map(|memory| memory.store.clone());
        let holder = store.as_ref().filter(|_| grades).map(Holder::new).transpose()?.map(Arc::new);
        let mut team = Team { agents: Vec::new(), _holder: holder.clone() };
        if let Some(memory) = memory {
            team.remember(bus, memory, holder.as_deref(), &generator)?;
        }
        // Without grades, no agent learns when a question has finished.
        if let (Some(store), Some(critic), true) = (store.clone(), critic, grades) {
            team.criticize(bus, CriticParts { store, critic })?;
        }
        let due = store.zip(holder);
        match (graders, judge) {
            (Some(graders), _) => team.grade_elsewhere(bus, graders, due, works_off_backlog)?,
            (None, Some(judge)) => team.grade(bus, judge, due.filter(|_| works_off_backlog))?,
            (None, None) => {}
        }
        for respondent in respondents(respondent_b) {
            let (bus_of_agent, generator, recaller) = (bus.clone(), Arc::clone(&generator), recaller.clone());
            let most_answers = load.most_answers;
            let parts = GeneratorParts { bus: bus_of_agent, respondent, generator, recaller, most_answers };
            team.respond(bus, parts, CAPACITY.max(load.most_questions))?;
        }
        Ok(team)
    }

    /// Stops the agents, as dropping the team does.
    pub fn stop(self) {}

    fn remember(
        &mut self,
        bus: &Bus,
        memory: MemoryParts,
        holder: Option<&Holder>,
        generator: &Arc<dyn Generate>,
    ) -> io::Result<()> {
        let MemoryParts { store, embedder, settings, grades_due, .. } = memory;
        let judging = match holder {
            Some(holder) => WhoGrades::By(holder.id()),
            None if grades_due => WhoGrades::Later,
            None => WhoGrades::Never,
        };
        let records = store.clone();
        self.add(bus, recorder::NAME, recorder::subjects(), move || EventRecorder::new(records.clone()))?;
        let (takes_facts, extracts) = (settings.facts, settings.extract);
        let extraction = ExtractionParts {
            store: store.clone(),
            generator: Arc::clone(generator),
            settings: Arc::new(settings),
            waits_for_grades: holder.is_some(),
        };
        let agents_bus = bus.clone();
        let rememberer = Rememberer { store, embedder, takes_facts };
        let make = move || MemoryAgent::new(agents_bus.clone(), rememberer.clone(), judging);
        self.add(bus, memory::NAME, memory::SUBJECTS.to_vec(), make)?;
        if extracts {
            let make = move || ExtractionAgent::new(extraction.clone());
            self.add(bus, extraction::NAME, extraction::SUBJECTS.to_vec(), make)?;
        }
        Ok(())
    }

    fn criticize(&mut self, bus: &Bus, parts: CriticParts) -> io::Result<()> {
        self.add(bus, critic::NAME, backlog::SUBJECTS.to_vec(), move || CriticAgent::new(parts.clone()))
    }

    /// Starts grading, including the backlog of `due` answers.
    fn grade(&mut self, bus: &Bus, judge: Jury, due: Option<Due>) -> io::Result<()> {
        if let Some((store, holder)) = due {
            let parts = BacklogParts { bus: bus.clone(), store, judge: judge.clone(), holder, in_hand: Arc::default() };
            self.add(bus, backlog::NAME, backlog::SUBJECTS.to_vec(), move || BacklogAgent::new(parts.clone()))?;
        }
        let (judges_bus, pairs) = (bus.clone(), SharedPairs::default());
        let make = move || JudgeAgent::new(judges_bus.clone(), judge.clone(), pairs.clone());
        self.add(bus, judge::NAME, judge::SUBJECTS.to_vec(), make)
    }

    fn grade_elsewhere(
        &mut self,
        bus: &Bus,
        graders: Arc<dyn Graders>,
        due: Option<Due>,
        works_off_backlog: bool,
    ) -> io::Result<()> {
        let (pairs, asked) = (SharedPairs::default(), SharedRequests::default());
        let parts = FleetParts { bus: bus.clone(), graders, due, works_off_backlog, pairs, asked };
        self.add(bus, fleet::NAME, fleet::SUBJECTS.to_vec(), move || FleetAgent::new(parts.clone()))
    }

    fn respond(&mut self, bus: &Bus, parts: GeneratorParts, capacity: usize) -> io::Result<()> {
        let name = parts.respondent.name;
        let make = move || GeneratorAgent::new(parts.clone());
        self.add_with_capacity(bus, name, generator::SUBJECTS.to_vec(), capacity, make)
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
    let (store, settings) = (memory.store.clone(), Arc::new(memory.settings.clone()));
    Some(Recaller { store, embedder, settings })
}
