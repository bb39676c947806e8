//! Finds tool calls in a model's output while it streams.
//!
//! Models write calls in the forms that they were trained on: `<tool_call>{…}</tool_call>` (Hermes, Qwen), or a bare
//! JSON object or array as the whole answer (Llama 3, and Mistral, sometimes after `[TOOL_CALLS]`). Text that may be a
//! call is held back until it is certain; everything else is passed on at once. A call whose arguments do not fit the
//! tool's schema is text, too.

use hone_protocol::{Tool, ToolCall};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::thinking::overlap;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const MISTRAL: &str = "[TOOL_CALLS]";

/// The keys that a bare call may begin with.
const FIRST_KEYS: [&str; 6] = ["name", "arguments", "parameters", "type", "function", "id"];

/// Text longer than this, in bytes, is not a call.
const LONGEST_CALL: usize = 16 * 1024;

/// Scans one stream of text for calls.
#[derive(Debug)]
pub(crate) struct CallScanner {
    /// The tools that may be called without a tag around the call.
    known: Vec<KnownTool>,
    form: Form,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Only white space so far.
    Undecided,
    /// Text that may still contain a tagged call.
    Text,
    /// The held text begins with the tag.
    Tagged,
    /// The held text may be bare JSON.
    Bare,
    /// There is no call.
    Refused,
}

/// A tool that may be called.
#[derive(Debug)]
struct KnownTool {
    name: String,
    /// Its schema; `None` if anything fits, or the schema is not valid.
    arguments: Option<Validator>,
}

impl KnownTool {
    /// A tool whose calls are checked against its schema. Patterns take linear time, and nothing is looked up elsewhere.
    fn checked(tool: &Tool) -> KnownTool {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let arguments = options.build(&tool.parameters);
        let arguments =
            arguments.inspect_err(|error| tracing::debug!(tool = tool.name, "its schema is not valid: {error}"));
        KnownTool { name: tool.name.clone(), arguments: arguments.ok() }
    }

    fn fits(&self, call: &ToolCall) -> bool {
        self.arguments.as_ref().is_none_or(|schema| schema.is_valid(&call.arguments))
    }
}

impl CallScanner {
    /// A scanner for calls of the client's tools, and of `own`, which tells the model itself what is wrong with a call.
    pub(crate) fn new(tools: &[Tool], own: Option<&Tool>) -> Self {
        let own = own.map(|tool| KnownTool { name: tool.name.clone(), arguments: None });
        let known = tools.iter().map(KnownTool::checked).chain(own).collect();
        CallScanner { known, form: Form::Undecided, held: String::new() }
    }

    /// Adds text, and returns the text that is certain not to belong to a call.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.form == Form::Undecided || self.form == Form::Bare {
            self.form = self.first_form();
        }
        let mut certain = if self.form == Form::Text { self.release_text() } else { String::new() };
        let is_no_call = self.is_followed() && self.calls().is_empty();
        if self.form == Form::Refused || is_no_call || self.held.len() > LONGEST_CALL {
            self.form = Form::Refused;
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
        let calls = match self.form {
            Form::Tagged => tagged_calls(&self.held),
            Form::Bare => self.bare_calls(),
            Form::Undecided | Form::Text | Form::Refused => Vec::new(),
        };
        let fits = |call: &ToolCall| self.tool(&call.name).is_none_or(|tool| tool.fits(call));
        if calls.iter().all(fits) { calls } else { Vec::new() }
    }

    /// The calls at the beginning of the text, if all of them name a known tool: JSON that the user asked for is not a
    /// call.
    fn bare_calls(&self) -> Vec<ToolCall> {
        let mut values = serde_json::Deserializer::from_str(bare(&self.held)).into_iter::<Value>();
        let calls = values.next().and_then(Result::ok).map(calls_of).unwrap_or_default();
        if calls.iter().all(|call| self.tool(&call.name).is_some()) { calls } else { Vec::new() }
    }

    fn tool(&self, name: &str) -> Option<&KnownTool> {
        self.known.iter().find(|tool| tool.name == name)
    }

    /// Whether other text follows the possible calls.
    fn is_followed(&self) -> bool {
        match self.form {
            Form::Tagged => self.held.rsplit_once(CLOSE).is_some_and(|(_, rest)| {
                let rest = rest.trim_start();
                !OPEN.starts_with(rest) && !rest.starts_with(OPEN)
            }),
            Form::Bare => {
                let json = bare(&self.held);
                let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
                matches!(values.next(), Some(Ok(_))) && !json[values.byte_offset()..].trim().is_empty()
            }
            Form::Undecided | Form::Text | Form::Refused => false,
        }
    }

    fn first_form(&self) -> Form {
        let text = self.held.trim_start();
        if text.is_empty() {
            Form::Undecided
        } else if may_be_bare(text) {
            Form::Bare
        } else {
            Form::Text
        }
    }

    fn release_text(&mut self) -> String {
        let certain = match self.held.find(OPEN) {
            Some(start) => {
                self.form = Form::Tagged;
                start
            }
            None => self.held.len() - overlap(&self.held, OPEN),
        };
        self.held.drain(..certain).collect()
    }
}

/// Whether a text may be, or may become, a bare call.
fn may_be_bare(text: &str) -> bool {
    if MISTRAL.starts_with(text) {
        return true;
    }
    let text = bare(text);
    let text = text.strip_prefix('[').unwrap_or(text).trim_start();
    let Some(object) = text.strip_prefix('{') else { return text.is_empty() };
    let object = object.trim_start();
    let Some(key) = object.strip_prefix('"') else { return object.is_empty() };
    FIRST_KEYS.iter().any(|known| match key.split_once('"') {
        Some((key, _)) => key == *known,
        None => known.starts_with(key),
    })
}

fn bare(text: &str) -> &str {
    let text = text.trim_start();
    text.strip_prefix(MISTRAL).unwrap_or(text).trim_start()
}

fn tagged_calls(text: &str) -> Vec<ToolCall> {
    let parts = text.split(OPEN).skip(1);
    // The end of the turn can replace the closing tag of the last call.
    let bodies = parts.map(|part| part.split_once(CLOSE).map_or(part, |(body, _)| body));
    bodies.filter_map(|body| serde_json::from_str(body).ok()).flat_map(calls_of).collect()
}

/// The calls in a JSON value; empty if any part of it is something else.
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
    arguments.is_object().then_some(ToolCall { name, arguments })
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

    #[test]
    fn a_call_whose_arguments_do_not_fit_is_text() {
        for arguments in [r#"{"query": 1}"#, r#"{"query": "cats", "most": 0}"#, r#"{"query": "cats", "most": "2"}"#] {
            let call = format!(r#"{{"name": "search_memory", "arguments": {arguments}}}"#);
            check(&call, &call, &[]);
            let tagged = format!("<tool_call>{call}</tool_call>");
            check(&tagged, &tagged, &[]);
            let several = format!("<tool_call>{CALL}</tool_call>{tagged}");
            check(&several, &several, &[]);
        }
        let own = CallScanner::new(&[], Some(&tool()));
        assert!(own.tool("search_memory").is_some_and(|tool| tool.arguments.is_none()));
        let broken = Tool { parameters: json!({"type": "nothing"}), ..tool() };
        let mut scanner = CallScanner::new(&[broken], None);
        assert_eq!(scanner.push(r#"{"name": "search_memory", "arguments": {"query": 1}}"#), "");
        assert_eq!(scanner.finish().0.len(), 1, "nothing is known of its arguments");
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
        let long = format!("<tool_call>{}", "x".repeat(LONGEST_CALL));
        assert!(scanner.push(&long) == long, "a call that never ends is let go");
        assert_eq!(scanner.push("more"), "more");
    }
}
