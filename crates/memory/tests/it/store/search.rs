//! Searching by vector, and the effect on vectors of a change of the embedding model.

use hone_memory::{Filters, MemoryOptions, MemoryStore, Ranking, Update, Whose};

use super::{Home, check_whole, exported_line, numbers};
use crate::support::{MODEL, engram, grade, id, vector, with_cosine};

/// Remembers answers with these similarities and scores, and checks the order of the search results.
#[track_caller]
fn check_search(answers: &[(f32, Option<u8>)], n: usize, filters: Filters, score_weight: f32, expected: &[usize]) {
    let home = Home::new();
    let store = home.open_with(MemoryOptions {
        ranking: Ranking { score_weight, ..Ranking::default() },
        ..MemoryOptions::default()
    });
    for (number, (similarity, score)) in (0..).zip(answers) {
        store.remember(engram(number), Some(with_cosine(*similarity))).unwrap();
        store.update_score(id(number), &grade(*score)).unwrap();
    }
    let found = store.search(&[2.0, 0.0, 0.0], n, &filters).unwrap();
    let order: Vec<usize> = found
        .iter()
        .map(|found| (0..answers.len()).find(|number| found.query_id == id(*number as u64)).unwrap())
        .collect();
    assert_eq!(order, expected);
    for (found, number) in found.iter().zip(order) {
        assert!((found.similarity - answers[number].0).abs() < 1e-5, "{found:?}");
        assert_eq!(found.score, answers[number].1);
    }
}

#[test]
fn search_ranks_by_similarity_and_score() {
    let none = Filters::default;
    check_search(&[], 3, none(), 0.2, &[]);
    check_search(&[(0.5, None), (0.9, None), (-0.5, None)], 3, none(), 0.2, &[1, 0, 2]);
    check_search(&[(0.5, None), (0.9, None), (0.7, None)], 2, none(), 0.2, &[1, 2]);
    check_search(&[(0.80, Some(1)), (0.75, Some(5))], 2, none(), 0.2, &[1, 0]);
    check_search(&[(0.80, Some(1)), (0.75, Some(5))], 2, none(), 0.0, &[0, 1]);
    check_search(&[(0.8, None), (0.7, None)], 2, Filters { min_similarity: Some(0.75), ..none() }, 0.2, &[0]);
    check_search(&[(0.8, None), (0.7, Some(4))], 2, Filters { min_score: Some(4), ..none() }, 0.2, &[1]);
    // The best grade is far behind the first candidates of the index, and is still found.
    let mut many = vec![(0.9, Some(1)); 200];
    many.push((0.85, Some(5)));
    check_search(&many, 1, none(), 0.2, &[200]);
    let one_of_many = Filters { text: Some("What is 200?".into()), ..none() };
    check_search(&many, 1, one_of_many, 0.2, &[200]);
}

#[test]
fn search_finds_among_more_vectors_than_are_all_compared() {
    let home = Home::new();
    let store = home.open();
    let lines: Vec<String> = (0..5_500).map(|number| exported_line(number, &vector(number, 32))).collect();
    store.import(lines.join("\n").as_bytes()).unwrap();
    for number in [0, 17, 5_499] {
        let found = store.search(&vector(number, 32), 3, &Filters::default()).unwrap();
        assert_eq!(found[0].query_id, id(number));
        assert!((found[0].similarity - 1.0).abs() < 1e-5);
    }
}

#[test]
fn no_engram_is_lost_because_of_its_vector() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), Some(vector(1, 8))).unwrap();
    for (number, vector) in (2..).zip([vec![0.0; 8], vec![f32::NAN; 8], Vec::new()]) {
        assert_eq!(store.remember(engram(number), Some(vector.clone())), Ok(number));
        let error = store.search(&vector, 1, &Filters::default()).unwrap_err().to_string();
        assert!(error.contains("no direction"), "{error}");
        assert_eq!(store.set_vector(id(1), vector).unwrap_err().to_string(), error);
    }
    assert_eq!(numbers(&store.engrams_without_vector(MODEL, 9).unwrap()), [2, 3, 4]);
    check_whole(&store, 4, 1);
}

/// Imports vectors of 5 dimensions for a model whose vectors have 8, lets the model provide one, and checks that all
/// can finally be found, also after memory is reopened.
#[track_caller]
fn check_healing(is_heard: impl Fn(&MemoryStore)) {
    let home = Home::new();
    let store = home.open();
    let lines = [1, 2].map(|number| exported_line(number, &vector(number, 5))).join("\n");
    assert_eq!(store.import(lines.as_bytes()).unwrap().added, 2);
    store.remember(engram(3), None).unwrap();
    is_heard(&store);
    let lacking = || numbers(&store.engrams_without_vector(MODEL, 9).unwrap());
    let n_found = |store: &MemoryStore| store.search(&vector(1, 8), 9, &Filters::default()).unwrap().len();
    let n_lacking = lacking().len();
    assert!(lacking().starts_with(&[1, 2]), "{:?}", lacking());
    assert_eq!(n_found(&store), 3 - n_lacking);
    assert_eq!(store.statistics(Whose::Everyones).unwrap().vectors.values().sum::<u64>(), 3 - n_lacking as u64);
    check_whole(&store, 3, 3 - n_lacking as u64);
    let mut exported = Vec::new();
    store.export(&mut exported).unwrap();
    Home::new().open().import(exported.as_slice()).unwrap();
    drop(store);
    let store = home.open();
    check_whole(&store, 3, 3 - n_lacking as u64);
    for number in 1..=3 {
        store.set_vector(id(number), vector(number, 8)).unwrap();
    }
    assert_eq!(n_found(&store), 3);
    check_whole(&store, 3, 3);
    drop(store);
    check_whole(&home.open(), 3, 3);
}

#[test]
fn an_embedding_model_settles_how_many_dimensions_its_vectors_have() {
    check_healing(|store| assert_eq!(store.search(&vector(9, 8), 9, &Filters::default()).unwrap(), []));
    check_healing(|store| assert_eq!(store.set_vector(id(3), vector(3, 8)), Ok(Update::Merged)));
    check_healing(|store| {
        store.remove(&[id(3)]).unwrap();
        assert_eq!(store.remember(engram(3), Some(vector(3, 8))), Ok(4));
    });
}

#[test]
fn vectors_of_earlier_dimensions_count_again_when_their_model_returns() {
    let home = Home::new();
    let store = home.open();
    for number in 1..=3 {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    let n_found = |store: &MemoryStore, dimensions: usize| {
        store.search(&vector(1, dimensions), 9, &Filters::default()).unwrap().len()
    };
    assert_eq!(n_found(&store, 5), 0);
    store.set_vector(id(1), vector(1, 5)).unwrap();
    assert_eq!(n_found(&store, 5), 1);
    drop(store);
    let store = home.open();
    assert_eq!(n_found(&store, 5), 1);
    assert_eq!(n_found(&store, 8), 2);
    check_whole(&store, 3, 2);
    drop(store);
    let store = home.open();
    check_whole(&store, 3, 2);
    let error = store.import(exported_line(4, &vector(4, 5)).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line 1: ") && error.contains("has 5 dimensions"), "{error}");
}

#[test]
fn removed_engrams_are_found_no_more() {
    let home = Home::new();
    let store = home.open();
    for number in 1..=3 {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    drop(store);
    let store = home.open();
    store.remove(&[id(2)]).unwrap();
    assert_eq!(store.remember(engram(4), Some(vector(4, 8))), Ok(4), "a number is given once");
    let found = |store: &MemoryStore| {
        let mut found: Vec<u64> = store
            .search(&vector(2, 8), 9, &Filters::default())
            .unwrap()
            .iter()
            .map(|found| (1..9).find(|number| id(*number) == found.query_id).unwrap())
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(found(&store), [1, 3, 4]);
    drop(store);
    let store = home.open();
    assert_eq!(found(&store), [1, 3, 4]);
    store.remember(engram(2), Some(vector(2, 8))).unwrap();
    assert_eq!(found(&store), [1, 2, 3, 4]);
    check_whole(&store, 4, 4);
}

#[test]
fn vectors_of_another_model_stay_and_are_not_searched() {
    let home = Home::new();
    let other = || MemoryOptions { embedding_model: "other:1".into(), ..MemoryOptions::default() };
    home.open().remember(engram(1), Some(vector(1, 8))).unwrap();
    let store = home.open_with(other());
    assert_eq!(numbers(&store.engrams_without_vector("other:1", 9).unwrap()), [1]);
    assert_eq!(numbers(&store.engrams_without_vector(MODEL, 9).unwrap()), [0; 0]);
    store.remember(engram(2), Some(vector(2, 5))).unwrap();
    assert_eq!(store.search(&vector(1, 5), 9, &Filters::default()).unwrap().len(), 1);
    assert_eq!(store.statistics(Whose::Everyones).unwrap().vectors.values().copied().collect::<Vec<_>>(), [1, 1]);
    assert_eq!(store.set_vector(id(1), vector(1, 5)), Ok(Update::Merged));
    assert_eq!(store.search(&vector(1, 5), 9, &Filters::default()).unwrap().len(), 2);
    check_whole(&store, 2, 2);
    drop(store);
    check_whole(&home.open(), 2, 0);
    check_whole(&home.open_with(other()), 2, 2);
}
