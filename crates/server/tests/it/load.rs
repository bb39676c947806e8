//! Clients that go away, and many at once.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Duration;

use hone_app::config::ServerSettings;
use hone_protocol::GenerateRequest;
use hone_protocol::scripted::Script;
use serde_json::json;

use crate::stage::{Stage, ask, echo, settings, wait_until};

#[test]
fn a_client_that_goes_away_ends_its_answer() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask("endless");
    body["stream"] = json!(true);
    let stream = stage.connect(&stage.post_text("/v1/chat/completions", &body));
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("\"on \"") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the answer begins");
    }
    drop(reader);
    wait_until("the answer is cancelled", || stage.model.was_cancelled());
}

/// Answers still in progress when a stopping server's time is over end with an error, and the page's conversation keeps
/// the partial answer.
#[test]
fn answers_that_take_too_long_for_a_server_that_stops_end_with_an_error() {
    let stage = Stage::start(ServerSettings { drain: Some(Duration::from_millis(300)), ..settings() }, echo);
    let mut streamed = ask("endless");
    streamed["stream"] = json!(true);
    let of_anthropic = json!({
        "model": "scripted", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "endless"}],
    });
    let of_page = json!({"question": "endless"});
    let requests = [
        ("/v1/chat/completions", &streamed),
        ("/v1/messages", &of_anthropic),
        ("/api/chat", &ask("endless")),
        ("/hone/v1/chat", &of_page),
    ];
    let mut readers = requests.map(|(path, body)| BufReader::new(stage.connect(&stage.post_text(path, body))));
    for reader in &mut readers {
        let mut line = String::new();
        while !line.contains("on ") {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the answer begins");
        }
    }
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| stage.post("/v1/chat/completions", &ask("endless")));
        wait_until("all are asked", || stage.model.requests().len() == readers.len() + 1);
        stage.stop();
        let (status, answer) = whole.join().unwrap();
        assert_eq!(status, 503, "{answer}");
    });
    let rests = readers.map(|mut reader| {
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        rest
    });
    for rest in &rests[..3] {
        assert!(rest.contains("the server has stopped before the answer ended"), "{rest}");
    }
    assert!(rests[3].contains("\"answered\"") && rests[3].contains("on and"), "{}", rests[3]);
    wait_until("the answers are cancelled", || stage.model.was_cancelled());
}

/// Every client gets its own answer or is told to come back, whatever the others ask.
#[test]
fn a_thousand_clients_get_one_reply_each() {
    let stage = Stage::start(settings(), echo);
    let (mut answered, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let stage = &stage;
        let clients: Vec<_> = (0..1000)
            .map(|number| {
                scope.spawn(move || {
                    let question = format!("client {number} asks");
                    let (status, answer) = stage.post("/v1/chat/completions", &ask(&question));
                    match status {
                        200 => assert_eq!(answer["choices"][0]["message"]["content"], json!(question)),
                        503 => assert_eq!(answer["error"]["type"], "overloaded_error"),
                        other => panic!("{other} {answer}"),
                    }
                    status
                })
            })
            .collect();
        for client in clients {
            match client.join().unwrap() {
                200 => answered += 1,
                _ => refused += 1,
            }
        }
    });
    assert_eq!(answered + refused, 1000);
    assert!(answered >= 64, "{answered} were answered");
}

/// Says more than an unread connection holds.
fn flood_or_echo(request: &GenerateRequest) -> Script {
    let pieces = vec!["so much that nobody who reads nothing could hold it all "; 20_000];
    match crate::stage::question_of(request).as_str() {
        "flood" => Script::saying(&pieces),
        _ => echo(request),
    }
}

/// Clients that leave their answers unread, and clients that go away, take nothing from the others.
#[test]
fn slow_readers_and_vanished_clients_harm_nobody() {
    let patience = Duration::from_secs(1);
    let stage =
        Stage::start(ServerSettings { patience: Some(patience), most_questions: 1000, ..settings() }, flood_or_echo);
    let mut flood = ask("flood");
    flood["stream"] = json!(true);
    let flood = stage.post_text("/v1/chat/completions", &flood);
    let slow: Vec<_> = (0..100).map(|_| stage.connect(&flood)).collect();
    std::thread::scope(|scope| {
        let (stage, flood) = (&stage, &flood);
        scope.spawn(move || (0..200).for_each(|_| drop(stage.connect(flood))));
        for number in 0..100 {
            scope.spawn(move || {
                let question = format!("client {number} asks");
                let (status, answer) = stage.post("/v1/chat/completions", &ask(&question));
                assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!(question)), "{answer}");
            });
        }
    });
    // The pause is the test: no client reads for longer than the server is patient.
    std::thread::sleep(2 * patience);
    for mut reader in slow {
        let mut answer = Vec::new();
        let _ = reader.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains("[DONE]"), "it was cut off");
    }
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    let stage = Stage::start(ServerSettings { patience: Some(Duration::from_millis(300)), ..settings() }, echo);
    let mut silent = stage.connect("POST /v1/chat/completions HTTP/1.1\r\nHost:");
    let mut answer = String::new();
    let _ = silent.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    let begun = stage.post_text("/v1/chat/completions", &ask("x")).replace("Content-Length: ", "Content-Length: 9");
    let (status, answer) = stage.send(&begun);
    assert_eq!(status, 408, "{answer}");
    assert_eq!(stage.post("/v1/chat/completions", &ask("x")).0, 200);
}

/// Clients above the connection limit wait for each other.
#[test]
fn connections_are_limited() {
    let stage = Stage::start(ServerSettings { most_connections: 2, ..settings() }, echo);
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..20).map(|_| scope.spawn(|| stage.post("/v1/chat/completions", &ask("x")).0)).collect();
        assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    });
}

/// A connection on which nothing is asked gives way to a client that asks.
#[test]
fn idle_connections_keep_nobody_waiting() {
    let patience = Some(Duration::from_secs(600));
    let stage = Stage::start(ServerSettings { most_connections: 2, patience, ..settings() }, echo);
    let idle: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(stage.address).unwrap()).collect();
    assert_eq!(stage.post("/v1/chat/completions", &ask("x")).0, 200);
    assert_eq!((&idle[0]).read(&mut [0]).unwrap(), 0, "the first one has given way");
}
