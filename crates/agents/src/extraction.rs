//! The extraction agent: determines, in the background, the intent of an exchange and the entities in it.
//!
//! The model that answered is asked under a JSON schema, once the answer has been graded and no caller has waited for a
//! moment. A question that arrives in the meantime takes the model back. Work that a session leaves undone (say, the
//! user asked one question and left) is done in the next session with the same model. After a failure, intent and
//! entities stay empty.

mod extract;
mod jobs;
pub(crate) mod states;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvError, after, select_biased};
use hone_bus::{Agent, Inbox, Wakeup};
use hone_judging::fill;
use hone_memory::{Engram, Filters, MemoryStore};
use hone_protocol::{
    Completion, Constraint, Envelope, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, Lane,
    Message, Payload, Prompt, QueryId, Role, SamplingOptions, Subject, with_causes,
};

use self::extract::{Extract, parse, schema};
use self::jobs::Jobs;
use self::states::{Annotate, Extracting, ExtractionInProgress, Fail, Idle, Reset, StartExtract, State, Withdraw};
use crate::backlog;
use crate::backlog::open_questions::OpenQuestions;
use crate::machine::AgentState;
use crate::settings::{MemorySettings, shortened};
use crate::topic::Topic;

/// The agent's name.
pub(crate) const NAME: &str = "extraction";

/// The subjects that the agent subscribes to.
pub(crate) const SUBJECTS: [Subject; 5] = [
    Subject::QueryReceived,
    Subject::ResponseFailed,
    Subject::MemoryStored,
    Subject::CritiqueResult,
    Subject::SessionClosed,
];

/// Idle time before the model is asked.
const REST: Duration = Duration::from_secs(1);

/// How many of the latest engrams are checked for undone work.
const LOOKED_BACK: usize = 200;

/// The agent's dependencies.
#[derive(Clone)]
pub(crate) struct ExtractionParts {
    pub(crate) store: MemoryStore,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) settings: Arc<MemorySettings>,
    /// Whether there is a judge whose grades should come first.
    pub(crate) waits_for_grades: bool,
}

/// The agent.
pub(crate) struct ExtractionAgent {
    parts: ExtractionParts,
    state: State,
    jobs: Jobs,
    open: OpenQuestions,
    /// When the model may be asked.
    not_before: Instant,
    /// Whether the agent has looked for work left undone by earlier sessions.
    has_looked_back: bool,
}

/// The agent's events.
pub(crate) enum Event {
    Heard(Wakeup<GenerationEvent>),
    /// No caller has waited for a while.
    Rest,
}

impl ExtractionAgent {
    pub(crate) fn new(parts: ExtractionParts) -> Self {
        let jobs = Jobs::new(parts.waits_for_grades);
        let (open, not_before) = (OpenQuestions::default(), Instant::now() + REST);
        ExtractionAgent { parts, state: State::default(), jobs, open, not_before, has_looked_back: false }
    }

    fn receive(&mut self, message: &Envelope) {
        // The agent's answers were stored in an earlier session.
        if message.sender == backlog::NAME {
            return;
        }
        if self.open.take(message) {
            self.make_room();
        }
        let Some(topic) = Topic::of(message) else { return };
        match message.payload {
            Payload::MemoryStored(_) => {
                if !self.parts.waits_for_grades {
                    self.open.close(&topic);
                }
                self.jobs.stored(topic.query_id);
                self.look_back(topic.query_id);
            }
            Payload::CritiqueResult(_) => self.jobs.graded(topic.query_id),
            _ => {}
        }
        self.not_before = Instant::now() + REST;
    }

    /// Interrupts the extraction to free the model; it is done later.
    fn make_room(&mut self) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Idle(idle),
            State::Extracting(extracting, work) => {
                self.jobs.put_back(work.query_id);
                State::Idle(extracting.act(Withdraw))
            }
        };
    }

    /// Finds, once, the work that earlier sessions with the current model left undone.
    fn look_back(&mut self, latest: QueryId) {
        if std::mem::replace(&mut self.has_looked_back, true) {
            return;
        }
        let store = &self.parts.store;
        let found = store.get(latest).and_then(|engram| {
            let model = engram.map(|engram| engram.model);
            store.list(&Filters { model, ..Filters::default() }, LOOKED_BACK)
        });
        match found {
            Ok(engrams) => {
                let undone = engrams.iter().filter(|engram| engram.intent.is_none() && engram.query_id != latest);
                self.jobs.left_over(undone.map(|engram| engram.query_id).rev());
            }
            Err(error) => tracing::info!("cannot find the extractions left undone: {}", with_causes(&error)),
        }
    }

    /// Begins the next extraction, if one is due.
    fn begin(&mut self, idle: Idle) -> State {
        while let Some(query_id) = self.jobs.next() {
            match self.parts.store.get(query_id) {
                Ok(Some(engram)) => {
                    let extraction = self.ask(&engram);
                    return State::Extracting(idle.act(StartExtract), Box::new(extraction));
                }
                Ok(None) => tracing::info!(%query_id, "an engram was removed before its intent was extracted"),
                Err(error) => tell_failure(query_id, &with_causes(&error)),
            }
        }
        State::Idle(idle)
    }

    fn ask(&self, engram: &Engram) -> ExtractionInProgress {
        let generation = Generation::start(&*self.parts.generator, self.request(engram));
        ExtractionInProgress { query_id: engram.query_id, generation, completion: Completion::default() }
    }

    fn request(&self, engram: &Engram) -> GenerateRequest {
        let settings = &self.parts.settings;
        let [query, answer] = [&engram.query, &engram.answer].map(|text| shortened(text, settings.extract_characters));
        let prompt = fill(&settings.extract_template, &[("query", &query), ("answer", &answer)]);
        GenerateRequest {
            sampling: SamplingOptions::default(),
            max_tokens: Some(settings.extract_tokens),
            constraint: Some(Constraint::JsonSchema(schema())),
            lane: Lane::Background,
            session: Some(engram.session_id),
            ..GenerateRequest::new(&engram.model, Prompt::Chat(vec![Message::new(Role::User, prompt)]))
        }
    }

    fn follow(&mut self, event: Result<GenerationEvent, RecvError>) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Idle(idle),
            State::Extracting(extracting, work) => self.extract(extracting, work, event),
        };
    }

    fn extract(
        &mut self,
        extracting: Extracting,
        mut work: Box<ExtractionInProgress>,
        event: Result<GenerationEvent, RecvError>,
    ) -> State {
        let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
        let extract = match work.completion.take(event) {
            Ok(false) => return State::Extracting(extracting, work),
            Ok(true) => parse(&work.completion.text),
            Err(error) => Err(with_causes(&error)),
        };
        let idle = match extract {
            Ok(extract) => self.annotate(extracting, work.query_id, extract),
            Err(problem) => {
                tell_failure(work.query_id, &problem);
                extracting.act(Fail).act(Reset)
            }
        };
        self.begin(idle)
    }

    fn annotate(&self, extracting: Extracting, query_id: QueryId, extract: Extract) -> Idle {
        let annotating = extracting.act(Annotate);
        let intent = Some(extract.intent).filter(|intent| !intent.is_empty());
        match self.parts.store.annotate_meaning(query_id, intent, extract.entities) {
            Ok(_) => annotating.act(Reset),
            Err(error) => {
                tell_failure(query_id, &with_causes(&error));
                annotating.act(Fail).act(Reset)
            }
        }
    }
}

impl Agent for ExtractionAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let generation = match &self.state {
            State::Idle(_) if self.open.is_empty() && self.jobs.has_next() => {
                let rest = after(self.not_before.saturating_duration_since(Instant::now()));
                return select_biased! {
                    recv(inbox.stop()) -> _ => None,
                    recv(inbox.messages()) -> message => message.ok().map(Wakeup::Message).map(Event::Heard),
                    recv(rest) -> _ => Some(Event::Rest),
                };
            }
            State::Idle(_) => None,
            State::Extracting(_, work) => Some((0, work.generation.events())),
        };
        inbox.wait(generation).map(Event::Heard)
    }

    fn handle_event(&mut self, event: Event, _: &mut Inbox) {
        match event {
            Event::Heard(Wakeup::Message(message)) => self.receive(&message),
            Event::Heard(Wakeup::Work(_, event)) => self.follow(event),
            Event::Rest => {
                self.state = match std::mem::take(&mut self.state) {
                    State::Idle(idle) => self.begin(idle),
                    at_work => at_work,
                };
            }
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        self.state = State::default();
    }

    fn recover(&mut self, _: &Envelope) {}
}

fn tell_failure(query_id: QueryId, problem: &str) {
    tracing::info!(%query_id, "an engram stays without intent and entities: {problem}");
}
