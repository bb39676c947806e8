//! A server whose answers are graded on other machines and remembered in a database, while workers, the NATS server and the
//! database are killed and started again, and networks are cut.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::{MODEL, Worker, home};
use crate::support::nats::NatsServer;
use crate::support::postgres::PostgresServer;
use crate::support::proxy::{Proxy, Target};
use crate::support::served::{Served, body_of, serve_graded};
use crate::support::{Home, wait_for_long};
use crate::torture::ordeal::Ordeal;

const WORKERS: usize = 2;
/// Far longer than a few lost leases.
const PATIENCE: Duration = Duration::from_secs(300);

fn hasty_home() -> Home {
    home().variable("HONE_BUS_LEASE", "1").variable("HONE_BUS_PATIENCE", "2")
}

/// The networks between the machines, each of which can be cut.
struct Networks {
    asking_to_nats: Proxy,
    grading_to_nats: Proxy,
    asking_to_database: Proxy,
}

impl Networks {
    fn all(&self) -> [&Proxy; 3] {
        [&self.asking_to_nats, &self.grading_to_nats, &self.asking_to_database]
    }
}

#[test]
fn every_answer_is_graded_once_whoever_is_killed() {
    let mut ordeal = Ordeal::begin("fleet");
    let (mut nats, mut database) = (NatsServer::start(), PostgresServer::start());
    let nats_port = nats.url().trim_start_matches("nats://").to_owned();
    let networks = Networks {
        asking_to_nats: Proxy::to(Target::Port(nats_port.clone())),
        grading_to_nats: Proxy::to(Target::Port(nats_port)),
        asking_to_database: Proxy::to(Target::Socket(database.socket())),
    };
    let bus_of = |network: &Proxy| format!("nats://{}", network.address());
    let (asking, grading) = (hasty_home(), hasty_home());
    let store = format!("postgres://postgres@{}/postgres", networks.asking_to_database.address());
    let flags = ["--bus", &bus_of(&networks.asking_to_nats), "--store", &store, "--model", MODEL, "--threads", "1"];
    let (mut process, address) = serve_graded(&asking, &flags);
    // The server's messages must not fill the pipe.
    let said = process.stderr.take().unwrap();
    std::thread::spawn(move || BufReader::new(said).lines().for_each(drop));
    let served = Served { process, address, home: asking };
    let start = || Worker::start_at(&grading, &bus_of(&networks.grading_to_nats));
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start()).collect();
    let mut n_asked = 0;
    while ordeal.goes_on() {
        n_asked += 1;
        let question = format!("Say the number {n_asked}.");
        let body = json!({"messages": [{"role": "user", "content": question}], "max_tokens": 3, "temperature": 0});
        let answer = body_of(&served.post("/v1/chat/completions", &body));
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
        ordeal.count("answers");
        match ordeal.below(24) {
            0 => {
                let victim = ordeal.below(WORKERS as u64) as usize;
                drop(workers.swap_remove(victim));
                // A worker that finds no server at its start reports that and ends.
                networks.grading_to_nats.cut(false);
                workers.push(start());
                ordeal.count("workers killed");
            }
            1 => {
                nats.stop();
                nats.resume();
                ordeal.count("NATS servers killed");
            }
            2 => {
                database.stop();
                database.resume();
                ordeal.count("databases killed");
            }
            3 => {
                networks.all()[ordeal.below(3) as usize].cut(true);
                ordeal.count("networks cut");
            }
            4..8 => networks.all().iter().for_each(|network| network.cut(false)),
            _ => {}
        }
    }
    networks.all().iter().for_each(|network| network.cut(false));
    let remembered = Remembered { home: &served.home, store: database.own_url() };
    wait_for_long("every answer has its grade", PATIENCE, || (remembered.n_graded() == n_asked).then_some(()));
    let twice: Vec<String> = remembered.gradings().into_iter().filter(|(_, n)| *n > 1).map(|(id, _)| id).collect();
    assert!(twice.is_empty(), "graded more than once: {twice:?}");
}

/// The content of the database.
struct Remembered<'a> {
    home: &'a Home,
    store: String,
}

impl Remembered<'_> {
    /// The number of answers with a grade.
    fn n_graded(&self) -> u64 {
        let list = self.home.json(&["memory", "list", "-n", "1000000", "--json", "--store", &self.store]);
        let is_graded = |engram: &&Value| engram["judging_method"].is_string() && engram["judging_failure"].is_null();
        list.as_array().unwrap().iter().filter(is_graded).count() as u64
    }

    /// The number of gradings of each answer.
    fn gradings(&self) -> BTreeMap<String, usize> {
        let events = self.home.run(&["events", "--type", "critique.result", "--json", "--store", &self.store]).stdout;
        let mut counts = BTreeMap::new();
        for event in events.lines().filter(|line| !line.contains("\"failure\"")) {
            let event: Value = serde_json::from_str(event).unwrap();
            *counts.entry(event["query_id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }
}
