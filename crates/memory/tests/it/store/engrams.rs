//! Remembering, updating, listing and counting engrams.

use hone_memory::{Engram, Filters, MemoryError, MemoryStore, Update, Whose};
use hone_protocol::{Comparison, Judging, Nothing, Payload, Preference, Rating, RespondentId};

use super::{Home, check_whole, event, numbers};
use crate::support::{MODEL, engram, grade, id, vector};

#[test]
fn what_is_remembered_is_there_after_reopening() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(store.remember(engram(1), Some(vector(1, 8))), Ok(1));
    assert_eq!(store.remember(engram(2), None), Ok(2));
    let check = |store: &MemoryStore| {
        let found = store.get(id(1)).unwrap().unwrap();
        assert_eq!(found, Engram { sequence: 1, ..engram(1) });
        assert_eq!(store.get(id(3)), Ok(None));
        check_whole(store, 2, 1);
    };
    check(&store);
    drop(store);
    check(&home.open());
}

#[test]
fn remembering_again_changes_nothing_and_something_else_is_refused() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), None).unwrap();
    store.update_score(id(1), &grade(Some(4))).unwrap();
    assert_eq!(store.remember(engram(1), None), Ok(1));
    assert_eq!(store.get(id(1)).unwrap().unwrap().score(), Some(4), "the grade stays");
    let other = Engram { answer: "Something else.".into(), ..engram(1) };
    assert_eq!(store.remember(other, None), Err(MemoryError::Conflict { id: id(1) }));
    assert_eq!(store.remember(engram(2), None), Ok(2), "no number is skipped");
}

#[test]
fn updates_merge_and_keep_the_rest() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), None).unwrap();
    assert_eq!(store.update_score(id(1), &grade(Some(4))), Ok(Update::Merged));
    assert_eq!(store.annotate_feedback(id(1), Some(Rating::Good)), Ok(Update::Merged));
    assert_eq!(store.annotate_meaning(id(1), Some("sums".into()), vec!["one".into()]), Ok(Update::Merged));
    let expected = Engram {
        sequence: 1,
        grade: Some(grade(Some(4))),
        user_feedback: Some(Rating::Good),
        intent: Some("sums".into()),
        entities: vec!["one".into()],
        ..engram(1)
    };
    assert_eq!(store.get(id(1)).unwrap().unwrap(), expected);
    assert_eq!(store.update_score(id(1), &grade(None)), Ok(Update::Merged));
    assert_eq!(store.get(id(1)).unwrap().unwrap(), expected, "unscored is no news");
}

#[test]
fn a_missing_engram_is_no_error() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), None).unwrap();
    assert_eq!(store.update_score(id(2), &grade(Some(4))), Ok(Update::Missing));
    assert_eq!(store.annotate_feedback(id(2), Some(Rating::Bad)), Ok(Update::Missing));
    assert_eq!(store.annotate_meaning(id(2), None, Vec::new()), Ok(Update::Missing));
    assert_eq!(store.set_vector(id(2), vector(1, 8)), Ok(Update::Missing));
    assert_eq!(store.remove(&[id(2), id(1)]), Ok(vec![Update::Missing, Update::Merged]));
    check_whole(&store, 0, 0);
}

/// Checks the fields of both engrams after a comparison, and the results of the updates.
#[track_caller]
fn check_pairwise(winner: Option<RespondentId>, failure: Option<&str>, expected: [Option<bool>; 2]) {
    let home = Home::new();
    let store = home.open();
    for number in [1, 2] {
        store.remember(Engram { pairwise_winner: None, ..engram(number) }, None).unwrap();
    }
    let judging = Judging { failure: failure.map(str::to_owned), ..Judging::default() };
    let comparison = Comparison {
        original_query_id: id(1),
        query_id_a: id(1),
        query_id_b: id(2),
        score_a: None,
        score_b: None,
        preference: Preference { winner, judging, ..Preference::default() },
    };
    assert_eq!(store.annotate_pairwise(&comparison), Ok([Update::Merged; 2]));
    assert_eq!([1, 2].map(|number| store.get(id(number)).unwrap().unwrap().pairwise_winner), expected);
    let missing = Comparison { query_id_a: id(9), ..comparison };
    assert_eq!(store.annotate_pairwise(&missing), Ok([Update::Missing, Update::Merged]));
}

#[test]
fn a_comparison_stands_on_both_engrams() {
    check_pairwise(Some(RespondentId::A), None, [Some(true), Some(false)]);
    check_pairwise(Some(RespondentId::B), None, [Some(false), Some(true)]);
    check_pairwise(None, None, [None, None]);
    check_pairwise(None, Some("the judge is silent"), [None, None]);
}

#[test]
fn the_latest_are_listed_first() {
    let home = Home::new();
    let store = home.open();
    for number in 1..=6 {
        store.remember(engram(number), None).unwrap();
    }
    store.update_score(id(4), &grade(Some(5))).unwrap();
    let check = |filters: Filters, n: usize, expected: &[u64]| {
        assert_eq!(numbers(&store.list(&filters, n).unwrap()), expected, "{filters:?}");
    };
    check(Filters::default(), usize::MAX, &[6, 5, 4, 3, 2, 1]);
    check(Filters::default(), 2, &[6, 5]);
    check(Filters { respondent: Some(RespondentId::B), ..Filters::default() }, 2, &[5, 3]);
    check(Filters { scored: Some(true), ..Filters::default() }, 2, &[4]);
}

#[test]
fn ids_are_abbreviated_as_far_as_they_differ() {
    let home = Home::new();
    let store = home.open();
    for number in [1, 2, 0x12] {
        store.remember(engram(number), None).unwrap();
    }
    assert_eq!(store.abbreviate(&[id(1), id(2), id(0x12)]), Ok(vec![32, 32, 31]));
    assert_eq!(store.resolve(&id(1).to_string()), Ok(id(1)));
    assert_eq!(store.resolve("0199000000007000800000000000001"), Ok(id(0x12)));
    let error = |text: &str| store.resolve(text).unwrap_err().to_string();
    assert!(error("019900000").contains("several ids"));
    assert!(error("ffffff").contains("no id begins"));
    assert!(error("0199").contains("6 to 32"));
}

#[test]
fn statistics_count_what_is_there() {
    let home = Home::new();
    let store = home.open();
    for number in 1..=4 {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    store.update_score(id(1), &grade(Some(5))).unwrap();
    store.update_score(id(2), &grade(None)).unwrap();
    store.append_event(&event(1, Payload::SessionClosed(Nothing {}))).unwrap();
    let statistics = store.statistics(Whose::Everyones).unwrap();
    assert_eq!((statistics.all.engrams, statistics.all.scored, statistics.all.unscored), (4, 1, 3));
    assert_eq!(statistics.all.mean_score, Some(5.0));
    assert_eq!((statistics.events, statistics.indexed_vectors), (1, 4));
    assert_eq!(statistics.vectors[MODEL], 4);
    assert!(statistics.storage_bytes > 0);
    assert_eq!(statistics.index_memory_bytes > 0, home.url().is_none());
}

#[test]
fn many_threads_write_at_once() {
    let home = Home::new();
    let store = home.open();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = store.clone();
            scope.spawn(move || {
                for number in (0..25).map(|number| thread * 100 + number) {
                    store.remember(engram(number), Some(vector(number, 8))).unwrap();
                    store.update_score(id(number), &grade(Some(3))).unwrap();
                }
            });
        }
    });
    check_whole(&store, 200, 200);
    assert_eq!(store.statistics(Whose::Everyones).unwrap().all.scored, 200);
    let mut sequences: Vec<u64> =
        store.list(&Filters::default(), 999).unwrap().iter().map(|engram| engram.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=200).collect::<Vec<_>>());
}
