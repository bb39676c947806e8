//! Ollama's API.

use hone_protocol::scripted::Script;
use serde_json::{Value, json};

use crate::stage::{Stage, ask, echo, settings};

#[test]
fn ollama_is_spoken_too() {
    let stage = Stage::start(settings(), echo);
    assert_eq!(stage.get("/api/version"), (200, json!({"version": "0.13.5", "hone": "1.2.3"})));
    assert_eq!(stage.get("/api/tags").1["models"][1]["name"], "scripted");
    let (status, body) = stage.send(&stage.post_text("/api/chat", &ask("well well")));
    let lines: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!((status, text.as_str()), (200, "well well"));
    assert_eq!((&lines.last().unwrap()["done"], &lines.last().unwrap()["eval_count"]), (&json!(true), &json!(2)));
    let (status, whole) =
        stage.post("/api/generate", &json!({"model": "scripted", "prompt": "so it is", "stream": false}));
    assert_eq!((status, &whole["response"]), (200, &json!("so it is")), "{whole}");
    let (status, refused) = stage.post("/api/generate", &json!({"prompt": "x", "suffix": "y"}));
    assert_eq!((status, &refused["error"]), (400, &json!("suffix is not supported")));
}

#[test]
fn options_of_an_answer_are_read() {
    let stage = Stage::start(settings(), echo);
    let with = |key: &str, value: Value| {
        let mut body = ask("well well");
        body["stream"] = json!(false);
        body[key] = value;
        stage.post("/api/chat", &body)
    };
    for think in [json!(true), json!(false), json!("low"), json!("high"), Value::Null] {
        assert_eq!(with("think", think).1["message"]["content"], "well well");
    }
    let (status, refused) = with("think", json!("hard"));
    let expected = "think is \"hard\": it must be true, false, \"low\", \"medium\" or \"high\"";
    assert_eq!((status, &refused["error"]), (400, &json!(expected)));
    assert_eq!(with("keep_alive", json!("10m")).0, 200);
    assert_eq!(with("keep_alive", json!(0)).0, 200);
    let (status, refused) = stage.post("/api/generate", &json!({"prompt": "x", "images": ["aGk="]}));
    assert_eq!((status, &refused["error"]), (400, &json!("images is not supported")));
}

/// Clients act on a call as soon as its line comes, and take the last line for the end of the stream.
#[test]
fn a_streamed_call_comes_before_the_last_line() {
    let call = r#"<tool_call>{"name": "clock", "arguments": {"zone": "UTC"}}</tool_call>"#;
    let stage = Stage::start(settings(), move |_| Script::saying(&["Let me look. ", call]));
    let tool = json!({"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}});
    let mut body = ask("What time is it?");
    body["tools"] = json!([tool]);
    let (status, text) = stage.send(&stage.post_text("/api/chat", &body));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [.., called, last] = lines.as_slice() else { panic!("{text}") };
    assert_eq!((status, &called["done"], &last["done"]), (200, &json!(false), &json!(true)), "{text}");
    assert_eq!(last["message"], json!({"role": "assistant", "content": ""}));
    let calls = called["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["function"], json!({"index": 0, "name": "clock", "arguments": {"zone": "UTC"}}));
    assert!(calls[0]["id"].is_string(), "{called}");
    body["stream"] = json!(false);
    let (_, whole) = stage.post("/api/chat", &body);
    assert_eq!(whole["message"]["tool_calls"][0]["function"], calls[0]["function"], "{whole}");
}

#[test]
fn a_negative_limit_or_seed_is_none() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask("well well");
    body["options"] = json!({"num_predict": -1, "seed": -1, "stop": "x", "top_k": 8.0, "repeat_last_n": -1});
    assert_eq!(stage.send(&stage.post_text("/api/chat", &body)).0, 200);
    let request = stage.model.requests().pop().unwrap();
    assert_eq!((request.max_tokens, request.sampling.seed, request.sampling.top_k), (None, None, 8));
    assert_eq!(request.stop, ["x"]);
}
