//! Finds tool calls in a model's output while it streams.
//!
//! Models write calls in the forms that they were trained on: between marks, as `<tool_call>{…}</tool_call>` (the
//! [formats](CallFormat), and the text [between the marks](bodies)), or as a bare JSON object or array that is the
//! whole answer (Llama 3). Text that may be a call is held back until it is certain; other text is passed on at once. A
//! bare call whose arguments do not fit the tool's schema is text, too. A call between marks was intended, and the
//! client reports its errors to the model.

mod arguments_schema;
mod bodies;
mod literals;

use hone_protocol::{CallFormat, Tool, ToolCall};
use serde_json::Value;

use self::arguments_schema::ArgumentsSchema;
use crate::thinking::overlap;

/// The keys that a bare call may begin with.
const FIRST_KEYS: [&str; 6] = ["name", "arguments", "parameters", "type", "function", "id"];

/// The longest calls, in bytes: between marks, where a call may hold a whole file, and without marks, where the text is
/// parsed from the beginning again with each piece. Longer text is not a call.
const LONGEST_TAGGED_CALL: usize = 1024 * 1024;
const LONGEST_BARE_CALL: usize = 16 * 1024;

/// Scans one stream of text for calls.
#[derive(Debug)]
pub(crate) struct CallScanner {
    /// The tools that may be called without a tag around the call.
    known: Vec<KnownTool>,
    form: HeldForm,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldForm {
    /// Only white space so far.
    Undecided,
    /// Text that may still contain a tagged call.
    Text,
    /// The held text begins with the mark of a format.
    Tagged(CallFormat),
    /// The held text may be bare JSON.
    Bare,
    /// There is no call.
    Refused,
}

/// A tool that may be called.
#[derive(Debug)]
struct KnownTool {
    name: String,
    /// The types of its parameters, from its schema.
    parameters: Value,
    /// Its schema; `None` if anything fits, or the schema is not valid.
    arguments: Option<ArgumentsSchema>,
}

impl KnownTool {
    /// A tool whose calls are checked against its schema.
    fn checked(tool: &Tool) -> KnownTool {
        let arguments = ArgumentsSchema::new(&tool.parameters);
        let arguments =
            arguments.inspect_err(|error| tracing::debug!(tool = tool.name, "its schema is not valid: {error}"));
        KnownTool { arguments: arguments.ok(), ..KnownTool::unchecked(tool) }
    }

    fn unchecked(tool: &Tool) -> KnownTool {
        KnownTool { name: tool.name.clone(), parameters: tool.parameters["properties"].clone(), arguments: None }
    }

    /// Whether a parameter may be a text, so that its value is read as one, whatever it looks like.
    fn takes_text(&self, parameter: &str) -> bool {
        match &self.parameters[parameter]["type"] {
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            kind => kind == "string",
        }
    }

    fn fits(&self, call: &ToolCall) -> bool {
        self.arguments.as_ref().is_none_or(|schema| schema.allows(&call.arguments))
    }
}

impl CallScanner {
    /// A scanner for calls of the client's tools, and of the agent's `own` tool, which reports errors in a call to the
    /// model itself.
    pub(crate) fn new(tools: &[Tool], own: Option<&Tool>) -> Self {
        let known = tools.iter().map(KnownTool::checked).chain(own.map(KnownTool::unchecked)).collect();
        CallScanner { known, form: HeldForm::Undecided, held: String::new() }
    }

    /// Adds text, and returns the text that certainly does not belong to a call.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.form == HeldForm::Undecided || self.form == HeldForm::Bare {
            self.form = self.first_form();
        }
        let mut certain = if self.form == HeldForm::Text { self.release_text() } else { String::new() };
        let is_no_call = self.is_followed() && self.calls().is_empty();
        let longest = if let HeldForm::Tagged(_) = self.form { LONGEST_TAGGED_CALL } else { LONGEST_BARE_CALL };
        if self.form == HeldForm::Refused || is_no_call || self.held.len() > longest {
            self.form = HeldForm::Refused;
            certain.push_str(&std::mem::take(&mut self.held));
        }
        certain
    }

    /// Whether calls have arrived and other text follows, so that generating more is pointless.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_followed() && !self.calls().is_empty()
    }

    /// The calls, and the held text that turned out not to belong to one.
    pub(crate) fn finish(self) -> (Vec<ToolCall>, String) {
        let calls = self.calls();
        let text = if calls.is_empty() { self.held } else { String::new() };
        (calls, text)
    }

    fn calls(&self) -> Vec<ToolCall> {
        match self.form {
            HeldForm::Tagged(format) => self.tagged_calls(format),
            HeldForm::Bare => self.bare_calls(),
            HeldForm::Undecided | HeldForm::Text | HeldForm::Refused => Vec::new(),
        }
    }

    fn tagged_calls(&self, format: CallFormat) -> Vec<ToolCall> {
        let parts = self.held.split(format.open).skip(1);
        // The end of the turn can replace the closing mark of the last call.
        let bodies = parts.map(|part| match format.close {
            "" => part,
            close => part.split_once(close).map_or(part, |(body, _)| body),
        });
        bodies.flat_map(|body| bodies::calls_in(body, format.body, &self.known)).collect()
    }

    /// The calls at the beginning of the text, if all of them name a known tool and have arguments that fit it. JSON
    /// that the user requested is not a call.
    fn bare_calls(&self) -> Vec<ToolCall> {
        let mut values = serde_json::Deserializer::from_str(&self.held).into_iter::<Value>();
        let calls = values.next().and_then(Result::ok).map(calls_of).unwrap_or_default();
        let fits = |call: &ToolCall| self.tool(&call.name).is_some_and(|tool| tool.fits(call));
        if calls.iter().all(fits) { calls } else { Vec::new() }
    }

    fn tool(&self, name: &str) -> Option<&KnownTool> {
        self.known.iter().find(|tool| tool.name == name)
    }

    /// Whether other text follows the possible calls.
    fn is_followed(&self) -> bool {
        match self.form {
            HeldForm::Tagged(CallFormat { close: "", .. }) => false,
            HeldForm::Tagged(CallFormat { open, close, .. }) => {
                self.held.rsplit_once(close).is_some_and(|(_, rest)| {
                    let rest = rest.trim_start();
                    !open.starts_with(rest) && !rest.starts_with(open)
                })
            }
            HeldForm::Bare => {
                let json = self.held.as_str();
                let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
                matches!(values.next(), Some(Ok(_))) && !json[values.byte_offset()..].trim().is_empty()
            }
            HeldForm::Undecided | HeldForm::Text | HeldForm::Refused => false,
        }
    }

    fn first_form(&self) -> HeldForm {
        let text = self.held.trim_start();
        if text.is_empty() {
            HeldForm::Undecided
        } else if may_be_bare(text) {
            HeldForm::Bare
        } else {
            HeldForm::Text
        }
    }

    fn release_text(&mut self) -> String {
        let found = CallFormat::ALL.into_iter().filter_map(|format| Some((self.held.find(format.open)?, format)));
        let certain = match found.min_by_key(|(start, _)| *start) {
            Some((start, format)) => {
                self.form = HeldForm::Tagged(format);
                start
            }
            None => {
                let beginnings = CallFormat::ALL.iter().map(|format| overlap(&self.held, format.open));
                self.held.len() - beginnings.max().unwrap_or(0)
            }
        };
        self.held.drain(..certain).collect()
    }
}

/// Whether a text may be, or may become, a bare call.
fn may_be_bare(text: &str) -> bool {
    let text = text.strip_prefix('[').unwrap_or(text).trim_start();
    let Some(object) = text.strip_prefix('{') else { return text.is_empty() };
    let object = object.trim_start();
    let Some(key) = object.strip_prefix('"') else { return object.is_empty() };
    FIRST_KEYS.iter().any(|known| match key.split_once('"') {
        Some((key, _)) => key == *known,
        None => known.starts_with(key),
    })
}

/// The calls in a JSON value; empty if any part of it is not a call.
fn calls_of(value: Value) -> Vec<ToolCall> {
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    values.into_iter().map(call_of).collect::<Option<_>>().unwrap_or_default()
}

fn call_of(mut value: Value) -> Option<ToolCall> {
    // OpenAI's format nests the call one level deeper.
    if value["function"].is_object() {
        value = value["function"].take();
    }
    let name = value["name"].as_str()?.to_owned();
    let arguments =
        ["arguments", "parameters"].into_iter().map(|key| value[key].clone()).find(|found| !found.is_null());
    let arguments = match arguments {
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(arguments) => arguments,
        None => return None,
    };
    arguments.is_object().then_some(ToolCall::new(name, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> Tool {
        let parameters = json!({
            "type": "object",
            "properties": {"query": {"type": "string"}, "most": {"type": "integer", "minimum": 1}},
        });
        Tool { name: "search_memory".to_owned(), description: String::new(), parameters }
    }

    /// Checks the visible text and the calls found in an answer, in one piece and in pieces of every length.
    #[track_caller]
    fn check(answer: &str, shown: &str, calls: &[(&str, &str)]) {
        let characters: Vec<char> = answer.chars().collect();
        let calls: Vec<(String, String)> =
            calls.iter().map(|(name, query)| (name.to_string(), query.to_string())).collect();
        for size in 1..=characters.len() {
            let mut scanner = CallScanner::new(&[tool()], None);
            let mut seen = String::new();
            for chunk in characters.chunks(size) {
                seen += &scanner.push(&chunk.iter().collect::<String>());
                if scanner.is_complete() {
                    break;
                }
            }
            let (found, rest) = scanner.finish();
            let query = |call: &ToolCall| call.arguments["query"].as_str().unwrap_or("").to_owned();
            let found: Vec<(String, String)> = found.iter().map(|call| (call.name.clone(), query(call))).collect();
            assert_eq!((seen + &rest, found), (shown.to_owned(), calls.clone()), "{answer:?} in pieces of {size}");
        }
    }

    const CALL: &str = r#"{"name": "search_memory", "arguments": {"query": "cats"}}"#;

    #[test]
    fn calls_between_tags_are_found() {
        check(&format!("<tool_call>\n{CALL}\n</tool_call>"), "", &[("search_memory", "cats")]);
        check(&format!("Let me see.\n<tool_call>{CALL}</tool_call>"), "Let me see.\n", &[("search_memory", "cats")]);
        check(&format!("<tool_call>{CALL}"), "", &[("search_memory", "cats")]);
        check(r#"<tool_call>{"name": "fly", "arguments": {}}</tool_call>"#, "", &[("fly", "")]);
        let second = r#"{"name": "search_memory", "arguments": {"query": "dogs"}}"#;
        check(
            &format!("<tool_call>{CALL}</tool_call>\n<tool_call>{second}</tool_call>"),
            "",
            &[("search_memory", "cats"), ("search_memory", "dogs")],
        );
    }

    #[test]
    fn bare_calls_are_found() {
        check(CALL, "", &[("search_memory", "cats")]);
        check(&format!("\n [{CALL}]"), "", &[("search_memory", "cats")]);
        check(&format!("[TOOL_CALLS] [{CALL}]"), "", &[("search_memory", "cats")]);
        check(r#"{"name": "search_memory", "parameters": {"query": "cats"}}"#, "", &[("search_memory", "cats")]);
        check(r#"{"name":"search_memory","arguments":"{\"query\": \"cats\"}"}"#, "", &[("search_memory", "cats")]);
        check(
            r#"{"type": "function", "function": {"name": "search_memory", "arguments": {"query": "cats"}}}"#,
            "",
            &[("search_memory", "cats")],
        );
    }

    /// Checks the calls in an answer: their names and arguments.
    #[track_caller]
    fn check_calls(answer: &str, shown: &str, expected: &[(&str, Value)]) {
        let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}});
        let tool = Tool { name: "f".to_owned(), description: String::new(), parameters };
        let mut scanner = CallScanner::new(&[tool], None);
        let mut seen = String::new();
        for character in answer.chars() {
            seen += &scanner.push(&character.to_string());
        }
        let (calls, rest) = scanner.finish();
        let calls: Vec<(&str, Value)> = calls.iter().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
        assert_eq!((seen + &rest).as_str(), shown, "{answer:?}");
        assert_eq!(calls, expected, "{answer:?}");
    }

    #[test]
    fn calls_of_qwen_35_are_found() {
        check_calls(
            "Wait.\n<tool_call>\n<function=f>\n<parameter=q>\n12\n</parameter>\n<parameter=n>\n3\n</parameter>\n\
             <parameter=list>\n[1, {\"a\": null}]\n</parameter>\n</function>\n</tool_call>",
            "Wait.\n",
            &[("f", json!({"q": "12", "n": 3, "list": [1, {"a": null}]}))],
        );
        let several = "<tool_call>\n<function=f>\n<parameter=q>\ntwo\nlines\n</parameter>\n</function>\n</tool_call>\n\
                       <tool_call>\n<function=g>\n</function>\n</tool_call>";
        check_calls(several, "", &[("f", json!({"q": "two\nlines"})), ("g", json!({}))]);
    }

    #[test]
    fn calls_of_mistral_are_found() {
        check_calls(r#"[TOOL_CALLS]f[ARGS]{"q": "x"}"#, "", &[("f", json!({"q": "x"}))]);
        check_calls(r#"[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"n": 1}"#, "", &[("f", json!({"n": 1}))]);
        check_calls(
            r#"Yes.[TOOL_CALLS]f[ARGS]{"q": "[x]"}[TOOL_CALLS]g[ARGS]{}"#,
            "Yes.",
            &[("f", json!({"q": "[x]"})), ("g", json!({}))],
        );
        check_calls("[TOOL_CALLS]f[ARGS]no json", "[TOOL_CALLS]f[ARGS]no json", &[]);
    }

    #[test]
    fn calls_as_python_writes_them_are_found() {
        check_calls(
            r#"<|tool_call_start|>[f(q='it\'s', n=2), g(a=[1.5, -2], b={"k": True}, c=None)]<|tool_call_end|>"#,
            "",
            &[("f", json!({"q": "it's", "n": 2})), ("g", json!({"a": [1.5, -2], "b": {"k": true}, "c": null}))],
        );
        check_calls(
            "<function_calls>\nf(q=\"a, b\")\ng()\n</function_calls>",
            "",
            &[("f", json!({"q": "a, b"})), ("g", json!({}))],
        );
        for broken in ["[f(q=", "[f(q='x]", "f q", "[f(q=x)]"] {
            let answer = format!("<|tool_call_start|>{broken}<|tool_call_end|>");
            check_calls(&answer, &answer, &[]);
        }
        let deep = format!("<|tool_call_start|>[f(q={}", "[".repeat(10_000));
        check_calls(&deep, &deep, &[]);
    }

    #[test]
    fn calls_of_gemma_4_are_found() {
        check_calls(
            r#"<|tool_call>call:f{q:<|"|>a "b", {c}<|"|>,n:3}<tool_call|><|tool_call>call:g{x:{y:[true,null]}}<tool_call|>"#,
            "",
            &[("f", json!({"q": "a \"b\", {c}", "n": 3})), ("g", json!({"x": {"y": [true, null]}}))],
        );
        check_calls("<|tool_call>call:g{}<tool_call|>", "", &[("g", json!({}))]);
    }

    #[test]
    fn calls_of_granite_3_and_gpt_oss_are_found() {
        check_calls(r#"<|tool_call|>[{"name": "f", "arguments": {"q": "x"}}]"#, "", &[("f", json!({"q": "x"}))]);
        check_calls(
            r#"<|start|><|channel|>commentary to=functions.f <|constrain|>json<|message|>{"q": "x"}"#,
            "",
            &[("f", json!({"q": "x"}))],
        );
        check_calls(
            r#"Wait.<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"n": 1}<|start|>assistant to=g<|channel|>commentary<|message|>{}"#,
            "Wait.",
            &[("f", json!({"n": 1})), ("g", json!({}))],
        );
    }

    #[test]
    fn a_bare_call_whose_arguments_do_not_fit_is_text() {
        for arguments in [r#"{"query": 1}"#, r#"{"query": "cats", "most": 0}"#, r#"{"query": "cats", "most": "2"}"#] {
            let call = format!(r#"{{"name": "search_memory", "arguments": {arguments}}}"#);
            check(&call, &call, &[]);
            let mut scanner = CallScanner::new(&[tool()], None);
            scanner.push(&format!("<tool_call>{CALL}</tool_call><tool_call>{call}</tool_call>"));
            assert_eq!(scanner.finish().0.len(), 2, "what stands between marks is meant: {call}");
        }
        let own = CallScanner::new(&[], Some(&tool()));
        assert!(own.tool("search_memory").is_some_and(|tool| tool.arguments.is_none()));
        let broken = Tool { parameters: json!({"type": "nothing"}), ..tool() };
        let mut scanner = CallScanner::new(&[broken], None);
        assert_eq!(scanner.push(r#"{"name": "search_memory", "arguments": {"query": 1}}"#), "");
        assert_eq!(scanner.finish().0.len(), 1, "nothing is known of its arguments");
    }

    #[test]
    fn a_call_may_hold_a_file() {
        let text = "x".repeat(100_000);
        let call = json!({"name": "search_memory", "arguments": {"query": text}});
        let mut scanner = CallScanner::new(&[tool()], None);
        assert_eq!(scanner.push(&format!("<tool_call>{call}</tool_call>")), "");
        assert_eq!(scanner.finish().0[0].arguments["query"], text);
        let mut scanner = CallScanner::new(&[tool()], None);
        assert_eq!(scanner.push(&call.to_string()), call.to_string(), "without marks it is an answer");
    }

    #[test]
    fn what_follows_a_call_is_not_waited_for() {
        check(&format!("<tool_call>{CALL}</tool_call>\nThe tool says that"), "", &[("search_memory", "cats")]);
        check(&format!("{CALL} and so on"), "", &[("search_memory", "cats")]);
    }

    #[test]
    fn other_text_is_shown_as_it_is() {
        for answer in [
            "Cats purr.",
            "[1, 2]",
            "{\"cats\": 2}",
            "{ no json",
            "{\"name\": \"Mia\", \"age\": 3}",
            "{\"name\": \"Mia\", \"arguments\": {}}",
            "a <tool_callus> is no call",
            "<tool_call>no json</tool_call>",
            "<tool_call>no json</tool_call> and more",
            "{\"name\": \"Mia\"} is a cat",
            "ends with <tool_c",
            "[TOOL",
            "The call is {\"name\": \"search_memory\", \"arguments\": {}}.",
        ] {
            check(answer, answer, &[]);
        }
    }

    #[test]
    fn a_text_that_only_begins_like_a_call_is_shown_before_it_ends() {
        let mut scanner = CallScanner::new(&[], None);
        assert_eq!(scanner.push("{\"na"), "");
        assert_eq!(scanner.push("tion\": 1"), "{\"nation\": 1");
        assert_eq!(scanner.push("}"), "}");
        let mut scanner = CallScanner::new(&[], None);
        let long = format!("<tool_call>{}", "x".repeat(LONGEST_TAGGED_CALL));
        assert!(scanner.push(&long) == long, "a call that never ends is let go");
        assert_eq!(scanner.push("more"), "more");
    }
}
