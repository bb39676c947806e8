//! Two servers, a chat and a grader on one home, one of which is killed at a random moment, again and again. Everything
//! reported to a client is remembered exactly once: answers of the API, answers and conversations of the page, ratings.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::served::{connect, serve};
use crate::support::{Home, Run};
use crate::torture::ordeal::{Ordeal, assert_sane, run_sane};
use crate::torture::remembered::{Acknowledged, ask};

/// Concurrent requests.
const CLIENTS: usize = 6;

/// The latest moment of a kill after the requests, in milliseconds.
const LATEST_KILL: u64 = 1_500;

/// A process that may be killed, and for a server its address.
struct Victim {
    process: Child,
    address: Option<String>,
}

impl Victim {
    fn server(home: &Home) -> Victim {
        let (process, address) = serve(home, &[]);
        Victim { process, address: Some(address) }
    }

    fn command(home: &Home, arguments: &[&str]) -> Victim {
        let mut process = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), arguments).spawn().unwrap();
        drop(process.stdin.take());
        Victim { process, address: None }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client's request.
enum Request {
    Api(String),
    Page(String),
    Rating(String),
}

/// The response that a client received.
enum Heard {
    Answer { question: String, id: String, conversation: Option<String> },
    Rating(String),
    Nothing,
}

#[test]
fn servers_that_are_killed_lose_nothing_that_a_client_has_heard_of() {
    let mut ordeal = Ordeal::begin("servers");
    let home = Home::graded_by_the_generator().variable("HONE_SAMPLING_MAX_TOKENS", "3");
    let (mut acknowledged, mut heard) = (Acknowledged::default(), AllHeard::default());
    let mut servers = [Victim::server(&home), Victim::server(&home)];
    while ordeal.goes_on() {
        let requests: Vec<(String, Request)> = (0..CLIENTS)
            .map(|number| {
                let address = servers[number % servers.len()].address.clone().unwrap();
                (address, next_request(&mut ordeal, &mut acknowledged, &heard))
            })
            .collect();
        let question = acknowledged.fresh_question();
        let asked = ask(&question);
        let mut chat = Victim::command(&home, &asked.iter().map(String::as_str).collect::<Vec<_>>());
        let mut grader = Victim::command(&home, &["grade", "--due", "--json"]);
        let told: Vec<Heard> = std::thread::scope(|scope| {
            let running: Vec<_> = requests.iter().map(|(host, request)| scope.spawn(|| sent(host, request))).collect();
            // The moment is random on purpose.
            sleep(Duration::from_millis(ordeal.below(LATEST_KILL)));
            match ordeal.below(4) {
                0 => grader.kill(),
                1 => chat.kill(),
                number => servers[number as usize - 2].kill(),
            }
            ordeal.count("kills");
            running.into_iter().map(|running| running.join().unwrap()).collect()
        });
        finish_chat(&mut ordeal, chat, &question, &mut acknowledged);
        told.into_iter().for_each(|told| heard.note(&mut ordeal, told, &mut acknowledged));
        for server in &mut servers {
            if server.process.try_wait().unwrap().is_some() {
                *server = Victim::server(&home);
            }
        }
        drop(grader);
        acknowledged.check(&home);
        heard.check(&home);
    }
    assert!(acknowledged.len() > 0);
}

fn next_request(ordeal: &mut Ordeal, acknowledged: &mut Acknowledged, heard: &AllHeard) -> Request {
    let ids: Vec<&String> = heard.ids.values().collect();
    match ordeal.below(3) {
        0 if !ids.is_empty() => Request::Rating((*ordeal.one_of(&ids)).clone()),
        1 => Request::Page(acknowledged.fresh_question()),
        _ => Request::Api(acknowledged.fresh_question()),
    }
}

/// Sends a request. A server that is killed meanwhile acknowledges nothing.
fn sent(host: &str, request: &Request) -> Heard {
    let (path, body) = match request {
        Request::Api(question) => {
            ("/v1/chat/completions", json!({"max_tokens": 3, "messages": [{"role": "user", "content": question}]}))
        }
        Request::Page(question) => ("/hone/v1/chat", json!({"question": question})),
        Request::Rating(id) => ("/hone/v1/feedback", json!({"query_id": id, "rating": "good"})),
    };
    let mut answer = String::new();
    let whole = connect(host, "POST", path, &body).and_then(|mut stream| stream.read_to_string(&mut answer));
    if whole.is_err() || !answer.starts_with("HTTP/1.1 200") {
        return Heard::Nothing;
    }
    heard_in(request, &answer).unwrap_or(Heard::Nothing)
}

fn heard_in(request: &Request, answer: &str) -> Option<Heard> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some(match request {
        Request::Rating(id) => Heard::Rating(id.clone()),
        Request::Api(question) => {
            assert!(!head.contains("x-hone-kept: false"), "{answer}");
            let body: Value = serde_json::from_str(body).ok()?;
            Heard::Answer { question: question.clone(), id: text(&body["hone"]["query_id"])?, conversation: None }
        }
        Request::Page(question) => {
            let event = |line: &str| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok();
            let end = body.lines().rev().filter_map(event).find(|event| event["type"] == "answered")?;
            assert_eq!(end["is_remembered"], true, "{end}");
            let (id, conversation) = (text(&end["exchange"]["query_id"])?, text(&end["conversation"]));
            Heard::Answer { question: question.clone(), id, conversation }
        }
    })
}

/// Waits for the chat, unless it was killed. It may have used the engine of a killed server.
fn finish_chat(ordeal: &mut Ordeal, mut chat: Victim, question: &str, acknowledged: &mut Acknowledged) {
    let Some(code) = chat.process.wait().unwrap().code() else { return };
    let (mut stdout, mut stderr) = (String::new(), String::new());
    chat.process.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    chat.process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let run = Run { code, stdout, stderr };
    assert_sane(&run, question);
    let is_acknowledged = acknowledged.note(question, &run);
    ordeal.count(if is_acknowledged { "answers of a chat acknowledged" } else { "chats without an answer" });
}

/// Everything reported to clients, besides the answered questions.
#[derive(Default)]
struct AllHeard {
    /// The answers' ids, by question.
    ids: BTreeMap<String, String>,
    conversations: BTreeSet<String>,
    rated: BTreeSet<String>,
}

impl AllHeard {
    fn note(&mut self, ordeal: &mut Ordeal, heard: Heard, acknowledged: &mut Acknowledged) {
        match heard {
            Heard::Nothing => ordeal.count("requests without an answer"),
            Heard::Rating(id) => {
                ordeal.count("ratings acknowledged");
                self.rated.insert(id);
            }
            Heard::Answer { question, id, conversation } => {
                ordeal.count("answers of servers acknowledged");
                acknowledged.note(&question, &Run { code: 0, stdout: String::new(), stderr: String::new() });
                self.ids.insert(question, id);
                self.conversations.extend(conversation);
            }
        }
    }

    /// Asserts that every conversation is remembered, and every rating at its answer.
    #[track_caller]
    fn check(&self, home: &Home) {
        let list = run_sane(home, &["memory", "list", "-n", "1000000", "--json"]);
        let engrams: Vec<Value> = serde_json::from_str(&list.stdout).unwrap();
        let rating = |id: &str| engrams.iter().find(|it| it["query_id"] == id).map(|it| it["user_feedback"].clone());
        let lost: Vec<&String> = self.rated.iter().filter(|id| rating(id) != Some(json!("good"))).collect();
        assert!(lost.is_empty(), "{} of {} ratings are lost: {lost:?}", lost.len(), self.rated.len());
        let list = run_sane(home, &["conversations", "list", "-n", "0", "--json"]);
        let saved: Vec<Value> = serde_json::from_str(&list.stdout).unwrap();
        let is_whole = |name: &&String| saved.iter().any(|it| it["name"] == name.as_str() && it["exchanges"] == 1);
        let lost: Vec<&String> = self.conversations.iter().filter(|name| !is_whole(name)).collect();
        assert!(lost.is_empty(), "{} of {} conversations are lost: {lost:?}", lost.len(), self.conversations.len());
    }
}
