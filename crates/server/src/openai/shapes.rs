//! The response shapes of OpenAI's API.

use serde_json::{Value, json};

use crate::decisions::standing_shape;
use crate::shapes::{
    anything, documented, flag, list, map, nothing, nullable, number, object, one_of, open, text, whole,
};

documented! {
    /// One text, or several.
    OpenAiTexts = one_or_several();
    /// Texts or token ids: one, or several.
    OpenAiPrompts = prompts();
    /// A model.
    OpenAiModel = model();
    /// All installed models.
    OpenAiModels = object([("object", one_of(&["list"])), ("data", list(model()))], []);
    /// The answers to a chat.
    OpenAiChatCompletion = completion("chat.completion", chat_choice());
    /// The continuations of texts.
    OpenAiCompletion = completion("text_completion", text_choice());
    /// A response.
    OpenAiResponse = response();
    /// A response that was deleted.
    OpenAiDeletedResponse = object([("id", text()), ("object", text()), ("deleted", anything())], []);
    /// The items that a response answers.
    OpenAiItems = object(
        [
            ("object", one_of(&["list"])),
            ("data", list(item())),
            ("first_id", nullable(text())),
            ("last_id", nullable(text())),
            ("has_more", anything()),
        ],
        [],
    );
    /// The answers to questions about an input.
    OpenAiDecision = decision();
    /// The token count of a prompt.
    OpenAiInputTokens = object([("object", one_of(&["response.input_tokens"])), ("input_tokens", whole())], []);
}

fn one_or_several() -> Value {
    json!({"oneOf": [text(), list(text())]})
}

fn prompts() -> Value {
    let tokens = || list(whole());
    json!({"oneOf": [text(), list(text()), tokens(), list(tokens())]})
}

fn model() -> Value {
    object([("id", text()), ("object", one_of(&["model"])), ("created", whole()), ("owned_by", text())], [])
}

fn completion(kind: &str, choice: Value) -> Value {
    let details = object([("cached_tokens", whole())], []);
    let usage = [
        ("prompt_tokens", whole()),
        ("completion_tokens", whole()),
        ("total_tokens", whole()),
        ("prompt_tokens_details", details),
    ];
    object(
        [
            ("id", text()),
            ("object", one_of(&[kind])),
            ("created", whole()),
            ("model", text()),
            ("choices", list(choice)),
            ("usage", object(usage, [])),
        ],
        // Prompts computed as they are have no question.
        [("hone", object([("query_id", text())], [("kept", flag())]))],
    )
}

fn finish_reason() -> Value {
    one_of(&["stop", "length", "tool_calls"])
}

fn chat_choice() -> Value {
    let function = object([("name", text()), ("arguments", text())], []);
    let call = [("index", whole()), ("id", text()), ("type", one_of(&["function"])), ("function", function)];
    let message = object(
        [
            ("role", one_of(&["assistant"])),
            ("content", nullable(text())),
            ("refusal", nothing()),
            ("annotations", list(nothing())),
        ],
        [("reasoning_content", text()), ("tool_calls", list(object(call, [])))],
    );
    let token = [("token", text()), ("logprob", number()), ("bytes", nullable(list(whole())))];
    let [text, logprob, bytes] = token.clone();
    let with_top = object([text, logprob, bytes, ("top_logprobs", list(object(token, [])))], []);
    let logprobs = object([("content", list(with_top)), ("refusal", nothing())], []);
    let choice = [
        ("index", whole()),
        ("message", message),
        ("finish_reason", finish_reason()),
        ("logprobs", nullable(logprobs)),
    ];
    object(choice, [])
}

fn text_choice() -> Value {
    let logprobs = [
        ("tokens", list(text())),
        ("token_logprobs", list(nullable(number()))),
        ("top_logprobs", list(nullable(map(number())))),
        ("text_offset", list(whole())),
    ];
    let choice = [
        ("index", whole()),
        ("text", text()),
        ("finish_reason", finish_reason()),
        ("logprobs", nullable(object(logprobs, []))),
    ];
    object(choice, [])
}

/// An item as the client sent it, or one of an answer.
fn item() -> Value {
    open([("id", text()), ("type", text())])
}

fn usage() -> Value {
    object(
        [
            ("input_tokens", whole()),
            ("input_tokens_details", map(whole())),
            ("output_tokens", whole()),
            ("output_tokens_details", map(whole())),
            ("total_tokens", whole()),
        ],
        [],
    )
}

fn decision() -> Value {
    let name = || ("name", nullable(text()));
    let predicate = [("type", one_of(&["predicate"])), name(), ("probability", number())];
    let value = || json!({"oneOf": [text(), flag()]});
    let choice = [
        ("type", one_of(&["choice"])),
        name(),
        ("choice", value()),
        ("confidence", number()),
        ("probabilities", list(object([("value", value()), ("probability", number())], []))),
    ];
    let level = [("label", text()), ("value", whole()), ("probability", number())];
    let score = [
        ("type", one_of(&["score"])),
        name(),
        ("score", number()),
        ("confidence", number()),
        ("probabilities", list(object(level, []))),
    ];
    let answer = json!({"oneOf": [object(predicate, []), object(choice, []), object(score, [])]});
    object([("model", text()), ("answers", list(answer)), ("usage", usage()), ("hone", standing_shape())], [])
}

fn response() -> Value {
    open([
        ("id", text()),
        ("object", one_of(&["response"])),
        ("created_at", whole()),
        ("completed_at", nullable(whole())),
        ("frequency_penalty", number()),
        ("presence_penalty", number()),
        ("max_tool_calls", nullable(whole())),
        ("prompt_cache_key", nullable(text())),
        ("safety_identifier", nullable(text())),
        ("service_tier", text()),
        ("top_logprobs", whole()),
        ("status", one_of(&["in_progress", "completed", "incomplete", "cancelled", "failed"])),
        ("error", nullable(object([("code", text()), ("message", text())], []))),
        ("incomplete_details", nullable(object([("reason", text())], []))),
        ("output", list(item())),
        ("usage", nullable(usage())),
        ("instructions", nullable(text())),
        ("max_output_tokens", nullable(whole())),
        ("metadata", map(anything())),
        ("model", text()),
        ("previous_response_id", nullable(text())),
        ("temperature", number()),
        ("tools", list(anything())),
        ("top_p", number()),
    ])
}
