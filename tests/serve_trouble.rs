//! `hone serve` and its clients in trouble: the server must stop, clients disconnect, and the disk is full or
//! read-only.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::Command;

use crate::support::served::{Served, body_of, status_of, wait_for_requests};
#[cfg(target_os = "linux")]
use crate::support::small_disk::SmallDisk;
use crate::support::{Home, wait_for, wait_until};
use serde_json::{Value, json};

/// A question with an answer of exactly this many tokens: the model may not end it early.
fn question(max_tokens: usize) -> Value {
    let messages = json!([{"role": "user", "content": "Count as far as you can."}]);
    let bias = json!({"0": -100, "2": -100});
    json!({"messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": true, "logit_bias": bias})
}

fn asking(drain: &str) -> Served {
    Served::start_in(Home::new().variable("HONE_SERVER_DRAIN", drain), &[])
}

/// An answer that has begun.
fn begun(served: &Served, question: &Value) -> BufReader<TcpStream> {
    let mut reader = BufReader::new(served.connect("POST", "/v1/chat/completions", question));
    let mut line = String::new();
    while !line.contains("\"content\":\"") || line.contains("\"content\":\"\"") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the answer begins");
    }
    reader
}

fn rest_of(mut reader: BufReader<TcpStream>) -> String {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    rest
}

fn terminate(served: &Served) {
    let process = served.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
}

/// Waits for the end of the process and returns its exit code.
#[track_caller]
fn exit_code(served: &mut Served) -> Option<i32> {
    wait_for("the server has ended", || served.process.try_wait().unwrap()).code()
}

#[test]
fn sigterm_lets_an_answer_end() {
    let mut served = asking("600");
    let answer = begun(&served, &question(64));
    terminate(&served);
    let rest = rest_of(answer);
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(exit_code(&mut served), Some(0));
}

#[test]
fn an_answer_that_does_not_end_in_time_ends_with_an_error() {
    let mut served = asking("0.2");
    let answer = begun(&served, &question(6000));
    terminate(&served);
    let rest = rest_of(answer);
    assert!(rest.contains("the server has stopped before the answer ended"), "{rest}");
    assert_eq!(exit_code(&mut served), Some(0));
}

#[test]
fn a_second_sigterm_stops_at_once() {
    let mut served = asking("600");
    let answer = begun(&served, &question(6000));
    terminate(&served);
    let is_stopping = || status_of(&served.request("GET", "/readyz", &json!({}))) == 503;
    wait_until("the server takes no more questions", is_stopping);
    terminate(&served);
    assert_eq!(exit_code(&mut served), Some(130));
    assert!(!rest_of_what_was_cut(answer).contains("[DONE]"));
}

/// The data received before a connection broke off.
fn rest_of_what_was_cut(mut reader: BufReader<TcpStream>) -> String {
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

/// The first report of the progress of a prompt, as tokens done and tokens in all.
fn prefill(reader: &mut impl BufRead) -> (u64, u64) {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the prompt is computed");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(data).unwrap();
        assert!(event["type"] != "failed" && event["type"] != "text", "{event}");
        if event["type"] == "prefill" {
            return (event["done"].as_u64().unwrap(), event["total"].as_u64().unwrap());
        }
    }
}

/// The part of the prompt computed before its client disconnected is in the cache, and nothing more.
#[test]
fn a_client_that_goes_away_stops_its_prompt() {
    let served = Served::start(&[]);
    let question = "word ".repeat(5000);
    let messages = json!([{"role": "user", "content": question}]);
    let mut client =
        BufReader::new(served.connect("POST", "/v1/chat/completions", &json!({"messages": messages, "stream": true})));
    // The stream opens while the prompt is computed.
    let mut line = String::new();
    while !line.starts_with(':') && !line.starts_with("data:") {
        line.clear();
        assert!(client.read_line(&mut line).unwrap() > 0, "the stream opens");
    }
    drop(client);
    let in_progress = || served.request("GET", "/metrics", &json!({}));
    wait_until("no question is in progress", || in_progress().contains("hone_questions_in_progress 0"));
    wait_for_requests(&served.home, 0);
    let mut page = BufReader::new(served.connect("POST", "/hone/v1/chat", &json!({"question": question})));
    let (cached, total) = prefill(&mut page);
    assert!(total > 4000 && cached < total - total / 4, "{cached} of {total} tokens were computed");
}

/// The events that the page receives for a question.
#[cfg(target_os = "linux")]
fn page_is_told(served: &Served, question: &Value) -> String {
    let mut asked = json!({"question": "In which city is the Eiffel Tower?"});
    asked.as_object_mut().unwrap().extend(question.as_object().unwrap().clone());
    served.post("/hone/v1/chat", &asked)
}

/// Checks that questions are answered although nothing can be written, and that their clients are informed.
#[cfg(target_os = "linux")]
#[track_caller]
fn check_answers_that_are_not_kept(served: &Served) {
    for answer in check_answers(served) {
        assert!(answer.contains("x-hone-kept: false") && answer.contains("\"kept\":false"), "{answer}");
    }
    let messages = json!([{"role": "user", "content": "In which city is the Eiffel Tower?"}]);
    let body = json!({"messages": messages, "temperature": 0, "max_tokens": 16, "stream": true});
    for path in ["/v1/chat/completions", "/api/chat", "/v1/messages"] {
        let events = served.post(path, &body);
        assert!(status_of(&events) == 200 && events.contains("\"kept\":false"), "{path}: {events}");
    }
}

/// Checks that questions are answered.
#[cfg(target_os = "linux")]
#[track_caller]
fn check_answers(served: &Served) -> Vec<String> {
    let messages = json!([{"role": "user", "content": "In which city is the Eiffel Tower?"}]);
    let asked = json!({"messages": messages, "temperature": 0, "max_tokens": 16});
    let input = json!({"input": "In which city is the Eiffel Tower?", "temperature": 0, "max_output_tokens": 16});
    let answer = |(path, body)| {
        let answer = served.post(path, body);
        assert!(status_of(&answer) == 200 && answer.contains("Paris"), "{path}: {answer}");
        answer
    };
    [("/v1/chat/completions", &asked), ("/v1/responses", &input)].map(answer).into()
}

#[cfg(target_os = "linux")]
fn home_on(disk: &SmallDisk) -> Home {
    Home::new().variable("HONE_HOME", disk.path("data").to_str().unwrap()).variable("HONE_SAMPLING_TEMPERATURE", "0")
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_nobody_from_an_answer_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("96m") else { return };
    let mut served = Served::start_in(home_on(&disk), &[]);
    let told = page_is_told(&served, &json!({}));
    assert!(told.contains("\"answered\""), "{told}");
    let conversations = || served.request("GET", "/hone/v1/conversations", &json!({}));
    let name = body_of(&conversations())["conversations"][0]["name"].as_str().unwrap().to_owned();
    disk.fill_up();
    check_answers_that_are_not_kept(&served);
    for question in [json!({}), json!({"conversation": name})] {
        let told = page_is_told(&served, &question);
        assert!(told.contains("No space left on device"), "{told}");
    }
    disk.make_room();
    check_answers(&served);
    let told = page_is_told(&served, &json!({"conversation": name}));
    assert!(told.contains("\"answered\""), "{told}");
    let exchanges = served.request("GET", &format!("/hone/v1/conversations/{name}"), &json!({}));
    let n_exchanges = body_of(&exchanges)["exchanges"].as_array().unwrap().len();
    assert_eq!(n_exchanges, 2, "{exchanges}");
    let remembered = || served.request("GET", "/hone/v1/memory?limit=100", &json!({}));
    let n_remembered = || body_of(&remembered())["engrams"].as_array().unwrap().len();
    // The answers before and after, and the kept ones in between.
    wait_until("the answers are remembered", || n_remembered() >= 4);
    assert_eq!(served.process.try_wait().unwrap(), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_home_keeps_nobody_from_an_answer() {
    let Some(disk) = SmallDisk::mount("64m") else { return };
    std::fs::create_dir(disk.path("data")).unwrap();
    disk.make_read_only();
    let mut served = Served::start_in(home_on(&disk), &[]);
    check_answers_that_are_not_kept(&served);
    let told = page_is_told(&served, &json!({}));
    assert!(told.contains("Read-only file system"), "{told}");
    assert_eq!(served.process.try_wait().unwrap(), None);
}
