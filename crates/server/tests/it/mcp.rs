//! hone's abilities as tools for a model, over streamable HTTP.

use hone_app::config::{KeyHash, ServerSettings};
use serde_json::{Value, json};

use crate::conformance::Schema;
use crate::stage::{Plan, Stage, ask, echo, settings, wait_until};

/// The text of a request of the protocol.
fn text(stage: &Stage, message: &Value) -> String {
    let accept = "Accept: application/json, text/event-stream\r\nContent-Type";
    stage.post_text("/mcp", message).replacen("Content-Type", accept, 1)
}

/// Sends a message, with a key if it is not empty.
pub(crate) fn send(stage: &Stage, key: &str, message: &Value) -> (u16, Value) {
    let key = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
    let (status, body) = stage.send(&text(stage, message).replacen("Accept", &format!("{key}Accept"), 1));
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// Calls a tool, and returns the response.
fn call(stage: &Stage, key: &str, tool: &str, arguments: &Value) -> Value {
    let (status, response) = send(stage, key, &message("tools/call", &json!({"name": tool, "arguments": arguments})));
    assert_eq!((status, &response["id"]), (200, &json!(7)), "{response}");
    response
}

/// The response of a tool, which must not be an error.
#[track_caller]
fn said(stage: &Stage, key: &str, tool: &str, arguments: &Value) -> Value {
    let result = call(stage, key, tool, arguments)["result"].take();
    assert_eq!(result["isError"], false, "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"], "{result}");
    result["structuredContent"].clone()
}

#[test]
fn a_client_learns_which_tools_there_are() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let client = json!({"name": "test", "version": "1"});
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let (status, begun) = send(&stage, "", &message("initialize", &begin));
    assert_eq!((status, &begun["result"]["protocolVersion"]), (200, &json!("2025-06-18")), "{begun}");
    assert_eq!(begun["result"]["serverInfo"], json!({"name": "hone", "version": "1.2.3"}));
    let (status, nothing) = send(&stage, "", &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!((status, nothing), (202, json!("")));
    let (_, listed) = send(&stage, "", &message("tools/list", &json!({})));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["grade", "compare", "decide", "search_memory", "report"]);
    for tool in tools {
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["annotations"]["readOnlyHint"]),
            (&json!("object"), &json!(true))
        );
        Schema::new(tool["inputSchema"].clone());
    }
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["query", "answer"]), "{}", tools[0]);
    let of_decide = &tools[2]["inputSchema"]["properties"];
    let kinds = of_decide["questions"]["additionalProperties"]["oneOf"].as_array().map(Vec::len);
    assert_eq!(kinds, Some(3), "{}", tools[2]);
    assert_eq!(tools[0]["inputSchema"]["properties"]["query"]["description"], "The question.", "{}", tools[0]);
}

#[test]
fn the_tools_do_what_the_api_does() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let asked = json!({"query": "Why?", "answer": "Because."});
    let grade = said(&stage, "", "grade", &asked);
    assert_eq!((&grade["score"], &grade["feedback"]), (&json!(4), &json!("It is fine.")));
    let compared = said(&stage, "", "compare", &json!({"query": "Why?", "a": "one", "b": "two"}));
    assert!(compared["failure"].as_str().unwrap().contains("no verdict"), "a score is no choice: {compared}");
    assert_eq!(said(&stage, "", "search_memory", &json!({})), stage.get("/hone/v1/memory").1);
    let report = said(&stage, "", "report", &json!({}));
    let (_, expected) = stage.get("/hone/v1/report");
    assert_eq!(report["statistics"], expected["statistics"]);
    assert!(!report.to_string().contains("<svg"), "{report}");
}

#[test]
fn a_call_that_is_not_valid_is_told_to_the_model_or_to_its_program() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    for (tool, arguments) in [
        ("grade", json!({"query": "Why?"})),
        ("compare", json!({"query": "Why?", "a": 1, "b": "b"})),
        ("search_memory", json!({"limit": -1})),
        ("report", json!({"of": "everyone"})),
    ] {
        let result = call(&stage, "", tool, &arguments)["result"].take();
        let told = result["content"][0]["text"].as_str().unwrap();
        assert!(result["isError"] == true && told.starts_with("the arguments are not valid: "), "{tool} {result}");
    }
    let unknown = call(&stage, "", "format_disk", &json!({}));
    assert_eq!((&unknown["error"]["code"], unknown.get("result")), (&json!(-32602), None), "{unknown}");
    let without = Stage::start(settings(), echo);
    let refused = call(&without, "", "report", &json!({}))["result"].take();
    assert!(refused["isError"] == true && refused.to_string().contains("memory is switched off"), "{refused}");
}

#[test]
fn what_is_not_the_protocol_gets_an_error_of_json_rpc() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let list = message("tools/list", &json!({}));
    assert_eq!(send(&stage, "", &json!({"hello": "world"})).0, 400);
    let (status, refused) = stage.post("/mcp", &list);
    assert_eq!((status, &refused["error"]["code"]), (406, &json!(-32600)), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("text/event-stream"), "{refused}");
    assert_eq!((stage.get("/mcp").0, stage.delete("/mcp").0), (405, 405));
    let foreign = text(&stage, &list).replacen("Accept", "Origin: https://evil.example\r\nAccept", 1);
    assert_eq!(stage.send(&foreign).0, 403);
}

#[test]
fn the_tools_show_a_key_what_belongs_to_it_and_nothing_else() {
    let keys = vec![KeyHash::of("anne"), KeyHash::of("ben")];
    let stage = Stage::planned(ServerSettings { keys, ..settings() }, Plan::grading(4), echo);
    let (_, answer) = stage.with_key("anne", "POST", "/v1/chat/completions", &ask("secret tides"));
    let id = answer["hone"]["query_id"].as_str().unwrap();
    let store = stage.store.as_ref().unwrap();
    wait_until("the answer is remembered", || store.get(id.parse().unwrap()).unwrap().is_some());
    for search in [json!({}), json!({"search": "tides"})] {
        let found = ["anne", "ben"].map(|key| said(&stage, key, "search_memory", &search));
        assert_eq!(found.map(|found| found["engrams"].as_array().unwrap().len()), [1, 0], "{search}");
    }
    let reports = ["anne", "ben"].map(|key| said(&stage, key, "report", &json!({})));
    assert_eq!(reports.map(|report| report["statistics"]["all"]["engrams"].clone()), [json!(1), json!(0)]);
    let (status, refused) = send(&stage, "", &message("tools/list", &json!({})));
    assert_eq!((status, &refused["error"]["code"]), (401, &json!(-32600)), "{refused}");
}
