//! How models mark the tool calls that they write.

/// The marks around tool calls, and how the calls between them are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFormat {
    /// Begins calls.
    pub open: &'static str,
    /// Ends them. If empty, they end with the turn.
    pub close: &'static str,
    /// How the calls are written.
    pub body: CallBody,
}

/// How calls are written between their marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBody {
    /// `{"name": "f", "arguments": {"a": 1}}` or an array of those, or
    /// `<function=f><parameter=a>1</parameter></function>`.
    JsonOrTags,
    /// `f[ARGS]{"a": 1}`, or JSON as above.
    NameAndJson,
    /// `[f(a=1)]`, as in Python.
    Python,
    /// `call:f{a:1}`, with `<|"|>` around texts.
    Braces,
    /// A message with its recipient in the header: `assistant to=functions.f<|channel|>commentary json<|message|>{"a":
    /// 1}`.
    Message,
}

/// The delimiter of texts in [`CallBody::Braces`].
pub const TEXT_MARK: &str = "<|\"|>";
/// The separator between the name and the arguments in [`CallBody::NameAndJson`].
pub const ARGUMENTS_MARK: &str = "[ARGS]";
/// The separator between the name and the id of a call, which some models write, in [`CallBody::NameAndJson`].
pub const CALL_ID_MARK: &str = "[CALL_ID]";

impl CallFormat {
    /// The formats of all known models: Hermes, Qwen, Granite 4 and SmolLM3; Mistral; LFM2; OLMo 3; Gemma 4; Granite 3;
    /// gpt-oss.
    pub const ALL: [CallFormat; 7] = [
        CallFormat { open: "<tool_call>", close: "</tool_call>", body: CallBody::JsonOrTags },
        CallFormat { open: "[TOOL_CALLS]", close: "", body: CallBody::NameAndJson },
        CallFormat { open: "<|tool_call_start|>", close: "<|tool_call_end|>", body: CallBody::Python },
        CallFormat { open: "<function_calls>", close: "</function_calls>", body: CallBody::Python },
        CallFormat { open: "<|tool_call>", close: "<tool_call|>", body: CallBody::Braces },
        CallFormat { open: "<|tool_call|>", close: "", body: CallBody::JsonOrTags },
        CallFormat { open: "<|start|>", close: "", body: CallBody::Message },
    ];

    /// Whether a token of this name is one of the marks. In some vocabularies they are control tokens, which are
    /// otherwise not shown.
    pub fn has(name: &str) -> bool {
        let is_around = CallFormat::ALL.iter().any(|format| name == format.open || name == format.close);
        is_around || [TEXT_MARK, ARGUMENTS_MARK, CALL_ID_MARK].contains(&name)
    }
}
