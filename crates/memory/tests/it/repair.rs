//! Damage to any file of memory, and the results of a repair: every acknowledged answer that at least one source still
//! has. `HONE_TORTURE=1` flips ten times as many bits.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use hone_memory::{
    Due, Engram, EventFilter, Filters, MemoryError, MemoryOptions, MemoryStore, Repaired, Source, repair,
};
use hone_protocol::{
    AnswerOptions, Envelope, Grade, GradedAnswer, Payload, Query, QueryId, RespondentId, Response, SamplingOptions,
    Timestamp,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::support::{copy_folder, engram, grade, id, vector, wait_until};

/// The number of answers remembered before the damage.
const ANSWERS: u64 = 60;

/// An engram. Some are so long that storage puts them into separate files.
fn original(number: u64) -> Engram {
    let repetitions = if number % 20 == 7 { 50_000 } else { 20 };
    Engram { answer: "It depends. ".repeat(repetitions), grade: Some(grade(Some(3))), ..engram(number) }
}

/// The events of an answer in a chat.
fn events_of(engram: &Engram) -> [Envelope; 3] {
    let [query, answer, model] = [&engram.query, &engram.answer, &engram.model].map(String::clone);
    let received = Query {
        query: query.clone(),
        history: Vec::new(),
        model: model.clone(),
        sampling: SamplingOptions::default(),
        max_tokens: None,
        stop: Vec::new(),
        options: AnswerOptions::default(),
    };
    let scope = engram.scope.clone();
    let response = Response { finish_reason: None, scope, ..Response::new(query.clone(), answer.clone(), model) };
    let critique = GradedAnswer { query, answer, grade: engram.grade.clone().unwrap() };
    [Payload::QueryReceived(received), Payload::ResponseGeneration(response), Payload::CritiqueResult(critique)].map(
        |payload| {
            let about = Envelope::new("test", engram.session_id, payload).owned_by(engram.owner);
            let about = about.about(engram.query_id, engram.correlation_id, engram.respondent_id);
            Envelope { at: engram.at, ..about }
        },
    )
}

/// A typical memory after chats, half of it written by an earlier process.
fn filled() -> TempDir {
    let folder = TempDir::new().unwrap();
    for numbers in [0..ANSWERS / 2, ANSWERS / 2..ANSWERS] {
        let store = open(folder.path()).unwrap();
        for number in numbers {
            let original = original(number);
            let [received, answered, graded] = events_of(&original);
            store.append_event(&received).unwrap();
            store.append_event(&answered).unwrap();
            let ungraded = Engram { grade: None, due: Some(Due::fresh(false)), ..original.clone() };
            store.remember(ungraded, Some(vector(number, 48))).unwrap();
            store.update_score(id(number), &original.grade.unwrap()).unwrap();
            store.append_event(&graded).unwrap();
        }
    }
    folder
}

fn open(folder: &Path) -> Result<MemoryStore, MemoryError> {
    MemoryStore::open(folder, MemoryOptions::default())
}

fn repaired(folder: &Path, elsewhere: &[Engram]) -> Repaired {
    repair(folder, &MemoryOptions::default(), elsewhere).unwrap()
}

/// Waits until a backup is complete; a separate thread writes it.
#[track_caller]
fn wait_for_backup(memory: &Path) {
    wait_until("a backup is complete", || !files(memory, ".jsonl.gz").is_empty());
}

/// Files below a folder whose paths contain `name`.
fn files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, name));
        } else if path.to_string_lossy().contains(name) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The number of answers that are unchanged and have their grades.
fn n_whole(store: &MemoryStore) -> u64 {
    let is_whole = |number: &u64| {
        let found = store.get(id(*number)).ok().flatten();
        found.is_some_and(|found| Engram { sequence: 0, ..found } == original(*number))
    };
    (0..ANSWERS).filter(is_whole).count() as u64
}

#[derive(Debug, Default)]
struct Figures {
    flips: u64,
    /// The number of times that memory could not be opened or read, with an error.
    refused: u64,
    /// The number of times that everything was there without a repair.
    healed: u64,
    events_lost: u64,
}

/// Flips a bit in a copy of memory, uses it as a user would, repairs it, and checks that every answer is there.
fn check_flip(memory: &Path, name: &str, random: &mut ChaCha8Rng, figures: &mut Figures) {
    let copy = TempDir::new().unwrap();
    copy_folder(memory, copy.path());
    let files = files(copy.path(), name);
    let file = &files[random.next_u32() as usize % files.len()];
    let mut bytes = fs::read(file).unwrap();
    // Unwritten space has no data to damage.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let (at, bit) = (random.next_u64() as usize % end, random.next_u32() % 8);
    bytes[at] ^= 1 << bit;
    fs::write(file, bytes).unwrap();
    let what = format!("bit {bit} of byte {at} of {name}");
    figures.flips += 1;
    match open(copy.path()).and_then(|store| Ok((store.list(&Filters::default(), usize::MAX)?, store))) {
        Ok((_, store)) => figures.healed += u64::from(n_whole(&store) == ANSWERS),
        Err(error) => {
            assert!(error.to_string().contains("hone memory repair"), "{what}: {error}");
            figures.refused += 1;
        }
    }
    let report = repaired(copy.path(), &[]);
    let store = open(copy.path()).unwrap();
    for number in 0..ANSWERS {
        let found = store.get(id(number)).unwrap().map(|found| Engram { sequence: 0, ..found });
        assert_eq!(found, Some(original(number)), "{what}: {report:?}");
    }
    assert_eq!((report.lost.len(), report.answers), (0, ANSWERS), "{what}: {report:?}");
    assert_eq!(store.verify().unwrap().problems, [""; 0], "{what}");
    let n_events = store.events(&EventFilter::default(), None).unwrap().len() as u64;
    figures.events_lost += 3 * ANSWERS - n_events;
}

#[test]
fn after_a_flipped_bit_in_any_file_a_repair_brings_every_answer_back() {
    let memory = filled();
    let scale = if env::var("HONE_TORTURE").is_ok() { 10 } else { 1 };
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for (name, n_flips) in
        [("store/db", 40), ("store/conf", 4), ("store/snap.", 6), ("store/blobs/", 6), ("vectors.index", 4)]
    {
        let mut figures = Figures::default();
        (0..n_flips * scale).for_each(|_| check_flip(memory.path(), name, &mut random, &mut figures));
        println!("{name}: {figures:?}");
        if matches!(name, "store/conf" | "store/snap." | "vectors.index") {
            assert_eq!((figures.healed, figures.events_lost), (figures.flips, 0), "{name}");
        }
    }
}

#[test]
fn what_storage_has_lost_comes_back_from_a_backup() {
    let memory = filled();
    let now = Timestamp::now();
    let store = open(memory.path()).unwrap();
    store.back_up_if_due(now);
    // The backup finishes before the store is closed, or while it is.
    wait_for_backup(memory.path());
    drop(store);
    fs::remove_dir_all(memory.path().join("store")).unwrap();
    let report = repaired(memory.path(), &[]);
    assert_eq!((report.answers, report.events), (ANSWERS, 3 * ANSWERS));
    assert_eq!(report.sources[&Source::Backup], ANSWERS);
    let store = open(memory.path()).unwrap();
    assert_eq!(n_whole(&store), ANSWERS);
    assert_eq!(store.list(&Filters::default(), 1).unwrap()[0].query_id, id(ANSWERS - 1), "they keep their order");
}

#[test]
fn what_nobody_else_has_comes_from_elsewhere_and_what_is_not_known_only_if_all_is_lost() {
    let memory = filled();
    let unknown = Engram { query_id: id(ANSWERS + 1), ..original(ANSWERS + 1) };
    let conversations = [original(3), unknown];
    assert!(repaired(memory.path(), &conversations).was_whole, "a whole memory is left alone");
    fs::write(memory.path().join("store/db"), b"").unwrap();
    assert_eq!(repaired(memory.path(), &conversations).answers, 0, "an empty log says that nothing was there");
    fs::remove_dir_all(memory.path().join("store")).unwrap();
    let report = repaired(memory.path(), &conversations);
    assert_eq!((report.answers, report.sources[&Source::Elsewhere]), (2, 2));
}

#[test]
fn what_was_forgotten_stays_forgotten() {
    let memory = filled();
    let store = open(memory.path()).unwrap();
    store.back_up_if_due(Timestamp::now());
    wait_for_backup(memory.path());
    store.remove(&[id(1), id(27)]).unwrap();
    drop(store);
    for damaged in ["store/db", "store"] {
        let path = memory.path().join(damaged);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            let mut bytes = fs::read(&path).unwrap();
            bytes[2000] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        let report = repaired(memory.path(), &[]);
        assert!(!report.was_whole && report.lost.is_empty(), "{report:?}");
        let store = open(memory.path()).unwrap();
        assert_eq!(store.get(id(1)), Ok(None), "{damaged}");
        assert_eq!(n_whole(&store), ANSWERS - 2, "{damaged}");
    }
}

#[test]
fn a_repair_keeps_the_old_store_and_can_be_interrupted() {
    let memory = filled();
    let path = |name: &str| memory.path().join(name);
    let damage = || {
        let mut bytes = fs::read(path("store/db")).unwrap();
        bytes[3000] ^= 1;
        fs::write(path("store/db"), &bytes).unwrap();
        bytes
    };
    let bytes = damage();
    let report = repaired(memory.path(), &[]);
    let old = report.old_store.unwrap();
    assert!(old.file_name().unwrap().to_string_lossy().starts_with("damaged-2"));
    assert!(fs::read(old.join("db")).unwrap() == bytes, "it is as it was");
    // The state after a process was killed when it had moved the old store aside.
    fs::create_dir(path("repairing")).unwrap();
    fs::rename(path("store"), path("repairing/store")).unwrap();
    fs::write(path("repairing/complete"), "").unwrap();
    assert_eq!(n_whole(&open(memory.path()).unwrap()), ANSWERS);
    assert!(!path("repairing").exists());
}

/// Pending work is restored with its answer, whether from the backup or the events, and a grade ends it.
#[test]
fn what_is_due_stays_due() {
    let memory = TempDir::new().unwrap();
    let store = open(memory.path()).unwrap();
    for number in 0..4 {
        let due = (number != 3).then(|| Due::fresh(false));
        store.remember(Engram { due, grade: None, ..original(number) }, None).unwrap();
        for event in &events_of(&original(number))[..2] {
            store.append_event(event).unwrap();
        }
    }
    let critique = |number: u64, grade: Grade| {
        let [_, _, graded] = events_of(&Engram { grade: Some(grade), ..original(number) });
        store.append_event(&graded).unwrap();
    };
    store.back_up_if_due(Timestamp::now());
    wait_for_backup(memory.path());
    // One is graded and one left ungraded after the backup; the events say so, and so does the damaged log.
    store.update_score(id(1), &grade(Some(3))).unwrap();
    critique(1, grade(Some(3)));
    store.update_score(id(2), &Grade::unscored("timeout")).unwrap();
    critique(2, Grade::unscored("timeout"));
    drop(store);
    for wiped in [false, true] {
        if wiped {
            fs::remove_dir_all(memory.path().join("store")).unwrap();
        } else {
            let path = memory.path().join("store/db");
            let mut bytes = fs::read(&path).unwrap();
            bytes[2000] ^= 1;
            fs::write(path, bytes).unwrap();
        }
        let report = repaired(memory.path(), &[]);
        assert!(!report.was_whole && report.lost.is_empty(), "{report:?}");
        let store = open(memory.path()).unwrap();
        let due: Vec<QueryId> = store.backlog().unwrap().iter().map(|entry| entry.query_id).collect();
        // The backup was made before the grade.
        let expected = if wiped { vec![id(0), id(1), id(2)] } else { vec![id(0), id(2)] };
        assert_eq!(due, expected);
        assert_eq!(store.verify().unwrap().problems, [""; 0]);
    }
}

#[test]
fn a_memory_that_is_open_is_not_repaired() {
    let memory = filled();
    let _store = open(memory.path()).unwrap();
    let error = repair(memory.path(), &MemoryOptions::default(), &[]).unwrap_err();
    assert!(matches!(error, MemoryError::Held { .. }), "{error}");
}

#[test]
fn respondents_keep_their_answers() {
    let memory = filled();
    let store = open(memory.path()).unwrap();
    assert_eq!(store.get(id(1)).unwrap().unwrap().respondent_id, RespondentId::B);
    drop(store);
    fs::remove_file(memory.path().join("store/db")).unwrap();
    assert_eq!(repaired(memory.path(), &[]).answers, 0);
}
