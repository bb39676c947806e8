//! Files in the requests of clients: texts and PDFs, which the model is shown as `hone chat -f` shows them.
//!
//! A file is a part of a message: `file` in OpenAI's Chat Completions, `input_file` in its Responses, `document` in
//! Anthropic's Messages. Files that have only an address or an id stay as they are, and their part is refused later.

use std::collections::VecDeque;
use std::str::from_utf8;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hone_agents::research::is_pdf;
use hone_app::conversations::attached::{block, text_of};
use hone_protocol::OwnerId;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::requests::parsed;
use crate::threads::DOCUMENTS;

/// Every request with files contains one of these.
const SIGNS: [&str; 2] = ["\"file_data\"", "\"document\""];
/// The keys of a request whose values may have files.
const CONVERSATIONS: [&str; 2] = ["messages", "input"];
/// The name of a file without one.
const UNNAMED: &str = "file";
/// The most PDFs that are read for a request, each of which needs a process. Those of earlier requests do not count.
const MOST_READ: usize = 16;
/// The most bytes of texts of PDFs that are kept.
const MOST_KEPT_BYTES: usize = 32 << 20;
/// The bytes that count for a PDF besides its text.
const LEAST_BYTES: usize = 4096;

/// Parses a request body as [`parsed`] does, with texts in place of files.
///
/// # Errors
/// When the body is not a valid request, or a file outside a tool's result cannot be read.
pub(crate) async fn parsed_with_texts<T: DeserializeOwned + Send + 'static>(
    shared: &Shared,
    client: Client,
    body: Bytes,
) -> Result<T, ApiError> {
    let may_have_files = from_utf8(&body).is_ok_and(|text| SIGNS.iter().any(|sign| text.contains(sign)));
    if !may_have_files {
        return parsed(body).await;
    }
    let mut request: Value = parsed(body.clone()).await?;
    if !CONVERSATIONS.iter().filter_map(|key| request.get(key)).any(has_files) {
        return parsed(body).await;
    }
    let mut reading = Reading { texts: Arc::clone(&shared.pdf_texts), owner: client.owner(), n_read: 0 };
    parsed(DOCUMENTS.computed(move || reading.with_texts(&mut request)).await??).await
}

fn has_files(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(has_files),
        Value::Object(part) if is_call(part) => false,
        Value::Object(part) => ClientFile::of(part).is_some() || part.values().any(has_files),
        _ => false,
    }
}

/// Whether a part is the model's call of a tool. Its arguments have the form that the tool gives them, and no files.
fn is_call(part: &Map<String, Value>) -> bool {
    matches!(part.get("type").and_then(Value::as_str), Some("tool_use" | "function_call" | "custom_tool_call"))
}

fn is_tool_result(part: &Map<String, Value>) -> bool {
    let text = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
    text("role") == "tool" || text("type") == "tool_result" || text("type").ends_with("_call_output")
}

/// The texts of PDFs that clients have sent, the latest last: a client sends its conversation with every question.
#[derive(Default)]
pub(crate) struct PdfTexts(Mutex<VecDeque<(PdfKey, Read)>>);

/// A digest of a PDF and its owner: otherwise a faster answer could reveal another owner's files.
type PdfKey = [u8; 32];

/// The text of a file, or the reason why it has none, worded to follow its name.
type Read = Result<Arc<str>, String>;

impl PdfTexts {
    fn get(&self, key: &PdfKey) -> Option<Read> {
        let mut kept = self.lock();
        let place = kept.iter().position(|(other, _)| other == key)?;
        let found = kept.remove(place)?;
        let read = found.1.clone();
        kept.push_back(found);
        Some(read)
    }

    fn keep(&self, key: PdfKey, read: Read) {
        let mut kept = self.lock();
        kept.retain(|(other, _)| *other != key);
        kept.push_back((key, read));
        let mut n_bytes: usize = kept.iter().map(|(_, read)| bytes_of(read)).sum();
        while n_bytes > MOST_KEPT_BYTES {
            n_bytes -= kept.pop_front().map_or(n_bytes, |(_, oldest)| bytes_of(&oldest));
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(PdfKey, Read)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About the bytes that an entry takes; that of a PDF without text takes some, too.
fn bytes_of(read: &Read) -> usize {
    LEAST_BYTES + read.as_ref().map_or(0, |text| text.len())
}

/// Reads the files of a request.
struct Reading {
    texts: Arc<PdfTexts>,
    owner: Option<OwnerId>,
    /// The PDFs that were read for this request.
    n_read: usize,
}

impl Reading {
    /// The request as JSON, with texts in place of files.
    fn with_texts(&mut self, request: &mut Value) -> Result<Bytes, ApiError> {
        for key in CONVERSATIONS {
            let turns = request.get_mut(key).map(|turns| self.replace(turns, false));
            turns.transpose().map_err(|error| error.about(key))?;
        }
        Ok(Bytes::from(request.to_string()))
    }

    /// Replaces the files in a value. One that cannot be read becomes a note in a tool's result: the result stays in the
    /// conversation, and refusing it would refuse every later request.
    fn replace(&mut self, value: &mut Value, is_result: bool) -> Result<(), ApiError> {
        match value {
            Value::Array(values) => values.iter_mut().try_for_each(|value| self.replace(value, is_result)),
            Value::Object(part) if is_call(part) => Ok(()),
            Value::Object(part) => match ClientFile::of(part) {
                Some(file) => {
                    *value = self.part(file, is_result)?;
                    Ok(())
                }
                None => {
                    let is_result = is_result || is_tool_result(part);
                    part.values_mut().try_for_each(|value| self.replace(value, is_result))
                }
            },
            _ => Ok(()),
        }
    }

    /// The part that takes a file's place.
    fn part(&mut self, file: ClientFile, is_result: bool) -> Result<Value, ApiError> {
        let ClientFile { name, content, kind, is_paragraph } = file;
        let text = match self.text(content) {
            Ok(text) => block(&name, &text),
            Err(reason) if is_result => format!("({name} {reason})"),
            Err(reason) => return Err(ApiError::bad_request(format!("the file {name:?} {reason}"))),
        };
        let text = if is_paragraph { text.trim_end() } else { &text };
        Ok(json!({"type": kind, "text": text}))
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The reason why it has none, worded to follow its name.
    fn text(&mut self, content: FileContent) -> Read {
        let data = match content {
            FileContent::Text(text) => return Ok(text.into()),
            FileContent::Base64(data) => data,
        };
        let data = data.split_once(";base64,").map_or(data.as_str(), |(_, data)| data);
        let file = STANDARD.decode(data).map_err(|error| format!("is not in base64: {error}"))?;
        if is_pdf(&file) { self.pdf(file) } else { read(file) }
    }

    fn pdf(&mut self, file: Vec<u8>) -> Read {
        let mut sha256 = Sha256::new_with_prefix(self.owner.map(|owner| owner.to_string()).unwrap_or_default());
        sha256.update([0]);
        sha256.update(&file);
        let key = sha256.finalize().into();
        if let Some(known) = self.texts.get(&key) {
            return known;
        }
        if self.n_read == MOST_READ {
            return Err(format!("exceeds the limit of {MOST_READ} new PDFs in a request"));
        }
        self.n_read += 1;
        let read = read(file);
        self.texts.keep(key, read.clone());
        read
    }
}

fn read(file: Vec<u8>) -> Read {
    text_of(file).map(Arc::from).map_err(|reason| format!("{reason:#}"))
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(key: &str, turns: Value) -> Result<Value, String> {
        let mut reading = Reading { texts: Arc::default(), owner: None, n_read: 0 };
        let mut request = json!({"model": "m", key: turns});
        let texts = reading.with_texts(&mut request).map_err(|error| error.message)?;
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
        let source = json!({"type": "base64", "data": TIDES});
        let call = json!({"type": "tool_use", "name": "save", "input": {"type": "document", "source": source}});
        let turns = json!([by_address, by_id, said, {"role": "assistant", "content": [call]}]);
        assert!(!has_files(&turns));
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

    #[test]
    fn the_texts_of_pdfs_are_kept_for_their_owner() {
        let texts = Arc::new(PdfTexts::default());
        let reading = |owner: Option<u128>| {
            let owner = owner.map(OwnerId::from_bits);
            Reading { texts: Arc::clone(&texts), owner, n_read: 0 }
        };
        // The built-in reader is a process of hone itself, which a test is not: nothing but what is kept has a text.
        let file = b"%PDF-1.7 and nothing else";
        assert!(reading(None).pdf(file.to_vec()).is_err());
        let mut sha256 = Sha256::new_with_prefix([0]);
        sha256.update(file);
        texts.keep(sha256.finalize().into(), Ok("Tides.".into()));
        assert_eq!(reading(None).pdf(file.to_vec()).as_deref(), Ok("Tides."));
        assert!(reading(Some(1)).pdf(file.to_vec()).is_err());

        let mut full = Reading { n_read: MOST_READ, ..reading(None) };
        assert_eq!(full.pdf(file.to_vec()).as_deref(), Ok("Tides."), "it is not read again");
        let error = full.pdf(b"%PDF-1.4".to_vec()).unwrap_err();
        assert_eq!(error, "exceeds the limit of 16 new PDFs in a request");
    }

    #[test]
    fn the_oldest_texts_make_room() {
        let texts = PdfTexts::default();
        let long: Arc<str> = "x".repeat(MOST_KEPT_BYTES / 2 - LEAST_BYTES).into();
        (0..3).for_each(|number| texts.keep([number; 32], Ok(Arc::clone(&long))));
        let is_kept = |number| texts.get(&[number; 32]).is_some();
        assert_eq!([0, 1, 2].map(is_kept), [false, true, true]);
        texts.keep([1; 32], Err("has no text".to_owned()));
        texts.keep([3; 32], Ok("short".into()));
        assert_eq!([1, 2, 3].map(is_kept), [true, true, true]);
    }
}
