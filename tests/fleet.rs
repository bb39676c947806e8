//! Answers that are graded on another machine: two homes, and a NATS server between them.

use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::{Value, json};

use crate::support::nats::NatsServer;
use crate::support::served::{Served, body_of, serve_graded};
use crate::support::{Home, smollm2, wait_until};

pub(crate) const MODEL: &str = "smollm2:135m";
const QUESTION: &str = "In which city is the Eiffel Tower?";

/// A home with the built-in model.
pub(crate) fn home() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["pull", &smollm2(), "--name", MODEL]).code, 0);
    home
}

/// A running `hone worker`.
pub(crate) struct Worker(Child);

impl Worker {
    fn start(home: &Home, server: &NatsServer) -> Worker {
        Worker::start_at(home, &server.url())
    }

    /// Starts one for a bus at this address.
    pub(crate) fn start_at(home: &Home, url: &str) -> Worker {
        Worker::start_as(home, &["worker", "--bus", url, "--slots", "2", "--threads", "1"])
    }

    /// Starts one with this command line.
    pub(crate) fn start_as(home: &Home, arguments: &[&str]) -> Worker {
        let mut child = home.command(env!("CARGO_BIN_EXE_hone").as_ref(), arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find(|line| line.contains(" grades, "));
        assert!(said.is_some_and(|line| line.contains("at a time, with smollm2:135m for prometheus:7b")));
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Worker(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fleet(home: &Home, server: &NatsServer) -> Value {
    home.json(&["ps", "--all", "--bus", &server.url(), "--json"])
}

#[test]
fn a_chat_shows_the_grade_that_a_worker_elsewhere_gives() {
    let server = NatsServer::start();
    let (chat, other) = (home(), home());
    let worker = Worker::start(&other, &server);
    let url = server.url();
    let arguments = ["chat", QUESTION, "--model", MODEL, "--temperature", "0", "--bus", &url, "--grade", "--json"];
    let answer = chat.json(&arguments);
    let grade = &answer["grade"];
    assert!(grade["method"] == "likelihood" && grade["likely"] == "right", "{answer}");
    wait_until("the worker says what it has done", || fleet(&chat, &server)["workers"][0]["finished"] == 1);
    let seen = fleet(&chat, &server);
    assert_eq!(seen["queues"]["open"], 0, "{seen}");
    // The grade is that of the same model on the same machine.
    let alone = other.json(&["chat", QUESTION, "--model", MODEL, "--temperature", "0", "--grade", "--json"]);
    assert_eq!(alone["grade"]["probability"], grade["probability"], "{alone}");
    drop(worker);
}

#[test]
fn what_was_answered_while_the_bus_was_away_is_graded_once_when_it_is_back() {
    let mut server = NatsServer::start();
    let (asking, other) = (home(), home());
    let url = server.url();
    server.stop();
    let (process, address) = serve_graded(&asking, &["--bus", &url, "--model", MODEL]);
    let served = Served { process, address, home: asking };
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 20});
    let answer = body_of(&served.post("/v1/chat/completions", &body));
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    server.resume();
    let _worker = Worker::start(&other, &server);
    wait_until("the answer is graded", || {
        served.home.json(&["memory", "list", "--json"])[0]["judging_method"] == "likelihood"
    });
    let events = served.home.run(&["events", "--type", "critique.result", "--json"]).stdout;
    let graded = events.lines().filter(|line| !line.contains("\"failure\"")).count();
    assert_eq!(graded, 1, "{events}");
}

#[test]
fn a_worker_that_cannot_work_says_why() {
    let mut server = NatsServer::start();
    let home = Home::new();
    let url = server.url();
    let run = home.run(&["worker", "--bus", &url, "--roles", "cook"]);
    assert!(run.code == 2 && run.stderr.contains("there is no role cook"), "{}", run.stderr);
    let run = home.run(&["worker"]);
    assert!(run.code == 2 && run.stderr.contains("--bus nats://HOST:4222"), "{}", run.stderr);
    server.stop();
    let run = home.run(&["worker", "--bus", &url]);
    assert!(run.code == 1 && run.stderr.contains(&format!("the NATS server at {url}")), "{}", run.stderr);
    let run = home.run(&["events", "--dead", "--bus", &url]);
    assert_eq!(run.code, 1, "{}", run.stderr);
}
