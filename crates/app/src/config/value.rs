//! Values, validated against the type of a key's default.

use toml::Value;

/// `value` as the type of `default`; an integer is accepted as a float too.
///
/// # Errors
/// The actual and the expected type, to complete a sentence that begins with "KEY is".
pub(super) fn with_type_of(default: &Value, value: Value) -> Result<Value, String> {
    match (default, value) {
        (Value::Float(_), Value::Integer(integer)) => Ok(Value::Float(integer as f64)),
        (default, value) if default.same_type(&value) => Ok(value),
        (default, value) => Err(format!("the {} {value}, expected {}", value.type_str(), expected(default))),
    }
}

/// Parses `text` as the type of `default`. Text that cannot be parsed stays a string, which [`with_type_of`] then
/// refuses.
pub(super) fn from_text(default: &Value, text: &str) -> Value {
    let as_string = || Value::String(text.to_string());
    match default {
        Value::Integer(_) => text.trim().parse().map_or_else(|_| as_string(), Value::Integer),
        Value::Float(_) => text.trim().parse().map_or_else(|_| as_string(), Value::Float),
        Value::Boolean(_) => text.trim().parse().map_or_else(|_| as_string(), Value::Boolean),
        Value::Array(_) => list_from_text(text),
        _ => as_string(),
    }
}

/// A TOML array, or else a list with the text as its only element.
fn list_from_text(text: &str) -> Value {
    let array = text.trim_start().starts_with('[').then(|| text.parse::<Value>().ok()).flatten();
    array.unwrap_or_else(|| Value::Array(vec![Value::String(text.to_string())]))
}

fn expected(default: &Value) -> &'static str {
    match default {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
        Value::Datetime(_) => "a date",
    }
}
