//! Memory on disk: what is written, read, updated, found, moved.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use hone_memory::{Engram, EventFilter, Filters, Imported, MemoryError, MemoryOptions, MemoryStore, Ranking, Update};
use hone_protocol::{
    Chunk, Comparison, Critique, Envelope, Feedback, Judging, Nothing, Payload, Preference, Rating, Recall, RecallMode,
    RecalledEngram, RespondentId, SessionId, Subject,
};
use serde_json::Value;
use support::{Home, engram, grade, id, vector, with_cosine};

fn numbers(engrams: &[Engram]) -> Vec<u64> {
    engrams.iter().map(|engram| engram.at.0 / 1_000).collect()
}

#[track_caller]
fn check_whole(store: &MemoryStore, engrams: u64, vectors: u64) {
    let verification = store.verify().unwrap();
    assert_eq!(verification.problems, [""; 0]);
    assert_eq!((verification.engrams, verification.vectors, verification.indexed), (engrams, vectors, vectors));
}

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
    assert_eq!(store.annotate_feedback(id(1), Rating::Good), Ok(Update::Merged));
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
    assert_eq!(store.annotate_feedback(id(2), Rating::Bad), Ok(Update::Missing));
    assert_eq!(store.annotate_meaning(id(2), None, Vec::new()), Ok(Update::Missing));
    assert_eq!(store.set_vector(id(2), vector(1, 8)), Ok(Update::Missing));
    assert_eq!(store.remove(&[id(2), id(1)]), Ok(vec![Update::Missing, Update::Merged]));
    check_whole(&store, 0, 0);
}

/// What stands on both engrams after a comparison, and what the updates said.
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
fn fields_of_a_later_version_survive_updates_and_moves() {
    let (home, other) = (Home::new(), Home::new());
    let store = home.open();
    let mut fields = serde_json::to_value(engram(1)).unwrap();
    fields["mood"] = "curious".into();
    let line = serde_json::json!({ "engram": fields }).to_string();
    store.import(line.as_bytes()).unwrap();
    store.update_score(id(1), &grade(Some(2))).unwrap();
    let mut exported = Vec::new();
    store.export(&mut exported).unwrap();
    let moved = other.open();
    moved.import(exported.as_slice()).unwrap();
    for store in [store, moved] {
        let fields = store.fields(id(1)).unwrap().unwrap();
        assert_eq!((&fields["mood"], &fields["critic_score"]), (&Value::from("curious"), &Value::from(2)));
    }
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

/// Remembers answers of these similarities and scores, and checks in which order a search finds them.
#[track_caller]
fn check_search(answers: &[(f32, Option<u8>)], n: usize, filters: Filters, score_weight: f32, expected: &[usize]) {
    let home = Home::new();
    let store = home.open_with(MemoryOptions { ranking: Ranking { score_weight }, ..MemoryOptions::default() });
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
    // The best grade is far behind the candidates that the index gives first, and still found.
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
    assert_eq!(numbers(&store.engrams_without_vector(support::MODEL, 9).unwrap()), [2, 3, 4]);
    check_whole(&store, 4, 1);
}

/// Imports vectors of 5 dimensions where the model's have 8, has the model be heard, and checks that all can be found in
/// the end, also by those who open memory anew.
#[track_caller]
fn check_healing(is_heard: impl Fn(&MemoryStore)) {
    let home = Home::new();
    let store = home.open();
    let lines = [1, 2].map(|number| exported_line(number, &vector(number, 5))).join("\n");
    assert_eq!(store.import(lines.as_bytes()).unwrap().added, 2);
    store.remember(engram(3), None).unwrap();
    is_heard(&store);
    let lacking = || numbers(&store.engrams_without_vector(support::MODEL, 9).unwrap());
    let n_found = |store: &MemoryStore| store.search(&vector(1, 8), 9, &Filters::default()).unwrap().len();
    let n_lacking = lacking().len();
    assert!(lacking().starts_with(&[1, 2]), "{:?}", lacking());
    assert_eq!(n_found(&store), 3 - n_lacking);
    assert_eq!(store.statistics().unwrap().vectors.values().sum::<u64>(), 3 - n_lacking as u64);
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
    assert_eq!(numbers(&store.engrams_without_vector(support::MODEL, 9).unwrap()), [0; 0]);
    store.remember(engram(2), Some(vector(2, 5))).unwrap();
    assert_eq!(store.search(&vector(1, 5), 9, &Filters::default()).unwrap().len(), 1);
    assert_eq!(store.statistics().unwrap().vectors.values().copied().collect::<Vec<_>>(), [1, 1]);
    assert_eq!(store.set_vector(id(1), vector(1, 5)), Ok(Update::Merged));
    assert_eq!(store.search(&vector(1, 5), 9, &Filters::default()).unwrap().len(), 2);
    check_whole(&store, 2, 2);
    drop(store);
    check_whole(&home.open(), 2, 0);
    check_whole(&home.open_with(other()), 2, 2);
}

#[test]
fn what_a_process_left_unfinished_is_no_hindrance() {
    let home = Home::new();
    let path = |name: &str| home.folder.path().join(name);
    // A process ended while it began memory, another one while it opened it, a third while it saved the index.
    fs::create_dir_all(path("store.unfinished")).unwrap();
    fs::write(path("store.unfinished/conf"), b"segm").unwrap();
    let store = home.open();
    store.remember(engram(1), Some(vector(1, 8))).unwrap();
    drop(store);
    fs::write(path("store/snap.FFFFFFFFFFFFFFFF.generating"), b"").unwrap();
    fs::write(path(".unfinished-index-1"), b"half of it").unwrap();
    let store = home.open();
    check_whole(&store, 1, 1);
    assert!(!path("store.unfinished").exists() && !path(".unfinished-index-1").exists());
}

/// What was asked of a process that was stopped is done when it goes on, although it has been kept and taken in meanwhile.
#[test]
fn an_event_that_comes_twice_is_there_once() {
    let home = Home::new();
    let store = home.open();
    let cancelled = Payload::QueryCancelled(Nothing {});
    let event = Envelope::new("test", SessionId::from_bits(1), cancelled);
    assert_eq!((store.append_event(&event), store.append_event(&event)), (Ok(1), Ok(1)));
    assert_eq!(store.events(&EventFilter::default(), None).unwrap().len(), 1);
}

/// Spoils a file of storage, and checks that memory opens all the same or says what to do.
#[track_caller]
fn check_damage(name: &str, spoil: impl Fn(&mut Vec<u8>)) -> bool {
    let home = Home::new();
    let store = home.open();
    for number in 1..=50 {
        store.remember(engram(number), Some(vector(number, 384))).unwrap();
    }
    drop(store);
    for entry in fs::read_dir(home.folder.path().join("store")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(name) {
            let mut bytes = fs::read(&path).unwrap();
            spoil(&mut bytes);
            fs::write(&path, bytes).unwrap();
        }
    }
    let opened = MemoryStore::open(home.folder.path(), MemoryOptions::default());
    let error = match opened.and_then(|store| store.list(&Filters::default(), 99)) {
        Ok(found) => return found.len() == 50,
        Err(error) => error,
    };
    assert!(matches!(error, MemoryError::Corrupted { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("hone memory repair"), "{error}");
    assert!(error.contains(&format!("in {} are", home.folder.path().display())), "{error}");
    false
}

#[test]
fn damaged_files_are_said_to_be_so_with_what_to_do() {
    assert!(check_damage("nothing", |_| {}));
    let flip = |bytes: &mut Vec<u8>, place: usize, n: usize| {
        bytes.iter_mut().skip(place).take(n).for_each(|byte| *byte ^= 0x55);
    };
    // All that these say is in the log, and so they are made anew.
    assert!(check_damage("conf", |bytes| flip(bytes, 0, 99)));
    assert!(check_damage("snap", |bytes| flip(bytes, 0, 999)));
    assert!(check_damage("snap", |bytes| bytes.truncate(bytes.len() / 2)));
    assert!(!check_damage("db", |bytes| flip(bytes, 0, 200)));
    assert!(!check_damage("db", |bytes| flip(bytes, 30, 200)));
    // sled does without these.
    check_damage("conf", |bytes| bytes.truncate(4));
    check_damage("db", |bytes| flip(bytes, 60_000, 200));
}

/// Does something to the index's file between two lives of a memory, and checks that the second one has all vectors.
#[track_caller]
fn check_index_file(spoil: impl Fn(&Home)) {
    let home = Home::new();
    let store = home.open();
    for number in 1..=5 {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    drop(store);
    spoil(&home);
    check_whole(&home.open(), 5, 5);
}

#[test]
fn an_index_that_does_not_fit_is_built_anew() {
    let file = |home: &Home| home.folder.path().join("vectors.index");
    check_index_file(|_| {});
    check_index_file(|home| fs::remove_file(file(home)).unwrap());
    check_index_file(|home| fs::write(file(home), b"").unwrap());
    check_index_file(|home| fs::write(file(home), b"nonsense that is longer than a checksum would be").unwrap());
    for position in [0, 40, 200, 1_000] {
        check_index_file(|home| {
            let mut bytes = fs::read(file(home)).unwrap();
            bytes[position] ^= 1;
            fs::write(file(home), bytes).unwrap();
        });
    }
    check_index_file(|home| {
        let bytes = fs::read(file(home)).unwrap();
        fs::write(file(home), &bytes[..bytes.len() / 2]).unwrap();
    });
    // The index of another memory, of more and of fewer changes.
    for n_changes in [2, 9] {
        check_index_file(|home| {
            let other = Home::new();
            let store = other.open();
            for number in 1..=n_changes {
                store.remember(engram(number + 100), Some(vector(number + 100, 8))).unwrap();
            }
            drop(store);
            fs::copy(file(&other), file(home)).unwrap();
        });
    }
}

#[test]
fn an_index_is_saved_now_and_then_and_caught_up() {
    let home = Home::new();
    let options = || MemoryOptions { changes_until_save: 4, ..MemoryOptions::default() };
    let file = home.folder.path().join("vectors.index");
    let store = home.open_with(options());
    for number in 1..=4 {
        assert!(!file.exists());
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    let saved = fs::read(&file).unwrap();
    store.remove(&[id(1)]).unwrap();
    store.remember(engram(5), Some(vector(5, 8))).unwrap();
    assert_eq!(fs::read(&file).unwrap(), saved);
    drop(store);
    // As after a crash: the index lacks the last changes.
    fs::write(&file, saved).unwrap();
    let store = home.open_with(options());
    check_whole(&store, 4, 4);
}

fn exported_line(number: u64, vector: &[f32]) -> String {
    let vector = serde_json::json!({ "model": support::MODEL, "values": vector });
    serde_json::json!({ "engram": engram(number), "vector": vector }).to_string()
}

#[test]
fn an_export_restores_a_memory_whole() {
    let (home, other) = (Home::new(), Home::new());
    let store = home.open();
    for number in 1..=300 {
        let vector = (number % 3 > 0).then(|| vector(number, 384));
        store.remember(engram(number), vector).unwrap();
        if number % 5 == 0 {
            store.update_score(id(number), &grade(Some(3))).unwrap();
        }
    }
    store.remove(&[id(7)]).unwrap();
    let mut exported = Vec::new();
    assert_eq!(store.export(&mut exported).unwrap(), 299);
    let restored = other.open();
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 299, already_there: 0 });
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 0, already_there: 299 });
    let mut again = Vec::new();
    restored.export(&mut again).unwrap();
    let without_sequence = |bytes: &[u8]| -> Vec<Value> {
        let lines = std::str::from_utf8(bytes).unwrap().lines();
        lines
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                line["engram"]["sequence"].take();
                line
            })
            .collect()
    };
    assert_eq!(without_sequence(&again), without_sequence(&exported));
    check_whole(&restored, 299, 200 - 1);
    // What was learnt since the export stays, and keeps nothing from being restored.
    restored.annotate_meaning(id(1), Some("to learn".into()), Vec::new()).unwrap();
    restored.remove(&[id(2)]).unwrap();
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 1, already_there: 298 });
    assert_eq!(restored.get(id(1)).unwrap().unwrap().intent.as_deref(), Some("to learn"));
}

#[test]
fn an_import_with_a_broken_line_writes_nothing() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), None).unwrap();
    let good = exported_line(2, &vector(2, 8));
    let check = |line: &str, complaint: &str| {
        let text = format!("{good}\n\n{line}\n");
        let error = store.import(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 3: ") && error.contains(complaint), "{error}");
        check_whole(&store, 1, 0);
    };
    check("{", "EOF");
    check("{}", "engram");
    check("{\"engram\": {}}", "query_id");
    check(&good, "line 1 is engram");
    check(&exported_line(3, &[0.0]), "no direction");
    check(&exported_line(3, &vector(3, 7)), "has 7 dimensions, others have 8");
    let mut other: Value = serde_json::from_str(&exported_line(1, &vector(1, 8))).unwrap();
    other["engram"]["answer"] = "Another one.".into();
    check(&other.to_string(), "another engram is remembered under its id");
    let mut wrong: Value = serde_json::from_str(&exported_line(3, &vector(3, 8))).unwrap();
    wrong["engram"]["judge"] = "j".into();
    wrong["engram"]["critic_score"] = 6.into();
    check(&wrong.to_string(), "critic_score");
    assert_eq!(store.import(good.as_bytes()).unwrap(), Imported { added: 1, already_there: 0 });
    let error = store.import(exported_line(4, &vector(4, 7)).as_bytes()).unwrap_err().to_string();
    assert!(
        error.contains("line 1: ") && error.contains("has 7 dimensions, those that are remembered have 8"),
        "{error}"
    );
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
    assert!(error("019900000").contains("more than one"));
    assert!(error("ffffff").contains("no engram"));
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
    let statistics = store.statistics().unwrap();
    assert_eq!((statistics.all.engrams, statistics.all.scored, statistics.all.unscored), (4, 1, 3));
    assert_eq!(statistics.all.mean_score, Some(5.0));
    assert_eq!((statistics.events, statistics.indexed_vectors), (1, 4));
    assert_eq!(statistics.vectors[support::MODEL], 4);
    assert!(statistics.storage_bytes > 0 && statistics.index_memory_bytes > 0);
}

/// An event about the answer of that number, whose texts are those of the engram.
fn event_about(number: u64, payload: Payload) -> Envelope {
    event(1, payload).about(id(number), id(number), RespondentId::A)
}

#[test]
fn a_forgotten_answer_is_forgotten_by_the_event_log() {
    let home = Home::new();
    let store = home.open();
    let critique = |number: u64| {
        let Engram { query, answer, .. } = engram(number);
        Payload::CritiqueResult(Critique { query, answer, grade: grade(Some(4)) })
    };
    let recalled = |number: u64| {
        let Engram { query_id, query, answer, .. } = engram(number);
        RecalledEngram { query_id, query, answer, score: None, similarity: 0.9, relevance: 0.9 }
    };
    let search = "What was 1 of 2?".to_owned();
    let recall = Recall { mode: RecallMode::Context, search, engrams: vec![recalled(1), recalled(3)] };
    let preference = Preference { reason: "A says that it is 1.".into(), ..Preference::default() };
    let (query_id_a, query_id_b) = (id(2), id(1));
    let (score_a, score_b) = (Some(3), None);
    let compared = Comparison { original_query_id: id(2), query_id_a, query_id_b, score_a, score_b, preference };
    let events = [
        event_about(1, critique(1)),
        event_about(2, critique(2)),
        event_about(2, Payload::MemoryRecalled(recall.clone())),
        event_about(2, Payload::PairwiseResult(compared)),
        event_about(1, Payload::MemoryRecalled(recall)),
    ];
    for (number, event) in (1..).zip(&events) {
        store.append_event(event).unwrap();
        store.remember(engram(number), None).unwrap();
    }
    assert_eq!(store.remove(&[id(1), id(9)]), Ok(vec![Update::Merged, Update::Missing]));
    let check = |store: &MemoryStore| {
        let kept = store.events(&EventFilter::default(), None).unwrap();
        assert_eq!(kept.len(), events.len(), "what happened stays");
        assert_eq!(kept[1].1, events[1], "another answer stays as it was");
        let Payload::CritiqueResult(critique) = &kept[0].1.payload else { panic!("{kept:?}") };
        assert_eq!((critique.grade.score, critique.grade.feedback.as_str()), (Some(4), ""));
        let json = |place: usize| serde_json::to_string(&kept[place].1).unwrap();
        let all: String = (0..events.len()).map(json).collect();
        for text in ["What is 1?", "it is 1."] {
            assert!(!all.contains(text), "{all}");
        }
        assert!(json(2).contains("What was 1 of 2?") && json(2).contains("What is 3?"), "{}", json(2));
        assert!(!json(4).contains("What was 1 of 2?"), "{}", json(4));
    };
    check(&store);
    drop(store);
    check(&home.open());
}

fn event(session: u128, payload: Payload) -> Envelope {
    Envelope::new("test", SessionId::from_bits(session), payload)
}

#[test]
fn events_are_kept_in_order() {
    let home = Home::new();
    let store = home.open();
    let feedback = || Payload::UserFeedback(Feedback { rating: Rating::Good });
    let events: Vec<Envelope> = (0..5)
        .map(|number| event(number % 2, if number == 2 { Payload::SessionClosed(Nothing {}) } else { feedback() }))
        .collect();
    for (number, event) in (1..).zip(&events) {
        assert_eq!(store.append_event(event), Ok(number));
    }
    let chunk = event(1, Payload::ResponseChunk(Chunk::Text("hello".into())));
    assert_eq!(store.append_event(&chunk), Err(MemoryError::Chunk));
    drop(store);
    let store = home.open();
    let check = |filter: EventFilter, after: Option<u64>, expected: &[u64]| {
        let found = store.events(&filter, after).unwrap();
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected, "{filter:?}");
        assert!(found.iter().all(|(number, found)| *found == events[*number as usize - 1]));
    };
    check(EventFilter::default(), None, &[1, 2, 3, 4, 5]);
    check(EventFilter::default(), Some(3), &[4, 5]);
    check(EventFilter::default(), Some(5), &[]);
    check(EventFilter { last: Some(2), ..EventFilter::default() }, None, &[4, 5]);
    check(EventFilter { subjects: vec![Subject::SessionClosed], ..EventFilter::default() }, None, &[3]);
    let last_of_session =
        EventFilter { session: Some(SessionId::from_bits(1)), last: Some(1), ..EventFilter::default() };
    check(last_of_session, None, &[4]);
}

#[test]
fn events_are_followed_as_they_come() {
    let home = Home::new();
    let store = home.open();
    let closed = |session| event(session, Payload::SessionClosed(Nothing {}));
    store.append_event(&closed(1)).unwrap();
    let of_session = EventFilter { session: Some(SessionId::from_bits(1)), ..EventFilter::default() };
    let mut from_now = store.follow_events(&of_session, None).unwrap();
    let mut from_the_start = store.follow_events(&of_session, Some(0)).unwrap();
    let numbers = |follower: &mut hone_memory::EventFollower, milliseconds| {
        let events = follower.next(std::time::Duration::from_millis(milliseconds)).unwrap();
        events.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&mut from_the_start, 60_000), [1]);
    assert_eq!(numbers(&mut from_now, 0), [0; 0]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut seen = Vec::new();
            while seen.len() < 2 {
                seen.extend(numbers(&mut from_now, 60_000));
            }
            seen
        });
        for session in [2, 1, 2, 1] {
            store.append_event(&closed(session)).unwrap();
        }
        assert_eq!(waiting.join().unwrap(), [3, 5]);
    });
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
    assert_eq!(store.statistics().unwrap().all.scored, 200);
    let mut sequences: Vec<u64> =
        store.list(&Filters::default(), 999).unwrap().iter().map(|engram| engram.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=200).collect::<Vec<_>>());
}

#[test]
fn a_memory_that_is_closed_can_be_opened_at_once() {
    let home = Home::new();
    for number in 1..=20 {
        assert_eq!(home.open().remember(engram(number), None), Ok(number));
    }
}
