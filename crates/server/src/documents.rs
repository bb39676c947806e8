//! Files in the requests of clients: texts and PDFs, which the model is shown as `hone chat -f` shows them.
//!
//! A file is a part of a message: `file` in OpenAI's Chat Completions, `input_file` in its Responses, `document` in
//! Anthropic's Messages. Files that have only an address or an id stay as they are, and their part is refused later.

use std::str::from_utf8;

use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hone_app::conversations::attached::{block, text_of};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::requests::parsed;
use crate::threads::DOCUMENTS;

/// Every request with files contains one of these.
const SIGNS: [&str; 2] = ["\"file_data\"", "\"document\""];
/// The keys of a request whose values may have files.
const CONVERSATIONS: [&str; 2] = ["messages", "input"];
/// The name of a file without one.
const UNNAMED: &str = "file";
/// The most files of a request, each of which may need a process.
const MOST_FILES: usize = 16;

/// Parses a request body as [`parsed`] does, with texts in place of files.
///
/// # Errors
/// When the body is not a valid request, has too many files, or a file outside a tool's result cannot be read.
pub(crate) async fn parsed_with_texts<T: DeserializeOwned + Send + 'static>(body: Bytes) -> Result<T, ApiError> {
    let may_have_files = from_utf8(&body).is_ok_and(|text| SIGNS.iter().any(|sign| text.contains(sign)));
    if !may_have_files {
        return parsed(body).await;
    }
    let request: Value = parsed(body.clone()).await?;
    let n_files: usize = CONVERSATIONS.iter().filter_map(|key| request.get(key)).map(n_files).sum();
    match n_files {
        0 => parsed(body).await,
        1..=MOST_FILES => parsed(DOCUMENTS.computed(move || with_texts(request)).await??).await,
        _ => Err(ApiError::bad_request(format!("the request has {n_files} files: at most {MOST_FILES} are read"))),
    }
}

fn n_files(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(n_files).sum(),
        Value::Object(part) if ClientFile::of(part).is_some() => 1,
        Value::Object(part) => part.values().map(n_files).sum(),
        _ => 0,
    }
}

/// The request as JSON, with texts in place of files.
fn with_texts(mut request: Value) -> Result<Bytes, ApiError> {
    for key in CONVERSATIONS {
        let turns = request.get_mut(key).map(|turns| replace(turns, false));
        turns.transpose().map_err(|error| error.about(key))?;
    }
    Ok(Bytes::from(request.to_string()))
}

/// Replaces the files in a value. One that cannot be read becomes a note in a tool's result: the result stays in the
/// conversation, and refusing it would refuse every later request.
fn replace(value: &mut Value, is_result: bool) -> Result<(), ApiError> {
    match value {
        Value::Array(values) => values.iter_mut().try_for_each(|value| replace(value, is_result)),
        Value::Object(part) => match ClientFile::of(part) {
            Some(file) => {
                *value = file.part(is_result)?;
                Ok(())
            }
            None => {
                let is_result = is_result || is_tool_result(part);
                part.values_mut().try_for_each(|value| replace(value, is_result))
            }
        },
        _ => Ok(()),
    }
}

fn is_tool_result(part: &Map<String, Value>) -> bool {
    let text = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
    text("role") == "tool" || text("type") == "tool_result" || text("type").ends_with("_call_output")
}

/// A file as a client sends it.
struct ClientFile {
    name: String,
    content: FileContent,
    /// The type of the part that takes its place.
    kind: &'static str,
    /// Whether the parts of a message are paragraphs, and not joined as they are.
    is_paragraph: bool,
}

enum FileContent {
    Text(String),
    /// With or without the beginning of a `data:` address.
    Base64(String),
}

impl ClientFile {
    /// The file that a part of a message holds.
    fn of(part: &Map<String, Value>) -> Option<ClientFile> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let (data, name, kind, is_paragraph) = match part.get("type")?.as_str()? {
            "file" => (part.get("file")?.get("file_data"), part.get("file")?.get("filename"), "text", false),
            "input_file" => (part.get("file_data"), part.get("filename"), "input_text", false),
            "document" => (part.get("source")?.get("data"), part.get("title"), "text", true),
            _ => return None,
        };
        let is_text = || part.get("source").and_then(|source| source.get("type")).is_some_and(|kind| kind == "text");
        let data = text(data)?;
        let content = if is_paragraph && is_text() { FileContent::Text(data) } else { FileContent::Base64(data) };
        Some(ClientFile { name: text(name).unwrap_or_else(|| UNNAMED.to_owned()), content, kind, is_paragraph })
    }

    /// The part that takes its place.
    fn part(self, is_result: bool) -> Result<Value, ApiError> {
        let text = match self.content.read() {
            Ok(text) => block(&self.name, &text),
            Err(reason) if is_result => format!("({} {reason})", self.name),
            Err(reason) => return Err(ApiError::bad_request(format!("the file {:?} {reason}", self.name))),
        };
        let text = if self.is_paragraph { text.trim_end() } else { &text };
        Ok(json!({"type": self.kind, "text": text}))
    }
}

impl FileContent {
    /// The text of the file.
    ///
    /// # Errors
    /// The reason why it has none, worded to follow its name.
    fn read(&self) -> Result<String, String> {
        match self {
            FileContent::Text(text) => Ok(text.clone()),
            FileContent::Base64(data) => {
                let data = data.split_once(";base64,").map_or(data.as_str(), |(_, data)| data);
                let file = STANDARD.decode(data).map_err(|error| format!("is not in base64: {error}"))?;
                text_of(file).map_err(|reason| format!("{reason:#}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(key: &str, turns: Value) -> Result<Value, String> {
        let texts = with_texts(json!({"model": "m", key: turns})).map_err(|error| error.message)?;
        Ok(serde_json::from_slice::<Value>(&texts).unwrap()[key].take())
    }

    /// `Tides follow the moon.` in base64.
    const TIDES: &str = "VGlkZXMgZm9sbG93IHRoZSBtb29uLg==";
    const BLOCK: &str = "File: tides.txt\n```\nTides follow the moon.\n```";

    #[test]
    fn files_of_each_kind_become_texts() {
        let why = json!({"type": "text", "text": "Why?"});
        let data = format!("data:text/plain;base64,{TIDES}");
        let file = json!({"type": "file", "file": {"filename": "tides.txt", "file_data": data}});
        let expected = json!([{"role": "user", "content": [{"type": "text", "text": format!("{BLOCK}\n\n")}, why]}]);
        assert_eq!(replaced("messages", json!([{"role": "user", "content": [file, why]}])).unwrap(), expected);

        let file = json!({"type": "input_file", "filename": "tides.txt", "file_data": TIDES});
        let expected = json!([{"role": "user", "content": [{"type": "input_text", "text": format!("{BLOCK}\n\n")}]}]);
        assert_eq!(replaced("input", json!([{"role": "user", "content": [file]}])).unwrap(), expected);

        for (kind, data) in [("base64", TIDES), ("text", "Tides follow the moon.")] {
            let source = json!({"type": kind, "media_type": "text/plain", "data": data});
            let file = json!({"type": "document", "title": "tides.txt", "source": source});
            let expected = json!([{"role": "user", "content": [{"type": "text", "text": BLOCK}, why]}]);
            assert_eq!(replaced("messages", json!([{"role": "user", "content": [file, why]}])).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_file_stays_as_it_is() {
        let by_address = json!({"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}});
        let by_id = json!({"type": "input_file", "file_id": "file-1"});
        let said = json!({"role": "user", "content": "the \"document\" and its \"file_data\""});
        let turns = json!([by_address, by_id, said]);
        assert_eq!(n_files(&turns), 0);
        assert_eq!(replaced("messages", turns.clone()).unwrap(), turns);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_and_noted_in_a_result() {
        let file =
            |data: &str| json!({"type": "document", "title": "a.png", "source": {"type": "base64", "data": data}});
        let turn =
            |kind: &str, data: &str| json!([{"role": "user", "content": [{"type": kind, "content": [file(data)]}]}]);
        let reason = "is a binary file: only texts and PDFs can go with a question";
        assert_eq!(replaced("messages", turn("x", "AAA=")).unwrap_err(), format!("the file \"a.png\" {reason}"));
        let error = replaced("messages", turn("x", "!")).unwrap_err();
        assert!(error.starts_with("the file \"a.png\" is not in base64"), "{error}");
        for kind in ["tool_result", "custom_tool_call_output"] {
            let noted = replaced("messages", turn(kind, "AAA=")).unwrap();
            assert_eq!(noted[0]["content"][0]["content"][0]["text"], format!("(a.png {reason})"));
        }
    }

    #[tokio::test]
    async fn a_request_has_few_files() {
        let request = |n: usize| {
            let file = json!({"type": "input_file", "filename": "tides.txt", "file_data": TIDES});
            // A byte-order mark, and half of a character, as clients send them.
            Bytes::from(format!("\u{feff}{{\"cut\": \"\\ud83d\", \"input\": {}}}", json!(vec![file; n])))
        };
        let read: Value = parsed_with_texts(request(MOST_FILES)).await.unwrap();
        assert_eq!(read["input"][MOST_FILES - 1]["text"], format!("{BLOCK}\n\n"));
        let error = parsed_with_texts::<Value>(request(MOST_FILES + 1)).await.unwrap_err();
        assert_eq!(error.message, "the request has 17 files: at most 16 are read");
    }
}
