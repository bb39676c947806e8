//! Many processes at once, each of which opens memory for one question after the other, as a script does, while the
//! owner is repeatedly killed or paused. In the end every acknowledged answer, grade, import and event is there once.
//! The gate runs a small selection; `HONE_TORTURE=1` runs sixteen processes with a hundred questions each.
//!
//! This test program also runs as the other processes.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use hone_memory::{Engram, EventFilter, Filters, MemoryOptions, MemoryStore, Update, Whose};
use tempfile::TempDir;

use crate::support::{
    PATIENCE, engram, event, grade, id, number_done, number_of, owner_process, say, say_done, signal, start_child,
    vector,
};

/// Numbers of answers reserved for each process.
const NUMBERS_PER_PROCESS: u64 = 1_000_000;

/// The distance of an import's number from that of the answer before it.
const IMPORTED: u64 = 500_000;

/// The amount of work.
struct Scale {
    processes: u64,
    questions: u64,
    /// Answers between two kills.
    rest: usize,
    /// Every n-th time the owner is paused instead of killed, until others have given up on it.
    stops_every: usize,
}

fn scale() -> Scale {
    match env::var("HONE_TORTURE") {
        Ok(_) => Scale { processes: 16, questions: 100, rest: 20, stops_every: 10 },
        Err(_) => Scale { processes: 6, questions: 12, rest: 8, stops_every: 4 },
    }
}

/// A line of an export.
fn line(number: u64) -> String {
    let engram: Engram = engram(number);
    serde_json::json!({ "engram": engram }).to_string()
}

#[test]
#[ignore = "is a process of the test below"]
fn child() {
    // This test may also be started without a parent, by a run of all ignored tests.
    let Ok(folder) = env::var("HONE_TEST_FOLDER") else { return };
    let [first, end] = ["HONE_TEST_FIRST", "HONE_TEST_END"].map(|name| env::var(name).unwrap().parse::<u64>().unwrap());
    for number in first..end {
        let (store, _) = MemoryStore::keeping(Path::new(&folder), MemoryOptions::default());
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
        assert_ne!(store.update_score(id(number), &grade(Some(4))), Ok(Update::Missing));
        store.append_event(&event(number)).unwrap();
        say_done(number);
        if store.import(line(number + IMPORTED).as_bytes()).is_ok() {
            say_done(number + IMPORTED);
        }
    }
    say("ended");
}

/// A process's message.
enum Said {
    Did(u64),
    /// It has finished, or was killed.
    Gone {
        index: u64,
        has_ended: bool,
    },
}

/// Starts the process with this index, which asks from number `first` on.
fn start(folder: &Path, index: u64, first: u64, questions: u64, said: &Sender<Said>) -> Child {
    let end = index * NUMBERS_PER_PROCESS + questions;
    let numbers = [("HONE_TEST_FIRST", first.to_string()), ("HONE_TEST_END", end.to_string())];
    let mut process = start_child(folder, "torture::child", &numbers);
    let output = BufReader::new(process.stdout.take().unwrap());
    let said = said.clone();
    thread::spawn(move || {
        let mut has_ended = false;
        for line in output.lines().map_while(Result::ok) {
            has_ended |= line == "ended";
            number_done(&line).into_iter().for_each(|number| said.send(Said::Did(number)).unwrap());
        }
        said.send(Said::Gone { index, has_ended }).unwrap();
    });
    process
}

/// Stops a process long enough that others give up on it.
fn stop_for_a_while(process: u32) {
    signal(process, "-STOP");
    // The pause is tested: clients wait four seconds for an answer, and two more for a connection.
    thread::sleep(Duration::from_secs(7));
    signal(process, "-CONT");
}

/// Runs all processes and disturbs them; returns the acknowledged numbers and the numbers of kills and stops.
fn torture(folder: &Path, scale: &Scale) -> (Vec<u64>, usize, usize) {
    let (sender, said) = channel();
    let begin = |index: u64| start(folder, index, index * NUMBERS_PER_PROCESS, scale.questions, &sender);
    let mut begun_at: BTreeMap<u64, u64> = BTreeMap::new();
    let mut processes: BTreeMap<u64, Child> = (1..=scale.processes).map(|index| (index, begin(index))).collect();
    let (mut done, mut n_kills, mut n_stops) = (Vec::new(), 0, 0);
    while !processes.is_empty() {
        match said.recv_timeout(PATIENCE).expect("the processes do nothing any more") {
            Said::Did(number) => {
                done.push(number);
                let owner = owner_process(folder).filter(|_| done.len() % scale.rest == 0);
                let Some(process) = processes.values_mut().find(|process| Some(process.id()) == owner) else {
                    continue;
                };
                if n_kills % scale.stops_every == scale.stops_every - 1 && n_stops < n_kills / scale.stops_every + 1 {
                    stop_for_a_while(process.id());
                    n_stops += 1;
                } else {
                    process.kill().unwrap();
                    n_kills += 1;
                }
            }
            Said::Gone { index, has_ended } => {
                let status = processes.remove(&index).unwrap().wait().unwrap();
                assert!(status.success() || !has_ended, "process {index} failed");
                assert_ne!(status.code(), Some(101), "process {index} has panicked");
                if !has_ended {
                    // Work in progress at the kill may be there or not, and is not repeated.
                    let is_its = |number: &&u64| *number / NUMBERS_PER_PROCESS == index;
                    let asked = |number: u64| number % NUMBERS_PER_PROCESS % IMPORTED;
                    let after_last = done.iter().filter(is_its).map(|number| asked(*number) + 2).max().unwrap_or(1);
                    let begun = begun_at.entry(index).or_default();
                    *begun = after_last.max(*begun + 1).min(scale.questions);
                    let first = index * NUMBERS_PER_PROCESS + *begun;
                    processes.insert(index, start(folder, index, first, scale.questions, &sender));
                }
            }
        }
    }
    (done, n_kills, n_stops)
}

#[test]
fn every_acknowledged_answer_grade_import_and_event_is_there_once() {
    let (folder, scale) = (TempDir::new().unwrap(), scale());
    let (done, n_kills, n_stops) = torture(folder.path(), &scale);
    let store = MemoryStore::open(folder.path(), MemoryOptions::default()).unwrap();
    let (mut engrams, mut events) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
    for found in store.list(&Filters::default(), usize::MAX).unwrap() {
        *engrams.entry(found.at.0 / 1_000).or_default() += 1;
    }
    for (_, envelope) in store.events(&EventFilter::default(), None).unwrap() {
        *events.entry(number_of(&envelope)).or_default() += 1;
    }
    for number in &done {
        let is_import = number % NUMBERS_PER_PROCESS >= IMPORTED;
        assert_eq!(engrams.get(number), Some(&1), "answer {number}");
        assert_eq!(events.get(number).copied(), (!is_import).then_some(1), "the event of {number}");
        let score = store.get(id(*number)).unwrap().unwrap().score();
        assert_eq!(score, (!is_import).then_some(4), "the grade of {number}");
    }
    assert!(engrams.values().chain(events.values()).all(|count| *count == 1), "something is there twice");
    assert_eq!(store.statistics(Whose::Everyones).unwrap().due, 0);
    assert_eq!(store.verify().unwrap().problems, [""; 0]);
    assert!(!folder.path().join("due/refused").exists(), "something due was refused");
    println!("{} acknowledged, {n_kills} owners killed, {n_stops} stopped", done.len());
}
