//! `/v1/rerank`.

use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings};
use crate::staged::RERANKER;

#[track_caller]
fn rerank(stage: &Stage, path: &str, body: &Value) -> Value {
    let (status, answer) = stage.post(path, body);
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn texts_come_in_the_order_in_which_they_fit() {
    let stage = Stage::start(settings(), echo);
    let documents = json!(["a cat", {"text": "a cat sat on it", "id": 7}, "rain"]);
    let body = json!({"model": RERANKER, "query": "cat sat", "documents": documents});
    for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
        let answer = rerank(&stage, path, &body);
        let places: Vec<(&Value, &Value)> =
            answer["results"].as_array().unwrap().iter().map(|r| (&r["index"], &r["relevance_score"])).collect();
        assert_eq!(places, [(&json!(1), &json!(2.0)), (&json!(0), &json!(1.0)), (&json!(2), &json!(0.0))]);
        assert_eq!((&answer["model"], &answer["usage"]["total_tokens"]), (&json!(RERANKER), &json!(14)));
        assert!(answer["results"][0].get("document").is_none(), "{answer}");
    }
}

#[test]
fn only_the_best_are_told_and_with_their_texts_if_they_are_wanted() {
    let stage = Stage::start(settings(), echo);
    let long = "b ".repeat(30);
    let documents = json!(["a cat", {"text": "a cat sat", "id": 7}, long]);
    let body = json!({"query": "cat sat", "documents": documents, "top_n": 1, "return_documents": true});
    let answer = rerank(&stage, "/v1/rerank", &body);
    let document = json!({"text": "a cat sat", "id": 7});
    assert_eq!(answer["results"], json!([{"index": 1, "relevance_score": 2.0, "document": document}]));
    let answer = rerank(&stage, "/v1/rerank", &json!({"query": "b", "documents": [long]}));
    assert_eq!(answer["results"], json!([{"index": 0, "relevance_score": 1.0, "is_cut": true}]));
}

#[test]
fn what_cannot_be_scored_is_named() {
    let stage = Stage::start(settings(), echo);
    let check = |change: &dyn Fn(&mut Value), status: u16, reason: &str| {
        let mut body = json!({"model": RERANKER, "query": "a", "documents": ["a"]});
        change(&mut body);
        let (found, answer) = stage.post("/v1/rerank", &body);
        assert!(found == status && answer["error"]["message"].as_str().unwrap().contains(reason), "{found}: {answer}");
    };
    check(&|body| body["model"] = json!("nothing"), 404, "\"nothing\" is not installed");
    check(&|body| body["query"] = json!("  "), 400, "query is empty");
    check(&|body| body["documents"] = json!([]), 400, "documents is empty");
    check(&|body| body["documents"] = json!(vec!["a"; 2049]), 400, "at most 2048");
    check(&|body| body["documents"] = json!([{"body": "a"}]), 400, "it must be a text, or an object with one (text)");
    check(&|body| body["top_n"] = json!(0), 400, "top_n is 0");
    let chat = json!({"model": RERANKER, "messages": [{"role": "user", "content": "a"}]});
    let (status, answer) = stage.post("/v1/chat/completions", &chat);
    assert_eq!((status, answer["error"]["param"].as_str()), (400, Some("model")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("/v1/rerank"), "{answer}");
}
