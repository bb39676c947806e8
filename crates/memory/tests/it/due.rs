//! Requests that memory cannot take are kept and applied later, once each.

use std::fs;

use hone_memory::{Due, Engram, EventFilter, Filters, MemoryError, MemoryOptions, MemoryStore, Update, Whose};
use hone_protocol::{
    Comparison, Envelope, Grade, Nothing, Payload, Preference, QueryId, Rating, RespondentId, SessionId,
};

use crate::support::{self, Home, engram, grade, id, vector};

/// Options with which every write finds the disk full.
fn full() -> MemoryOptions {
    MemoryOptions { reserved_bytes: u64::MAX / 2, ..MemoryOptions::default() }
}

fn event(number: u64) -> Envelope {
    let about = QueryId::from_bits(u128::from(number));
    let cancelled = Payload::QueryCancelled(Nothing {});
    Envelope::new("test", SessionId::from_bits(1), cancelled).about(about, about, RespondentId::A)
}

fn comparison() -> Comparison {
    let preference = Preference { winner: Some(RespondentId::B), ..Preference::default() };
    let [original_query_id, query_id_a, query_id_b] = [id(1), id(1), id(2)];
    Comparison { original_query_id, query_id_a, query_id_b, score_a: None, score_b: None, preference }
}

/// Remembers two answers with all possible annotations.
fn remember_all(store: &MemoryStore) {
    assert_eq!(store.remember(engram(1), Some(vector(1, 8))), Ok(0));
    assert_eq!(store.remember(engram(2), None), Ok(0));
    assert_eq!(store.update_score(id(1), &grade(Some(2))), Ok(Update::Kept));
    assert_eq!(store.update_score(id(1), &grade(Some(5))), Ok(Update::Kept));
    assert_eq!(store.annotate_pairwise(&comparison()), Ok([Update::Kept; 2]));
    assert_eq!(store.annotate_feedback(id(2), Some(Rating::Bad)), Ok(Update::Kept));
    assert_eq!(store.append_event(&event(1)), Ok(0));
    assert_eq!(store.loss(), None);
}

#[track_caller]
fn check_all(store: &MemoryStore) {
    let [first, second] = [1, 2].map(|number| store.get(id(number)).unwrap().unwrap());
    assert_eq!((first.score(), first.pairwise_winner, first.user_feedback), (Some(5), Some(false), None));
    assert_eq!((second.score(), second.pairwise_winner, second.user_feedback), (None, Some(true), Some(Rating::Bad)));
    assert_eq!(store.list(&Filters::default(), 9).unwrap().len(), 2);
    assert_eq!(store.events(&EventFilter::default(), None).unwrap().len(), 1);
    let statistics = store.statistics(Whose::Everyones).unwrap();
    assert_eq!((statistics.due, statistics.vectors[support::MODEL]), (0, 1));
    assert_eq!(store.verify().unwrap().problems, [""; 0]);
}

#[test]
fn what_a_full_disk_refuses_is_remembered_when_there_is_room() {
    let home = Home::new();
    let (store, error) = MemoryStore::keeping(home.folder.path(), full());
    assert_eq!(error, None);
    remember_all(&store);
    assert_eq!(store.statistics(Whose::Everyones).unwrap().due, 7);
    drop(store);
    for _ in 0..2 {
        check_all(&home.open());
    }
}

#[test]
fn a_grade_that_is_due_is_kept_with_its_answer() {
    let home = Home::new();
    let (store, _) = MemoryStore::keeping(home.folder.path(), full());
    for number in [1, 2] {
        let engram = Engram { due: Some(Due::fresh(false)), ..engram(number) };
        assert_eq!(store.remember(engram, None), Ok(0));
        assert_eq!(store.update_score(id(number), &Grade::unscored("timeout")), Ok(Update::Kept));
    }
    assert_eq!(store.update_score(id(1), &grade(Some(5))), Ok(Update::Kept));
    drop(store);
    let store = home.open();
    let backlog = store.backlog().unwrap();
    assert_eq!(backlog.iter().map(|entry| (entry.query_id, entry.due.failures)).collect::<Vec<_>>(), [(id(2), 1)]);
    assert_eq!(store.get(id(1)).unwrap().unwrap().score(), Some(5));
}

#[test]
fn what_cannot_even_be_opened_is_remembered_when_it_can() {
    let home = Home::new();
    home.open().remember(engram(9), None).unwrap();
    let [log, away] = ["store/db", "store/away"].map(|name| home.folder.path().join(name));
    fs::rename(&log, &away).unwrap();
    fs::create_dir(&log).unwrap();
    let (store, error) = MemoryStore::keeping(home.folder.path(), MemoryOptions::default());
    assert!(error.is_some());
    store.check_keeping().unwrap();
    remember_all(&store);
    assert!(store.get(id(1)).is_err(), "what is not there cannot be read");
    fs::remove_dir(&log).unwrap();
    fs::rename(&away, &log).unwrap();
    let other = home.open();
    assert_eq!(other.remove(&[id(9)]), Ok(vec![Update::Merged]));
    check_all(&other);
}

#[test]
fn a_running_owner_takes_in_what_is_due_before_it_answers() {
    let home = Home::new();
    let owner = home.open();
    owner.remember(engram(1), None).unwrap();
    // Another process had found the owner hanging.
    let elsewhere = Home::new();
    let (outsider, _) = MemoryStore::keeping(elsewhere.folder.path(), full());
    assert_eq!(outsider.remember(engram(2), None), Ok(0));
    assert_eq!(outsider.update_score(id(1), &grade(Some(4))), Ok(Update::Kept));
    fs::rename(elsewhere.folder.path().join("due"), home.folder.path().join("due")).unwrap();
    assert_eq!(owner.get(id(1)).unwrap().unwrap().score(), Some(4));
}

#[test]
fn what_memory_will_never_take_is_put_aside() {
    let home = Home::new();
    let (store, _) = MemoryStore::keeping(home.folder.path(), full());
    store.remember(engram(1), None).unwrap();
    store.remember(engram(2), None).unwrap();
    drop(store);
    let due = home.folder.path().join("due");
    let first = fs::read_dir(&due).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    fs::write(&first, "garbage").unwrap();
    let store = home.open();
    assert_eq!(store.list(&Filters::default(), 9).unwrap().len(), 1);
    assert_eq!(fs::read_dir(due.join("refused")).unwrap().count(), 1);
}

#[test]
fn what_can_neither_be_remembered_nor_kept_is_said_to_be_lost() {
    let home = Home::new();
    fs::write(home.folder.path().join("due"), "in the way").unwrap();
    let (store, _) = MemoryStore::keeping(home.folder.path(), full());
    assert!(store.check_keeping().is_err());
    let error = store.remember(engram(1), None).unwrap_err();
    assert!(matches!(error, MemoryError::NotKept { .. }), "{error}");
    assert_eq!(store.loss(), Some(error));
}

#[test]
fn who_does_not_ask_for_keeping_gets_the_error() {
    let home = Home::new();
    let store = home.open_with(full());
    assert!(matches!(store.remember(engram(1), None), Err(MemoryError::DiskFull { .. })));
    assert!(!home.folder.path().join("due").exists());
}
