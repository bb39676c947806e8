//! Ollama's API.

use serde_json::{Value, json};

use crate::stage::{Stage, ask, echo, settings};

#[test]
fn ollama_is_spoken_too() {
    let stage = Stage::start(settings(), echo);
    assert_eq!(stage.get("/api/version"), (200, json!({"version": "1.2.3"})));
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
