//! Anthropic's Messages API.

use std::io::{BufRead, BufReader};

use hone_app::config::{KeyHash, ServerSettings};
use hone_protocol::scripted::Script;
use hone_protocol::{Constraint, FinishReason, GenerateError, Prompt, Role, ThinkingOptions};
use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings, wait_until};

const PATH: &str = "/v1/messages";

fn ask(question: &str) -> Value {
    json!({"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": question}]})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = ask("x");
    body[key] = value;
    body
}

fn clock() -> Value {
    let schema = json!({"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]});
    json!({"name": "clock", "description": "Tells the time.", "input_schema": schema})
}

/// The events of a streamed answer, checked to be named by their types.
fn events(stage: &Stage, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let (status, text) = stage.send(&stage.post_text(PATH, &body));
    assert_eq!(status, 200, "{text}");
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        data
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text, "citations": null})
}

#[test]
fn a_message_is_answered_whole() {
    let stage = Stage::start(settings(), echo);
    let (status, message) = stage.post(PATH, &ask("how are you"));
    assert_eq!((status, &message["type"], &message["role"]), (200, &json!("message"), &json!("assistant")));
    assert!(message["id"].as_str().unwrap().starts_with("msg_"), "{message}");
    assert_eq!(message["content"], json!([text("how are you")]));
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!((&message["usage"]["input_tokens"], &message["usage"]["output_tokens"]), (&json!(1), &json!(3)));
}

#[test]
fn a_message_is_streamed_in_the_order_of_the_api() {
    let stage = Stage::start(settings(), |_| Script::saying(&["<think>", "Well", ".", "</think>", "Fine, ", "thanks"]));
    let events = events(&stage, &ask("how are you"));
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types(&events), expected, "{events:#?}");
    assert_eq!(
        (&events[0]["message"]["content"], &events[0]["message"]["usage"]["input_tokens"]),
        (&json!([]), &json!(1))
    );
    assert_eq!(events[1]["content_block"], json!({"type": "thinking", "thinking": "", "signature": ""}));
    assert_eq!(events[2]["delta"], json!({"type": "thinking_delta", "thinking": "Well"}));
    assert_eq!((&events[5]["index"], &events[5]["content_block"]), (&json!(1), &text("")));
    assert_eq!(events[6]["delta"], json!({"type": "text_delta", "text": "Fine, "}));
    let delta = json!({"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null});
    assert_eq!(events[9]["delta"], delta);
    assert_eq!(events[9]["usage"]["output_tokens"], 6);
    let (_, whole) = stage.post(PATH, &ask("how are you"));
    let thinking = json!({"type": "thinking", "thinking": "Well.", "signature": ""});
    assert_eq!(whole["content"], json!([thinking, text("Fine, thanks")]));
}

/// The model calls the client's tool, and the next request tells it the result.
#[test]
fn a_tool_is_called_and_its_result_is_told() {
    let call = "<tool_call>{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>";
    let stage = Stage::start(settings(), move |request| match &request.prompt {
        Prompt::Chat(messages) if messages.last().unwrap().role == Role::Tool => Script::saying(&["It is noon."]),
        _ => Script::saying(&["Let me see. ", call]),
    });
    let mut body = with("tools", json!([clock()]));
    let (_, message) = stage.post(PATH, &body);
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    let called = &message["content"][1];
    assert_eq!((&called["type"], &called["name"]), (&json!("tool_use"), &json!("clock")));
    assert_eq!((&called["input"], &called["caller"]), (&json!({"zone": "UTC"}), &json!({"type": "direct"})));
    assert!(called["id"].as_str().unwrap().starts_with("toolu_"), "{called}");

    let events = events(&stage, &body);
    let begun = events.iter().position(|event| event["content_block"]["type"] == "tool_use").unwrap();
    assert_eq!((&events[begun]["index"], &events[begun]["content_block"]["input"]), (&json!(1), &json!({})));
    let delta = &events[begun + 1]["delta"];
    assert_eq!((&delta["type"], &delta["partial_json"]), (&json!("input_json_delta"), &json!("{\"zone\":\"UTC\"}")));
    assert_eq!(types(&events[begun + 2..]), ["content_block_stop", "message_delta", "message_stop"]);

    let result = json!({"type": "tool_result", "tool_use_id": called["id"], "content": "12:00"});
    let turns = body["messages"].as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": message["content"]}));
    turns.push(json!({"role": "user", "content": [result]}));
    let (_, answer) = stage.post(PATH, &body);
    assert_eq!(answer["content"], json!([text("It is noon.")]));
    let requests = stage.model.requests();
    let Prompt::Chat(messages) = &requests.last().unwrap().prompt else { panic!("no conversation") };
    assert_eq!((messages[1].content.as_str(), messages[1].tool_calls[0].name.as_str()), ("Let me see. ", "clock"));
    assert_eq!((messages[2].role, messages[2].content.as_str()), (Role::Tool, "12:00"));
}

#[test]
fn a_tool_whose_loading_is_deferred_is_told_of_once_a_result_refers_to_it() {
    let stage = Stage::start(settings(), echo);
    let mut late = clock();
    late["name"] = json!("late");
    late["defer_loading"] = json!(true);
    let mut body = with("tools", json!([late, clock()]));
    let names = || {
        let request = stage.model.requests().pop().unwrap();
        request.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(stage.post(PATH, &body).0, 200);
    assert_eq!(names(), ["clock"]);
    let found = json!([{"type": "tool_reference", "tool_name": "late"}]);
    let turns = body["messages"].as_array_mut().unwrap();
    turns
        .push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "clock", "input": {}}]}));
    turns.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": found}]}));
    assert_eq!(stage.post(PATH, &body).0, 200);
    assert_eq!(names(), ["clock", "late"]);
}

#[test]
fn options_reach_the_model() {
    let stage = Stage::start(settings(), echo);
    let mut body = with("tools", json!([clock()]));
    body["system"] = json!([{"type": "text", "text": "Be brief."}]);
    body["tool_choice"] = json!({"type": "any"});
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    body["top_k"] = json!(7);
    body["metadata"] = json!({"user_id": "u"});
    assert_eq!(stage.post(PATH, &body).0, 200);
    let request = stage.model.requests().pop().unwrap();
    let Some(Constraint::JsonSchema(schema)) = &request.constraint else { panic!("{:?}", request.constraint) };
    assert_eq!(schema["properties"]["name"], json!({"const": "clock"}));
    assert_eq!(request.thinking, ThinkingOptions { is_on: Some(true), effort: None, budget: Some(2000) });
    assert_eq!((request.sampling.top_k, request.max_tokens), (7, Some(100)));
    let Prompt::Chat(messages) = &request.prompt else { panic!("no conversation") };
    assert_eq!((messages[0].role, messages[0].content.as_str()), (Role::System, "Be brief."));
    body["tool_choice"] = json!({"type": "none"});
    body["thinking"] = json!({"type": "disabled"});
    assert_eq!(stage.post(PATH, &body).0, 200);
    let request = stage.model.requests().pop().unwrap();
    assert_eq!((request.tools.len(), request.constraint, request.thinking.is_on), (0, None, Some(false)));
}

#[test]
fn the_reason_of_the_end_is_told() {
    let stage = Stage::start(settings(), |request| {
        let reason = match request.max_tokens {
            Some(1) => FinishReason::Length,
            Some(2) => FinishReason::ContextFull,
            _ => FinishReason::StopText,
        };
        let stopped_by = request.stop.last().cloned();
        Script { finish_reason: Some(reason), stopped_by, ..Script::saying(&["so"]) }
    });
    let check = |max_tokens: usize, stop: &[&str], reason: &str, stopped_by: Value| {
        let mut body = with("stop_sequences", json!(stop));
        body["max_tokens"] = json!(max_tokens);
        let (_, message) = stage.post(PATH, &body);
        assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!(reason), &stopped_by));
    };
    check(1, &[], "max_tokens", Value::Null);
    check(2, &[], "model_context_window_exceeded", Value::Null);
    check(9, &["END"], "stop_sequence", json!("END"));
    check(9, &["END", "STOP"], "stop_sequence", json!("STOP"));
}

#[test]
fn errors_have_the_form_of_the_api() {
    let stage = Stage::start(settings(), echo);
    let check = |body: &Value, status: u16, kind: &str, expected: &str| {
        let (seen, error) = stage.post(PATH, body);
        let message = error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"));
        assert!(message.contains(expected), "{message}");
        assert_eq!((seen, &error["type"], &error["error"]["type"]), (status, &json!("error"), &json!(kind)));
        assert!(error["request_id"].as_str().unwrap().starts_with("req_"), "{error}");
    };
    let invalid = "invalid_request_error";
    check(&json!({"messages": []}), 400, invalid, "max_tokens is missing");
    check(&with("max_tokens", json!(0)), 400, invalid, "max_tokens is 0");
    check(&with("messages", json!([])), 400, invalid, "no message of the role user");
    check(&with("temperature", json!(-1)), 400, invalid, "temperature is -1");
    check(&with("tool_choice", json!({"type": "any"})), 400, invalid, "there are no tools");
    check(&with("tools", json!([{"type": "web_search_20250305", "name": "web_search"}])), 400, invalid, "web_search");
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    check(&with("messages", image), 400, invalid, "a block of the type \"image\" is not supported");
    check(&with("model", json!("../scripted")), 404, "not_found_error", "is not installed");
    assert_eq!(stage.model.requests().len(), 0, "nothing reached the model");
    let (status, error) = stage.get(PATH);
    assert_eq!((status, &error["error"]["type"]), (405, &json!(invalid)), "{error}");
}

#[test]
fn who_has_no_key_or_finds_no_room_is_told_so() {
    let locked = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    let (status, error) = locked.post(PATH, &ask("x"));
    assert_eq!((status, &error["error"]["type"]), (401, &json!("authentication_error")), "{error}");
    let with_key = locked.post_text(PATH, &ask("x")).replace("Connection:", "X-Api-Key: sesame\r\nConnection:");
    assert_eq!(locked.send(&with_key).0, 200);

    let stage = Stage::start(ServerSettings { most_questions: 1, ..settings() }, echo);
    let mut endless = ask("endless");
    endless["stream"] = json!(true);
    let mut lines = BufReader::new(stage.connect(&stage.post_text(PATH, &endless))).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: message_start"));
    let (status, error) = stage.post(PATH, &ask("x"));
    assert_eq!((status, &error["error"]["type"]), (503, &json!("overloaded_error")), "{error}");
}

/// A client sees a failure at the beginning in the status, and a later one as an event.
#[test]
fn failures_are_told() {
    let stage = Stage::start(settings(), |_| Script::failing(GenerateError::Failed("no luck".to_owned())));
    let (status, error) = stage.post(PATH, &with("stream", json!(true)));
    assert_eq!((status, &error["error"]["type"]), (500, &json!("api_error")), "{error}");
    let failure = Some(GenerateError::Failed("no luck".to_owned()));
    let stage =
        Stage::start(settings(), move |_| Script { failure: failure.clone(), ..Script::saying(&["so ", "it "]) });
    let events = events(&stage, &ask("x"));
    let delta = "content_block_delta";
    assert_eq!(types(&events), ["message_start", "content_block_start", delta, delta, "error"]);
    assert_eq!(events[4]["error"], json!({"type": "api_error", "message": "generation failed: no luck"}));
}

#[test]
fn tokens_are_counted_without_an_answer() {
    let stage = Stage::start(settings(), |_| Script::never_ending(&[]));
    let mut body = with("system", json!("Be brief."));
    body.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(stage.post("/v1/messages/count_tokens", &body), (200, json!({"input_tokens": 2})));
    wait_until("the question is withdrawn", || stage.model.was_cancelled());
    let (status, error) = stage.post("/v1/messages/count_tokens", &with("model", json!("none")));
    assert_eq!((status, &error["error"]["type"]), (404, &json!("not_found_error")));
}
