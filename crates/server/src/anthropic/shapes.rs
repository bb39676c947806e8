//! The shapes of the responses of Anthropic's API.

use serde_json::Value;

use crate::shapes::{anything, documented, flag, list, map, nullable, object, one_of, text, whole};

documented! {
    /// An answer.
    AnthropicMessage = message();
    /// The tokens of a prompt.
    AnthropicTokens = object([("input_tokens", whole())], []);
}

fn message() -> Value {
    let block = object(
        [("type", one_of(&["text", "thinking", "tool_use"]))],
        [
            ("text", text()),
            ("thinking", text()),
            ("signature", text()),
            ("id", text()),
            ("name", text()),
            ("input", map(anything())),
        ],
    );
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
            ("usage", map(whole())),
        ],
        [("hone", object([("kept", flag())], []))],
    )
}
