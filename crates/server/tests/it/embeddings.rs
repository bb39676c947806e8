//! Text embeddings, in both APIs.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings};
use crate::staged::EMBEDDER;

#[test]
fn texts_become_vectors_as_openai_writes_them() {
    let stage = Stage::start(settings(), echo);
    let (status, answer) = stage.post("/v1/embeddings", &json!({"model": EMBEDDER, "input": ["a", "aaa bbbb"]}));
    assert_eq!(status, 200, "{answer}");
    let expected = json!({
        "object": "list",
        "model": EMBEDDER,
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0, 0.0, 0.0]},
            {"object": "embedding", "index": 1, "embedding": [0.6, 0.8, 0.0]},
        ],
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    });
    assert_eq!(answer, expected);
    let (_, answer) = stage.post("/v1/embeddings", &json!({"input": "a", "encoding_format": "base64"}));
    assert_eq!(answer["data"][0]["embedding"], "AACAPwAAAAAAAAAA");
    let (_, answer) = stage.post("/v1/embeddings", &json!({"input": "aaa bbbb", "dimensions": 1}));
    assert_eq!(answer["data"][0]["embedding"], json!([1.0]));
    let many: Vec<String> = (0..100).map(|number| "a".repeat(number + 1)).collect();
    let (_, answer) = stage.post("/v1/embeddings", &json!({"input": many}));
    assert_eq!((answer["data"].as_array().unwrap().len(), &answer["usage"]["total_tokens"]), (100, &json!(100)));
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let stage = Stage::start(settings(), echo);
    let check = |body: Value, status: u16, expected: &str| {
        let (found, answer) = stage.post("/v1/embeddings", &body);
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(found == status && message.contains(expected), "{found} {message}");
    };
    check(json!({"input": [1, 2, 3]}), 400, "a list of tokens, which are not supported");
    check(json!({"input": [[1], [2]]}), 400, "a list of tokens, which are not supported");
    check(json!({"input": ""}), 400, "input is empty");
    check(json!({"input": []}), 400, "input is empty");
    check(json!({"input": vec!["a"; 2049]}), 400, "at most 2048");
    check(json!({"input": "a", "dimensions": 4}), 400, "dimensions is 4: the model has 1 to 3");
    check(json!({"input": "a", "dimensions": 0}), 400, "dimensions is 0");
    check(json!({"input": "a", "encoding_format": "hex"}), 400, "hex");
    check(json!({"input": "a", "model": "scripted"}), 404, "\"letters:1\" does");
    check(json!({"input": "a", "model": "../letters:1"}), 404, "\"letters:1\" does");
    stage.models.has_no_embedder.store(true, Ordering::Relaxed);
    check(json!({"input": "a"}), 404, "run `hone pull letters:1`");
}

#[test]
fn texts_become_vectors_as_ollama_writes_them() {
    let stage = Stage::start(settings(), echo);
    let (status, answer) = stage.post("/api/embed", &json!({"model": EMBEDDER, "input": ["a b", "b"]}));
    assert_eq!((status, answer["embeddings"].as_array().unwrap().len()), (200, 2), "{answer}");
    assert_eq!((&answer["embeddings"][1], &answer["prompt_eval_count"]), (&json!([0.0, 1.0, 0.0]), &json!(3)));
    assert!(answer["total_duration"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(stage.post("/api/embed", &json!({"input": ""})).1["embeddings"], json!([]));
    let long = json!({"input": "a ".repeat(101), "truncate": false});
    let (status, answer) = stage.post("/api/embed", &long);
    assert_eq!((status, &answer["error"]), (400, &json!("a text is longer than the 100 tokens that the model reads")));
    assert_eq!(stage.post("/api/embed", &json!({"input": "a ".repeat(101)})).0, 200);
    assert_eq!(stage.post("/api/embeddings", &json!({"prompt": "b"})), (200, json!({"embedding": [0.0, 1.0, 0.0]})));
    assert_eq!(stage.post("/api/embeddings", &json!({"prompt": "b", "model": "none"})).0, 404);
}
