//! A saved conversation with its branches: its title, and its formats for other programs.

use std::collections::BTreeSet;
use std::fmt::Write;

use hone_protocol::{Branches, Timestamp};
use serde_json::{Value, json};
use thiserror::Error;

use super::attached::split;
use super::session::{Conversation, FORMAT, SavedExchange};

/// The maximum characters of a title.
const LONGEST_TITLE: usize = 120;

/// A saved conversation in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationEntry {
    /// Its name.
    pub name: String,
    /// When it was last written.
    pub written: Timestamp,
}

/// A conversation that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundConversation {
    /// Its name.
    pub name: String,
    /// When it was last written.
    pub written: Timestamp,
    /// Its contents; `None` if it cannot be read.
    pub conversation: Option<SavedConversation>,
}

impl FoundConversation {
    /// Its first question; empty if it cannot be read.
    pub fn first_question(&self) -> &str {
        let first = self.conversation.as_ref().and_then(|conversation| conversation.exchanges.shown().next());
        first.map_or("", |exchange| &exchange.question)
    }
}

/// A conversation as it is saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedConversation {
    /// The model for the next answer.
    pub model: String,
    /// Instructions before the conversation; empty leaves them to the model's template.
    pub system: String,
    /// The exchanges, in branches of which one is shown.
    pub exchanges: Branches<SavedExchange>,
}

impl SavedConversation {
    /// Restores a conversation, with its branches, from its file format.
    ///
    /// # Errors
    /// When its forks do not belong to its exchanges.
    pub fn of_file(conversation: Conversation) -> anyhow::Result<SavedConversation> {
        let Conversation { model, system, exchanges, forks, .. } = conversation;
        Ok(SavedConversation { model, system, exchanges: Branches::from_list(exchanges, &forks)? })
    }

    /// Converts it to its file format.
    pub fn into_file(self) -> Conversation {
        let SavedConversation { model, system, exchanges } = self;
        let (exchanges, forks) = exchanges.into_list();
        Conversation { format: FORMAT, model, system, exchanges, forks, undone_ids: BTreeSet::new() }
    }

    /// The title in a list: the first question, unless the user named the conversation.
    pub fn title(&self, name: &str) -> String {
        let Some(words) = words_of_made_name(name) else { return name.to_owned() };
        let of_question = |question: &str| words_of(split(question).1).take(words.len()).eq(words.iter().cloned());
        let begins_alike = self.exchanges.all().next().is_none_or(|first| of_question(&first.question));
        match self.exchanges.shown().next() {
            Some(first) if begins_alike => first_line(split(&first.question).1),
            _ if words.is_empty() => name.to_owned(),
            _ => words.join(" "),
        }
    }

    /// The branch that is shown, as Markdown.
    pub fn to_markdown(&self, name: &str) -> String {
        let mut text = format!("# {}\n", self.title(name));
        for SavedExchange { question, answer, model, .. } in self.exchanges.shown() {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n## You\n\n{}\n\n## {model}\n\n{}\n", question.trim_end(), answer.trim_end());
        }
        text
    }

    /// All branches as a JSON object, from which [`import`](super::import) restores them.
    pub fn to_archive(&self, name: &str) -> Value {
        let mut archive = json!({"name": name});
        let file = serde_json::to_value(self.clone().into_file()).unwrap_or_default();
        if let (Some(archive), Value::Object(file)) = (archive.as_object_mut(), file) {
            archive.extend(file);
        }
        archive
    }

    /// The branch that is shown, as a JSON object.
    pub fn to_json(&self, name: &str) -> Value {
        let exchange = |exchange: &SavedExchange| {
            json!({
                "question": exchange.question,
                "answer": exchange.answer,
                "model": exchange.model,
                "query_id": exchange.query_id,
            })
        };
        let exchanges: Vec<Value> = self.exchanges.shown().map(exchange).collect();
        json!({"name": name, "model": self.model, "system": self.system, "exchanges": exchanges})
    }
}

/// The words of a name made of a day and the first words of a question (`2026-03-07-why-is-it-2`), without the number
/// that disambiguates it; `None` for a name that a person gave.
fn words_of_made_name(name: &str) -> Option<Vec<String>> {
    let (day, words) = name.split_at_checked(10)?;
    let is_day = day.bytes().enumerate().all(|(place, byte)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let mut words: Vec<String> = words.split('-').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    words.pop_if(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    is_day.then_some(words)
}

fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The first line with text, shortened for a list.
fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LONGEST_TITLE).collect()
}

/// The error of an operation on a saved conversation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConversationError {
    /// It does not exist.
    #[error("no conversation {0:?} is saved")]
    Missing(String),
    /// Another conversation has the new name.
    #[error("a conversation {0:?} is saved already: choose another name")]
    Taken(String),
    /// The name is not valid.
    #[error("{0}")]
    Name(String),
    /// The branch does not exist.
    #[error("the conversation has no branch {number} after {index} exchanges")]
    Branch {
        /// The exchanges before it.
        index: usize,
        /// Its number.
        number: usize,
    },
    /// It cannot be read or written.
    #[error("{0}")]
    Storage(String),
}

#[cfg(test)]
mod tests {
    use hone_protocol::Timings;

    use super::*;

    #[track_caller]
    fn check(name: &str, questions: &[&str], expected: &str) {
        let exchange = |question: &&str| SavedExchange {
            question: (*question).to_owned(),
            answer: "so".to_owned(),
            thinking: String::new(),
            model: "m".to_owned(),
            finish_reason: None,
            timings: Timings::default(),
            query_id: None,
            recalled: Vec::new(),
        };
        let exchanges = questions.iter().map(exchange).collect();
        let conversation = SavedConversation { exchanges, ..SavedConversation::default() };
        assert_eq!(conversation.title(name), expected);
    }

    #[test]
    fn a_title_is_the_first_question_or_a_name_that_a_person_gave() {
        let question = "Why is the sky blue, and the sea?";
        check("2026-03-07-why-is-the-sky-blue", &[question, "Really?"], question);
        check("2026-03-07-why-is-the-sky-blue-2", &[question], question);
        check("2026-03-07-what-is-2", &["What is 2 + 2?"], "What is 2 + 2?");
        check("2026-03-07", &["\n  ???\nHelp"], "???");
        check("2026-03-07-why-is-the-sky-blue", &[], "why is the sky blue");
        check("tides", &[question], "tides");
        check("2026-03-07-tides", &[question], "tides");
        check("2026-03-07", &[], "2026-03-07");
        check("2026-03-07", &[&"a".repeat(500)], &"a".repeat(120));
    }
}
