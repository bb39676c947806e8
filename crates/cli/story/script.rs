//! The format of a story's file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use hone_protocol::{RespondentId, Subject};
use serde::Deserialize;

use super::check::Expectation;
use crate::failure::usage;

/// A story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Story {
    /// A short name, such as `S6`.
    pub(crate) id: String,
    /// What it is about, in a sentence.
    pub(crate) title: String,
    /// Whether there is a second respondent.
    #[serde(default)]
    pub(crate) respondent_b: bool,
    /// Configuration keys, `section.name`, that this story sets.
    #[serde(default)]
    pub(crate) config: BTreeMap<String, toml::Value>,
    /// The questions, in order.
    pub(crate) turns: Vec<Turn>,
}

/// A question and what is expected to follow it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// The number of the conversation; a number that differs from the previous turn's begins a new one.
    #[serde(default)]
    pub(crate) session: u32,
    /// What is asked.
    pub(crate) query: String,
    /// Texts that the answer must contain, ignoring case.
    #[serde(default)]
    pub(crate) expected_content: Vec<String>,
    /// Events that must occur, or must not.
    #[serde(default)]
    pub(crate) events: Vec<ExpectedEvent>,
    /// Engrams that must exist afterwards.
    #[serde(default)]
    pub(crate) engrams: Vec<ExpectedEngram>,
}

/// An event about the turn's question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedEvent {
    /// What it is about.
    pub(crate) subject: Subject,
    /// The respondent of the event; any if unset.
    pub(crate) respondent: Option<RespondentId>,
    /// The deadline in seconds after the question, by which it must have occurred, or must not have.
    pub(crate) within_seconds: f64,
    /// Whether it must not occur.
    #[serde(default)]
    pub(crate) absent: bool,
    /// Expectations of its fields, each named by its path, such as `payload.score`.
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, Expectation>,
}

/// The engram of an answer of the turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedEngram {
    /// The respondent of the answer.
    pub(crate) respondent: RespondentId,
    /// Expectations of its fields.
    pub(crate) fields: BTreeMap<String, Expectation>,
}

impl Story {
    /// Reads a story.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a story.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Story> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let story: Story =
            toml::from_str(&text).map_err(|error| usage(format!("{} is not a story: {error}", path.display())))?;
        let expectations = story.turns.iter().flat_map(|turn| &turn.events);
        if story.turns.is_empty() {
            return Err(usage(format!("{} is not a story: it has no turns", path.display())));
        }
        if let Some(event) = expectations.into_iter().find(|event| !(0.0..=86_400.0).contains(&event.within_seconds)) {
            let seconds = event.within_seconds;
            return Err(usage(format!(
                "{} is not a story: within_seconds is {seconds}, it must be 0 to 86400",
                path.display()
            )));
        }
        Ok(story)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a file with this text.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let seen = match Story::read(file.path()) {
            Ok(story) => format!("{} turns", story.turns.len()),
            Err(error) => format!("{error:#}"),
        };
        assert!(seen.contains(expected), "{seen}");
    }

    #[test]
    fn a_story_is_read_or_refused_with_its_reason() {
        let turn = "id = 'S'\ntitle = 't'\n[[turns]]\nquery = 'q'\n";
        check(turn, "1 turns");
        check("id = 'S'\ntitle = 't'\nturns = []", "it has no turns");
        check(&format!("{turn}querry = 'q'"), "querry");
        let event = |subject: &str, seconds: &str| {
            format!("{turn}[[turns.events]]\nsubject = '{subject}'\nwithin_seconds = {seconds}\n")
        };
        check(&event("critique.result", "3"), "1 turns");
        check(&event("critique", "3"), "critique");
        check(&event("critique.result", "-3"), "within_seconds is -3");
        check(&format!("{}fields = {{ a = {{ minimum = 3 }} }}", event("critique.result", "3")), "minimum");
    }

    #[test]
    fn the_shipped_stories_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
        let stories: Vec<Story> =
            std::fs::read_dir(folder).unwrap().map(|entry| Story::read(&entry.unwrap().path()).unwrap()).collect();
        assert!(stories.iter().any(|story| story.id == "S6") && stories.iter().any(|story| story.id == "S7"));
    }
}
