//! The format of a story's file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use hone_protocol::{RespondentId, Subject};
use serde::Deserialize;

use super::check::Expectation;
use crate::usage;

/// A story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// A short name, such as `S6`.
    pub id: String,
    /// A description in one sentence.
    pub title: String,
    /// The second respondent, if there is one.
    pub respondent_b: Option<SecondRespondent>,
    /// Configuration keys, `section.name`, that this story sets.
    #[serde(default)]
    pub config: BTreeMap<String, toml::Value>,
    /// The questions, in order.
    pub turns: Vec<Turn>,
}

/// How the second respondent differs from the first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondRespondent {
    /// Its model; the first respondent's if unset.
    pub model: Option<String>,
    /// Its temperature.
    #[serde(default = "temperature_b")]
    pub temperature: f32,
}

/// The second respondent's temperature, as for `hone chat --respondent-b`.
fn temperature_b() -> f32 {
    0.5
}

/// A question and the results expected of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The number of the conversation; a number that differs from the previous turn's begins a new one.
    #[serde(default)]
    pub session: u32,
    /// The question.
    pub query: String,
    /// Texts that the answer must contain, ignoring case.
    #[serde(default)]
    pub expected_content: Vec<String>,
    /// Events that must occur, or must not.
    #[serde(default)]
    pub events: Vec<ExpectedEvent>,
    /// Engrams that must exist afterwards.
    #[serde(default)]
    pub engrams: Vec<ExpectedEngram>,
}

/// An event about the turn's question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedEvent {
    /// The name by which other expectations refer to it: in `after`, and as `$name.path` to a field of it.
    pub name: Option<String>,
    /// Its subject.
    pub subject: Subject,
    /// The respondent of the event; any if unset.
    pub respondent: Option<RespondentId>,
    /// The deadline in seconds after the question, by which it must have occurred.
    pub within_seconds: Option<f64>,
    /// Whether it must not occur, until the end of the story. An event of the same subject that is expected before it
    /// in the list does not count, so that a second one can be ruled out.
    #[serde(default)]
    pub absent: bool,
    /// The names of events that must have occurred before it.
    #[serde(default)]
    pub after: Vec<String>,
    /// Expectations of its fields, each named by its path, such as `payload.score`.
    #[serde(default)]
    pub fields: Fields,
}

/// Expectations of fields, by their paths.
pub type Fields = BTreeMap<String, Expectation>;

/// The name of the question's own id in references.
pub const QUERY_ID: &str = "query_id";

/// The engram of an answer of the turn, as it is at the end of the story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedEngram {
    /// The respondent of the answer.
    pub respondent: RespondentId,
    /// Expectations of its fields.
    pub fields: Fields,
}

impl Story {
    /// Reads a story.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a story.
    pub fn read(path: &Path) -> anyhow::Result<Story> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let story: Story =
            toml::from_str(&text).map_err(|error| usage(format!("{} is not a story: {error}", path.display())))?;
        match story.fault() {
            Some(fault) => Err(usage(format!("{} is not a story: {fault}", path.display()))),
            None => Ok(story),
        }
    }

    /// The problem with the story; `None` if it is valid.
    fn fault(&self) -> Option<String> {
        if self.turns.is_empty() {
            return Some("it has no turns".to_owned());
        }
        if let Some(SecondRespondent { temperature, .. }) = self.respondent_b.as_ref().filter(|b| !b.is_valid()) {
            return Some(format!("respondent_b.temperature is {temperature}, it must be 0 or more"));
        }
        self.turns.iter().find_map(Turn::fault)
    }
}

impl SecondRespondent {
    fn is_valid(&self) -> bool {
        self.temperature >= 0.0 && self.temperature.is_finite()
    }
}

impl Turn {
    fn fault(&self) -> Option<String> {
        let names: Vec<&str> = self.events.iter().filter_map(|event| event.name.as_deref()).collect();
        let is_known = |name: &str| name == QUERY_ID || names.contains(&name);
        let after = self.events.iter().flat_map(|event| event.after.iter().cloned());
        let fields = self.events.iter().map(|event| &event.fields).chain(self.engrams.iter().map(|it| &it.fields));
        let references = fields.flat_map(BTreeMap::values).flat_map(Expectation::references);
        let after = after.filter(|name| !names.contains(&name.as_str()));
        let unknown = after.chain(references.filter(|name| !is_known(name))).next();
        let unknown = unknown.map(|name| format!("no event of {:?} has the name {name:?}", self.query));
        let twice = (1..names.len()).find(|index| names[..*index].contains(&names[*index]));
        let twice = twice.map(|index| format!("two events of {:?} have the name {:?}", self.query, names[index]));
        self.events.iter().find_map(ExpectedEvent::fault).or(twice).or(unknown)
    }
}

impl ExpectedEvent {
    fn fault(&self) -> Option<String> {
        let subject = self.subject;
        if self.absent {
            let has_more = self.within_seconds.is_some() || self.name.is_some() || !self.after.is_empty();
            let takes =
                "an absent event is absent until the end of the story, and takes a subject and a respondent only";
            return (has_more || !self.fields.is_empty()).then(|| format!("{subject}: {takes}"));
        }
        match self.within_seconds {
            None => Some(format!("{subject} has no within_seconds: give the seconds in which it is to come")),
            Some(seconds) if (0.0..=86_400.0).contains(&seconds) => None,
            Some(seconds) => Some(format!("within_seconds is {seconds}, it must be 0 to 86400")),
        }
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
        let with = |line: &str| format!("{}{line}\n", event("critique.result", "3"));
        check(&with("fields = { a = { minimum = 3 } }"), "minimum");
        check(&with("absent = true"), "critique.result: an absent event is absent until the end of the story");
        let absent = "[[turns.events]]\nsubject = 'pairwise.result'\n";
        check(&format!("{turn}{absent}absent = true"), "1 turns");
        check(&format!("{turn}{absent}"), "pairwise.result has no within_seconds");
        check(&with("name = 'grade'\nafter = ['grade']"), "1 turns");
        check(&with("after = ['grade']"), "no event of \"q\" has the name \"grade\"");
        check(&with("fields = { a = '$grade.query_id' }"), "no event of \"q\" has the name \"grade\"");
        check(&with("fields = { a = { not = '$query_id' } }"), "1 turns");
        let twice = "name = 'a'\n[[turns.events]]\nsubject = 'memory.stored'\nwithin_seconds = 3\nname = 'a'";
        check(&with(twice), "two events of \"q\" have the name \"a\"");
        check(&format!("respondent_b = {{}}\n{turn}"), "1 turns");
        check(&format!("respondent_b = true\n{turn}"), "respondent_b");
        check(&format!("respondent_b = {{ temperature = -1 }}\n{turn}"), "respondent_b.temperature is -1");
    }

    #[test]
    fn the_shipped_stories_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stories");
        let stories: Vec<Story> =
            std::fs::read_dir(folder).unwrap().map(|entry| Story::read(&entry.unwrap().path()).unwrap()).collect();
        assert!(stories.iter().any(|story| story.id == "S6") && stories.iter().any(|story| story.id == "S7"));
    }
}
