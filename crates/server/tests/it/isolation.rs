//! Data of one key is invisible to the others.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hone_app::config::{KeyHash, ServerSettings};
use hone_bus::{Overload, Subscription};
use hone_memory::Whose;
use hone_protocol::scripted::Script;
use hone_protocol::{Payload, Subject};
use serde_json::{Value, json};

use crate::stage::{Plan, Stage, ask, echo, name_of, settings, wait_for, wait_until};

/// A server with keys for Anne and Ben.
fn stage() -> Stage {
    let keys = vec![KeyHash::of("anne"), KeyHash::of("ben")];
    Stage::planned(ServerSettings { keys, ..settings() }, Plan::grading(4), echo)
}

/// The responses to Anne and Ben for the same request.
fn both(stage: &Stage, method: &str, path: &str, body: &Value) -> [(u16, Value); 2] {
    ["anne", "ben"].map(|key| stage.with_key(key, method, path, body))
}

/// A request that only Anne may make. Ben, who makes it first, gets the response for an object that never existed.
#[track_caller]
fn check_hers(stage: &Stage, method: &str, path: &str, body: &Value) -> Value {
    let (status, refused) = stage.with_key("ben", method, path, body);
    assert_eq!(status, 404, "{path} {refused}");
    let (status, hers) = stage.with_key("anne", method, path, body);
    assert!((200..300).contains(&status), "{path} {hers}");
    hers
}

/// The answer in a conversation of the page, asked with Anne's key.
fn chat(stage: &Stage, question: &str) -> Value {
    let request = stage.keyed_text("anne", "POST", "/hone/v1/chat", &json!({"question": question}));
    let (_, events) = stage.send(&request);
    let last = events.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    serde_json::from_str(last).unwrap()
}

/// Waits for the grade of an answer. Its client may hear of the answer before the hub, which is asked for the grade.
#[track_caller]
fn graded(stage: &Stage, key: &str, id: &str) {
    let path = format!("/hone/v1/critique/{id}?wait=60");
    wait_until("the answer is graded", || stage.with_key(key, "GET", &path, &json!({})).1["score"] == 4);
}

#[test]
fn conversations_of_one_key_are_invisible_to_another() {
    let stage = stage();
    let secret = name_of("secret");
    assert_eq!(chat(&stage, "secret")["conversation"], secret);
    let [hers, his] = both(&stage, "GET", "/hone/v1/conversations", &json!({})).map(|(_, listed)| listed);
    let listed = &hers["conversations"][0];
    assert_eq!((&listed["name"], &listed["title"]), (&json!(secret), &json!("secret")), "{hers}");
    assert_eq!(his, json!({"conversations": []}));
    let [hers, his] = both(&stage, "GET", "/hone/v1/conversations?search=secret", &json!({})).map(|(_, found)| found);
    assert_eq!([&hers, &his].map(|found| found["conversations"].as_array().unwrap().len()), [1, 0]);
    let path = &format!("/hone/v1/conversations/{secret}");
    check_hers(&stage, "GET", path, &json!({}));
    check_hers(&stage, "GET", &format!("{path}/export"), &json!({}));
    assert_eq!(stage.with_key("ben", "POST", &format!("{path}/stop"), &json!({})).1, json!({"stopped": false}));
    let continued = json!({"question": "go on", "conversation": secret});
    assert_eq!(stage.with_key("ben", "POST", "/hone/v1/chat", &continued).0, 404);
    check_hers(&stage, "PATCH", path, &json!({"name": "hidden"}));
    check_hers(&stage, "DELETE", "/hone/v1/conversations/hidden", &json!({}));
}

#[test]
fn answers_in_memory_of_one_key_are_invisible_to_another() {
    let stage = stage();
    let (_, answer) = stage.with_key("anne", "POST", "/v1/chat/completions", &ask("secret tides"));
    let id = answer["hone"]["query_id"].as_str().unwrap();
    graded(&stage, "anne", id);
    // Known from messages, before and after it is stored.
    let critique = format!("/hone/v1/critique/{id}?wait=60");
    assert_eq!(check_hers(&stage, "GET", &critique, &json!({}))["score"], 4);
    let store = stage.store.as_ref().unwrap();
    let owner = wait_for("the answer is remembered", || store.get(id.parse().unwrap()).unwrap()).owner;
    assert!(owner.is_some());
    assert_eq!([Whose::Of(owner), Whose::Of(None)].map(|whose| store.statistics(whose).unwrap().all.engrams), [1, 0]);
    for search in ["", "?search=tides"] {
        let found = both(&stage, "GET", &format!("/hone/v1/memory{search}"), &json!({}));
        assert_eq!(found.map(|(_, found)| found["engrams"].as_array().unwrap().len()), [1, 0], "{search}");
    }
    let reports = both(&stage, "GET", "/hone/v1/report", &json!({}));
    assert_eq!(reports.map(|(_, report)| report["statistics"]["all"]["engrams"].clone()), [json!(1), json!(0)]);
    check_hers(&stage, "POST", "/hone/v1/feedback", &json!({"query_id": id, "rating": "good"}));
    check_hers(&stage, "GET", &format!("/hone/v1/memory/{id}"), &json!({}));
    check_hers(&stage, "DELETE", &format!("/hone/v1/memory/{id}"), &json!({}));
}

#[test]
fn responses_of_one_key_are_invisible_to_another() {
    let stage = stage();
    let asked = json!({"model": "scripted", "input": "secret"});
    let (_, kept) = stage.with_key("anne", "POST", "/v1/responses", &asked);
    let path = format!("/v1/responses/{}", kept["id"].as_str().unwrap());
    let continued = json!({"model": "scripted", "input": "go on", "previous_response_id": kept["id"]});
    let (status, refused) = stage.with_key("ben", "POST", "/v1/responses", &continued);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("previous_response_not_found")));
    check_hers(&stage, "GET", &path, &json!({}));
    check_hers(&stage, "GET", &format!("{path}/input_items"), &json!({}));
    check_hers(&stage, "DELETE", &path, &json!({}));
    let running = json!({"model": "scripted", "input": "endless", "background": true});
    let (_, running) = stage.with_key("anne", "POST", "/v1/responses", &running);
    let path = format!("/v1/responses/{}", running["id"].as_str().unwrap());
    check_hers(&stage, "GET", &path, &json!({}));
    check_hers(&stage, "POST", &format!("{path}/cancel"), &json!({}));
}

#[test]
fn events_of_one_key_are_invisible_to_another() {
    let stage = stage();
    let said = |key: &str, question: &str| {
        let (_, answer) = stage.with_key(key, "POST", "/v1/chat/completions", &ask(question));
        graded(&stage, key, answer["hone"]["query_id"].as_str().unwrap());
    };
    said("anne", "first of anne");
    said("ben", "of ben");
    said("anne", "second of anne");
    // Listeners hear earlier messages, and then new ones until the server stops.
    let followed = ["anne", "ben"].map(|key| {
        let stream = stage.connect(&stage.keyed_text(key, "GET", "/hone/v1/events?last=1000", &json!({})));
        (&stream).read_exact(&mut [0; 12]).unwrap();
        stream
    });
    said("ben", "last of ben");
    said("anne", "last of anne");
    stage.stop();
    let [hers, his] = followed.map(|mut stream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    assert!(hers.contains("first of anne") && hers.contains("last of anne") && !hers.contains("of ben"), "{hers}");
    assert!(his.contains("last of ben") && !his.contains("of anne"), "{his}");
}

#[test]
fn the_streams_of_a_client_are_limited() {
    let keys = vec![KeyHash::of("anne"), KeyHash::of("ben")];
    let stage = Stage::start(ServerSettings { keys, most_streams: 2, ..settings() }, echo);
    let mut endless = ask("endless");
    endless["stream"] = json!(true);
    let text = stage.keyed_text("anne", "POST", "/v1/chat/completions", &endless);
    let open = [(); 2].map(|()| {
        let stream = stage.connect(&text);
        (&stream).read_exact(&mut [0; 12]).unwrap();
        stream
    });
    let (status, refused) = stage.with_key("anne", "POST", "/v1/chat/completions", &endless);
    assert_eq!(status, 429, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("server.most_streams"), "{refused}");
    assert_eq!(stage.with_key("anne", "GET", "/hone/v1/events", &json!({})).0, 429);
    assert_eq!(stage.with_key("anne", "POST", "/v1/chat/completions", &ask("whole")).0, 200, "it is not streamed");
    let mut short = ask("short");
    short["stream"] = json!(true);
    assert_eq!(stage.with_key("ben", "POST", "/v1/chat/completions", &short).0, 200, "he has streams of his own");
    drop(open);
    let is_let_in = || stage.with_key("anne", "POST", "/v1/chat/completions", &short).0 == 200;
    wait_until("the streams of a client that has gone are closed", is_let_in);
}

#[test]
fn what_is_computed_for_one_key_is_kept_apart_from_what_is_for_another() {
    let owners = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&owners);
    let keys = vec![KeyHash::of("anne"), KeyHash::of("ben")];
    let stage = Stage::start(ServerSettings { keys, ..settings() }, move |request| {
        seen.lock().unwrap().push(request.owner);
        echo(request)
    });
    let body = json!({"messages": [{"role": "user", "content": "the code is 417"}], "max_tokens": 4});
    for key in ["anne", "ben", "anne"] {
        let (status, answer) = stage.with_key(key, "POST", "/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
    }
    let owners = owners.lock().unwrap();
    assert!(owners[0].is_some() && owners[0] == owners[2] && owners[0] != owners[1], "{owners:?}");
}

/// Memory is not for programs unless they ask for it.
#[test]
fn only_a_program_that_asks_for_it_gets_recollections() {
    let settings = ServerSettings { keys: vec![KeyHash::of("anne")], ..settings() };
    let stage = Stage::planned(settings, Plan::default(), |_| Script::saying(&["hi"]));
    let questions = stage.bus.subscribe(Subscription {
        name: "test".to_owned(),
        subjects: vec![Subject::QueryReceived],
        sessions: None,
        capacity: 100,
        overload: Overload::Wait,
    });
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": "hi"})),
        ("/v1/responses", json!({"input": "hi"})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 9})),
        ("/api/chat", json!({"messages": messages, "model": "", "stream": false})),
        ("/api/generate", json!({"prompt": "hi", "model": "", "stream": false})),
    ] {
        for (header, expected) in [("", false), ("x-hone-recall: false\r\n", false), ("X-Hone-Recall: true\r\n", true)]
        {
            let request = stage.keyed_text("anne", "POST", path, &body);
            let (status, answer) = stage.send(&request.replacen("Content-Type", &format!("{header}Content-Type"), 1));
            assert_eq!(status, 200, "{path} {answer}");
            let asked = questions.receiver().recv_timeout(Duration::from_secs(60)).unwrap();
            let Payload::QueryReceived(query) = &asked.payload else { panic!("{asked:?}") };
            assert_eq!((query.options.recalls, query.options.is_of_client), (expected, true), "{path} {header}");
        }
        let request = stage.keyed_text("anne", "POST", path, &body);
        let (status, refused) = stage.send(&request.replacen("Content-Type", "x-hone-recall: yes\r\nContent-Type", 1));
        assert_eq!(status, 400, "{path} {refused}");
        assert!(refused.contains("must be true or false"), "{path} {refused}");
    }
}
