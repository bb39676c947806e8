//! The response shapes of Ollama's API.

use serde_json::Value;

use crate::shapes::{anything, documented, flag, list, map, object, one_of, text, whole};

documented! {
    /// The version.
    OllamaVersion = object([("version", text()), ("hone", text())], []);
    /// All installed models.
    OllamaModels = object([("models", list(object(tag(), [])))], []);
    /// The models in memory.
    OllamaLoadedModels = object([("models", list(loaded()))], []);
    /// A model's details.
    OllamaModel = object(
        [
            ("modelfile", text()),
            ("parameters", text()),
            ("template", text()),
            ("license", text()),
            ("details", details()),
            ("model_info", map(anything())),
            ("capabilities", list(text())),
            ("modified_at", text()),
        ],
        [],
    );
    /// An answer to a conversation.
    OllamaChat = answer("message", message());
    /// An answer to a prompt.
    OllamaGeneration = answer("response", text());
    /// The end of a pull.
    OllamaPulled = object([("status", one_of(&["success"]))], []);
    /// The author of a message.
    OllamaRole = one_of(&["system", "user", "assistant", "tool"]);
}

fn tag() -> [(&'static str, Value); 6] {
    [
        ("name", text()),
        ("model", text()),
        ("modified_at", text()),
        ("size", whole()),
        ("digest", text()),
        ("details", details()),
    ]
}

fn loaded() -> Value {
    let [name, model, modified, size, digest, details] = tag();
    object([name, model, modified, size, digest, details, ("size_vram", whole()), ("expires_at", text())], [])
}

fn details() -> Value {
    object(
        [
            ("parent_model", text()),
            ("format", text()),
            ("family", text()),
            ("families", list(text())),
            ("parameter_size", text()),
            ("quantization_level", text()),
        ],
        [],
    )
}

fn message() -> Value {
    let function = [("index", whole()), ("name", text()), ("arguments", anything())];
    let call = object([("id", text()), ("function", object(function, []))], []);
    object([("role", one_of(&["assistant"])), ("content", text())], [("thinking", text()), ("tool_calls", list(call))])
}

fn answer(key: &str, shape: Value) -> Value {
    object(
        [
            ("model", text()),
            ("created_at", text()),
            ("done", flag()),
            (key, shape),
            ("done_reason", one_of(&["stop", "length", "load", "unload"])),
        ],
        [
            ("thinking", text()),
            ("hone", object([("kept", flag())], [])),
            ("total_duration", whole()),
            ("load_duration", whole()),
            ("prompt_eval_count", whole()),
            ("prompt_eval_duration", whole()),
            ("eval_count", whole()),
            ("eval_duration", whole()),
        ],
    )
}
