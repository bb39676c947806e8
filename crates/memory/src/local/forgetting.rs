//! Forgetting an answer in the event log. The log still says that there was an answer, when it was given and how it was
//! graded, but no longer has its text.
//!
//! Events are changed as JSON, so fields that a later version added are kept.

use hone_protocol::QueryId;
use serde_json::Value;

use super::opened::Draft;
use crate::error::MemoryError;
use crate::records::{from_json, to_json};

/// The keys of questions, answers and other texts about them in events.
const TEXTS: [&str; 6] = ["query", "answer", "thinking", "search", "feedback", "reason"];

/// The keys of the ids of answers in an event, or a part of one.
const NAMES: [&str; 3] = ["query_id", "query_id_a", "query_id_b"];

impl Draft<'_> {
    /// Blanks the texts of these answers in every event. The texts of another respondent's answer to the same question
    /// stay, because that answer does.
    pub(super) fn blank_events(&mut self, ids: &[QueryId]) -> Result<(), MemoryError> {
        if ids.is_empty() {
            return Ok(());
        }
        let about = self.storage.events_about(ids);
        let ids: Vec<String> = ids.iter().map(QueryId::to_string).collect();
        for record in about {
            let (key, bytes) = record?;
            let mut event: Value = from_json("an event", &bytes)?;
            if blank_parts(&mut event, &ids) {
                self.batch.insert(key, to_json("an event", &event)?);
            }
        }
        Ok(())
    }
}

/// Blanks the texts in every part that is about one of the answers; returns whether there was one.
pub(super) fn blank_parts(value: &mut Value, ids: &[String]) -> bool {
    let is_named = |name: &str| value.get(name).and_then(Value::as_str).is_some_and(|id| ids.iter().any(|it| it == id));
    let about_question = value.get("query_id").is_none() && is_named("correlation_id");
    if about_question || NAMES.iter().any(|name| is_named(name)) {
        return blank(value);
    }
    let mut blanked = false;
    parts_of(value).for_each(|(_, part)| blanked |= blank_parts(part, ids));
    blanked
}

/// Blanks every text in a value; returns whether there was one.
fn blank(value: &mut Value) -> bool {
    let mut blanked = false;
    for (name, part) in parts_of(value) {
        match part {
            Value::String(text) if name.is_some_and(|name| TEXTS.contains(&name)) => {
                blanked |= !text.is_empty();
                text.clear();
            }
            part => blanked |= blank(part),
        }
    }
    blanked
}

/// The values inside a value, with their keys if it is an object.
fn parts_of(value: &mut Value) -> Box<dyn Iterator<Item = (Option<&str>, &mut Value)> + '_> {
    match value {
        Value::Object(fields) => Box::new(fields.iter_mut().map(|(name, part)| (Some(name.as_str()), part))),
        Value::Array(items) => Box::new(items.iter_mut().map(|part| (None, part))),
        _ => Box::new(std::iter::empty()),
    }
}
