//! The tools that a request offers: functions, tools that take a text, and namespaces of both.
//!
//! A model knows only functions, with names of one part. So a tool of a namespace is offered under the namespace's name
//! and its own, and a tool that takes a text as a function with one argument; calls are reported under the client's
//! names.

use std::collections::HashMap;

use hone_protocol::{Tool, ToolCall};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::conversation::parameters_of;
use crate::error::ApiError;
use crate::tool_choice::check_number;

/// The argument of a function that stands for a tool that takes a text.
pub(super) const INPUT: &str = "input";

/// A tool as requests describe it.
#[derive(Debug, Deserialize)]
struct ToolSpec {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
    /// The format of the text that it takes.
    #[serde(default)]
    format: Option<TextFormat>,
}

#[derive(Debug, Deserialize)]
struct TextFormat {
    #[serde(default)]
    syntax: Option<String>,
    #[serde(default)]
    definition: Option<String>,
}

/// A tool as the client named it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClientsTool {
    name: String,
    namespace: Option<String>,
    /// Whether it takes a text instead of arguments.
    takes_text: bool,
}

/// The tools of a request, by the names that the model knows.
#[derive(Clone, Debug, Default)]
pub(super) struct OfferedTools(HashMap<String, ClientsTool>);

/// A call as the API's items describe it.
pub(super) struct ToldCall {
    /// The arguments as JSON, or the text that the tool takes.
    pub(super) input: String,
    pub(super) takes_text: bool,
    name: String,
    namespace: Option<String>,
}

/// Whether a tool can be shown to the model. Other tools are hosted by OpenAI, offered to any server, and unavailable
/// here.
pub(super) fn is_known(tool: &Value) -> bool {
    matches!(tool["type"].as_str(), Some("function" | "custom" | "namespace"))
}

/// The name by which the model knows a tool.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        None => name.to_owned(),
        Some(namespace) if namespace.ends_with('_') || name.starts_with('_') => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

impl OfferedTools {
    /// Reads the tools of a request. Unknown tools are skipped.
    ///
    /// # Errors
    /// When a tool is malformed, or two tools have the same full name.
    pub(super) fn read(tools: &[Value]) -> Result<(Vec<Tool>, OfferedTools), ApiError> {
        let (mut read, mut offered) = (Vec::new(), OfferedTools::default());
        check_number(tools.iter().map(|tool| 1 + tool["tools"].as_array().map_or(0, Vec::len)).sum())?;
        for tool in tools {
            match tool["type"].as_str() {
                Some("namespace") => offered.add_namespace(tool, &mut read)?,
                _ => offered.add(tool, None, &mut read)?,
            }
        }
        Ok((read, offered))
    }

    fn add_namespace(&mut self, namespace: &Value, read: &mut Vec<Tool>) -> Result<(), ApiError> {
        let ToolSpec { name, description, .. } = spec(namespace)?;
        let n_before = read.len();
        for tool in namespace["tools"].as_array().into_iter().flatten() {
            self.add(tool, Some(&name), read)?;
        }
        // The namespace's description is given once, with its first tool.
        if let (Some(first), Some(description)) = (read.get_mut(n_before), description) {
            first.description = format!("{description}\n\n{}", first.description).trim_end().to_owned();
        }
        Ok(())
    }

    fn add(&mut self, tool: &Value, namespace: Option<&str>, read: &mut Vec<Tool>) -> Result<(), ApiError> {
        let takes_text = match tool["type"].as_str() {
            Some("function") => false,
            Some("custom") => true,
            _ => return Ok(()),
        };
        let spec = spec(tool)?;
        let full = full_name(namespace, &spec.name);
        let told = ClientsTool { name: spec.name.clone(), namespace: namespace.map(str::to_owned), takes_text };
        let other = self.0.insert(full.clone(), told.clone()).filter(|other| *other != told);
        if other.is_some() {
            return Err(ApiError::bad_request(format!("two tools are called {full:?}")).about("tools"));
        }
        read.push(spec.tool(full, takes_text));
        Ok(())
    }

    /// A call as the client named its tools.
    pub(super) fn told(&self, call: &ToolCall) -> ToldCall {
        let ClientsTool { name, namespace, takes_text } = match self.0.get(&call.name) {
            Some(tool) => tool.clone(),
            None => ClientsTool { name: call.name.clone(), ..ClientsTool::default() },
        };
        let text = call.arguments[INPUT].as_str().filter(|_| takes_text);
        let input = text.map_or_else(|| call.arguments.to_string(), str::to_owned);
        ToldCall { input, takes_text, name, namespace }
    }
}

impl ToolSpec {
    fn tool(self, name: String, takes_text: bool) -> Tool {
        let mut description = self.description.unwrap_or_default();
        let grammar = self.format.and_then(|format| Some((format.syntax?, format.definition?)));
        if let Some((syntax, definition)) = grammar.filter(|_| takes_text) {
            description += &format!("\n\n{INPUT} follows this grammar ({syntax}):\n{definition}");
        }
        let parameters = match takes_text {
            true => json!({"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}),
            false => parameters_of(self.parameters),
        };
        Tool { name, description: description.trim_start().to_owned(), parameters }
    }
}

impl ToldCall {
    /// The item with this id, and with the input so far.
    pub(super) fn item(&self, id: &str, call_id: &str, input: &str, status: &str) -> Value {
        let (kind, key) = match self.takes_text {
            true => ("custom_tool_call", INPUT),
            false => ("function_call", "arguments"),
        };
        let mut item =
            json!({"id": id, "type": kind, "call_id": call_id, "name": self.name, key: input, "status": status});
        if let Some(namespace) = &self.namespace {
            item["namespace"] = json!(namespace);
        }
        item
    }

    /// The fields of the event with the whole input.
    pub(super) fn whole(&self) -> Value {
        match self.takes_text {
            true => json!({INPUT: self.input}),
            false => json!({"name": self.name, "arguments": self.input}),
        }
    }
}

fn spec(tool: &Value) -> Result<ToolSpec, ApiError> {
    Deserialize::deserialize(tool)
        .map_err(|error| ApiError::bad_request(format!("a tool is not valid: {error}")).about("tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_namespaces_have_the_names_of_both() {
        let mail = json!({"type": "namespace", "name": "mcp__mail", "description": "The user's mail.", "tools": [
            {"type": "function", "name": "search", "parameters": {"type": "object", "properties": {"q": {}}}},
            {"type": "custom", "name": "_filter", "description": "Filters.",
             "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}},
            {"type": "web_search"},
        ]});
        let search = json!({"type": "function", "name": "search", "description": "Anything."});
        let (tools, offered) = OfferedTools::read(&[mail.clone(), search.clone()]).unwrap();
        let told: Vec<(&str, &str)> = tools.iter().map(|tool| (&*tool.name, &*tool.description)).collect();
        let grammar = "Filters.\n\ninput follows this grammar (regex):\n[a-z]+";
        let expected =
            [("mcp__mail__search", "The user's mail."), ("mcp__mail_filter", grammar), ("search", "Anything.")];
        assert_eq!(told, expected);

        let call =
            |name: &str, arguments| offered.told(&ToolCall::new(name, arguments)).item("i", "c", "", "completed");
        let item = |kind: &str, name: &str, key: &str| json!({"id": "i", "type": kind, "call_id": "c", "name": name, key: "", "status": "completed"});
        let mut searched = item("function_call", "search", "arguments");
        assert_eq!(call("search", json!({})), searched);
        searched["namespace"] = json!("mcp__mail");
        assert_eq!(call("mcp__mail__search", json!({})), searched);
        let mut filtered = item("custom_tool_call", "_filter", "input");
        filtered["namespace"] = json!("mcp__mail");
        assert_eq!(call("mcp__mail_filter", json!({"input": "a"})), filtered);
        assert_eq!(offered.told(&ToolCall::new("mcp__mail_filter", json!({"input": "a"}))).input, "a");

        let same = json!({"type": "function", "name": "mcp__mail__search"});
        let error = OfferedTools::read(&[mail, same]).unwrap_err();
        assert!(error.message.contains("two tools are called \"mcp__mail__search\""), "{}", error.message);
        assert!(OfferedTools::read(&[search.clone(), search]).is_ok());
        assert!(OfferedTools::read(&[json!({"type": "namespace", "tools": []})]).is_err());
        let many = vec![json!({"type": "function", "name": "f"}); 1000];
        let error = OfferedTools::read(&[json!({"type": "namespace", "name": "n", "tools": many})]).unwrap_err();
        assert!(error.message.contains("1001 tools"), "{}", error.message);
    }
}
