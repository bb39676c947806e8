//! Parses calls in the forms that models write between their marks.

use hone_protocol::{ARGUMENTS_MARK, CALL_ID_MARK, CallBody, ToolCall};
use serde_json::{Map, Value};

use super::literals::Reader;
use super::{KnownTool, calls_of};

/// The calls in a text between marks; empty if any part of it is not a call.
pub(super) fn calls_in(body: &str, form: CallBody, tools: &[KnownTool]) -> Vec<ToolCall> {
    let body = body.trim();
    match form {
        CallBody::JsonOrTags if body.starts_with(FUNCTION) => tagged(body, tools),
        CallBody::JsonOrTags => json(body),
        CallBody::NameAndJson if body.starts_with(['[', '{']) => first_json(body).map(calls_of).unwrap_or_default(),
        CallBody::NameAndJson => name_and_json(body).into_iter().collect(),
        CallBody::Python => python(body).unwrap_or_else(|| json(body)),
        CallBody::Braces => braces(body).unwrap_or_default(),
        CallBody::Message => message(body).into_iter().collect(),
    }
}

fn json(body: &str) -> Vec<ToolCall> {
    serde_json::from_str(body).map(calls_of).unwrap_or_default()
}

/// The JSON value at the beginning of a text.
fn first_json(text: &str) -> Option<Value> {
    serde_json::Deserializer::from_str(text).into_iter().next()?.ok()
}

/// A call of a tool whose arguments are the JSON object at the beginning of `json`.
fn call(name: &str, json: &str) -> Option<ToolCall> {
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    let arguments = first_json(json).filter(Value::is_object)?;
    is_name.then(|| ToolCall::new(name, arguments))
}

/// `f[ARGS]{"a": 1}`, perhaps with the call's id before the arguments.
fn name_and_json(body: &str) -> Option<ToolCall> {
    let (head, json) = body.split_at(body.find('{')?);
    let name = [ARGUMENTS_MARK, CALL_ID_MARK].into_iter().fold(head, |head, mark| {
        let before = head.split_once(mark).map(|(before, _)| before);
        before.unwrap_or(head)
    });
    call(name.trim(), json)
}

/// `… to=functions.f … <|message|>{"a": 1}`
fn message(body: &str) -> Option<ToolCall> {
    let (header, json) = body.split_once("<|message|>")?;
    let (_, recipient) = header.split_once("to=")?;
    let end = recipient.find(|letter: char| letter.is_whitespace() || letter == '<').unwrap_or(recipient.len());
    let name = &recipient[..end];
    call(name.strip_prefix("functions.").unwrap_or(name), json)
}

const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";

/// `<function=f><parameter=a>1</parameter></function>`, with line breaks within the tags.
fn tagged(body: &str, tools: &[KnownTool]) -> Vec<ToolCall> {
    let functions = body.split(FUNCTION).skip(1);
    functions.map(|function| tagged_call(function, tools)).collect::<Option<_>>().unwrap_or_default()
}

fn tagged_call(function: &str, tools: &[KnownTool]) -> Option<ToolCall> {
    let (name, rest) = function.split_once('>')?;
    let name = name.trim();
    let tool = tools.iter().find(|tool| tool.name == name);
    let rest = rest.split_once("</function>").map_or(rest, |(parameters, _)| parameters);
    let mut arguments = Map::new();
    for parameter in rest.split(PARAMETER).skip(1) {
        let (key, text) = parameter.split_once('>')?;
        let text = text.rsplit_once("</parameter>").map_or(text, |(text, _)| text);
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let is_text = tool.is_some_and(|tool| tool.takes_text(key));
        let value = Some(text).filter(|_| !is_text).and_then(|text| serde_json::from_str(text).ok());
        arguments.insert(key.to_owned(), value.unwrap_or_else(|| Value::from(text)));
    }
    Some(ToolCall::new(name, Value::Object(arguments)))
}

/// `[f(a=1), g()]`, or one call per line.
fn python(body: &str) -> Option<Vec<ToolCall>> {
    let mut reader = Reader::new(body);
    let is_list = reader.take("[");
    let mut calls = Vec::new();
    while !(reader.is_at_end() || is_list && reader.take("]")) {
        let name = reader.word()?.to_owned();
        let arguments = Value::Object(reader.pairs("(", "=", ")")?);
        calls.push(ToolCall::new(name, arguments));
        reader.take(",");
    }
    reader.is_at_end().then_some(calls)
}

/// `call:f{a:1}`
fn braces(body: &str) -> Option<Vec<ToolCall>> {
    let mut reader = Reader::new(body);
    let mut calls = Vec::new();
    while !reader.is_at_end() {
        reader.take("call:").then_some(())?;
        let name = reader.word()?.to_owned();
        let arguments = Value::Object(reader.pairs("{", ":", "}")?);
        calls.push(ToolCall::new(name, arguments));
    }
    Some(calls)
}
