//! The response shapes of Anthropic's API.

use serde_json::Value;

use crate::shapes::{anything, documented, flag, list, map, nothing, nullable, object, one_of, text, whole};

documented! {
    /// An answer.
    AnthropicMessage = message();
    /// The token count of a prompt.
    AnthropicTokens = object([("input_tokens", whole())], []);
}

fn message() -> Value {
    let block = object(
        [("type", one_of(&["text", "thinking", "tool_use"]))],
        [
            ("text", text()),
            ("citations", nothing()),
            ("thinking", text()),
            ("signature", text()),
            ("id", text()),
            ("name", text()),
            ("input", map(anything())),
            ("caller", object([("type", one_of(&["direct"]))], [])),
        ],
    );
    let counts = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];
    let rest = [
        ("cache_creation", map(whole())),
        ("output_tokens_details", nothing()),
        ("server_tool_use", nothing()),
        ("inference_geo", nothing()),
        ("service_tier", one_of(&["standard"])),
    ];
    let usage = object(counts.map(|name| (name, whole())).into_iter().chain(rest), []);
    let reasons = ["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"];
    object(
        [
            ("id", text()),
            ("type", one_of(&["message"])),
            ("role", one_of(&["assistant"])),
            ("model", text()),
            ("content", list(block)),
            ("stop_reason", one_of(&reasons)),
            ("stop_sequence", nullable(text())),
            ("stop_details", nothing()),
            ("container", nothing()),
            ("usage", usage),
        ],
        [("hone", object([("kept", flag())], []))],
    )
}
