//! Recall: results by meaning and by words, exclusions, and the order of the rest.

use hone_memory::{Engram, EngramKind, Fact, Filters, Matching, MemoryStore, RecallQuestion, Update, Vetting, Whose};
use hone_protocol::{FinishReason, Grade, Rating, RespondentId, VettingState};

use super::{Home, check_whole};
use crate::support::{engram, id, with_cosine};

const MATCHING: Matching = Matching {
    threshold: 0.4,
    nearness: 0.0,
    words_threshold: 0.9,
    least_words: 0.0,
    words_weight: 0.25,
    facts_weight: 0.0,
    duplicate: 0.995,
    same_statement: 0.9,
    changed_statement: 0.6,
};

/// A complete answer by respondent A.
fn answered(number: u64, query: &str, answer: &str) -> Engram {
    Engram {
        query: query.to_owned(),
        answer: answer.to_owned(),
        respondent_id: RespondentId::A,
        finish_reason: Some(FinishReason::Stop),
        ..engram(number)
    }
}

fn fact(text: &str, is_update: bool, cosine: f32) -> Fact {
    Fact { text: text.to_owned(), is_update, vector: Some(with_cosine(cosine)) }
}

fn question(text: &str, known: &[&str]) -> RecallQuestion {
    RecallQuestion {
        text: text.to_owned(),
        vector: with_cosine(1.0),
        known: known.iter().map(|text| (*text).to_owned()).collect(),
        matching: MATCHING,
        keeps_all: false,
    }
}

/// Checks a recall with the settings of a chat: the questions, or the statements of facts.
#[track_caller]
fn check(store: &MemoryStore, question: RecallQuestion, expected: &[&str]) {
    let unhelpful = vec!["I don't know".to_owned()];
    let filters = Filters { facts: true, worth_recalling: true, unhelpful, ..Filters::default() };
    let found = store.recall(question, 3, &filters).unwrap();
    assert_eq!(found.iter().map(|found| found.query.as_str()).collect::<Vec<_>>(), expected, "{found:#?}");
}

#[test]
fn what_helps_nobody_is_left_out() {
    let home = Home::new();
    let store = home.open();
    let cut = Engram { finish_reason: Some(FinishReason::Length), ..answered(1, "cut", "It is") };
    let stopped = Engram { finish_reason: None, ..answered(2, "stopped", "It") };
    let unseen = Engram { respondent_id: RespondentId::B, ..answered(3, "unseen", "It is so.") };
    let unknowing = answered(4, "unknowing", "I’m afraid I don’t know that.");
    let bad = answered(5, "bad", "It is wrong.");
    let good = answered(6, "good", "It is right.");
    for (engram, cosine) in [(cut, 0.99), (stopped, 0.95), (unseen, 0.9), (unknowing, 0.85), (bad, 0.8), (good, 0.7)] {
        store.remember(engram, Some(with_cosine(cosine))).unwrap();
    }
    check(&store, question("anything", &[]), &["bad", "good"]);
    store.annotate_feedback(id(5), Some(Rating::Bad)).unwrap();
    check(&store, question("anything", &[]), &["good"]);
    check(&store, question("anything", &["good"]), &[]);
}

#[test]
fn what_a_judge_graded_poor_is_left_out_unless_the_person_liked_it() {
    let home = Home::new();
    let store = home.open();
    for (number, query, score) in [(1, "one", 1), (2, "two", 2), (3, "three", 3), (4, "liked", 1)] {
        store.remember(answered(number, query, "It is."), Some(with_cosine(1.0 - 0.1 * number as f32))).unwrap();
        store.update_score(id(number), &Grade { score: Some(score), ..Grade::default() }).unwrap();
    }
    store.annotate_feedback(id(4), Some(Rating::Good)).unwrap();
    check(&store, question("anything", &[]), &["liked", "three"]);
    let reviewed = Filters { reviewed: true, ..Filters::default() };
    let found = store.recall(question("anything", &[]), 3, &reviewed).unwrap();
    assert_eq!(found.iter().map(|found| found.query.as_str()).collect::<Vec<_>>(), ["liked"]);
}

#[test]
fn a_search_without_limits_finds_what_is_contrary_to_the_question() {
    let home = Home::new();
    let store = home.open();
    for (number, query, cosine) in [(1, "like it", 0.9), (2, "contrary", -0.4)] {
        store.remember(answered(number, query, "It is."), Some(with_cosine(cosine))).unwrap();
    }
    let unlimited = Matching { threshold: -1.0, ..MATCHING };
    check(&store, RecallQuestion { matching: unlimited, ..question("anything", &[]) }, &["like it", "contrary"]);
}

/// "What is the capital of Peru?" is like "What is the capital of Cuba?", and does not answer it.
#[test]
fn a_share_of_the_words_can_be_demanded_beside_the_meaning() {
    let home = Home::new();
    let store = home.open();
    for (number, name) in [(1, "Peru"), (2, "Cuba"), (3, "Chile"), (4, "Kenya")] {
        let exchange = answered(number, &format!("What is the capital of {name}?"), "A city.");
        store.remember(exchange, Some(vec![0.9, 0.1 * number as f32, 0.4])).unwrap();
    }
    let demanding = RecallQuestion {
        matching: Matching { least_words: 0.5, duplicate: 1.0, ..MATCHING },
        ..question("What is the capital of Cuba?", &[])
    };
    check(&store, demanding.clone(), &["What is the capital of Cuba?"]);
    check(&store, RecallQuestion { text: "What is the capital of Mongolia?".into(), ..demanding }, &[]);
}

#[test]
fn names_and_numbers_are_found_by_their_words() {
    let home = Home::new();
    let store = home.open();
    store
        .remember(answered(1, "Which grout suits the tile AZ-5518?", "A flexible one."), Some(with_cosine(0.1)))
        .unwrap();
    check(&store, question("AZ-5518", &[]), &["Which grout suits the tile AZ-5518?"]);
    check(&store, question("AZ-9999", &[]), &[]);
    // Also without a vector; and the index follows writes and removals.
    store.remember(answered(2, "Is KLM-48 a plate?", "It is."), None).unwrap();
    check(&store, question("klm 48", &[]), &["Is KLM-48 a plate?"]);
    store.remove(&[id(1)]).unwrap();
    check(&store, question("AZ-5518", &[]), &[]);
    drop(store);
    check(&home.open(), question("klm 48", &[]), &["Is KLM-48 a plate?"]);
}

#[test]
fn both_rankings_count() {
    let home = Home::new();
    let store = home.open();
    // Equally far from each other, like unrelated things.
    for (number, text, vector) in
        [(1, "the red bike", [0.7, 0.7, 0.0]), (2, "a car", [0.72, -0.7, 0.0]), (3, "a ship", [0.74, 0.0, 0.7])]
    {
        store.remember(answered(number, text, "Yes."), Some(vector.to_vec())).unwrap();
    }
    check(&store, question("a thing", &[]), &["a ship", "a car", "the red bike"]);
    check(&store, question("the red thing", &[]), &["the red bike", "a ship", "a car"]);
}

#[test]
fn facts_stand_for_their_exchange_and_the_newest_comes_first() {
    let home = Home::new();
    let store = home.open();
    let asked = |number, query: &str| answered(number, query, "So be it.");
    let remember = |number, query: &str, facts: Vec<Fact>| {
        store.remember_exchange(asked(number, query), Some(with_cosine(0.5)), Some(facts), None).unwrap()
    };
    assert_eq!(remember(1, "I drive a Saab, ok?", vec![fact("I drive a Saab", false, 0.9)]), 1);
    assert_eq!(remember(2, "I drive a Volvo now, ok?", vec![fact("I drive a Volvo now", true, 0.6)]), 3);
    let cat = Fact { vector: Some(vec![0.55, 0.0, 0.8]), ..fact("My cat is Mia", false, 0.0) };
    remember(3, "My cat is Mia, ok?", vec![cat]);
    check(&store, question("a thing", &[]), &["I drive a Volvo now", "I drive a Saab", "My cat is Mia"]);
    check(&store, question("a thing", &["I drive a Volvo now, ok?"]), &["I drive a Saab", "My cat is Mia"]);
    // Remembering it again changes nothing.
    assert_eq!(remember(1, "I drive a Saab, ok?", vec![fact("I drive a Saab", false, 0.9)]), 1);
    check_whole(&store, 6, 6);
}

#[test]
fn a_fact_does_not_take_the_place_of_the_answer_that_was_given() {
    let home = Home::new();
    let store = home.open();
    for (number, cosine, expected) in [(1, 0.76, "I oil a deck, which oil?"), (2, 0.6, "I oil a deck")] {
        let exchange = answered(number, "I oil a deck, which oil?", "Take linseed oil.");
        store
            .remember_exchange(exchange, Some(with_cosine(cosine)), Some(vec![fact("I oil a deck", false, 0.8)]), None)
            .unwrap();
        check(&store, question("a thing", &[]), &[expected]);
        store.remove(&[id(number)]).unwrap();
    }
    // An exchange that stands for a fact is as new as the fact.
    for (number, query, text, cosine) in
        [(3, "I drive a Saab, ok?", "I drive a Saab", 0.9), (4, "I drive a Volvo now, ok?", "I drive a Volvo now", 0.7)]
    {
        let facts = vec![fact(text, number == 4, cosine)];
        store
            .remember_exchange(answered(number, query, "Fine."), Some(with_cosine(cosine - 0.01)), Some(facts), None)
            .unwrap();
    }
    check(&store, question("a thing", &[]), &["I drive a Volvo now, ok?", "I drive a Saab, ok?"]);
}

#[test]
fn of_engrams_that_say_the_same_the_newest_stands() {
    let home = Home::new();
    let store = home.open();
    for (number, answer, cosine) in [(1, "No.", 0.801), (2, "Yes.", 0.8)] {
        store
            .remember(
                answered(number, &format!("Is fire hot{}", "?".repeat(number as usize)), answer),
                Some(with_cosine(cosine)),
            )
            .unwrap();
    }
    check(&store, question("a thing", &[]), &["Is fire hot??"]);
}

#[test]
fn a_summary_comes_before_what_it_was_made_from_once_it_is_reviewed() {
    let home = Home::new();
    let store = home.open();
    store.remember(answered(1, "eggs", "Six minutes."), Some(with_cosine(0.9))).unwrap();
    store.remember(answered(2, "milk", "In the fridge."), Some(with_cosine(0.8))).unwrap();
    for (number, query, state) in
        [(3, "all of eggs", VettingState::Reviewed), (4, "more of eggs", VettingState::Unreviewed)]
    {
        let (kind, sources) = (EngramKind::Consolidation, vec![id(1)]);
        let vetting = Vetting { state, ..Vetting::default() };
        let summary = Engram { kind, sources, vetting, ..answered(number, query, "Boil them for six minutes.") };
        store.remember(summary, Some(with_cosine(0.8 - 0.1 * number as f32))).unwrap();
    }
    let filters = Filters { notes: true, worth_recalling: true, ..Filters::default() };
    let found = store.recall(question("anything", &[]), 4, &filters).unwrap();
    let found: Vec<&str> = found.iter().map(|found| found.query.as_str()).collect();
    assert_eq!(found, ["all of eggs", "eggs", "milk", "more of eggs"]);
}

#[test]
fn facts_come_and_go_with_their_exchange() {
    let home = Home::new();
    let store = home.open();
    store.remember(answered(1, "My dog is Rex, ok?", "Fine."), Some(with_cosine(0.5))).unwrap();
    store.remember_exchange(answered(2, "Is it?", "Yes."), None, Some(Vec::new()), None).unwrap();
    let left: Vec<_> = store.engrams_without_facts(9).unwrap().into_iter().map(|engram| engram.query_id).collect();
    assert_eq!(left, [id(1)], "an earlier version did not look for facts");
    let stated = || vec![fact("My dog is Rex", false, 0.9), fact("It is old", false, 0.3)];
    assert_eq!(store.add_facts(id(1), stated()), Ok(Update::Merged));
    assert_eq!(store.add_facts(id(1), stated()), Ok(Update::Merged));
    assert_eq!(store.add_facts(id(9), stated()), Ok(Update::Missing));
    assert_eq!(store.engrams_without_facts(9).unwrap(), []);
    let listed = |facts| store.list(&Filters { facts, ..Filters::default() }, 9).unwrap();
    assert_eq!((listed(false).len(), listed(true).len()), (2, 4), "facts are listed when they are asked for");
    let engrams = listed(true);
    let facts: Vec<&Engram> = engrams.iter().filter(|engram| engram.kind == EngramKind::Fact).collect();
    assert!(facts.iter().all(|fact| fact.source == Some(id(1)) && fact.answer.is_empty()), "{facts:#?}");
    let statistics = store.statistics(Whose::Everyones).unwrap();
    assert_eq!((statistics.all.engrams, statistics.facts), (2, 2));
    check(&store, question("a thing", &[]), &["My dog is Rex"]);
    let mut exported = Vec::new();
    store.export(&mut exported).unwrap();
    let copy = Home::new();
    assert_eq!(copy.open().import(exported.as_slice()).unwrap().added, 4);
    check(&copy.open(), question("a thing", &[]), &["My dog is Rex"]);
    assert_eq!(store.remove(&[id(1)]), Ok(vec![Update::Merged]));
    check(&store, question("a thing", &[]), &[]);
    check_whole(&store, 1, 0);
}
