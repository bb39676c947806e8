//! OpenAI's Responses API.

use std::io::{BufRead, BufReader};

use hone_protocol::scripted::Script;
use hone_protocol::{Constraint, Effort, FinishReason, GenerateError, Prompt, Role, ThinkingOptions};
use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings, wait_until};

const PATH: &str = "/v1/responses";

fn ask(input: Value) -> Value {
    json!({"model": "scripted", "input": input})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = ask(json!("x"));
    body[key] = value;
    body
}

fn clock() -> Value {
    let schema = json!({"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]});
    json!({"type": "function", "name": "clock", "description": "Tells the time.", "parameters": schema})
}

/// The events of a streamed response, checked to be named and numbered.
fn events(stage: &Stage, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let (status, text) = stage.send(&stage.post_text(PATH, &body));
    assert_eq!(status, 200, "{text}");
    let event = |(number, event): (usize, &str)| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        assert_eq!(data["sequence_number"], number);
        data
    };
    text.split_terminator("\n\n").enumerate().map(event).collect()
}

/// The types of events, without their common prefix.
fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

fn text_of(response: &Value) -> &str {
    let message = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "message");
    message.unwrap_or_else(|| panic!("{response}"))["content"][0]["text"].as_str().unwrap()
}

/// The turns last shown to the model.
fn shown(stage: &Stage) -> Vec<(Role, String)> {
    let Prompt::Chat(messages) = stage.model.requests().pop().unwrap().prompt else { panic!("no conversation") };
    messages.into_iter().map(|message| (message.role, message.content)).collect()
}

#[test]
fn a_response_is_answered_whole() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask(json!("how are you"));
    body["metadata"] = json!({"for": "test"});
    let (status, response) = stage.post(PATH, &body);
    assert_eq!((status, &response["object"], &response["status"]), (200, &json!("response"), &json!("completed")));
    assert_eq!((text_of(&response), &response["metadata"]), ("how are you", &json!({"for": "test"})));
    assert!(response["id"].as_str().unwrap().starts_with("resp_"), "{response}");
    let usage = &response["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]),
        (&json!(1), &json!(3), &json!(4))
    );
}

#[test]
fn a_response_is_streamed_in_the_order_of_the_api() {
    let stage = Stage::start(settings(), |_| Script::saying(&["<think>", "Well.", "</think>", "Fine, ", "thanks"]));
    let events = events(&stage, &ask(json!("how are you")));
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(types(&events), expected, "{events:#?}");
    assert_eq!((&events[0]["response"]["status"], &events[4]["delta"]), (&json!("in_progress"), &json!("Well.")));
    assert_eq!((&events[10]["delta"], &events[10]["output_index"]), (&json!("Fine, "), &json!(1)));
    let response = &events[15]["response"];
    assert_eq!((text_of(response), &response["output"][1]), ("Fine, thanks", &events[14]["item"]));
    assert_eq!(response["output"][0]["content"], json!([{"type": "reasoning_text", "text": "Well."}]));
    let id = response["id"].as_str().unwrap();
    assert_eq!(stage.get(&format!("{PATH}/{id}")), (200, response.clone()));
    assert_eq!(stage.get(&format!("{PATH}/{id}?stream=true")).0, 400);
}

/// The model calls the client's function, and the next request tells it the result.
#[test]
fn a_function_is_called_and_its_result_is_told() {
    let call = "<tool_call>{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>";
    let stage = Stage::start(settings(), move |request| match &request.prompt {
        Prompt::Chat(messages) if messages.last().unwrap().role == Role::Tool => Script::saying(&["It is noon."]),
        _ => Script::saying(&["Let me see. ", call]),
    });
    let mut body = with("tools", json!([clock(), {"type": "web_search"}]));
    let events = events(&stage, &body);
    let begun = events.iter().position(|event| event["item"]["type"] == "function_call").unwrap();
    let expected = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(types(&events[begun..]), expected);
    let response = &events.last().unwrap()["response"];
    let called = &response["output"][1];
    assert_eq!((&called["name"], &called["arguments"]), (&json!("clock"), &json!("{\"zone\":\"UTC\"}")));
    let mut told = clock();
    told["strict"] = Value::Null;
    assert_eq!(response["tools"], json!([told]), "the others are not there for the model");

    body["previous_response_id"] = response["id"].clone();
    body["input"] = json!([{"type": "function_call_output", "call_id": called["call_id"], "output": "12:00"}]);
    let (_, answer) = stage.post(PATH, &body);
    assert_eq!(text_of(&answer), "It is noon.");
    let turns = shown(&stage);
    assert_eq!(turns[1..], [(Role::Assistant, "Let me see. ".to_owned()), (Role::Tool, "12:00".to_owned())]);
}

/// Calls are reported under the client's names, and earlier calls are shown to the model under its own.
#[test]
fn tools_of_namespaces_and_tools_that_take_a_text_are_called() {
    let calls = [
        "<tool_call>{\"name\": \"mcp__time__clock\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>",
        "<tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"+ noon\"}}</tool_call>",
    ];
    let stage = Stage::start(settings(), move |request| match &request.prompt {
        Prompt::Chat(messages) if messages.last().unwrap().role == Role::Tool => Script::saying(&["It is noon."]),
        _ => Script::saying(&calls),
    });
    let time = json!({"type": "namespace", "name": "mcp__time", "description": "Clocks.", "tools": [clock()]});
    let patch = json!({"type": "custom", "name": "patch", "description": "Changes a file."});
    let mut body = with("tools", json!([time, patch]));
    let events = events(&stage, &body);
    let told = types(&events);
    assert!(
        told.contains(&"custom_tool_call_input.delta") && told.contains(&"custom_tool_call_input.done"),
        "{told:?}"
    );
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["tools"], json!([time, patch]));
    let (clock, patch) = (&response["output"][0], &response["output"][1]);
    let named = |item: &Value| json!([item["type"], item["name"], item["namespace"], item["arguments"], item["input"]]);
    assert_eq!(named(clock), json!(["function_call", "clock", "mcp__time", "{\"zone\":\"UTC\"}", null]));
    assert_eq!(named(patch), json!(["custom_tool_call", "patch", null, null, "+ noon"]));

    body["previous_response_id"] = response["id"].clone();
    body["input"] = json!([
        {"type": "function_call_output", "call_id": clock["call_id"], "output": "12:00"},
        {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "done"},
    ]);
    assert_eq!(text_of(&stage.post(PATH, &body).1), "It is noon.");
    let requests = stage.model.requests();
    let Prompt::Chat(turns) = &requests.last().unwrap().prompt else { panic!("not a chat") };
    let called: Vec<&str> = turns.iter().flat_map(|turn| &turn.tool_calls).map(|call| &*call.name).collect();
    assert_eq!(called, ["mcp__time__clock", "patch"]);
    body["tool_choice"] = json!({"type": "function", "namespace": "mcp__time", "name": "clock"});
    body["input"] = json!("Again?");
    assert_eq!(stage.post(PATH, &body).0, 200);
    assert!(stage.model.requests().last().unwrap().constraint.is_some());
}

#[test]
fn a_conversation_is_continued_from_what_is_kept() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask(json!("one"));
    body["instructions"] = json!("Be brief.");
    let (_, first) = stage.post(PATH, &body);
    let mut body = ask(json!([{"role": "user", "content": "two"}]));
    body["previous_response_id"] = first["id"].clone();
    let (_, second) = stage.post(PATH, &body);
    let turn = |role, text: &str| (role, text.to_owned());
    let turns = [turn(Role::User, "one"), turn(Role::Assistant, "one"), turn(Role::User, "two")];
    assert_eq!(shown(&stage), turns, "instructions are those of one request");

    let path = format!("{PATH}/{}", second["id"].as_str().unwrap());
    let (_, items) = stage.get(&format!("{path}/input_items?order=asc&limit=2"));
    assert_eq!((&items["has_more"], &items["data"][0]["content"][0]["text"]), (&json!(true), &json!("one")));
    let last = items["last_id"].as_str().unwrap();
    let (_, rest) = stage.get(&format!("{path}/input_items?order=asc&after={last}"));
    assert_eq!((&rest["has_more"], &rest["data"][0]["content"]), (&json!(false), &json!("two")));

    // Every response is independent.
    let first = format!("{PATH}/{}", first["id"].as_str().unwrap());
    assert_eq!(stage.delete(&first).1["deleted"], true);
    assert_eq!((stage.get(&first).0, stage.delete(&first).0, stage.get(&path).0), (404, 404, 200));
    body["previous_response_id"] = second["id"].clone();
    assert_eq!(stage.post(PATH, &body).0, 200);
    assert_eq!(shown(&stage).len(), 5);
}

#[test]
fn what_is_not_kept_cannot_be_asked_for() {
    let stage = Stage::start(settings(), echo);
    let (_, response) = stage.post(PATH, &with("store", json!(false)));
    let id = response["id"].as_str().unwrap();
    let (status, error) = stage.get(&format!("{PATH}/{id}"));
    assert_eq!((status, &error["error"]["type"]), (404, &json!("not_found_error")), "{error}");
    let (status, error) = stage.post(PATH, &with("previous_response_id", json!(id)));
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")), "{error}");
}

/// Its clients then compact conversations themselves, and take 404 as the signal.
#[test]
fn compaction_is_not_offered() {
    let stage = Stage::start(settings(), echo);
    let (status, error) = stage.post(&format!("{PATH}/compact"), &ask(json!("x")));
    assert_eq!(status, 404, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("not compacted here"), "{error}");
}

#[test]
fn an_id_never_becomes_a_path() {
    let stage = Stage::start(settings(), echo);
    let (_, response) = stage.post(PATH, &ask(json!("x")));
    let id = response["id"].as_str().unwrap().strip_prefix("resp_").unwrap();
    let wrong = [
        "resp_..%2F..%2Fetc%2Fpasswd".to_owned(),
        "..%2Fresponses%2Fx".to_owned(),
        format!("resp_..%2Fresponses%2F{id}"),
        format!("resp_{id}.json"),
        format!("resp_%7B{id}%7D"),
        format!("resp_urn:uuid:{id}"),
        format!("resp_{}", id.to_uppercase()),
        format!("resp_{}", id.replace('-', "")),
        format!("resp_{id}%00"),
        id.to_owned(),
        "resp_".to_owned(),
    ];
    for id in wrong {
        let path = format!("{PATH}/{id}");
        assert_eq!((stage.get(&path).0, stage.delete(&path).0), (404, 404), "{path}");
        assert_eq!(stage.post(&format!("{path}/cancel"), &json!({})).0, 404, "{path}");
        assert_eq!(stage.get(&format!("{path}/input_items")).0, 404, "{path}");
    }
    assert_eq!(stage.post(PATH, &with("previous_response_id", json!(format!("resp_../responses/{id}")))).0, 400);
    assert_eq!(stage.get(&format!("{PATH}/resp_{id}")).0, 200);
}

#[test]
fn options_reach_the_model() {
    let stage = Stage::start(settings(), echo);
    let mut body = with("tools", json!([clock()]));
    body["tool_choice"] = json!({"type": "function", "name": "clock"});
    body["reasoning"] = json!({"effort": "minimal", "summary": "auto"});
    body["max_output_tokens"] = json!(7);
    body["temperature"] = json!(0.7);
    assert_eq!(stage.post(PATH, &body).1["temperature"], 0.7);
    let request = stage.model.requests().pop().unwrap();
    let Some(Constraint::JsonSchema(schema)) = &request.constraint else { panic!("{:?}", request.constraint) };
    assert_eq!(schema["properties"]["name"], json!({"const": "clock"}));
    assert_eq!(request.thinking, ThinkingOptions { is_on: Some(true), effort: Some(Effort::Low), budget: None });
    assert_eq!(request.max_tokens, Some(7));
    let schema = json!({"type": "object", "properties": {}});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
    let (_, response) = stage.post(PATH, &with("text", json!({"format": format})));
    assert_eq!(response["text"]["format"], format);
    assert_eq!(stage.model.requests().pop().unwrap().constraint, Some(Constraint::JsonSchema(schema)));
    let (_, counted) = stage.post(&format!("{PATH}/input_tokens"), &with("instructions", json!("Be brief.")));
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": 2}));
}

#[test]
fn errors_have_the_form_of_the_api() {
    let stage = Stage::start(settings(), echo);
    let check = |body: &Value, status: u16, expected: &str| {
        let (seen, error) = stage.post(PATH, body);
        let message = error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"));
        assert!(seen == status && message.contains(expected), "{seen} {message}");
    };
    check(&json!({"model": "scripted"}), 400, "no message of the role user");
    check(&with("temperature", json!(-1)), 400, "temperature is -1");
    check(&with("tool_choice", json!("required")), 400, "there are no tools");
    check(&with("tool_choice", json!({"type": "web_search"})), 400, "tool_choice is {\"type\":\"web_search\"}");
    check(&with("conversation", json!("conv_1")), 400, "conversation is not supported");
    check(&with("text", json!({"format": {"type": "poem"}})), 400, "text.format is not valid");
    check(&with("input", json!([{"type": "item_reference", "id": "x"}])), 400, "no message of the role user");
    check(&json!({"model": "x", "input": "x", "background": true, "store": false}), 400, "must be stored");
    check(&with("model", json!("../scripted")), 404, "is not installed");
    assert_eq!(stage.model.requests().len(), 0, "nothing reached the model");
}

#[test]
fn failures_are_told() {
    let failure = || Some(GenerateError::Failed("no luck".to_owned()));
    let stage = Stage::start(settings(), move |_| Script { failure: failure(), ..Script::saying(&["so ", "it "]) });
    let events = events(&stage, &ask(json!("x")));
    let expected = ["output_text.delta", "output_text.done", "content_part.done", "output_item.done", "failed"];
    assert_eq!(types(&events[5..]), expected, "{events:#?}");
    let response = &events.last().unwrap()["response"];
    assert_eq!((&response["status"], &response["output"][0]["status"]), (&json!("failed"), &json!("incomplete")));
    assert_eq!(response["error"], json!({"code": "server_error", "message": "generation failed: no luck"}));
    let (status, error) = stage.post(PATH, &ask(json!("x")));
    assert_eq!((status, &error["error"]["message"]), (500, &json!("generation failed: no luck")));
    let stage = Stage::start(settings(), move |_| Script { failure: failure(), ..Script::saying(&[]) });
    assert_eq!(stage.post(PATH, &with("stream", json!(true))).0, 500, "the status tells what fails at once");
}

#[test]
fn a_response_that_reached_a_limit_is_incomplete() {
    let stage =
        Stage::start(settings(), |_| Script { finish_reason: Some(FinishReason::Length), ..Script::saying(&["so"]) });
    let events = events(&stage, &ask(json!("x")));
    assert_eq!(types(&events).last(), Some(&"incomplete"));
    let response = &events.last().unwrap()["response"];
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[test]
fn a_stream_is_cancelled_from_elsewhere() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask(json!("endless"));
    body["stream"] = json!(true);
    let mut lines = BufReader::new(stage.connect(&stage.post_text(PATH, &body))).lines().map(Result::unwrap);
    let begun = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    let begun: Value = serde_json::from_str(&begun).unwrap();
    let path = format!("{PATH}/{}", begun["response"]["id"].as_str().unwrap());
    assert!(lines.any(|line| line.contains("\"and \"")));
    assert_eq!(stage.get(&path).1["status"], "in_progress");
    let (status, cancelled) = stage.post(&format!("{path}/cancel"), &json!({}));
    assert_eq!((status, &cancelled["status"], text_of(&cancelled)), (200, &json!("cancelled"), "on and "));
    assert!(lines.any(|line| line == "event: response.incomplete"));
    assert!(lines.all(|line| !line.starts_with("event: ")), "nothing follows");
    assert_eq!(stage.get(&path), (200, cancelled.clone()));
    assert_eq!(stage.post(&format!("{path}/cancel"), &json!({})), (200, cancelled));
    wait_until("the answer is cancelled", || stage.model.was_cancelled());
    let (_, ended) = stage.post(PATH, &ask(json!("x")));
    let path = format!("{PATH}/{}/cancel", ended["id"].as_str().unwrap());
    assert_eq!(stage.post(&path, &json!({})).0, 400);
}

#[test]
fn a_response_in_the_background_is_asked_for_later() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask(json!("how are you"));
    body["background"] = json!(true);
    let (_, begun) = stage.post(PATH, &body);
    assert_eq!((&begun["status"], &begun["background"]), (&json!("in_progress"), &json!(true)));
    let path = format!("{PATH}/{}", begun["id"].as_str().unwrap());
    wait_until("the response is complete", || stage.get(&path).1["status"] == "completed");
    assert_eq!(text_of(&stage.get(&path).1), "how are you");
    body["input"] = json!("endless");
    let (_, begun) = stage.post(PATH, &body);
    let path = format!("{PATH}/{}", begun["id"].as_str().unwrap());
    assert_eq!(stage.post(&format!("{path}/cancel"), &json!({})).1["status"], "cancelled");
    wait_until("the answer is cancelled", || stage.model.was_cancelled());
    assert_eq!(stage.get(&path).1["status"], "cancelled");
}
