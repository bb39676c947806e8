//! The endpoints for operators and probes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use hone_app::config::{KeyHash, ServerSettings};
use serde_json::json;

use crate::stage::{Stage, ask, echo, settings, wait_for, wait_until};

/// The metrics, once they contain all of these lines: answers are counted a moment after they are given.
fn figures(stage: &Stage, expected: &[&str]) -> String {
    wait_for(&format!("the figures are {expected:#?}"), || {
        let (status, text) = stage.get("/metrics");
        let text = text.as_str().unwrap().to_owned();
        let holds = |line: &&str| text.lines().any(|found| found == *line);
        (status == 200 && expected.iter().all(holds)).then_some(text)
    })
}

#[test]
fn what_was_done_is_counted() {
    let stage = Stage::start(settings(), echo);
    for _ in 0..3 {
        assert_eq!(stage.post("/v1/chat/completions", &ask("how are you")).0, 200);
    }
    stage.post("/api/generate", &json!({"prompt": "how are you", "stream": false}));
    stage.get("/nothing/of/this/kind");
    stage.get("/v1/models/none");
    let text = figures(
        &stage,
        &[
            "hone_http_requests_total{path=\"/v1/chat/completions\",status=\"200\"} 3",
            "hone_http_requests_total{path=\"/api/generate\",status=\"200\"} 1",
            "hone_http_requests_total{path=\"other\",status=\"404\"} 1",
            "hone_http_requests_total{path=\"/v1/models/{*name}\",status=\"404\"} 1",
            "hone_answers_total{model=\"scripted\",outcome=\"stop\"} 4",
            "hone_tokens_total{model=\"scripted\",kind=\"generated\"} 12",
            "hone_first_token_seconds_count{lane=\"interactive\",model=\"scripted\"} 4",
            "hone_questions_in_progress 0",
        ],
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn figures_need_a_key_where_everything_does() {
    let stage = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    assert_eq!(stage.get("/metrics").0, 401);
    assert_eq!(stage.get("/readyz").0, 401);
}

#[test]
fn a_server_that_stops_is_not_ready_and_lets_answers_end() {
    let stage = Stage::start(settings(), echo);
    assert_eq!(stage.get("/readyz"), (200, json!("ready\n")));
    let mut endless = ask("endless");
    endless["stream"] = json!(true);
    let mut lines = BufReader::new(stage.connect(&stage.post_text("/v1/chat/completions", &endless)));
    let mut line = String::new();
    while !line.contains("\"on \"") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the answer begins");
    }
    figures(&stage, &["hone_questions_in_progress 1"]);
    stage.stop();
    wait_until("it is no longer ready", || stage.get("/readyz").0 == 503);
    let (status, refused) = stage.post("/v1/chat/completions", &ask("one more"));
    assert_eq!((status, &refused["error"]["message"]), (503, &json!("the server is stopping")));
}

#[test]
fn clients_of_ollama_find_it_on_its_port() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let stage = Stage::start(ServerSettings { compat_port: port, ..settings() }, echo);
    let (main, compat) = (stage.address, stage.compat_address.unwrap());
    assert_eq!(compat.port(), port);
    assert_eq!(stage.send(&format!("HEAD / HTTP/1.1\r\nHost: {main}\r\nConnection: close\r\n\r\n")).0, 200);
    let at_compat = |host: &str, method: &str, path: &str| {
        stage.send_to(compat, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    let own = compat.to_string();
    assert_eq!(at_compat(&own, "GET", "/"), (200, "Ollama is running".to_owned()));
    assert_eq!(at_compat(&own, "HEAD", "/").0, 200);
    assert_eq!(at_compat(&own, "GET", "/api/tags").0, 200);
    assert_eq!(at_compat("evil.example", "GET", "/api/tags").0, 403);
    assert_eq!(at_compat(&main.to_string(), "GET", "/api/tags").0, 200, "a port may be forwarded");
}
