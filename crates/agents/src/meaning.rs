//! The meaning agent: finds out, in the background, what an exchange was after and what it is about.
//!
//! The model that answered is asked under a JSON schema, in the background and once the answer has been graded. What a
//! session leaves undone (somebody asked one question and left, say) is done in the next one with the same model. A
//! failure leaves intent and entities empty.

mod jobs;
pub(crate) mod states;

use std::sync::Arc;

use crossbeam_channel::{RecvError, never, select_biased};
use hone_bus::{Agent, Inbox};
use hone_memory::{Engram, Filters, MemoryStore};
use hone_protocol::{
    Completion, Constraint, Envelope, Generate, GenerateRequest, Generation, GenerationEvent, Lane, Message, Payload,
    Prompt, QueryId, Role, SamplingOptions, Subject, with_causes,
};
use hone_quality::fill;
use serde::Deserialize;
use serde_json::json;

use self::jobs::Jobs;
use self::states::{Action, State, TABLE};
use crate::machine::{IllegalTransition, Machine};
use crate::settings::{MemorySettings, shortened};
use crate::topic::Topic;

/// The agent's name.
pub(crate) const NAME: &str = "meaning";

/// What the agent listens to.
pub(crate) const SUBJECTS: [Subject; 2] = [Subject::MemoryStored, Subject::CritiqueResult];

/// So many of the latest engrams are looked at for what was left undone.
const LOOKED_BACK: usize = 200;

/// Bounds of what is extracted.
const LONGEST_INTENT: usize = 80;
const LONGEST_ENTITY: usize = 60;
const MOST_ENTITIES: usize = 8;

/// What the agent needs from outside.
#[derive(Clone)]
pub(crate) struct MeaningParts {
    pub(crate) store: MemoryStore,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) settings: Arc<MemorySettings>,
    /// Whether there is a critic whose grades are waited for.
    pub(crate) waits_for_grades: bool,
}

/// The agent's state.
pub(crate) struct MeaningAgent {
    parts: MeaningParts,
    pub(crate) machine: Machine<State, Action>,
    jobs: Jobs,
    work: Option<Work>,
    /// Whether it was looked for what earlier sessions have left undone.
    has_looked_back: bool,
}

/// What can happen to it.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    Generation(Result<GenerationEvent, RecvError>),
}

/// An extraction that is going on.
struct Work {
    query_id: QueryId,
    generation: Generation,
    completion: Completion,
}

/// What is extracted.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Meaning {
    intent: String,
    entities: Vec<String>,
}

impl MeaningAgent {
    pub(crate) fn new(parts: MeaningParts) -> Self {
        let jobs = Jobs::new(parts.waits_for_grades);
        MeaningAgent { parts, machine: Machine::new(&TABLE), jobs, work: None, has_looked_back: false }
    }

    fn receive(&mut self, message: &Envelope) -> Result<(), IllegalTransition> {
        let Some(topic) = Topic::of(message) else { return Ok(()) };
        match message.payload {
            Payload::MemoryStored(_) => {
                self.jobs.stored(topic.query_id);
                self.look_back(topic.query_id);
            }
            Payload::CritiqueResult(_) => self.jobs.graded(topic.query_id),
            _ => {}
        }
        self.begin()
    }

    /// Finds, once, what earlier sessions have left undone with the model that is at work now.
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
            Err(error) => tracing::info!("what was left undone is not known: {}", with_causes(&error)),
        }
    }

    /// Begins the next extraction, when there is none and this is the time.
    fn begin(&mut self) -> Result<(), IllegalTransition> {
        while self.work.is_none()
            && let Some(query_id) = self.jobs.next()
        {
            self.machine.begin(Action::StartExtract)?;
            match self.ask(query_id) {
                Ok(generation) => {
                    self.work = Some(Work { query_id, generation, completion: Completion::default() });
                }
                Err(problem) => self.fail(query_id, &problem)?,
            }
        }
        Ok(())
    }

    fn ask(&self, query_id: QueryId) -> Result<Generation, String> {
        let engram = self.parts.store.get(query_id).map_err(|error| with_causes(&error))?;
        let engram = engram.ok_or_else(|| "it is not remembered any more".to_owned())?;
        self.parts.generator.generate(self.request(&engram)).map_err(|error| with_causes(&error))
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

    fn follow(&mut self, event: Result<GenerationEvent, RecvError>) -> Result<(), IllegalTransition> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let outcome = match event.map(|event| work.completion.take(event)) {
            Ok(Ok(false)) => {
                self.work = Some(work);
                return Ok(());
            }
            Ok(Ok(true)) => parse(&work.completion.text),
            Ok(Err(error)) => Err(with_causes(&error)),
            Err(RecvError) => Err("the generator is gone".to_owned()),
        };
        match outcome {
            Ok(meaning) => self.annotate(work.query_id, meaning)?,
            Err(problem) => self.fail(work.query_id, &problem)?,
        }
        self.begin()
    }

    fn annotate(&mut self, query_id: QueryId, meaning: Meaning) -> Result<(), IllegalTransition> {
        self.machine.act(Action::AnnotateMeaning)?;
        let intent = Some(meaning.intent).filter(|intent| !intent.is_empty());
        match self.parts.store.annotate_meaning(query_id, intent, meaning.entities) {
            Ok(_) => self.machine.act(Action::Reset),
            Err(error) => self.fail(query_id, &with_causes(&error)),
        }
    }

    fn fail(&mut self, query_id: QueryId, problem: &str) -> Result<(), IllegalTransition> {
        tracing::info!(%query_id, "an engram stays without intent and entities: {problem}");
        self.machine.act(Action::Fail)?;
        self.machine.act(Action::Reset)
    }
}

impl Agent for MeaningAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let nothing = never();
        let generation = self.work.as_ref().map_or(&nothing, |work| work.generation.events());
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(generation) -> event => Some(Event::Generation(event)),
        }
    }

    fn handle_event(&mut self, event: Event, _: &mut Inbox) {
        let outcome = match event {
            Event::Message(message) => self.receive(&message),
            Event::Generation(event) => self.follow(event),
        };
        if outcome.is_err() {
            self.work = None;
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        self.work = None;
    }

    fn recover(&mut self, _: &Envelope) {}
}

fn schema() -> serde_json::Value {
    let text = |longest| json!({"type": "string", "maxLength": longest});
    json!({
        "type": "object",
        "properties": {
            "intent": text(LONGEST_INTENT),
            "entities": {"type": "array", "items": text(LONGEST_ENTITY), "maxItems": MOST_ENTITIES},
        },
        "required": ["intent", "entities"],
        "additionalProperties": false,
    })
}

fn parse(text: &str) -> Result<Meaning, String> {
    let meaning: Meaning = serde_json::from_str(text).map_err(|error| format!("{error} in {text:?}"))?;
    let mut entities: Vec<String> = Vec::new();
    for entity in meaning.entities {
        let entity = shortened(entity.trim(), LONGEST_ENTITY);
        if !entity.is_empty() && !entities.contains(&entity) && entities.len() < MOST_ENTITIES {
            entities.push(entity);
        }
    }
    Ok(Meaning { intent: shortened(meaning.intent.trim(), LONGEST_INTENT), entities })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &[&str])>) {
        let seen = parse(text).ok();
        let expected = expected.map(|(intent, entities)| Meaning {
            intent: intent.to_owned(),
            entities: entities.iter().map(|entity| (*entity).to_owned()).collect(),
        });
        assert_eq!(seen, expected, "{text:?}");
    }

    #[test]
    fn meanings_are_read() {
        check(
            r#"{"intent": " learn ", "entities": ["Paris", "", "Paris ", "Rome"]}"#,
            Some(("learn", &["Paris", "Rome"])),
        );
        check(r#"{"intent": "", "entities": []}"#, Some(("", &[])));
        check(r#"{"intent": "cut o"#, None);
        check("", None);
    }
}
