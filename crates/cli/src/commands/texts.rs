//! Texts from lines of JSON.

use serde_json::{Map, Value};

use crate::failure::usage;

/// The key of an object's text.
const TEXT: &str = "text";

/// A text, with the other keys of its object.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) others: Map<String, Value>,
}

impl Text {
    pub(super) fn plain(text: String) -> Text {
        Text { text, others: Map::new() }
    }

    /// A line of JSON: a string, or an object with a text.
    pub(super) fn of_json(source: &str, number: usize, line: &str) -> anyhow::Result<Text> {
        let wrong =
            || usage(format!("line {number} of {source} is neither a JSON string nor an object with the key {TEXT:?}"));
        match serde_json::from_str(line) {
            Ok(Value::String(text)) => Ok(Text::plain(text)),
            Ok(Value::Object(mut others)) => match others.remove(TEXT) {
                Some(Value::String(text)) => Ok(Text { text, others }),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}
