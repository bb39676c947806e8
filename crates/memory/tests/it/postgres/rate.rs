//! Not a test: the rate at which a database remembers answers with their grades (`scripts/bench.sh scale`).

use std::time::Instant;

use hone_memory::{MemoryOptions, MemoryStore};
use tempfile::TempDir;

use super::server::PostgresServer;
use crate::support::{engram, event, grade, id, vector};

/// Concurrent writing processes, and the answers of each.
const PROCESSES: u64 = 8;
const ANSWERS: u64 = 250;
/// The dimensions of the usual embedder.
const DIMENSIONS: usize = 384;

#[test]
#[ignore = "measures"]
fn answers() {
    println!("one role remembers {:.1} graded answers a second", answers_per_second(1));
    println!("four roles remember {:.1} graded answers a second", answers_per_second(4));
}

/// Answers per second from several processes, as roles of one database, that are remembered with their events and
/// graded.
fn answers_per_second(n_roles: u64) -> f64 {
    let server = PostgresServer::start_durable();
    (0..n_roles).for_each(|role| drop(server.sql(&format!("CREATE ROLE role{role} LOGIN"))));
    let folder = tempfile::tempdir().unwrap();
    // An administrator creates the tables.
    open(&folder, server.own_url());
    let stores: Vec<MemoryStore> = (0..PROCESSES)
        .map(|process| open(&folder, server.url(&format!("role{}", process % n_roles), "postgres")))
        .collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (process, store) in (0..).zip(&stores) {
            scope
                .spawn(move || (process * ANSWERS..(process + 1) * ANSWERS).for_each(|number| remember(store, number)));
        }
    });
    (PROCESSES * ANSWERS) as f64 / begun.elapsed().as_secs_f64()
}

fn open(folder: &TempDir, url: String) -> MemoryStore {
    MemoryStore::open(folder.path(), MemoryOptions { url: Some(url), ..MemoryOptions::default() }).unwrap()
}

/// Writes all records of an answer: itself, the events of the question, the answer and the grade, and the grade.
fn remember(store: &MemoryStore, number: u64) {
    store.remember(engram(number), Some(vector(number, DIMENSIONS))).unwrap();
    for _ in 0..3 {
        store.append_event(&event(number)).unwrap();
    }
    store.update_score(id(number), &grade(Some(4))).unwrap();
}
