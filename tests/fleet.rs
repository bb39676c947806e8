//! Answers that are graded on another machine: two homes, and a NATS server between them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::support::nats::NatsServer;
use crate::support::served::{Served, body_of, connect, serve_graded};
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

    /// Starts a worker for a bus at this address.
    pub(crate) fn start_at(home: &Home, url: &str) -> Worker {
        Worker::start_as(home, &["worker", "--bus", url, "--slots", "2", "--threads", "1"])
    }

    /// Starts a worker with this command line.
    pub(crate) fn start_as(home: &Home, arguments: &[&str]) -> Worker {
        Worker::start_saying(home, arguments, " grades with smollm2:135m for prometheus:7b, ")
    }

    /// Starts a worker that prints this when it is ready.
    fn start_saying(home: &Home, arguments: &[&str], expected: &str) -> Worker {
        Worker::of(home.command(env!("CARGO_BIN_EXE_hone").as_ref(), arguments), expected)
    }

    fn of(mut command: Command, expected: &str) -> Worker {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find(|line| line.contains("at a time; Ctrl-C ends it"));
        assert!(said.as_ref().is_some_and(|line| line.contains(expected)), "{said:?}");
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Worker(child)
    }

    /// Tells it to stop, and returns its exit code.
    fn told_to_stop(mut self) -> Option<i32> {
        let told = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(told.success());
        self.0.wait().unwrap().code()
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
    // On the same machine, the same model gives the same grade.
    let alone = other.json(&["chat", QUESTION, "--model", MODEL, "--temperature", "0", "--grade", "--json"]);
    assert_eq!(alone["grade"]["probability"], grade["probability"], "{alone}");
    drop(worker);
}

#[test]
fn a_worker_compares_two_answers_as_its_judge_does_at_home() {
    let server = NatsServer::start();
    let (chat, other) = (home(), home());
    let _worker = Worker::start(&other, &server);
    let url = server.url();
    let ask = ["chat", QUESTION, "--model", MODEL, "--temperature", "0", "--respondent-b", "--temperature-b", "1"];
    let answer = chat.json(&[&ask[..], &["--seed", "7", "--grade", "--json", "--bus", &url]].concat());
    let alone = other.json(&[&ask[..], &["--seed", "7", "--grade", "--json"]].concat());
    let preference =
        |answer: &Value| [&answer["comparison"]["winner"], &answer["comparison"]["log_odds"]].map(Value::clone);
    assert_eq!(preference(&answer), preference(&alone), "{answer:#} {alone:#}");
    assert!(answer["comparison"]["log_odds"].is_number(), "{answer:#}");
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
    assert!(run.code == 2 && run.stderr.contains("invalid value 'cook'"), "{}", run.stderr);
    let run = home.run(&["worker"]);
    assert!(run.code == 2 && run.stderr.contains("--bus nats://HOST:4222"), "{}", run.stderr);
    server.stop();
    let run = home.run(&["events", "--dead", "--bus", &url]);
    assert_eq!(run.code, 1, "{}", run.stderr);
}

#[test]
fn a_worker_waits_for_a_server_that_is_started_later() {
    let mut server = NatsServer::start();
    let home = home();
    let url = server.url();
    server.stop();
    let arguments = ["worker", "--bus", &url, "--slots", "2", "--threads", "1"];
    let mut worker = home.command(env!("CARGO_BIN_EXE_hone").as_ref(), &arguments).spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    let worker = Worker(worker);
    let waiting = lines.find(|line| !line.contains("HONE_CONFIG")).unwrap();
    assert!(waiting.contains(&format!("the NATS server at {url} cannot be reached")), "{waiting}");
    server.resume();
    let working = lines.next().unwrap();
    assert!(working.contains("at a time; Ctrl-C ends it"), "{working}");
    drop(worker);
}

/// A worker that answers with the built-in model.
fn answering(home: &Home, server: &NatsServer) -> Worker {
    let url = server.url();
    let arguments = ["worker", "--roles", "generate", "--bus", &url, "--model", MODEL, "--threads", "1"];
    Worker::start_saying(home, &arguments, " answers with smollm2:135m, ")
}

#[test]
fn a_chat_without_a_model_is_answered_by_a_worker_as_it_would_be_by_its_own() {
    let server = NatsServer::start();
    let (chat, other) = (Home::new(), home());
    let _worker = answering(&other, &server);
    wait_until("the worker is heard of", || fleet(&chat, &server)["workers"][0]["models"][0]["name"] == MODEL);
    let url = server.url();
    let asked = ["chat", QUESTION, "--temperature", "0", "--json"];
    let there = chat.run(&[&asked[..], &["--bus", &url]].concat());
    assert!(there.stderr.contains("answering with smollm2:135m on a worker"), "{}", there.stderr);
    let there: Value = serde_json::from_str(&there.stdout).unwrap();
    let here = other.json(&[&asked[..], &["--model", MODEL]].concat());
    assert_eq!(there["answer"], here["answer"]);
    assert_eq!(chat.json(&["list", "--json"]), json!([]), "nothing is downloaded");
    wait_until("the worker says what it has done", || {
        fleet(&chat, &server)["workers"][0]["tokens_per_minute"].as_f64() >= Some(5.0)
    });
    let run = chat.run(&["chat", QUESTION, "--model", "nobody/has:it", "--bus", &url]);
    assert!(run.code == 1 && run.stderr.contains("nobody/has:it"), "{}", run.stderr);
}

/// A server without a model of its own, which does not grade.
fn bare_server(server: &NatsServer) -> Served {
    let home = Home::new();
    let (process, address) = serve_graded(&home, &["--bus", &server.url(), "--no-grade"]);
    Served { process, address, home }
}

#[test]
fn a_server_without_a_model_serves_those_of_workers() {
    let server = NatsServer::start();
    let other = home();
    let _worker = answering(&other, &server);
    let served = bare_server(&server);
    wait_until("the server says that it uses the fleet", || {
        let users = &fleet(&other, &server)["users"];
        users
            .as_array()
            .unwrap()
            .iter()
            .any(|user| user["command"] == "serve" && user["process"] == served.process.id())
    });
    let listed = body_of(&served.request("GET", "/v1/models", &json!(null)));
    assert_eq!(listed["data"][0]["id"], MODEL, "{listed}");
    let shown = body_of(&served.post("/api/show", &json!({"model": MODEL})));
    assert_eq!(
        (&shown["details"]["quantization_level"], &shown["capabilities"][0]),
        (&json!("Q4_1"), &json!("completion"))
    );
    let messages = json!([{"role": "user", "content": QUESTION}]);
    let body = json!({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 20, "logprobs": true});
    let answer = body_of(&served.post("/v1/chat/completions", &body));
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    assert!(answer["choices"][0]["logprobs"]["content"].as_array().unwrap().len() > 2, "{answer}");
    let answer = served.post("/v1/chat/completions", &json!({"model": "other", "messages": messages}));
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let answer = served.post("/tokenize", &json!({"model": MODEL, "content": "hello"}));
    assert!(answer.contains("is on other machines"), "{answer}");
}

#[test]
fn an_answer_outlives_its_worker_and_a_worker_does_not_work_for_nobody() {
    let server = NatsServer::start();
    let other = home();
    let worker = answering(&other, &server);
    let served = bare_server(&server);
    let long = |n_tokens: usize| {
        let messages = json!([{"role": "user", "content": "Count from 1 to 1000."}]);
        // Without the tokens that end an answer, and too hot to repeat itself, it takes as long as it may.
        let no_end = json!({"0": -100, "2": -100});
        json!({
            "messages": messages, "max_tokens": n_tokens, "stream": true,
            "temperature": 1.5, "seed": 7, "logit_bias": no_end,
        })
    };
    let whole = served.post("/v1/chat/completions", &long(300));
    let mut lines =
        BufReader::new(served.connect("POST", "/v1/chat/completions", &long(300))).lines().map(Result::unwrap);
    let mut text: Vec<String> = lines.by_ref().filter(|line| line.contains("content")).take(10).collect();
    drop(worker);
    let another = answering(&other, &server);
    // The answer ends only if the other worker goes on with it.
    text.extend(lines.filter(|line| line.contains("content")));
    let deltas = |lines: &mut dyn Iterator<Item = &str>| -> String {
        let delta = |line: &str| {
            let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
            event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
        };
        lines.filter_map(delta).collect()
    };
    assert_eq!(deltas(&mut text.iter().map(String::as_str)), deltas(&mut whole.lines()));
    // A worker that is told to stop gives its work back.
    let mut lines =
        BufReader::new(served.connect("POST", "/v1/chat/completions", &long(4000))).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("content")));
    assert_eq!(another.told_to_stop(), Some(0));
    let last = answering(&other, &server);
    wait_until("the last worker answers", || {
        let workers = fleet(&served.home, &server)["workers"].clone();
        workers.as_array().unwrap().iter().any(|it| it["process"] == last.0.id() && it["busy"] == 1)
    });
    // A client that disconnects ends the work of its worker.
    drop(lines);
    wait_until("the worker is free", || {
        let fleet = fleet(&served.home, &server);
        fleet["queues"]["open"] == 0 && fleet["workers"].as_array().unwrap().iter().all(|worker| worker["busy"] == 0)
    });
}

#[test]
fn texts_become_vectors_where_the_model_for_them_is() {
    let server = NatsServer::start();
    let url = server.url();
    // A name that stands for a model only in the worker's folder.
    let home = || Home::new().variable("HONE_MEMORY_EMBEDDER", "embedder").variable("HONE_BUS_URL", &url);
    let (other, asking) = (home(), home());
    std::os::unix::fs::symlink(crate::support::embedder(), other.path("embedder")).unwrap();
    let mut command = other.command(env!("CARGO_BIN_EXE_hone").as_ref(), &["worker", "--roles", "embed"]);
    command.current_dir(other.path(""));
    let _worker = Worker::of(command, " embeds with embedder, ");
    wait_until("the worker is heard of", || !fleet(&asking, &server)["workers"].as_array().unwrap().is_empty());
    let texts = ["embed", "A king", "A queen", "A spoon"];
    let there = asking.run(&texts);
    assert_eq!(there.code, 0, "{}", there.stderr);
    let mut command = other.command(env!("CARGO_BIN_EXE_hone").as_ref(), &texts);
    let here = command.current_dir(other.path("")).output().unwrap();
    assert_eq!(there.stdout.into_bytes(), here.stdout);
    assert!(here.stdout.len() > 3 * 384);
}

#[test]
fn every_figure_on_the_dashboard_is_one_that_a_server_or_a_worker_gives() {
    let server = NatsServer::start();
    let other = home();
    let url = server.url();
    let mut command = ["worker", "--bus", &url, "--metrics", "127.0.0.1:0"].map(str::to_owned).to_vec();
    command.extend(["--roles", "generate,grade", "--model", MODEL].map(str::to_owned));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut worker = other.command(env!("CARGO_BIN_EXE_hone").as_ref(), &command).spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("figures for Prometheus")).unwrap();
    let (_, address) = said.split_once("http://").unwrap();
    assert!(lines.any(|line| line.contains("Ctrl-C ends it")));
    let _worker = Worker(worker);
    let asking = Home::new();
    let (process, address_of_server) = serve_graded(&asking, &["--bus", &url]);
    let served = Served { process, address: address_of_server, home: asking };
    let messages = json!([{"role": "user", "content": QUESTION}]);
    let answer = served.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 5}));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut figures = String::new();
    wait_until("the answer is graded", || {
        figures = served.request("GET", "/metrics", &json!(null));
        figures.contains("hone_grades_total{")
    });
    let host = address.strip_suffix("/metrics").unwrap();
    connect(host, "GET", "/metrics", &json!(null)).unwrap().read_to_string(&mut figures).unwrap();
    let dashboard: Value = serde_json::from_str(include_str!("../packaging/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut n_names = 0;
    for query in queries.map(|query| query["expr"].as_str().unwrap()) {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("hone_")) {
            let is_there =
                figures.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
            assert!(is_there, "{name} of {query}: {figures}");
            n_names += 1;
        }
    }
    assert!(n_names > 10, "{n_names}");
}

#[test]
fn an_answer_that_no_worker_could_grade_is_graded_when_that_is_asked_for_again() {
    let server = NatsServer::start();
    let url = server.url();
    let (broken, sound) = (home().variable("HONE_BUS_ATTEMPTS", "1"), home());
    let broken_worker = Worker::start(&broken, &server);
    std::fs::remove_dir_all(broken.path("data/models")).unwrap();
    let home = home();
    let (process, address) = serve_graded(&home, &["--bus", &url, "--model", MODEL]);
    let served = Served { process, address, home };
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 20});
    assert!(served.post("/v1/chat/completions", &body).contains("Paris"));
    let dead = || served.home.run(&["events", "--dead", "--json", "--bus", &url]).stdout;
    wait_until("the grade is given up", || !dead().trim().is_empty());
    let given_up: Value = serde_json::from_str(dead().trim()).unwrap();
    assert!(given_up.to_string().contains("smollm2:135m"), "{given_up:#}");
    drop(broken_worker);
    let _sound = Worker::start(&sound, &server);
    let retried = served.home.run(&["events", "--retry", "--bus", &url]);
    assert!(retried.code == 0 && retried.stderr.contains("asked for again: 1"), "{}", retried.stderr);
    wait_until("the answer is graded", || {
        served.home.json(&["memory", "list", "--json"])[0]["judging_method"] == "likelihood"
    });
    assert_eq!(dead().trim(), "");
}

#[test]
fn a_worker_that_cannot_load_its_model_leaves_the_question_to_another() {
    let server = NatsServer::start();
    let (broken, sound) = (home(), home());
    let _broken = answering(&broken, &server);
    std::fs::remove_dir_all(broken.path("data/models")).unwrap();
    let served = bare_server(&server);
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 20});
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| body_of(&served.post("/v1/chat/completions", &body)));
        wait_until("the first worker has failed", || fleet(&served.home, &server)["workers"][0]["failed"] != 0);
        let _sound = answering(&sound, &server);
        asked.join().unwrap()
    });
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
}
