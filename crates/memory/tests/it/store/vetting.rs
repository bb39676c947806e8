//! Quarantine: a critic's or a person's decision about an engram is one write, and the first decision stands.

use hone_memory::{Criticized, Engram, EngramKind, EventFilter, Filters, MemoryStore, Update, Vetting, Whose};
use hone_protocol::{
    ContentType, CriticDecision, CriticMode, CritiqueLevel, CritiqueResult, FinishReason, Payload, QueryId, Subject,
    Timestamp, VettingState,
};

use super::{Home, check_whole, numbers};
use crate::support::{engram, id};

const STATES: [VettingState; 3] = VettingState::ALL;

/// An engram that may be recalled.
fn complete(number: u64) -> Engram {
    Engram { finish_reason: Some(FinishReason::Stop), ..engram(number) }
}

/// A summary of other engrams.
fn note(number: u64, sources: &[u64]) -> Engram {
    let sources = sources.iter().copied().map(id).collect();
    Engram { kind: EngramKind::Consolidation, sources, ..complete(number) }
}

fn critique(level: CritiqueLevel, at: u64) -> Vetting {
    let should_block = level == CritiqueLevel::Block;
    let result = CritiqueResult {
        level: Some(level),
        validity_score: Some(0.25),
        should_block,
        reasoning: "It is vague.".to_owned(),
        ..CritiqueResult::default()
    };
    let state = if should_block { VettingState::Blocked } else { VettingState::Reviewed };
    let critique = Criticized { at: Timestamp(at), mode: CriticMode::Hard, result };
    Vetting { state, critique: Some(Box::new(critique)), ..Vetting::default() }
}

fn vet(store: &MemoryStore, engram: &Engram, vetting: &Vetting) -> Update {
    let decision = CriticDecision {
        content_type: ContentType::General,
        level: None,
        validity_score: None,
        state: vetting.state,
        mode: CriticMode::Hard,
        reason: "It is vague.".to_owned(),
    };
    store.vet(engram, vetting.clone(), decision).unwrap()
}

fn state(store: &MemoryStore, number: u64) -> VettingState {
    store.get(id(number)).unwrap().unwrap().vetting.state
}

fn subjects(store: &MemoryStore) -> Vec<Subject> {
    let events = store.events(&EventFilter::default(), None).unwrap();
    events.iter().map(|(_, envelope)| envelope.subject()).collect()
}

#[test]
fn the_first_decision_stands_and_is_counted_once() {
    let home = Home::new();
    let store = home.open();
    for number in [2, 4, 6] {
        store.remember(complete(number), None).unwrap();
    }
    vet(&store, &complete(2), &critique(CritiqueLevel::Minor, 10));
    vet(&store, &complete(4), &critique(CritiqueLevel::Block, 20));
    let abstained = Vetting { note: Some("no judge".to_owned()), ..Vetting::default() };
    vet(&store, &complete(6), &abstained);
    // A repetition, and a different decision that comes too late.
    vet(&store, &complete(2), &critique(CritiqueLevel::Minor, 10));
    vet(&store, &complete(4), &critique(CritiqueLevel::Pass, 30));
    assert_eq!(vet(&store, &complete(8), &abstained), Update::Missing);
    drop(store);
    let store = home.open();
    assert_eq!([2, 4, 6].map(|number| state(&store, number)), [STATES[1], STATES[2], STATES[0]]);
    assert_eq!(store.get(id(6)).unwrap().unwrap().vetting, abstained);
    let records = store.critiques(None).unwrap();
    let said: Vec<_> = records.iter().map(|record| (record.query_id, record.level, record.should_block)).collect();
    assert_eq!(said, [(id(2), CritiqueLevel::Minor, false), (id(4), CritiqueLevel::Block, true)]);
    assert_eq!(store.critiques(Some(Timestamp(11))).unwrap().len(), 1);
    assert_eq!(subjects(&store), [Subject::CriticPassed, Subject::CriticBlocked, Subject::CriticAbstained]);
    let statistics = store.statistics(Whose::Everyones).unwrap();
    assert_eq!((statistics.reviewed, statistics.blocked), (1, 1));
    // An engram that was kept back can be decided about later.
    vet(&store, &complete(6), &critique(CritiqueLevel::Pass, 40));
    assert_eq!(state(&store, 6), VettingState::Reviewed);
    check_whole(&store, 3, 0);
}

#[test]
fn a_person_overrules_a_block() {
    let home = Home::new();
    let store = home.open();
    for number in [2, 4] {
        store.remember(complete(number), None).unwrap();
        vet(&store, &complete(number), &critique(CritiqueLevel::Block, number));
    }
    store.rule_on_block(&complete(2), false).unwrap();
    store.rule_on_block(&complete(4), true).unwrap();
    assert_eq!([2, 4].map(|number| state(&store, number)), [VettingState::Reviewed, VettingState::Blocked]);
    let ruled: Vec<_> = store.critiques(None).unwrap().iter().map(|it| it.ruling.unwrap().is_right).collect();
    assert_eq!(ruled, [false, true]);
    assert_eq!(subjects(&store)[2..], [Subject::CriticReviewed, Subject::CriticReviewed]);
}

#[test]
fn only_what_is_reviewed_is_long_term_memory() {
    let home = Home::new();
    let store = home.open();
    for number in [2, 4, 6] {
        store.remember(complete(number), None).unwrap();
    }
    vet(&store, &complete(4), &critique(CritiqueLevel::Pass, 1));
    vet(&store, &complete(6), &critique(CritiqueLevel::Block, 2));
    let listed = |filters: Filters| numbers(&store.list(&filters, 9).unwrap());
    assert_eq!(listed(Filters { worth_recalling: true, ..Filters::default() }), [4, 2]);
    assert_eq!(listed(Filters { worth_recalling: true, reviewed: true, ..Filters::default() }), [4]);
    assert_eq!(listed(Filters { vetting: Some(VettingState::Blocked), ..Filters::default() }), [6]);
}

#[test]
fn an_override_is_seen_by_every_holder_of_memory() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    assert_eq!(other.critic_override().unwrap(), None);
    store.set_critic_override(Some(CriticMode::Off)).unwrap();
    assert_eq!(other.critic_override().unwrap(), Some(CriticMode::Off));
    other.set_critic_override(None).unwrap();
    assert_eq!(store.critic_override().unwrap(), None);
    assert_eq!(subjects(&store), [Subject::CriticOverridden; 2]);
}

#[test]
fn what_was_made_from_a_forgotten_answer_is_forgotten_with_it() {
    let home = Home::new();
    let store = home.open();
    for engram in [complete(2), complete(4), note(6, &[2]), note(8, &[4]), note(10, &[6, 4])] {
        store.remember(engram, None).unwrap();
    }
    vet(&store, &note(6, &[2]), &critique(CritiqueLevel::Block, 1));
    store.remove(&[id(2)]).unwrap();
    let everything = Filters { notes: true, facts: true, ..Filters::default() };
    assert_eq!(numbers(&store.list(&everything, 9).unwrap()), [8, 4]);
    let events = store.events(&EventFilter::default(), None).unwrap();
    let Payload::CriticBlocked(decision) = &events[0].1.payload else { panic!("{events:?}") };
    assert_eq!(decision.reason, "", "the log does not say what it was about");
    assert_eq!(store.critiques(None).unwrap().len(), 1, "but that it was criticized");
    check_whole(&store, 2, 0);
}

#[test]
fn critiques_move_with_their_engrams() {
    let home = Home::new();
    let store = home.open();
    store.remember(complete(2), None).unwrap();
    store.remember(note(4, &[2]), None).unwrap();
    vet(&store, &complete(2), &critique(CritiqueLevel::Block, 7));
    let mut lines = Vec::new();
    store.export(&mut lines).unwrap();
    let elsewhere = Home::new();
    let copy = elsewhere.open();
    copy.import(lines.as_slice()).unwrap();
    assert_eq!(copy.critiques(None).unwrap(), store.critiques(None).unwrap());
    let found: Vec<QueryId> = copy.get(id(4)).unwrap().unwrap().sources;
    assert_eq!((state(&copy, 2), found), (VettingState::Blocked, vec![id(2)]));
}
