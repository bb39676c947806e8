//! Errors for programs: codes, the wrong field, and null as an omitted field.

use hone_protocol::GenerateError;
use hone_protocol::scripted::Script;
use serde_json::{Value, json};

use crate::stage::{Stage, ask, echo, settings};

fn with(key: &str, value: Value) -> Value {
    let mut body = ask("x");
    body[key] = value;
    body
}

#[test]
fn an_error_names_the_field_that_is_wrong() {
    let stage = Stage::start(settings(), echo);
    let check_at = |path: &str, body: &Value, field: &str| {
        let (status, answer) = stage.post(path, body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{body}: {answer}");
    };
    let check = |key: &str, value: Value, field: &str| check_at("/v1/chat/completions", &with(key, value), field);
    check("temperature", json!("hot"), "temperature");
    check("temperature", json!(-1), "temperature");
    check("stream", json!("yes"), "stream");
    check("n", json!(0), "n");
    check("logit_bias", json!({"a": 1}), "logit_bias");
    check("messages", json!([]), "messages");
    check("messages", json!([{"role": "user", "content": 1}]), "messages");
    check("messages", json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages");
    check("tool_choice", json!("required"), "tool_choice");
    check("tools", json!([{"function": {}}]), "tools");
    check("response_format", json!({"type": "xml"}), "response_format");
    check("model", json!(crate::staged::EMBEDDER), "model");
    check_at("/v1/chat/completions", &json!({"model": "scripted"}), "messages");
    check_at("/v1/completions", &json!({"prompt": "x", "suffix": "y"}), "suffix");
    check_at("/v1/completions", &json!({"prompt": 1}), "prompt");
    check_at("/v1/embeddings", &json!({"input": []}), "input");
    check_at("/v1/embeddings", &json!({"input": "x", "dimensions": 0}), "dimensions");
    check_at("/v1/responses", &json!({"input": "x", "prompt": {"id": "y"}}), "prompt");
    check_at("/v1/responses", &json!({"input": "x", "top_p": "y"}), "top_p");
}

#[test]
fn a_model_that_does_not_exist_has_a_code() {
    let stage = Stage::start(settings(), echo);
    let check = |(status, answer): (u16, Value)| {
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (404, &json!("model_not_found")), "{answer}");
        assert_eq!(error["param"], "model");
    };
    check(stage.post("/v1/chat/completions", &with("model", json!("none"))));
    check(stage.post("/v1/completions", &json!({"model": "none", "prompt": "x"})));
    check(stage.post("/v1/responses", &json!({"model": "none", "input": "x"})));
    check(stage.post("/v1/embeddings", &json!({"model": "none", "input": "x"})));
    check(stage.get("/v1/models/none"));
}

#[test]
fn a_context_that_is_too_small_has_a_code_and_says_by_how_much() {
    let overflow = GenerateError::ContextOverflow { prompt_tokens: 9, context_tokens: 8 };
    let stage = Stage::start(settings(), move |_| Script::failing(overflow.clone()));
    for stream in [false, true] {
        let (status, answer) = stage.post("/v1/chat/completions", &with("stream", json!(stream)));
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")), "{answer}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("is 8 tokens, and the prompt has 9: shorten it by 2 or more"), "{message}");
    }
}

#[test]
fn a_body_that_is_no_json_is_refused_with_the_place() {
    let stage = Stage::start(settings(), echo);
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/hone/v1/chat"] {
        let request = stage.post_text(path, &json!({})).replace("Content-Length: 2", "Content-Length: 8");
        let (status, body) = stage.send(&format!("{}{{\"a\": ]}}", request.strip_suffix("{}").unwrap()));
        assert!(status == 400 && body.contains("is not JSON"), "{path} {status} {body}");
        assert!(body.contains("at line 1 column 7"), "{path} {body}");
    }
}

#[test]
fn null_counts_as_left_out() {
    let stage = Stage::start(settings(), |_| Script::saying(&["as ", "you ", "like"]));
    let nulls = |path: &str, mut body: Value, fields: &[&str]| {
        for field in fields {
            body[*field] = Value::Null;
        }
        let (status, answer) = stage.post(path, &body);
        assert_eq!(status, 200, "{path} {answer}");
    };
    let chat = [
        "model",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "max_tokens",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "response_format",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "user",
    ];
    let turns = json!([
        {"role": "user", "content": "x", "name": null},
        {"role": "assistant", "content": null, "tool_calls": null, "refusal": null},
        {"role": "user", "content": [{"type": "text", "text": "y"}]},
    ]);
    nulls("/v1/chat/completions", json!({"messages": turns, "stream_options": {"include_usage": null}}), &chat[..2]);
    nulls("/v1/chat/completions", json!({"messages": turns}), &chat);
    let tool = json!({"type": "function", "function": {"name": "f", "description": null, "parameters": null}});
    nulls("/v1/chat/completions", json!({"messages": turns, "tools": [tool]}), &["stream"]);
    nulls("/v1/completions", json!({"prompt": "x"}), &["model", "echo", "suffix", "logprobs", "best_of", "stream"]);
    nulls("/v1/embeddings", json!({"input": "x"}), &["model", "encoding_format", "dimensions"]);
    let optional = ["model", "instructions", "tools", "text", "stream", "store", "metadata", "previous_response_id"];
    nulls("/v1/responses", json!({"input": "x"}), &optional);
    let message = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]});
    nulls(
        "/v1/messages",
        message,
        &["model", "system", "stream", "tools", "tool_choice", "stop_sequences", "thinking"],
    );
    let told =
        json!({"stream": false, "messages": [{"role": "user", "content": "x", "images": null, "tool_calls": null}]});
    nulls("/api/chat", told.clone(), &["model", "tools", "format", "options", "think", "keep_alive"]);
    nulls("/api/generate", json!({"stream": false, "prompt": "x"}), &["system", "suffix", "images", "raw", "options"]);
    let mut told = told;
    told["options"] = json!({"stop": null, "temperature": null});
    nulls("/api/chat", told, &["model"]);
    nulls("/api/embed", json!({"input": "x"}), &["model", "truncate", "dimensions"]);
    // An answer that is streamed by default is also streamed for null.
    let (_, body) = stage.send(&stage.post_text("/api/generate", &json!({"prompt": "x y", "stream": null})));
    assert!(body.lines().count() > 1, "{body}");
}
