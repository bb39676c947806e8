//! Runs a chat template as Hugging Face's `apply_chat_template` does, within limits.
//!
//! Instructions, depth and output are limited, and so are the filters that make long texts. Memory, and the depth of
//! parsed and printed values, are not, since minijinja has no limits for them: an untrusted template runs in a [process
//! of its own](super::worker), where the system limits them.

use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};
use time::OffsetDateTime;
use time::format_description::parse_strftime_borrowed;

use super::messages::{Answer, Failure, TemplateRequest};
use super::source::TemplateSource;
use super::{conversation, json, python};

const NAME: &str = "chat";
/// The most instructions of one rendering; a long conversation takes a few thousand.
const MAX_INSTRUCTIONS: u64 = 2_000_000;
/// Nested calls and blocks.
const MAX_DEPTH: usize = 100;
/// Bytes that a template may add to a conversation, including repetitions of its text.
const MAX_ADDED_BYTES: usize = 1 << 20;
const MAX_REPETITIONS: usize = 4;

/// A parsed template.
#[derive(Debug)]
pub(super) struct Engine {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl Engine {
    pub(super) fn new(source: &TemplateSource) -> Result<Self, Failure> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failure)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment.set_recursion_limit(MAX_DEPTH);
        python::add_to(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", json::to_json);
        environment.add_test("iterable", is_iterable);
        let text = without_generation_marks(&source.text);
        let text = python::with_percent_as_filter(&text);
        let text = python::with_lists_as_values(&text).into_owned();
        environment.add_template_owned(NAME, text).map_err(failure)?;
        Ok(Engine { environment, bos: source.bos.clone(), eos: source.eos.clone() })
    }

    /// Answers a request to a parsed template.
    pub(super) fn answer(&self, request: &TemplateRequest<'_>) -> Answer {
        match request {
            TemplateRequest::Render { .. } => self.render(request).into(),
            TemplateRequest::Load { .. } | TemplateRequest::Check => Answer::Text(String::new()),
        }
    }

    /// The text of a conversation; empty for other requests.
    ///
    /// The variable for reasoning has a different name in each family: `enable_thinking` in Qwen3, SmolLM3 and GLM,
    /// `thinking` in DeepSeek-V3.1 and Granite. It stays undefined unless requested. SmolLM3 calls its tools
    /// `xml_tools`, and Firefunction has them as a text, `functions`.
    fn render(&self, request: &TemplateRequest<'_>) -> Result<String, Failure> {
        let TemplateRequest::Render { messages, tools, thinking, calls, opens_answer } = request else {
            return Ok(String::new());
        };
        let template = self.environment.get_template(NAME).map_err(failure)?;
        let is_on = thinking.is_on.map_or(Value::UNDEFINED, Value::from);
        let told = conversation::tools(tools);
        let functions = if tools.is_empty() { String::new() } else { json::written(&told) };
        let variables = context! {
            messages => conversation::messages(messages, *calls),
            add_generation_prompt => *opens_answer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => told.clone(),
            xml_tools => told,
            functions,
            datetime => strftime_now("%b %d %Y %H:%M:%S GMT").unwrap_or_default(),
            documents => (),
            enable_thinking => is_on.clone(),
            thinking => is_on,
            reasoning_effort => thinking.effort.map_or(Value::UNDEFINED, |effort| Value::from(effort.as_str())),
        };
        let n_bytes = serde_json::to_string(&(messages, tools)).map_or(0, |json| json.len());
        let mut output = Bounded { text: Vec::new(), limit: MAX_ADDED_BYTES + MAX_REPETITIONS * n_bytes };
        template.render_captured_to(variables, &mut output).map_err(failure)?;
        String::from_utf8(output.text).map_err(|error| Failure { line: None, reason: error.to_string() })
    }
}

/// Collects a template's output up to a limit.
struct Bounded {
    text: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(io::Error::other(format!("it writes more than {} bytes", self.limit)));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a name occurs in a template as a separate word.
pub(super) fn mentions(source: &str, name: &str) -> bool {
    let is_part_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    source.match_indices(name).any(|(start, _)| {
        let (before, after) = (&source[..start], &source[start + name.len()..]);
        !before.ends_with(is_part_of_word) && !after.starts_with(is_part_of_word)
    })
}

fn failure(error: Error) -> Failure {
    use std::error::Error as _;
    let cause = error.source().map(ToString::to_string);
    let reason = match (error.kind(), error.detail(), cause) {
        (ErrorKind::OutOfFuel, ..) => format!("it takes more than {MAX_INSTRUCTIONS} steps: it may loop without end"),
        (ErrorKind::WriteFailure, _, Some(cause)) => cause,
        (kind, None, _) => kind.to_string(),
        (_, Some(detail), None) => detail.to_owned(),
        (_, Some(detail), Some(cause)) => format!("{detail}: {cause}"),
    };
    Failure { line: error.line(), reason }
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The time in UTC, in a format of C's `strftime`.
fn strftime_now(format: &str) -> Result<String, Error> {
    let invalid = |reason: String| Error::new(ErrorKind::InvalidOperation, format!("{format:?}: {reason}"));
    let items = parse_strftime_borrowed(format).map_err(|error| invalid(error.to_string()))?;
    OffsetDateTime::now_utc().format(&items).map_err(|error| invalid(error.to_string()))
}

/// As in Jinja, `none` is not iterable; to minijinja it is an empty list.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && minijinja::tests::is_iterable(value)
}

/// The `{% generation %}` block marks text for training; here its marks are removed.
fn without_generation_marks(source: &str) -> String {
    let mut source = source.to_owned();
    for open in ["{%", "{%-"] {
        for close in ["%}", "-%}"] {
            source = source
                .replace(&format!("{open} generation {close}"), &format!("{open} if true {close}"))
                .replace(&format!("{open} endgeneration {close}"), &format!("{open} endif {close}"));
        }
    }
    source
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use hone_protocol::{Message, Role, ThinkingOptions};

    use super::super::messages::CallStyle;
    use super::*;

    fn render(source: &str) -> Result<String, Failure> {
        let messages = [Message::new(Role::User, "a <b> 'c' \\u003c")];
        let source = TemplateSource { text: source.into(), bos: "<s>".into(), eos: "</s>".into() };
        Engine::new(&source)?.render(&TemplateRequest::Render {
            messages: Cow::Borrowed(&messages),
            tools: Cow::Borrowed(&[]),
            thinking: ThinkingOptions::default(),
            calls: CallStyle::default(),
            opens_answer: true,
        })
    }

    fn check(source: &str, expected: &str) {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }

    fn check_refused(source: &str, line: usize, part: &str) {
        let error = render(source).unwrap_err();
        assert_eq!(error.line, Some(line), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn templates_are_read_as_hugging_face_reads_them() {
        check("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}", "<s></s>True");
        check("  {% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny");
        check(
            "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        );
        check("{{ 'a b '.strip().split(' ')[-1].upper() }}", "B");
        check("{{ tools is iterable }}{{ messages is iterable }}{{ 'x' is iterable }}", "FalseTrueTrue");
        check("{{ tools is none }}{{ enable_thinking is defined }}", "TrueFalse");
        check("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{% endfor %}!", "!");
        check("{% generation %}x{% endgeneration %}", "x");
        check("{{ strftime_now('%Y') | length }}", "4");
        check("{{ strftime_now('%d %b %Y, %H:%M:%S') | length }}", "21");
        check("{% if strftime_now('%-d').startswith('0') %}padded{% endif %}", "");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        check("{{ messages[0].content | tojson }}", r#""a <b> 'c' \\u003c""#);
        check("{{ {'a': [1, true, none]} | tojson }}", r#"{"a": [1, true, null]}"#);
        check("{{ {'a': 1} | tojson(indent=2) }}", "{\n  \"a\": 1\n}");
        check("{{ {'b': [], 'a': {}} | tojson(sort_keys=true, indent=1) }}", "{\n \"a\": {},\n \"b\": []\n}");
        check("{{ {'a': [1, 2]} | tojson(separators=(',', ':')) }}", r#"{"a":[1,2]}"#);
        check(
            "{{ 'é🔑' | tojson(ensure_ascii=True) }}{{ 'é' | tojson(ensure_ascii=False, indent=None) }}",
            r#""\u00e9\ud83d\udd11""é""#,
        );
        check("{{ {'a': 1.0, 'b': 'x\n'} | tojson }}", r#"{"a": 1.0, "b": "x\n"}"#);
        check_refused("{{ 1 | tojson(indent=257) }}", 1, "an indentation of 257");
        check_refused("{{ 1 | tojson(separators=1) }}", 1, "");
    }

    #[test]
    fn tools_are_a_word_of_their_own() {
        assert!(mentions("{% if tools %}", "tools") && mentions("builtin_tools tools", "tools"));
        assert!(!mentions("{{ builtin_tools }}{{ toolset }}{{ tools_2 }}", "tools"));
    }

    #[test]
    fn a_template_that_fails_says_where() {
        check_refused("\n{{ raise_exception('no system role') }}", 2, "no system role");
        check_refused("\n\n{% if %}", 3, "");
        check_refused("{{ nothing.at.all }}", 1, "undefined");
        check_refused("{% include 'x' %}", 1, "x");
    }

    #[test]
    fn a_template_cannot_run_or_write_or_recurse_without_end() {
        let nested = "\n{% for a in range(9999) %}{% for b in range(9999) %}{{ '' }}{% endfor %}{% endfor %}";
        check_refused(nested, 2, "loop without end");
        let long = render("{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}").unwrap_err();
        assert!(long.to_string().contains("writes more than"), "{long}");
        check_refused("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", 1, "recursion");
    }
}
