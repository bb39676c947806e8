//! What a request says about the tools that the model may call, or must.

use hone_protocol::Tool;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// Whether the model calls a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// It decides by itself.
    Auto,
    /// It calls none.
    None,
    /// It calls one of them.
    Required,
    /// It calls the tool of this name.
    Named(String),
}

impl ToolChoice {
    /// The tools that the model is told of, and the schema of a call if it must call one.
    ///
    /// # Errors
    /// When it must call a tool that does not exist.
    pub(crate) fn of(self, tools: Vec<Tool>) -> Result<(Vec<Tool>, Option<Value>), ApiError> {
        match self {
            ToolChoice::None => Ok((Vec::new(), None)),
            ToolChoice::Auto => Ok((tools, None)),
            ToolChoice::Required if tools.is_empty() => {
                Err(ApiError::bad_request("tool_choice demands a call, and there are no tools"))
            }
            ToolChoice::Required => {
                let schema = call_schema(&tools);
                Ok((tools, Some(schema)))
            }
            ToolChoice::Named(name) => {
                let named: Vec<Tool> = tools.iter().filter(|tool| tool.name == name).cloned().collect();
                if named.is_empty() {
                    let reason = format!("tool_choice names {name:?}, and there is no such tool");
                    return Err(ApiError::bad_request(reason));
                }
                Ok((tools, Some(call_schema(&named))))
            }
        }
    }
}

/// The schema of a call of one of these tools.
fn call_schema(tools: &[Tool]) -> Value {
    let call = |tool: &Tool| {
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": closed(&tool.parameters)},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    };
    match tools {
        [one] => call(one),
        several => json!({"anyOf": several.iter().map(call).collect::<Vec<_>>()}),
    }
}

/// The schema of an object without further keys, so that its answer ends.
fn closed(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut closed: Map<String, Value> = fields.clone();
    closed.entry("additionalProperties").or_insert(Value::Bool(false));
    Value::Object(closed)
}
