//! A request's choice of the tools that the model may or must call.

use hone_protocol::{Tool, call_schema};
use serde_json::Value;

use crate::error::ApiError;

/// Maximum number of tools in a request, and of values in their parameters' schemas together.
const MOST_TOOLS: usize = 512;
const MOST_VALUES: usize = 50_000;

/// Whether the model calls a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model calls none.
    None,
    /// The model calls one of the tools.
    Required,
    /// The model calls the tool with this name.
    Named(String),
    /// The model may call only the tools with these names, or must call one of them.
    Allowed { names: Vec<String>, is_required: bool },
}

impl ToolChoice {
    /// The tools shown to the model, and the schema of a call if it must call one.
    ///
    /// # Errors
    /// When the model must call a tool that does not exist, or there are too many tools.
    pub(crate) fn of(self, tools: Vec<Tool>) -> Result<(Vec<Tool>, Option<Value>), ApiError> {
        check_sizes(&tools)?;
        match self {
            ToolChoice::None => Ok((Vec::new(), None)),
            ToolChoice::Auto => Ok((tools, None)),
            ToolChoice::Required if tools.is_empty() => {
                Err(ApiError::bad_request("tool_choice demands a call, and there are no tools").about("tool_choice"))
            }
            ToolChoice::Required => {
                let schema = call_schema(&tools);
                Ok((tools, Some(schema)))
            }
            ToolChoice::Allowed { names, is_required } => {
                let allowed = tools.into_iter().filter(|tool| names.contains(&tool.name)).collect();
                if is_required { ToolChoice::Required.of(allowed) } else { Ok((allowed, None)) }
            }
            ToolChoice::Named(name) => {
                let named: Vec<Tool> = tools.iter().filter(|tool| tool.name == name).cloned().collect();
                if named.is_empty() {
                    let reason = format!("tool_choice names {name:?}, and there is no such tool");
                    return Err(ApiError::bad_request(reason).about("tool_choice"));
                }
                Ok((tools, Some(call_schema(&named))))
            }
        }
    }
}

/// Checks that there are not too many tools.
///
/// # Errors
/// When there are too many; the message names the limit.
pub(crate) fn check_number(n_tools: usize) -> Result<(), ApiError> {
    match n_tools {
        0..=MOST_TOOLS => Ok(()),
        _ => {
            let reason = format!("there are {n_tools} tools: at most {MOST_TOOLS} are possible");
            Err(ApiError::bad_request(reason).about("tools"))
        }
    }
}

/// Checks that a prompt can name these tools at a bounded cost.
///
/// # Errors
/// When a limit is exceeded; the message names it.
pub(crate) fn check_sizes(tools: &[Tool]) -> Result<(), ApiError> {
    check_number(tools.len())?;
    let mut left: Vec<&Value> = tools.iter().map(|tool| &tool.parameters).collect();
    let mut n_values = 0;
    while let Some(value) = left.pop() {
        n_values += 1;
        match value {
            Value::Object(fields) => left.extend(fields.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
        if n_values > MOST_VALUES {
            let reason = format!("the parameters of the tools have more than {MOST_VALUES} values together");
            return Err(ApiError::bad_request(reason).about("tools"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_allowed_tools_are_shown() {
        let tool = |name: &str| Tool { name: name.to_owned(), description: String::new(), parameters: json!({}) };
        let choice = |is_required| ToolChoice::Allowed { names: vec!["b".to_owned()], is_required };
        let (shown, forced) = choice(false).of(vec![tool("a"), tool("b")]).unwrap();
        assert_eq!((shown, forced), (vec![tool("b")], None));
        assert!(choice(true).of(vec![tool("a"), tool("b")]).unwrap().1.is_some());
        assert!(choice(true).of(vec![tool("a")]).is_err());
    }
}
