//! A process that writes to memory is killed, three hundred times, at random moments: while it opens memory for the
//! first time, while it writes, while it saves the index. After each kill memory opens, acknowledged writes are there,
//! no write is there in part, and the index agrees with the engrams.
//!
//! The process prints each operation before and after it. It works in two threads with separate engrams. An operation
//! in progress at the kill may have happened or not, but never in part. Memory is checked in a copy of its folder, so
//! that the next process finds it exactly as the last one left it.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::thread;
use std::time::Duration;

use hone_memory::{
    Compared, Criticized, Due, Engram, EventFilter, Filters, Holder, MemoryOptions, MemoryStore, Vetting,
};
use hone_protocol::prospect::CANCELLED;
use hone_protocol::{
    Comparison, ContentType, CriticDecision, CriticMode, CritiqueLevel, CritiqueResult, Grade, JudgingMethod, Payload,
    Preference, QueryId, Rating, RespondentId, Timestamp, VettingState,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::support::{copy_folder, engram, event, grade, id, number_of, say, start_child, vector};

/// Folders that are written to at the same time.
const FOLDERS: u64 = 10;

/// Kills per folder.
const KILLS_PER_FOLDER: u64 = 30;

/// Threads that write.
const THREADS: u64 = 2;

/// Numbers of engrams reserved for each thread.
const NUMBERS_PER_THREAD: u64 = 1_000_000;

const DIMENSIONS: usize = 48;

/// The index is saved after so few changes that many processes are killed while they save it.
fn options() -> MemoryOptions {
    MemoryOptions { changes_until_save: 3, ..MemoryOptions::default() }
}

/// An operation on memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Operation {
    Remember {
        number: u64,
        with_vector: bool,
    },
    Score {
        number: u64,
        score: u8,
    },
    Feedback {
        number: u64,
    },
    Meaning {
        number: u64,
    },
    Compare {
        a: u64,
        b: u64,
    },
    Revector {
        number: u64,
    },
    Remove {
        number: u64,
    },
    Event {
        number: u64,
    },
    /// The judge gives no score, for a reason that is final or not.
    Null {
        number: u64,
        is_final: bool,
    },
    Claim {
        number: u64,
    },
    /// A critic passes it or blocks it.
    Vet {
        number: u64,
        blocks: bool,
    },
}

impl Operation {
    /// The next operation of a thread that has remembered the numbers from `first` up to `next`.
    fn choose(random: &mut ChaCha8Rng, first: u64, next: u64) -> Operation {
        if next == first {
            return Operation::Remember { number: next, with_vector: true };
        }
        let number = first + u64::from(random.next_u32()) % (next - first);
        let other = first + (number + 1 - first) % (next - first);
        match random.next_u32() % 22 {
            0..6 => Operation::Remember { number: next, with_vector: !random.next_u32().is_multiple_of(4) },
            6..9 => Operation::Score { number, score: (random.next_u32() % 5) as u8 + 1 },
            9 => Operation::Feedback { number },
            10 => Operation::Meaning { number },
            11 if other != number => Operation::Compare { a: number, b: other },
            12 => Operation::Revector { number },
            13 => Operation::Remove { number },
            14 | 15 => Operation::Null { number, is_final: random.next_u32().is_multiple_of(2) },
            16 => Operation::Claim { number },
            17..20 => Operation::Vet { number, blocks: random.next_u32().is_multiple_of(2) },
            _ => Operation::Event { number },
        }
    }

    /// Performs the operation on memory.
    fn perform(&self, store: &MemoryStore) {
        match *self {
            Operation::Remember { number, with_vector } => {
                store.remember(original(number), with_vector.then(|| vector(number, DIMENSIONS))).map(drop)
            }
            Operation::Score { number, score } => store.update_score(id(number), &grade(Some(score))).map(drop),
            Operation::Feedback { number } => store.annotate_feedback(id(number), Some(Rating::Bad)).map(drop),
            Operation::Meaning { number } => {
                store.annotate_meaning(id(number), Some("sums".into()), vec!["one".into()]).map(drop)
            }
            Operation::Compare { a, b } => store.annotate_pairwise(&comparison(a, b)).map(drop),
            Operation::Revector { number } => store.set_vector(id(number), vector(number + 1, DIMENSIONS)).map(drop),
            Operation::Remove { number } => store.remove(&[id(number)]).map(drop),
            Operation::Event { number } => store.append_event(&event(number)).map(drop),
            Operation::Null { number, is_final } => store.update_score(id(number), &unscored(is_final)).map(drop),
            Operation::Claim { number } => {
                let holder = Holder::new(store).unwrap();
                let claimed = holder.claim(vec![id(number)]).map(drop);
                if number % 2 == 0 {
                    // The claims stay until the process is killed.
                    std::mem::forget(holder);
                }
                claimed
            }
            Operation::Vet { number, blocks } => {
                let decision = decision(blocks);
                store.vet(&original(number), vetting(number, blocks), decision).map(drop)
            }
        }
        .unwrap();
    }

    /// Applies the operation to the expected state.
    fn expect(&self, expected: &mut Expected) {
        let engrams = &mut expected.engrams;
        let mut change = |number: u64, change: &dyn Fn(&mut Engram)| {
            if let Some(engram) = engrams.get_mut(&number) {
                change(engram);
            }
        };
        match *self {
            Operation::Remember { number, .. } => {
                engrams.insert(number, original(number));
            }
            Operation::Score { number, score } => change(number, &|engram| {
                engram.grade = Some(grade(Some(score)));
                engram.due = None;
            }),
            Operation::Feedback { number } => change(number, &|engram| engram.user_feedback = Some(Rating::Bad)),
            Operation::Meaning { number } => change(number, &|engram| {
                engram.intent = Some("sums".into());
                engram.entities = vec!["one".into()];
            }),
            Operation::Compare { a, b } => {
                for (it, other, is_winner) in [(a, b, true), (b, a, false)] {
                    change(it, &|engram| {
                        engram.pairwise_winner = Some(is_winner);
                        engram.compared = Some(compared(other));
                    });
                }
            }
            Operation::Null { number, is_final: true } => change(number, &|engram| {
                if engram.score().is_none() {
                    engram.grade = Some(unscored(true));
                }
                engram.due = None;
            }),
            Operation::Null { number, is_final: false } => change(number, &|engram| {
                if let Some(due) = &mut engram.due {
                    due.failures += 1;
                    due.reason = Some("timeout".into());
                }
            }),
            Operation::Vet { number, blocks } => {
                let unreviewed = |engram: &&mut Engram| engram.vetting == Vetting::default();
                if let Some(engram) = engrams.get_mut(&number).filter(unreviewed) {
                    engram.vetting = vetting(number, blocks);
                    expected.decided.push(number);
                }
            }
            Operation::Revector { .. } | Operation::Claim { .. } => {}
            Operation::Remove { number } => drop(engrams.remove(&number)),
            Operation::Event { number } => expected.events.push(number),
        }
    }
}

/// The expected state after one thread's operations.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    engrams: BTreeMap<u64, Engram>,
    events: Vec<u64>,
    /// Engrams that a critic has decided about, according to the figures of its critiques and to its events.
    decided: Vec<u64>,
}

/// A line that the process prints.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    About(u64, Operation),
    Done(u64),
}

/// A new engram. Some are so long that storage puts them into separate files.
fn original(number: u64) -> Engram {
    let repetitions = if number % 50 == 7 { 70_000 } else { 20 };
    // Every other answer is to be graded.
    let due = number.is_multiple_of(2).then(|| Due::fresh(false));
    Engram { answer: "It depends. ".repeat(repetitions), due, ..engram(number) }
}

/// A critic's decision about an engram; its event is as long as a real one.
fn decision(blocks: bool) -> CriticDecision {
    CriticDecision {
        content_type: ContentType::General,
        level: Some(if blocks { CritiqueLevel::Block } else { CritiqueLevel::Pass }),
        validity_score: Some(0.5),
        state: if blocks { VettingState::Blocked } else { VettingState::Reviewed },
        mode: CriticMode::Hard,
        reason: "It is vague. ".repeat(20),
    }
}

fn vetting(number: u64, blocks: bool) -> Vetting {
    let CriticDecision { content_type, level, validity_score, state, mode, reason } = decision(blocks);
    let result = CritiqueResult {
        content_type,
        level,
        validity_score,
        should_block: blocks,
        reasoning: reason,
        ..CritiqueResult::default()
    };
    let critique = Criticized { at: Timestamp(number), mode, result };
    Vetting { state, critique: Some(Box::new(critique)), ..Vetting::default() }
}

fn unscored(is_final: bool) -> Grade {
    Grade::unscored(if is_final { CANCELLED } else { "timeout" })
}

fn compared(with: u64) -> Compared {
    let (reason, judge) = (String::new(), String::new());
    Compared {
        with: id(with),
        log_odds: 0.0,
        consistent: false,
        reason,
        jury: Vec::new(),
        judge,
        self_graded: false,
        method: JudgingMethod::Prompted,
        failure: None,
    }
}

fn comparison(a: u64, b: u64) -> Comparison {
    Comparison {
        original_query_id: id(a),
        query_id_a: id(a),
        query_id_b: id(b),
        score_a: None,
        score_b: None,
        preference: Preference { winner: Some(RespondentId::A), ..Preference::default() },
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

/// The process to be killed: it writes indefinitely.
#[test]
#[ignore = "is the process that the test beside it kills"]
fn child() {
    // This test may also be started without a parent, by a run of all ignored tests.
    let Ok(folder) = env::var("HONE_TEST_FOLDER") else { return };
    let seed: u64 = env::var("HONE_TEST_SEED").unwrap().parse().unwrap();
    let next: Vec<u64> = serde_json::from_str(&env::var("HONE_TEST_NEXT").unwrap()).unwrap();
    say("begun");
    let store = MemoryStore::open(Path::new(&folder), options()).unwrap();
    thread::scope(|scope| {
        for (thread, mut next) in (0..).zip(next) {
            let store = &store;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed * THREADS + thread);
                loop {
                    let operation = Operation::choose(&mut random, thread * NUMBERS_PER_THREAD, next);
                    next += u64::from(matches!(operation, Operation::Remember { .. }));
                    say(&json(&Said::About(thread, operation.clone())));
                    operation.perform(store);
                    say(&json(&Said::Done(thread)));
                }
            });
        }
    });
}

/// The time of a kill.
enum KillTime {
    /// This long after it started, before it opened memory.
    AfterStart(Duration),
    /// This long after its first acknowledged write.
    AfterFirstWrite(Duration),
}

impl KillTime {
    fn choose(random: &mut ChaCha8Rng) -> KillTime {
        let mut up_to =
            |milliseconds: u32| Duration::from_micros(u64::from(random.next_u32() % (1_000 * milliseconds)));
        let (early, late) = (up_to(10), up_to(50));
        if random.next_u32().is_multiple_of(2) { KillTime::AfterStart(early) } else { KillTime::AfterFirstWrite(late) }
    }
}

/// Runs a process and kills it; returns what it printed.
fn run_and_kill(folder: &Path, seed: u64, next: &[u64], kill_time: &KillTime) -> Vec<Said> {
    let mut child =
        start_child(folder, "kill::child", &[("HONE_TEST_SEED", seed.to_string()), ("HONE_TEST_NEXT", json(next))]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "begun" {}
    // A line that was cut short by the kill is ignored.
    let mut sayings = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<Said>(&line).ok());
    let (KillTime::AfterStart(rest) | KillTime::AfterFirstWrite(rest)) = kill_time;
    let mut said = Vec::new();
    if matches!(kill_time, KillTime::AfterFirstWrite(_)) {
        while !matches!(said.last(), Some(Said::Done(_))) {
            said.push(sayings.next().expect("the process ended before it had done anything"));
        }
    }
    let reader = thread::spawn(move || sayings.collect::<Vec<_>>());
    // The moment of the kill is varied.
    thread::sleep(*rest);
    assert!(child.try_wait().unwrap().is_none(), "the process ended before it was killed");
    child.kill().unwrap();
    child.wait().unwrap();
    said.extend(reader.join().unwrap());
    said
}

/// Applies the printed operations to the expected state; returns the operation in progress of each thread.
fn add_to(expected: &mut [Expected], next: &mut [u64], said: Vec<Said>) -> Vec<Option<Operation>> {
    let mut about: Vec<Option<Operation>> = vec![None; expected.len()];
    for said in said {
        match said {
            Said::About(thread, operation) => {
                if let Operation::Remember { number, .. } = operation {
                    next[thread as usize] = number + 1;
                }
                about[thread as usize] = Some(operation);
            }
            Said::Done(thread) => about[thread as usize].take().unwrap().expect(&mut expected[thread as usize]),
        }
    }
    about
}

/// The contents of memory, by the threads that wrote them.
fn found_in(store: &MemoryStore) -> Vec<Expected> {
    let mut found = vec![Expected::default(); THREADS as usize];
    for engram in store.list(&Filters::default(), usize::MAX).unwrap() {
        let number = engram.at.0 / 1_000;
        let engram = Engram { sequence: 0, ..engram };
        found[(number / NUMBERS_PER_THREAD) as usize].engrams.insert(number, engram);
    }
    for (_, envelope) in store.events(&EventFilter::default(), None).unwrap() {
        if matches!(envelope.payload, Payload::CriticPassed(_) | Payload::CriticBlocked(_)) {
            let number = number_in(envelope.query_id.unwrap());
            found[(number / NUMBERS_PER_THREAD) as usize].decided.push(number);
            continue;
        }
        let number = number_of(&envelope);
        found[(number / NUMBERS_PER_THREAD) as usize].events.push(number);
    }
    let mut recorded = vec![Vec::new(); THREADS as usize];
    for record in store.critiques(None).unwrap() {
        let number = number_in(record.query_id);
        recorded[(number / NUMBERS_PER_THREAD) as usize].push(number);
    }
    for (found, recorded) in found.iter().zip(recorded) {
        assert_eq!(found.decided, recorded, "events and figures of critiques are written together");
    }
    found
}

/// The number of the engram with this id.
fn number_in(id: QueryId) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap()) & 0xffff_ffff
}

/// Compares a copy of memory with the expected state, and resolves the operations in progress.
fn check(folder: &Path, expected: &mut [Expected], about: Vec<Option<Operation>>, kill: u64) {
    let copy = TempDir::new().unwrap();
    copy_folder(folder, copy.path());
    let store = MemoryStore::open(copy.path(), options()).unwrap();
    assert_eq!(store.verify().unwrap().problems, [""; 0], "kill {kill}");
    let mut due: Vec<_> = store.backlog().unwrap().iter().map(|entry| entry.query_id).collect();
    let engrams = store.list(&Filters::default(), usize::MAX).unwrap();
    due.reverse();
    let is_due = |engram: &&Engram| engram.due.is_some();
    assert_eq!(due, engrams.iter().filter(is_due).map(|it| it.query_id).collect::<Vec<_>>(), "kill {kill}");
    let found = found_in(&store);
    for ((expected, found), about) in expected.iter_mut().zip(found).zip(about) {
        if *expected != found {
            let operation = about.unwrap_or_else(|| panic!("kill {kill}: {}", difference(expected, &found)));
            operation.expect(expected);
            assert!(*expected == found, "kill {kill}, {operation:?}: {}", difference(expected, &found));
        }
    }
}

/// A short description of a difference; engrams are long.
fn difference(expected: &Expected, found: &Expected) -> String {
    let differs = |number: &&u64| expected.engrams.get(number) != found.engrams.get(number);
    let numbers: Vec<&u64> = expected.engrams.keys().chain(found.engrams.keys()).filter(differs).collect();
    format!("engrams {numbers:?} differ; {:?} events, not {:?}", found.events.len(), expected.events.len())
}

/// Kills processes that write to one folder; returns the number of acknowledged writes.
fn kill_in_one_folder(seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let folder = TempDir::new().unwrap();
    let mut expected = vec![Expected::default(); THREADS as usize];
    let mut next: Vec<u64> = (0..THREADS).map(|thread| thread * NUMBERS_PER_THREAD).collect();
    let mut n_writes = 0;
    for kill in seed * KILLS_PER_FOLDER..(seed + 1) * KILLS_PER_FOLDER {
        let said = run_and_kill(folder.path(), kill, &next, &KillTime::choose(&mut random));
        n_writes += said.iter().filter(|said| matches!(said, Said::Done(_))).count() as u64;
        let about = add_to(&mut expected, &mut next, said);
        check(folder.path(), &mut expected, about, kill);
    }
    n_writes
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    // Another seed gives other moments: HONE_TEST_KILL_SEED=7 cargo test -p hone-memory --test it kill::
    let first_seed = env::var("HONE_TEST_KILL_SEED").map_or(0, |seed| seed.parse().unwrap());
    let n_writes = thread::scope(|scope| {
        let folders: Vec<_> =
            (0..FOLDERS).map(|folder| scope.spawn(move || kill_in_one_folder(first_seed + folder))).collect();
        folders.into_iter().map(|folder| folder.join().unwrap()).sum::<u64>()
    });
    println!("{} kills, {n_writes} acknowledged writes", FOLDERS * KILLS_PER_FOLDER);
    assert!(n_writes > FOLDERS * KILLS_PER_FOLDER, "the processes died before they did anything");
}
