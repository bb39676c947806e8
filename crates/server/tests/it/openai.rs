//! OpenAI's API.

use hone_app::config::ServerSettings;
use hone_protocol::scripted::Script;
use hone_protocol::{
    Constraint, Effort, GenerateError, GenerateRequest, Message, Prompt, Role, ThinkingOptions, TokenLogprob,
    TokenLogprobs, ToolCall,
};
use serde_json::{Value, json};

use crate::stage::{Stage, ask, echo, settings};

#[test]
fn a_question_is_answered_whole_and_in_pieces() {
    let stage = Stage::start(settings(), echo);
    let (status, answer) = stage.post("/v1/chat/completions", &ask("how are you"));
    assert_eq!((status, &answer["object"]), (200, &json!("chat.completion")), "{answer}");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("how are you"), &json!("stop")));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let mut streamed = ask("how are you");
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let (status, body) = stage.send(&stage.post_text("/v1/chat/completions", &streamed));
    let events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!((status, events.last()), (200, Some(&"[DONE]")), "{body}");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "how are you");
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 3);
}

#[test]
fn wrong_requests_are_refused_with_what_is_wrong() {
    let stage = Stage::start(settings(), echo);
    let check = |body: &Value, expected: &str| {
        let (status, answer) = stage.post("/v1/chat/completions", body);
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(status == 400 && message.contains(expected), "{status} {message}");
    };
    check(&json!({"messages": "x"}), "the body is not a valid request");
    check(&json!({"messages": []}), "no message of the role user");
    let with = |key: &str, value: Value| {
        let mut body = ask("x");
        body[key] = value;
        body
    };
    check(&with("n", json!(0)), "n is 0: it must be 1 to 16");
    check(&with("temperature", json!(-1)), "temperature is -1");
    check(&with("tool_choice", json!("required")), "there are no tools");
    assert_eq!(stage.get("/v1/models/none").0, 404);
    for name in
        ["/etc/passwd", "../scripted", "./scripted", "scripted/../../x", "file:///x.gguf", "hf:a/b/c.gguf", "..\\x"]
    {
        let (status, answer) = stage.post("/v1/chat/completions", &with("model", json!(name)));
        assert_eq!(status, 404, "{answer}");
        assert_eq!(stage.post("/api/chat", &with("model", json!(name))).0, 404);
    }
    assert_eq!(stage.model.requests().len(), 0, "nothing reached the model");
    assert_eq!(stage.get("/v1/models/scripted").1["id"], "scripted");
}

#[test]
fn what_the_router_refuses_is_an_error_of_the_api() {
    let stage = Stage::start(ServerSettings { most_body: Some(100), ..settings() }, echo);
    let (status, answer) = stage.get("/v1/nothing");
    assert_eq!((status, &answer["error"]["type"]), (404, &json!("not_found_error")), "{answer}");
    assert_eq!(answer["error"]["message"], "GET /v1/nothing: there is nothing at this path");
    assert_eq!(stage.get("/api/nothing"), (404, json!({"error": "GET /api/nothing: there is nothing at this path"})));
    let (status, answer) = stage.get("/v1/chat/completions");
    assert_eq!(status, 405);
    assert_eq!(answer["error"]["message"], "GET /v1/chat/completions: this path does not take this method");
    let (status, answer) = stage.post("/v1/chat/completions", &ask(&"long ".repeat(100)));
    assert_eq!((status, &answer["error"]["type"]), (413, &json!("invalid_request_error")), "{answer}");
}

/// A client sees the failure in the status, not as the first event of a stream.
#[test]
fn a_stream_that_cannot_begin_has_the_status_of_the_failure() {
    let overflow = GenerateError::ContextOverflow { prompt_tokens: 9, context_tokens: 8 };
    let stage = Stage::start(settings(), move |_| Script::failing(overflow.clone()));
    let mut body = ask("x");
    body["stream"] = json!(true);
    let (status, answer) = stage.post("/v1/chat/completions", &body);
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(
        status == 400 && message.contains("maximum context length is 8 tokens, and the prompt has 9"),
        "{status} {message}"
    );
}

fn clock() -> Value {
    let parameters = json!({"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]});
    json!([{"type": "function", "function": {"name": "clock", "description": "The time", "parameters": parameters}}])
}

/// Calls the clock twice, and repeats the results.
fn asks_the_clock(request: &GenerateRequest) -> Script {
    let Prompt::Chat(messages) = &request.prompt else { panic!("only conversations are asked") };
    match messages.last() {
        Some(turn) if turn.role == Role::Tool => Script::saying(&["It is ", &turn.content]),
        _ if request.tools.is_empty() => Script::saying(&["I have no clock."]),
        _ => {
            let call = |zone: &str| {
                format!(r#"<tool_call>{{"name": "clock", "arguments": {{"zone": "{zone}"}}}}</tool_call>"#)
            };
            Script::saying(&["Let me ", "look. ", &call("UTC"), &call("CET")])
        }
    }
}

fn with(mut body: Value, fields: Value) -> Value {
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[test]
fn the_clients_tools_are_called_and_their_results_used() {
    let stage = Stage::start(settings(), asks_the_clock);
    let (status, answer) =
        stage.post("/v1/chat/completions", &with(ask("What time is it?"), json!({"tools": clock()})));
    let choice = &answer["choices"][0];
    assert_eq!((status, &choice["finish_reason"]), (200, &json!("tool_calls")), "{answer}");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &choice["message"]["content"]), (2, &json!("Let me look. ")));
    assert_eq!(calls[1]["function"], json!({"name": "clock", "arguments": "{\"zone\":\"CET\"}"}));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let mut turns = ask("What time is it?");
    turns["messages"].as_array_mut().unwrap().extend([
        choice["message"].clone(),
        json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "12:00"}),
    ]);
    let (_, told) = stage.post("/v1/chat/completions", &with(turns, json!({"tools": clock()})));
    assert_eq!(told["choices"][0]["message"]["content"], "It is 12:00", "{told}");
    let one = json!({"tools": clock(), "parallel_tool_calls": false});
    let (_, answer) = stage.post("/v1/chat/completions", &with(ask("And now?"), one));
    assert_eq!(answer["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1, "{answer}");
    let none = json!({"tools": clock(), "tool_choice": "none"});
    let (_, answer) = stage.post("/v1/chat/completions", &with(ask("And now?"), none));
    assert_eq!(answer["choices"][0]["message"]["content"], "I have no clock.");
}

#[test]
fn calls_are_streamed_whole() {
    let stage = Stage::start(settings(), asks_the_clock);
    let chunks = stream(&stage, "/v1/chat/completions", with(ask("What time is it?"), json!({"tools": clock()})));
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Let me look. ", "the call is not shown as text");
    let calls: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"]).collect();
    let calls = calls.iter().find_map(|calls| calls.as_array()).unwrap();
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (2, &json!("clock")));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_call_that_is_demanded_is_held_to_the_tools_schema() {
    let call = r#"{"name": "clock", "arguments": {"zone": "UTC"}}"#;
    let stage = Stage::start(settings(), move |_| Script::saying(&[call]));
    let named = json!({"type": "function", "function": {"name": "clock"}});
    for choice in [json!("required"), named] {
        let body = with(ask("What time is it?"), json!({"tools": clock(), "tool_choice": choice}));
        let (_, answer) = stage.post("/v1/chat/completions", &body);
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "clock", "{answer}");
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"const": "clock"},
            "arguments": {
                "type": "object",
                "properties": {"zone": {"type": "string"}},
                "required": ["zone"],
                "additionalProperties": false,
            },
        },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    });
    let forms: Vec<_> = stage.model.requests().into_iter().map(|request| request.constraint).collect();
    assert_eq!(forms, vec![Some(Constraint::JsonSchema(schema)); 2]);
}

/// The parts of a streamed response, without the last one, which only marks the end.
fn stream(stage: &Stage, path: &str, body: Value) -> Vec<Value> {
    let (status, text) = stage.send(&stage.post_text(path, &with(body, json!({"stream": true}))));
    assert_eq!(status, 200, "{text}");
    let mut events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    events.into_iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// Says "<think>hm</think>so it is" with the log-probability of each token.
fn with_logprobs(_: &GenerateRequest) -> Script {
    let pieces = ["<think>", "hm", "</think>", "so ", "it ", "is"];
    let token = |(index, text): (usize, &&str)| TokenLogprobs {
        text: (*text).to_owned(),
        logprob: -(index as f32),
        top: vec![TokenLogprob { id: 1, logprob: -0.25, text: "no".to_owned() }],
        ..TokenLogprobs::default()
    };
    Script { logprobs: pieces.iter().enumerate().map(token).collect(), ..Script::saying(&pieces) }
}

#[test]
fn log_probabilities_are_those_of_the_answer() {
    let stage = Stage::start(settings(), with_logprobs);
    let body = with(ask("x"), json!({"logprobs": true, "top_logprobs": 1}));
    let (_, answer) = stage.post("/v1/chat/completions", &body);
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["reasoning_content"], "hm", "{answer}");
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    let texts: Vec<&str> = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(texts, ["so ", "it ", "is"], "the reasoning's are left out");
    assert_eq!((&tokens[2]["logprob"], &tokens[2]["top_logprobs"][0]["token"]), (&json!(-5.0), &json!("no")));
    let chunks = stream(&stage, "/v1/chat/completions", body);
    let streamed = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    let streamed: Vec<&str> = streamed.flatten().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(streamed, texts);
    assert_eq!(stage.model.requests()[0].logprobs.top, Some(1));
    let (status, refused) = stage.post("/v1/chat/completions", &with(ask("x"), json!({"top_logprobs": 2})));
    assert_eq!((status, &refused["error"]["message"]), (400, &json!("top_logprobs needs logprobs to be true")));
}

#[test]
fn reasoning_is_controlled_in_every_clients_way() {
    let stage = Stage::start(settings(), echo);
    let check = |fields: Value, expected: ThinkingOptions| {
        stage.post("/v1/chat/completions", &with(ask("x"), fields.clone()));
        assert_eq!(stage.model.requests().last().unwrap().thinking, expected, "{fields}");
    };
    let thinking = |is_on, effort, budget| ThinkingOptions { is_on, effort, budget };
    check(json!({}), thinking(None, None, None));
    check(json!({"reasoning_effort": "none"}), thinking(Some(false), None, None));
    check(json!({"reasoning_effort": "high"}), thinking(Some(true), Some(Effort::High), None));
    check(json!({"reasoning": {"max_tokens": 64}}), thinking(None, None, Some(64)));
    check(json!({"reasoning": {"enabled": false}}), thinking(Some(false), None, None));
    check(json!({"chat_template_kwargs": {"enable_thinking": false}}), thinking(Some(false), None, None));
}

#[test]
fn a_text_is_continued_as_it_stands() {
    let stage = Stage::start(settings(), with_logprobs);
    let asked = json!({"model": "scripted", "prompt": ["Once", "Twice"], "logprobs": 1});
    let (_, answer) = stage.post("/v1/completions", &asked);
    assert_eq!(answer["choices"][1]["logprobs"]["text_offset"], json!([0, 7, 9, 17, 20, 23]), "{answer}");
    let body = json!({"model": "scripted", "prompt": ["Once", "Twice"], "echo": true});
    let (status, answer) = stage.post("/v1/completions", &body);
    assert_eq!((status, &answer["object"]), (200, &json!("text_completion")), "{answer}");
    let choice = &answer["choices"][1];
    assert_eq!((&choice["text"], &choice["index"]), (&json!("Twice<think>hm</think>so it is"), &json!(1)));
    let request = &stage.model.requests()[0];
    assert!(matches!(&request.prompt, Prompt::Text { text, .. } if text == "Once" || text == "Twice"));
    assert_eq!(request.max_tokens, Some(16));
    let chunks = stream(&stage, "/v1/completions", body);
    let of =
        |index: u64| chunks.iter().map(|chunk| &chunk["choices"][0]).filter(move |choice| choice["index"] == index);
    let text: String = of(0).filter_map(|choice| choice["text"].as_str()).collect();
    assert_eq!(text, "Once<think>hm</think>so it is");
    assert_eq!(of(0).next_back().unwrap()["finish_reason"], "stop");
    let check = |fields: Value, expected: &str| {
        let (status, answer) = stage.post("/v1/completions", &with(json!({"prompt": "x"}), fields));
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(status == 400 && message.contains(expected), "{status} {message}");
    };
    check(json!({"suffix": "y"}), "suffix is not supported");
    check(json!({"prompt": []}), "there must be 1 to 64");
    check(json!({"best_of": 3}), "best_of is not supported");
    check(json!({"logprobs": 21}), "logprobs must be 0 to 20");
    check(json!({"logprobs": 1, "echo": true, "n": 2}), "n must be 1");
}

#[test]
fn the_names_and_values_of_other_servers_are_used() {
    let stage = Stage::start(settings(), |_| Script::saying(&["x"]));
    let fields = json!({
        "max_tokens": -1, "seed": -1, "top_k": 8.0, "min_p": 0.5, "repeat_penalty": 1.25, "top_p": 0,
        "response_format": {"type": "json_object", "schema": {"type": "array"}},
    });
    assert_eq!(stage.post("/v1/chat/completions", &with(ask("x"), fields)).0, 200);
    let request = stage.model.requests().pop().unwrap();
    assert_eq!((request.max_tokens, request.sampling.seed), (None, None));
    let sampling = &request.sampling;
    assert_eq!((sampling.top_k, sampling.min_p, sampling.repetition_penalty), (8, 0.5, 1.25));
    assert_eq!(request.constraint, Some(Constraint::JsonSchema(json!({"type": "array"}))));
    for refused in ["typical_p", "tfs_z", "mirostat", "grammar"] {
        let (status, answer) = stage.post("/v1/chat/completions", &with(ask("x"), json!({refused: 5})));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(refused)), "{answer}");
    }
    let unlimited = json!({"prompt": "x", "max_tokens": -1});
    assert_eq!(stage.post("/v1/completions", &unlimited).0, 200);
    assert_eq!(stage.model.requests().pop().unwrap().max_tokens, None);
}

/// The turns last shown to the model.
fn shown(stage: &Stage) -> Vec<Message> {
    let Prompt::Chat(messages) = stage.model.requests().pop().unwrap().prompt else { panic!("no conversation") };
    messages
}

/// Earlier turns of a tool loop are the same for the model, whatever API they come through.
#[test]
fn every_api_shows_the_reasoning_and_the_ids_of_earlier_turns() {
    let stage = Stage::start(settings(), |_| Script::saying(&["Noon."]));
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\"}"}});
    let chat = |reasoning: &str| {
        let turn = json!({"role": "assistant", "content": "", reasoning: "A clock knows.", "tool_calls": [call]});
        json!({"stream": false, "messages": [
            {"role": "user", "content": "What time"}, {"role": "user", "content": "is it?"}, turn,
            {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
        ]})
    };
    let blocks = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "What time"}, {"role": "user", "content": "is it?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "A clock knows.", "signature": ""},
            {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "UTC"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "12:00"}]},
    ]});
    let items = json!({"store": false, "input": [
        {"role": "user", "content": "What time"}, {"role": "user", "content": "is it?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "A clock knows."}]},
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{\"zone\": \"UTC\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "12:00"},
    ]});
    let call = ToolCall { id: Some("c1".to_owned()), ..ToolCall::new("clock", json!({"zone": "UTC"})) };
    let expected = [
        Message::new(Role::User, "What time\n\nis it?"),
        Message { reasoning: "A clock knows.".to_owned(), tool_calls: vec![call], ..Message::new(Role::Assistant, "") },
        Message { result_of: Some("c1".to_owned()), ..Message::new(Role::Tool, "12:00") },
    ];
    for (path, body) in [
        ("/v1/chat/completions", chat("reasoning_content")),
        ("/v1/chat/completions", chat("reasoning")),
        ("/api/chat", chat("thinking")),
        ("/v1/messages", blocks),
        ("/v1/responses", items),
    ] {
        let (status, answer) = stage.post(path, &body);
        assert_eq!(status, 200, "{path}: {answer}");
        assert_eq!(shown(&stage), expected, "{path}");
    }
}

#[test]
fn instructions_alone_and_broken_arguments_are_answered() {
    let stage = Stage::start(settings(), |_| Script::saying(&["Yes."]));
    let system = json!([{"role": "system", "content": "Write."}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": system})),
        ("/api/chat", json!({"messages": system, "stream": false})),
        ("/v1/responses", json!({"instructions": "Write."})),
    ] {
        let (status, answer) = stage.post(path, &body);
        assert_eq!((status, shown(&stage)), (200, vec![Message::new(Role::User, "Write.")]), "{path}: {answer}");
    }
    let call = json!({"id": "c1", "type": "function", "function": {"name": "run", "arguments": "ls -l"}});
    let turns = json!([
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "no JSON"},
    ]);
    assert_eq!(stage.post("/v1/chat/completions", &json!({"messages": turns})).0, 200);
    assert_eq!(shown(&stage)[1].tool_calls[0].arguments, json!({"arguments": "ls -l"}));
}

#[test]
fn a_choice_among_allowed_tools_is_kept_to() {
    let stage = Stage::start(settings(), |_| Script::saying(&["Yes."]));
    let mut tools = clock();
    tools.as_array_mut().unwrap().extend([
        json!({"type": "function", "function": {"name": "other"}}),
        json!({"type": "custom", "custom": {"name": "patch"}}),
    ]);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("other")]}});
    let (status, answer) =
        stage.post("/v1/chat/completions", &with(ask("x"), json!({"tools": tools, "tool_choice": choice})));
    assert_eq!(status, 200, "{answer}");
    let names: Vec<String> = stage.model.requests().pop().unwrap().tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["other"]);
}
