//! Models over HTTP: listing, details, and names that lead nowhere else.

use serde_json::{Value, json};

use crate::stage::{Stage, ask, echo, settings};
use crate::staged::{EMBEDDER, GENERATOR};

#[test]
fn models_are_listed_and_described() {
    let stage = Stage::start(settings(), echo);
    let details = json!({
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "135M",
        "quantization_level": "Q4_1",
    });
    let (_, tags) = stage.get("/api/tags");
    let names: Vec<&Value> = tags["models"].as_array().unwrap().iter().map(|model| &model["model"]).collect();
    assert_eq!(names, [EMBEDDER, GENERATOR]);
    assert_eq!(tags["models"][0]["details"], details);
    let (status, shown) = stage.post("/api/show", &json!({"model": GENERATOR}));
    assert_eq!((status, &shown["details"], &shown["license"]), (200, &details, &json!("MIT")), "{shown}");
    assert_eq!((&shown["capabilities"], &shown["template"]), (&json!(["completion"]), &json!("{{ messages }}")));
    assert_eq!(shown["model_info"]["general.architecture"], "llama");
    assert_eq!(stage.post("/api/show", &json!({"name": GENERATOR})).0, 200);
    assert_eq!(stage.post("/api/show", &json!({})), (400, json!({"error": "model is missing"})));
    let (_, loaded) = stage.get("/api/ps");
    assert_eq!((&loaded["models"][0]["name"], &loaded["models"][0]["size"]), (&json!(GENERATOR), &json!(9)));
    assert!(loaded["models"][0]["expires_at"].as_str().unwrap().ends_with('Z'), "{loaded}");
    assert_eq!(stage.get("/v1/models/letters:1").1["id"], EMBEDDER);
}

#[test]
fn an_embedder_does_not_chat() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask("x");
    body["model"] = json!(EMBEDDER);
    let (status, answer) = stage.post("/v1/chat/completions", &body);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("turns texts into vectors"), "{status} {message}");
    assert_eq!(stage.post("/api/chat", &body).0, 400);
}

#[test]
fn a_model_is_removed_unless_it_is_in_use() {
    let stage = Stage::start(settings(), echo);
    let remove = |name: &str| stage.request("DELETE", "/api/delete", &json!({"model": name}));
    assert_eq!(remove(EMBEDDER).0, 200);
    assert_eq!(remove(GENERATOR), (409, json!({"error": "it is the default model"})));
    assert_eq!(remove("none").0, 404);
    assert_eq!(*stage.models.removed.lock().unwrap(), [EMBEDDER]);
    for path in ["/api/create", "/api/push"] {
        assert_eq!(stage.post(path, &json!({"model": GENERATOR})).0, 501);
    }
}

#[test]
fn a_model_is_copied() {
    let stage = Stage::start(settings(), echo);
    let copy = |source: &str, name: &str| stage.post("/api/copy", &json!({"source": source, "destination": name}));
    assert_eq!(copy(GENERATOR, "mine").0, 200);
    assert_eq!(copy("none", "mine").0, 404);
    assert_eq!(copy(GENERATOR, "../mine"), (400, json!({"error": "\"../mine\" is no name"})));
    assert_eq!(stage.post("/api/copy", &json!({"source": GENERATOR})).0, 400);
    assert_eq!(*stage.models.copied.lock().unwrap(), [(GENERATOR.to_owned(), "mine".to_owned())]);
}

#[test]
fn a_model_without_a_question_is_loaded() {
    let stage = Stage::start(settings(), echo);
    let (status, answer) = stage.post("/api/chat", &json!({"model": GENERATOR, "messages": []}));
    assert_eq!((status, &answer["done_reason"], &answer["done"]), (200, &json!("load"), &json!(true)), "{answer}");
    let (_, answer) = stage.post("/api/generate", &json!({"model": GENERATOR, "keep_alive": "5m"}));
    assert_eq!((&answer["done_reason"], &answer["response"]), (&json!("load"), &json!("")));
    assert_eq!(*stage.models.loads.lock().unwrap(), [GENERATOR, GENERATOR]);
    let (status, answer) = stage.post("/api/generate", &json!({"model": GENERATOR, "keep_alive": 0}));
    assert_eq!((status, &answer["done_reason"]), (200, &json!("unload")), "{answer}");
    assert_eq!(stage.post("/api/chat", &json!({"model": GENERATOR, "keep_alive": "0s"})).0, 409);
    assert_eq!(*stage.models.unloads.lock().unwrap(), [GENERATOR, GENERATOR]);
    assert_eq!(stage.post("/api/generate", &json!({"model": "none"})).0, 404);
    assert_eq!(stage.model.requests().len(), 0);
}

/// A model that is to leave memory does so after its answer, streamed or not; a pinned one answers all the same.
#[test]
fn a_model_leaves_memory_after_its_answer() {
    let stage = Stage::start(settings(), echo);
    let mut body = ask("still here");
    for (stream, keep_alive) in [(true, json!(0)), (false, json!("0s")), (true, json!("5m")), (false, json!(null))] {
        body["stream"] = json!(stream);
        body["keep_alive"] = keep_alive;
        let (status, answer) = stage.send(&stage.post_text("/api/chat", &body));
        assert!(status == 200 && answer.contains("here"), "{answer}");
    }
    let prompt = json!({"model": GENERATOR, "prompt": "still here", "stream": false, "keep_alive": 0});
    let (status, answer) = stage.post("/api/generate", &prompt);
    assert_eq!((status, &answer["response"], &answer["done_reason"]), (200, &json!("still here"), &json!("stop")));
    assert_eq!(*stage.models.unloads.lock().unwrap(), [GENERATOR; 3]);
}
