//! A server whose answers are graded on other machines, while workers and the NATS server are killed and started again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::{MODEL, Worker, home};
use crate::support::nats::NatsServer;
use crate::support::served::{Served, body_of, serve_graded};
use crate::support::{Home, wait_for_long};
use crate::torture::ordeal::Ordeal;

const WORKERS: usize = 2;
/// Far longer than a few lost leases.
const PATIENCE: Duration = Duration::from_secs(300);

fn hasty_home() -> Home {
    home().variable("HONE_BUS_LEASE", "1").variable("HONE_BUS_PATIENCE", "2")
}

#[test]
fn every_answer_is_graded_once_whoever_is_killed() {
    let mut ordeal = Ordeal::begin("fleet");
    let mut nats = NatsServer::start();
    let (asking, grading) = (hasty_home(), hasty_home());
    let (process, address) = serve_graded(&asking, &["--bus", &nats.url(), "--model", MODEL, "--threads", "1"]);
    let served = Served { process, address, home: asking };
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(&grading, &nats)).collect();
    let mut n_asked = 0;
    while ordeal.goes_on() {
        n_asked += 1;
        let question = format!("Say the number {n_asked}.");
        let body = json!({"messages": [{"role": "user", "content": question}], "max_tokens": 3, "temperature": 0});
        let answer = body_of(&served.post("/v1/chat/completions", &body));
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
        ordeal.count("answers");
        match ordeal.below(12) {
            0 => {
                let victim = ordeal.below(WORKERS as u64) as usize;
                drop(workers.swap_remove(victim));
                workers.push(Worker::start(&grading, &nats));
                ordeal.count("workers killed");
            }
            1 => {
                nats.stop();
                nats.resume();
                ordeal.count("NATS servers killed");
            }
            _ => {}
        }
    }
    wait_for_long("every answer has its grade", PATIENCE, || (n_graded(&served.home) == n_asked).then_some(()));
    let twice: Vec<String> = gradings(&served.home).into_iter().filter(|(_, n)| *n > 1).map(|(id, _)| id).collect();
    assert!(twice.is_empty(), "graded more than once: {twice:?}");
}

/// How many answers in memory have a grade.
fn n_graded(home: &Home) -> u64 {
    let list = home.json(&["memory", "list", "-n", "1000000", "--json"]);
    let is_graded = |engram: &&Value| engram["judging_method"].is_string() && engram["judging_failure"].is_null();
    list.as_array().unwrap().iter().filter(is_graded).count() as u64
}

/// How often each answer was given a grade.
fn gradings(home: &Home) -> BTreeMap<String, usize> {
    let events = home.run(&["events", "--type", "critique.result", "--json"]).stdout;
    let mut counts = BTreeMap::new();
    for event in events.lines().filter(|line| !line.contains("\"failure\"")) {
        let event: Value = serde_json::from_str(event).unwrap();
        *counts.entry(event["query_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}
