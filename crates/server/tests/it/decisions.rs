//! `/v1/decisions` and `/v1/systemone`.

use hone_app::config::ServerSettings;
use hone_protocol::scripted::Script;
use hone_protocol::{GenerateRequest, Prompt, TokenLogprob, TokenLogprobs};
use serde_json::{Value, json};

use crate::stage::{Stage, settings};

/// A model that prefers yes, the first option listed as `good`, and the highest number, if there is a text.
fn decides(request: &GenerateRequest) -> Script {
    let Prompt::Chat(messages) = &request.prompt else { panic!("{request:?}") };
    let prompt = &messages[0].content;
    let likely = |label: &str| match label.trim() {
        _ if prompt.contains("N/A") => false,
        "Yes" | "3" => true,
        label => prompt.contains(&format!("\n{label}. good")),
    };
    let row = |id: u32, text: &String| TokenLogprob {
        id,
        logprob: if likely(text) { 0.5_f32.ln() } else { 0.01_f32.ln() },
        text: text.clone(),
    };
    let named = (1..).zip(&request.logprobs.named).map(|(id, text)| row(id, text)).collect();
    let text = request.forced_answer.clone().unwrap();
    let logprobs = TokenLogprobs { text: text.clone(), logprob: -1.0, named, ..TokenLogprobs::default() };
    Script { logprobs: vec![logprobs], ..Script::saying(&[&text]) }
}

#[track_caller]
fn is_near(value: &Value, expected: f64) {
    assert!((value.as_f64().unwrap() - expected).abs() < 0.1, "{value} is not {expected}");
}

#[test]
fn questions_of_system_one_are_answered_under_their_names() {
    let stage = Stage::start(settings(), decides);
    let questions = json!({
        "ok": {"type": "noul", "instructions": "Is it?"},
        "which": {"type": "choice", "instructions": "Which?", "criteria": {"bad": null, "good": {"it": "is"}}},
        "level": {"type": "score", "criteria": ["low", {"middle": 1}, "high"]},
    });
    let body = json!({"model": "scripted", "state": {"a": ["b"]}, "questions": questions});
    let (status, answer) = stage.post("/v1/systemone", &body);
    assert_eq!(status, 200, "{answer}");
    let answers = &answer["answers"];
    is_near(&answers["ok"]["noul"], 0.95);
    assert_eq!((&answers["which"]["choice"], &answers["level"]["type"]), (&json!("good"), &json!("score")));
    is_near(&answers["which"]["probabilities"]["good"], 0.98);
    is_near(&answers["level"]["score"], 1.95);
    assert_eq!(answers["level"]["legend"], json!({"0": "low", "1": {"middle": 1}, "2": "high"}));
    assert_eq!(answer["usage"]["output_tokens"], 3);
    assert_eq!(answer["hone"], json!({"examined": false, "no_better_than_chance": []}));
    let requests = stage.model.requests();
    let shows_state = |request: &GenerateRequest| match &request.prompt {
        Prompt::Chat(messages) => messages[0].content.contains(r#"{"a":["b"]}"#),
        _ => false,
    };
    assert_eq!(requests.iter().filter(|request| shows_state(request)).count(), 5, "one, two orders, two orders");
}

#[test]
fn questions_of_openai_are_answered_in_their_order() {
    let stage = Stage::start(settings(), decides);
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Look: "}, {"type": "input_json", "data": {"k": 1}}]},
        {"type": "function_call", "call_id": "c", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "12:00"},
    ]);
    let questions = json!([
        {"type": "score", "name": "level", "instructions": "How?", "levels": [
            {"label": "low"}, {"label": "middle"}, {"label": "high", "description": "very"},
        ]},
        {"type": "predicate", "instructions": [{"type": "input_text", "text": "It is."}]},
        {"type": "choice", "instructions": "Which?", "choices": [{"value": true}, {"value": "true"}, {"value": "good"}]},
    ]);
    let body = json!({"model": "scripted", "input": input, "questions": questions});
    let (status, answer) = stage.post("/v1/decisions", &body);
    assert_eq!(status, 200, "{answer}");
    let [score, predicate, choice] = answer["answers"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&score["name"], &predicate["name"]), (&json!("level"), &Value::Null));
    is_near(&score["score"], 1.95);
    is_near(&predicate["probability"], 0.95);
    assert_eq!((&choice["choice"], &choice["probabilities"][0]["value"]), (&json!("good"), &json!(true)));
    let requests = stage.model.requests();
    let Prompt::Chat(messages) = &requests.last().unwrap().prompt else { panic!("no conversation") };
    let shown = "User: Look: {\"k\":1}\n\nAssistant: (calls clock with {})\n\nTool: 12:00";
    assert!(messages[0].content.contains(shown), "{}", messages[0].content);
}

#[test]
fn what_is_wrong_is_told_in_the_form_of_each_api() {
    let stage = Stage::start(settings(), decides);
    let ask = |key: &str, value: Value| {
        let mut body =
            json!({"model": "scripted", "state": "x", "questions": {"a": {"type": "noul", "instructions": "?"}}});
        body[key] = value;
        stage.post("/v1/systemone", &body)
    };
    let invalid = |(status, error): (u16, Value), expected: &str| {
        let message = error["detail"][0]["msg"].as_str().unwrap_or_else(|| panic!("{error}"));
        assert!(status == 422 && message.contains(expected), "{status}: {message}");
        assert_eq!(error["detail"][0]["loc"][0], "body");
    };
    invalid(ask("state", Value::Null), "state is missing");
    invalid(ask("questions", json!({})), "there are 0 questions");
    invalid(ask("questions", json!({"a": {"type": "noul"}})), "neither instructions nor criteria");
    invalid(ask("questions", json!({"a": {"type": "choice", "criteria": {"x": null}}})), "has 1 options");
    invalid(ask("questions", json!({"a": {"type": "box", "instructions": "x"}})), "unknown variant `box`");
    invalid(ask("assets", json!({"x": {"type": "image"}})), "assets cannot be shown");
    let (status, error) = ask("model", json!("none"));
    assert_eq!((status, error["detail"].as_str().unwrap().contains("not installed")), (404, true), "{error}");

    let same = json!([{"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "a"}]}]);
    let (status, error) = stage.post("/v1/decisions", &json!({"model": "scripted", "input": "x", "questions": same}));
    assert_eq!((status, &error["error"]["param"]), (400, &json!("questions")), "{error}");
    assert!(stage.model.requests().is_empty());
}

#[test]
fn a_request_may_have_more_questions_than_there_are_places() {
    let stage = Stage::start(ServerSettings { most_questions: 2, ..settings() }, decides);
    let question = json!({"type": "noul", "instructions": "Is it?"});
    let questions: serde_json::Map<String, Value> =
        (0..9).map(|number| (format!("q{number}"), question.clone())).collect();
    let body = json!({"model": "scripted", "state": "a text", "questions": questions});
    let (status, answer) = stage.post("/v1/systemone", &body);
    assert_eq!((status, answer["answers"].as_object().map(|answers| answers.len())), (200, Some(9)), "{answer}");
}

#[test]
fn a_model_decides_with_a_tool() {
    let stage = Stage::start(settings(), decides);
    let body = json!({"state": "a text", "questions": {"ok": {"type": "noul", "instructions": "Is it?"}}});
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "decide", "arguments": body}});
    let (_, answer) = crate::mcp::send(&stage, "", &call);
    assert_eq!(answer["result"]["structuredContent"], stage.post("/v1/systemone", &body).1, "{answer}");
}
