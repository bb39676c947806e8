//! Request bodies, parsed as the types that their handlers take.

use axum::body::Bytes;
use hone_files::without_mark;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::ApiError;
use crate::threads::BODIES;

/// Longer bodies are not searched for the wrong field: the search parses the body once for each field.
const LONGEST_SEARCHED: usize = 1 << 20;
/// Maximum number of fields checked individually.
const MOST_SEARCHED: usize = 64;

/// The longest body that is parsed in place.
const SHORT: usize = 64 << 10;

/// Parses a request body. A byte-order mark is skipped, half of a surrogate pair becomes U+FFFD, and a whole number may
/// be written as `8.0`.
///
/// # Errors
/// When the body is not JSON, or not of this type; the error says where, and names the field.
pub(crate) async fn parsed<T: DeserializeOwned + Send + 'static>(body: Bytes) -> Result<T, ApiError> {
    match body.len() {
        ..=SHORT => read(&body),
        _ => BODIES.computed(move || read(&body)).await?,
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = without_mark(body);
    serde_json::from_slice(body).or_else(|_| {
        let whole = with_whole_surrogates(body);
        serde_json::from_slice(&whole).or_else(|_| parsed_leniently(&whole))
    })
}

/// Parses a body whose whole numbers may be written as `8.0`.
fn parsed_leniently<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let read = |request: Value| T::deserialize(with_whole_numbers(request));
    if let Ok(Ok(request)) = serde_json::from_slice(body).map(read) {
        return Ok(request);
    }
    serde_json::from_slice(body).map_err(|error| match serde_json::from_slice(body) {
        Err(error) => ApiError::bad_request(format!("the body is not JSON: {error}")),
        Ok(request) => {
            let invalid = ApiError::bad_request(format!("the body is not a valid request: {error}"));
            let is_searched = body.len() <= LONGEST_SEARCHED;
            let field = if is_searched { wrong_field::<T>(request) } else { None };
            field.into_iter().fold(invalid, ApiError::about)
        }
    })
}

/// The JSON with halves of surrogate pairs, which some programs produce when they cut a text, replaced by U+FFFD.
fn with_whole_surrogates(json: &[u8]) -> Vec<u8> {
    let mut json = json.to_vec();
    let mut at = 0;
    while let Some(escape) = json[at..].iter().position(|byte| *byte == b'\\').map(|place| at + place) {
        let unit = |at: usize| {
            let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        at = match (unit(escape), unit(escape + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => escape + 12,
            (Some(0xd800..=0xdfff), _) => {
                json[escape..escape + 6].copy_from_slice(b"\\ufffd");
                escape + 6
            }
            _ => json.len().min(escape + 2),
        };
    }
    json
}

/// The value with whole numbers as integers.
fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < 9e15);
            whole.map_or(Value::Number(number), |value| Value::from(value as i64))
        }
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, with_whole_numbers(value))).collect(),
        other => other,
    }
}

/// Reads a field in which null stands for its default, as if it were omitted.
///
/// # Errors
/// When the field is neither null nor of its type.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// How likely a field is to be the wrong one, likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suspicion {
    /// Without it the request is valid.
    Sole,
    /// Without it, a later part of the request is wrong.
    Earlier,
    /// Required field.
    Needed,
}

/// The field that makes a request invalid: one without which the error changes, or the missing one.
fn wrong_field<T: DeserializeOwned>(mut request: Value) -> Option<String> {
    let complaint = complaint_about::<T>(&request)?;
    let fields: Vec<String> = request.as_object()?.keys().take(MOST_SEARCHED).cloned().collect();
    let mut suspects = Vec::new();
    for field in fields {
        let value = request.as_object_mut()?.remove(&field)?;
        let suspicion = match complaint_about::<T>(&request) {
            None => Some(Suspicion::Sole),
            Some(other) if other == complaint => None,
            Some(other) if missing(&other) == Some(&field) => Some(Suspicion::Needed),
            Some(_) => Some(Suspicion::Earlier),
        };
        request.as_object_mut()?.insert(field.clone(), value);
        suspects.extend(suspicion.map(|suspicion| (suspicion, field)));
    }
    let wrong = suspects.into_iter().min().map(|(_, field)| field);
    wrong.or_else(|| missing(&complaint).map(str::to_owned))
}

fn complaint_about<T: DeserializeOwned>(request: &Value) -> Option<String> {
    T::deserialize(request).err().map(|error| error.to_string())
}

/// The missing field, according to serde.
fn missing(complaint: &str) -> Option<&str> {
    complaint.strip_prefix("missing field `")?.split('`').next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Request {
        turns: Vec<String>,
        #[serde(default, deserialize_with = "or_default")]
        name: String,
        #[serde(flatten)]
        common: Common,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Common {
        #[serde(default)]
        heat: Option<f32>,
        #[serde(default, deserialize_with = "or_default")]
        stream: bool,
    }

    #[test]
    fn the_field_that_is_wrong_is_found() {
        let check = |request: Value, expected: Option<&str>| {
            assert_eq!(wrong_field::<Request>(request.clone()).as_deref(), expected, "{request}");
        };
        check(json!({"turns": ["a"], "name": null, "stream": null, "other": [1]}), None);
        check(json!({"turns": ["a"], "heat": "hot"}), Some("heat"));
        check(json!({"turns": ["a"], "stream": 1, "other": {}}), Some("stream"));
        check(json!({"turns": "a", "heat": 1}), Some("turns"));
        check(json!({"turns": [1], "heat": "hot"}), Some("turns"));
        check(json!({"heat": 1}), Some("turns"));
        check(json!({"turns": [], "name": {}}), Some("name"));
        check(json!([]), None);
    }

    #[test]
    fn untidy_json_is_read_all_the_same() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Untidy {
            text: String,
            n: usize,
        }
        let check = |body: &str, text: &str| {
            let read: Untidy = read(body.as_bytes()).unwrap();
            assert_eq!(read, Untidy { text: text.to_owned(), n: 8 }, "{body}");
        };
        check("\u{feff}{\"text\": \"a\", \"n\": 8}", "a");
        check(r#"{"text": "a", "n": 8.0}"#, "a");
        check(r#"{"text": "cut \ud83d", "n": 8}"#, "cut \u{fffd}");
        check(r#"{"text": "\udd11 \ud83d\udd11 \\ud83d \ud83d\n", "n": 8.0}"#, "\u{fffd} 🔑 \\ud83d \u{fffd}\n");
        let error = read::<Untidy>(b"{\"text\": \"a\", \"n\": 8.5}").unwrap_err();
        assert!(error.message.contains("floating point `8.5`, expected usize"), "{}", error.message);
    }

    #[test]
    fn what_is_no_json_is_told_from_a_wrong_request() {
        let check = |body: &'static str, expected: &str| {
            let error = read::<Request>(body.as_bytes()).unwrap_err();
            assert!(error.message.starts_with(expected), "{}", error.message);
        };
        check("{\"turns\": [}", "the body is not JSON: expected value at line 1 column 12");
        check("", "the body is not JSON: EOF while parsing a value at line 1 column 0");
        check(
            "{\"turns\": 1}",
            "the body is not a valid request: invalid type: integer `1`, expected a sequence at line 1",
        );
    }
}
