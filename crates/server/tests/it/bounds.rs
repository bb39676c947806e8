//! No single request stops the server, or keeps other clients from their answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hone_app::config::ServerSettings;
use hone_server::openapi_document;
use serde_json::{Value, json};

use crate::stage::{Plan, Stage, ask, echo, settings};
use crate::staged::{EMBEDDER, RERANKER};

/// The usual response time of a health check under the worst load, and the longest that it may take in an unoptimized
/// build on a busy machine. Unbounded work took minutes.
const AT_ONCE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The size of the worst bodies.
const LARGE: usize = 900 << 10;

/// Bodies of the greatest allowed length that are made to be costly, with their paths.
fn worst() -> Vec<(&'static str, Value)> {
    let markdown = |part: &str| ("/hone/v1/render", json!({"markdown": part.repeat((250 << 10) / part.len())}));
    let tools = |n: usize| -> Value {
        (0..n).map(|n| json!({"type": "function", "function": {"name": format!("f{n}")}})).collect::<Vec<_>>().into()
    };
    let chat = |field: &str, value: Value| {
        let mut body = ask("hello");
        body[field] = value;
        ("/v1/chat/completions", body)
    };
    let properties: Value = (0..10_000).map(|n| (format!("k{n}"), json!({"type": "integer"}))).collect();
    let schema = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": properties}}});
    let messages = vec![json!({"role": "user", "content": "x"}); LARGE / 40];
    vec![
        markdown(">"),
        markdown("- "),
        markdown("[a]("),
        markdown("**a *b "),
        markdown("|a"),
        markdown("$a$ "),
        markdown("```rust\nlet\n```\n"),
        markdown("xhttp://"),
        markdown("https://a)))))))) "),
        ("/hone/v1/render", json!({"markdown": format!("https://a{}", ")".repeat(250 << 10))})),
        chat("tools", tools(10_000)),
        chat("response_format", schema),
        chat("messages", messages.into()),
        ("/v1/chat/completions", ask(&"x".repeat(LARGE))),
        ("/v1/embeddings", json!({"model": EMBEDDER, "input": vec!["x"; LARGE / 8]})),
        ("/hone/v1/grade", json!({"query": "x".repeat(LARGE / 2), "answer": "y".repeat(LARGE / 2)})),
        (
            "/v1/messages",
            json!({"model": "scripted", "max_tokens": 9, "messages": vec![json!({"role": "user", "content": ""}); LARGE / 40]}),
        ),
        (
            "/api/chat",
            json!({"model": "scripted", "messages": [{"role": "user", "content": "x"}], "tools": tools(10_000)}),
        ),
        (
            "/v1/responses",
            json!({"model": "scripted", "input": vec![json!({"role": "user", "content": "x"}); LARGE / 40]}),
        ),
        ("/v1/responses", json!({"model": "scripted", "input": "x", "tools": tools(10_000)})),
        ("/v1/completions", json!({"model": "scripted", "prompt": vec!["x"; LARGE / 8], "echo": true, "logprobs": 5})),
        ("/v1/rerank", json!({"model": RERANKER, "query": "x", "documents": vec!["y"; LARGE / 8]})),
        ("/v1/decisions", json!({"model": "scripted", "input": "x".repeat(LARGE), "questions": questions(20)})),
        (
            "/v1/systemone",
            json!({"model": "scripted", "state": vec![1; LARGE / 4], "questions": {"a": {"type": "noul", "instructions": "x"}}}),
        ),
        ("/tokenize", json!({"content": "a ".repeat(LARGE / 2)})),
        ("/detokenize", json!({"tokens": vec![1; LARGE / 4]})),
        ("/apply-template", json!({"messages": vec![json!({"role": "user", "content": "x"}); LARGE / 40]})),
        ("/hone/v1/compare", json!({"query": "x", "a": "y".repeat(LARGE / 2), "b": "z".repeat(LARGE / 2)})),
        ("/hone/v1/chat", json!({"question": "x ".repeat(LARGE / 2)})),
        ("/api/generate", json!({"model": "scripted", "prompt": "x".repeat(LARGE)})),
        ("/api/embed", json!({"model": EMBEDDER, "input": vec!["x"; LARGE / 8]})),
    ]
}

fn questions(n: usize) -> Value {
    let choices: Vec<Value> = (0..255).map(|option| json!({"value": format!("option {option}")})).collect();
    vec![json!({"type": "choice", "instructions": "which?", "choices": choices}); n].into()
}

/// Large bodies for every other path that takes one: an object of many keys, and one of a long text.
fn large_for_the_rest(known: &[(&'static str, Value)]) -> Vec<(String, Value)> {
    let many: Value = (0..LARGE / 16).map(|n| (format!("key{n}"), json!(n))).collect();
    let document = openapi_document("1");
    let paths = document["paths"].as_object().expect("the document has paths").iter();
    let posted = paths.filter(|(_, methods)| methods["post"].is_object()).map(|(path, _)| path.replace("{name}", "x"));
    let rest: Vec<String> = posted.filter(|path| known.iter().all(|(known, _)| known != path)).collect();
    assert!(rest.len() > 5, "{rest:?}");
    rest.into_iter().flat_map(|path| [(path.clone(), many.clone()), (path, json!({"x": "y".repeat(LARGE)}))]).collect()
}

#[test]
fn the_worst_bodies_hold_nobody_up() {
    let stage = Stage::start(settings(), echo);
    let (stage, is_over) = (&stage, &AtomicBool::new(false));
    let mut times = std::thread::scope(|scope| {
        let healthy = scope.spawn(move || {
            let mut times = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                assert_eq!(stage.get("/healthz").0, 200);
                times.push(begin.elapsed());
            }
            times
        });
        let known = worst();
        let rest = large_for_the_rest(&known).into_iter().map(|(path, body)| (path, body, false));
        let all = known.into_iter().map(|(path, body)| (path.to_owned(), body, true)).chain(rest);
        let senders: Vec<_> = all
            .map(|(path, body, is_known)| {
                scope.spawn(move || {
                    // Any answer is fine, except that the body has the wrong form.
                    let (_, answer) = stage.post(&path, &body);
                    let answer = answer.to_string();
                    let is_understood =
                        !["is not a valid request", "is not JSON"].iter().any(|error| answer.contains(error));
                    assert!(is_understood || !is_known, "{path}: {answer}");
                })
            })
            .collect();
        let ended: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        healthy.join().unwrap()
    });
    times.sort();
    let (usual, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{} times: {usual:?} usually, {slowest:?} at most", times.len());
    assert!(usual < AT_ONCE && slowest < LONGEST, "{usual:?} usually, {slowest:?} at most");
}

#[test]
fn what_is_too_much_is_refused_by_name() {
    let stage = Stage::start(ServerSettings { most_body: Some(4 << 20), ..settings() }, echo);
    let refused = |path: &str, body: &Value, words: &str| {
        let (status, answer) = stage.post(path, body);
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(words), "{answer}");
    };
    refused("/hone/v1/render", &json!({"markdown": "x".repeat(300 << 10)}), "at most 262144 are rendered");
    let tool = |parameters: Value| json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let mut body = ask("hello");
    body["tools"] = json!(vec![tool(json!({})); 513]);
    refused("/v1/chat/completions", &body, "there are 513 tools: at most 512 are possible");
    refused("/api/chat", &body, "there are 513 tools");
    body["tools"] = json!([tool(json!({"enum": vec![0; 60_000]}))]);
    refused("/v1/chat/completions", &body, "more than 50000 values");
}

#[test]
fn what_a_client_has_heard_of_is_remembered() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let store = stage.store.clone().unwrap();
    for number in 0..20 {
        let (status, answer) = stage.post("/v1/chat/completions", &ask(&format!("question {number}")));
        assert_eq!(status, 200, "{answer}");
        let id = answer["hone"]["query_id"].as_str().unwrap().parse().unwrap();
        assert!(store.get(id).unwrap().is_some(), "{number}: {answer}");
        let (status, rated) = stage.post("/hone/v1/feedback", &json!({"query_id": id, "rating": "good"}));
        assert_eq!(status, 200, "{rated}");
        assert!(store.get(id).unwrap().unwrap().user_feedback.is_some(), "{number}");
    }
}
