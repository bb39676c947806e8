//! Agents whose state machines a defect has left where they cannot be: they log it, begin anew, and lose nothing.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use hone_bus::{Agent, Bus, Mailbox, Overload, Subscription, spawn};
use hone_memory::{MemoryOptions, MemoryStore};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{
    Envelope, FinishReason, Payload, Query, QueryId, RespondentId, Response, SamplingOptions, SessionId, Subject,
    Timings,
};
use hone_quality::{CriticSettings, Fallback, FenceKey, Judge, Rubric};

use crate::critic::{self, CriticAgent};
use crate::generator::{self, GeneratorAgent, GeneratorParts, Respondent};
use crate::machine::{Machine, Named, Table};
use crate::meaning::{self, MeaningAgent, MeaningParts};
use crate::memory::{self, MemoryAgent};
use crate::settings::settings_for_tests;
use crate::thinking::ThinkingSettings;

/// Starts an agent at every state of its table, tells it the same twice, and waits until `expected` was heard twice.
#[track_caller]
fn check<S: Named, A: Named, G: Agent>(
    table: &'static Table<S, A>,
    subjects: &[Subject],
    make: impl Fn(&Bus, Machine<S, A>) -> G + Clone + Send + 'static,
    told: impl Fn() -> Envelope,
    expected: Subject,
) {
    for &state in S::ALL {
        let bus = Bus::new();
        let ears = listen(&bus, "ears", &[expected]);
        let subscription = Subscription {
            name: "agent".to_owned(),
            subjects: subjects.to_vec(),
            sessions: None,
            capacity: 8,
            overload: Overload::Wait,
        };
        let (agents_bus, make) = (bus.clone(), make.clone());
        let handle = spawn(&bus, subscription, move || make(&agents_bus, Machine::at(table, state))).unwrap();
        for attempt in ["first", "second"] {
            bus.publish(told()).unwrap();
            let heard = ears.receiver().recv_timeout(Duration::from_secs(60));
            assert!(heard.is_ok(), "nothing came of the {attempt} message to an agent at {}", state.name());
        }
        drop(handle);
        assert!(ears.receiver().is_empty());
    }
}

fn listen(bus: &Bus, name: &str, subjects: &[Subject]) -> Mailbox {
    let subjects = subjects.to_vec();
    bus.subscribe(Subscription {
        name: name.to_owned(),
        subjects,
        sessions: None,
        capacity: 8,
        overload: Overload::Wait,
    })
}

fn about_a_question(payload: Payload) -> Envelope {
    let id = QueryId::fresh();
    Envelope::new("test", SessionId::from_bits(1), payload).about(id, id, RespondentId::A)
}

fn answer() -> Envelope {
    about_a_question(Payload::ResponseGeneration(Response {
        query: "why?".to_owned(),
        answer: "So.".to_owned(),
        thinking: String::new(),
        model: "m".to_owned(),
        sampling: SamplingOptions::default(),
        finish_reason: Some(FinishReason::Stop),
        timings: Timings::default(),
    }))
}

fn question() -> Envelope {
    about_a_question(Payload::QueryReceived(Query {
        query: "why?".to_owned(),
        history: Vec::new(),
        model: "m".to_owned(),
        sampling: SamplingOptions::default(),
        max_tokens: None,
        stop: Vec::new(),
    }))
}

fn store() -> (tempfile::TempDir, MemoryStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(folder.path(), MemoryOptions::default()).unwrap();
    (folder, store)
}

#[test]
fn the_generator_answers_from_every_state() {
    let parts = |bus: &Bus| GeneratorParts {
        bus: bus.clone(),
        respondent: Respondent { id: RespondentId::A, name: "generator", model: None, temperature: None },
        generator: Arc::new(Scripted::always(Script::saying(&["So."]))),
        thinking: ThinkingSettings::default(),
        recaller: None,
    };
    let make = move |bus: &Bus, machine| {
        let mut agent = GeneratorAgent::new(parts(bus));
        agent.machine = machine;
        agent
    };
    check(&generator::states::TABLE, &generator::SUBJECTS, make, question, Subject::ResponseGeneration);
}

#[test]
fn the_critic_grades_from_every_state() {
    let judge = |verdict: &str| {
        let settings = CriticSettings { fallback: Fallback::None, ..CriticSettings::shipped() };
        let rubric = Rubric::shipped(&settings.rubric).unwrap().unwrap();
        Judge::new(
            Arc::new(Scripted::always(Script::saying(&[verdict]))),
            settings,
            rubric,
            FenceKey::from_bytes([0; FenceKey::LENGTH]),
        )
        .unwrap()
    };
    let make = move |bus: &Bus, machine| {
        let mut agent = CriticAgent::new(bus.clone(), judge("[RESULT] 4"));
        agent.machine = machine;
        agent
    };
    check(&critic::states::TABLE, &critic::SUBJECTS, make, answer, Subject::CritiqueResult);
}

#[test]
fn memory_remembers_from_every_state() {
    let (_folder, store) = store();
    let make = move |bus: &Bus, machine| {
        let mut agent = MemoryAgent::new(bus.clone(), store.clone(), None);
        agent.machine = machine;
        agent
    };
    check(&memory::states::TABLE, &memory::SUBJECTS, make, answer, Subject::MemoryStored);
}

#[test]
fn meaning_is_extracted_from_every_state() {
    let (_folder, store) = store();
    let generator = Arc::new(Scripted::always(Script::saying(&[r#"{"intent": "x", "entities": []}"#])));
    let parts = MeaningParts {
        store: store.clone(),
        generator: Arc::clone(&generator) as _,
        settings: Arc::new(settings_for_tests()),
        waits_for_grades: false,
    };
    for &state in meaning::states::State::ALL {
        let bus = Bus::new();
        let subscription = Subscription {
            name: "agent".to_owned(),
            subjects: meaning::SUBJECTS.to_vec(),
            sessions: None,
            capacity: 8,
            overload: Overload::Wait,
        };
        let parts = parts.clone();
        let make = move || {
            let mut agent = MeaningAgent::new(parts.clone());
            agent.machine = Machine::at(&meaning::states::TABLE, state);
            agent
        };
        let handle = spawn(&bus, subscription, make).unwrap();
        let answer = answer();
        let id = answer.query_id.unwrap();
        let Payload::ResponseGeneration(response) = &answer.payload else { panic!("it is an answer") };
        let sequence = store.remember(hone_memory::Engram::new(id, answer.session_id, response), None).unwrap();
        bus.publish(answer.reply("test", Payload::MemoryStored(hone_protocol::Stored { sequence }))).unwrap();
        let begin = std::time::Instant::now();
        while store.get(id).unwrap().unwrap().intent.is_none() {
            assert!(begin.elapsed().as_secs() < 60, "an agent at {} extracted nothing", state.name());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(handle);
    }
}
