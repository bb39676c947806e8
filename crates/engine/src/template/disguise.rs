//! Keeps control token names in the text of people and tools from becoming control tokens.
//!
//! While a template runs, every such name is replaced by a private-use character ([`Disguise`]). The template may still
//! make such a name out of the text around it (lower case, parts, concatenations), so a template that is not known is
//! also given a [neutral](Neutral) version of the conversation, in which no text can become one: any control token that
//! only the real version yields was made out of someone's text.

use std::collections::BTreeSet;
use std::ops::Range;

use hone_protocol::{Message, Tool, ToolCall};
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// The role of a text in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    /// Ordinary text.
    Text,
    /// A name in JSON: a parameter, a keyword of a schema, or one of its types.
    Name,
}

/// The message with every text changed.
fn change_message(message: &Message, change: &mut dyn FnMut(TextKind, &str) -> String) -> Message {
    let content = change(TextKind::Text, &message.content);
    let reasoning = change(TextKind::Text, &message.reasoning);
    let result_of = message.result_of.as_ref().map(|id| change(TextKind::Text, id));
    let mut call = |call: &ToolCall| ToolCall {
        id: call.id.as_ref().map(|id| change(TextKind::Text, id)),
        name: change(TextKind::Text, &call.name),
        arguments: change_value(&call.arguments, TextKind::Text, change),
    };
    let tool_calls = message.tool_calls.iter().map(&mut call).collect();
    Message { role: message.role, content, reasoning, tool_calls, result_of }
}

fn change_tool(tool: &Tool, change: &mut dyn FnMut(TextKind, &str) -> String) -> Tool {
    Tool {
        name: change(TextKind::Text, &tool.name),
        description: change(TextKind::Text, &tool.description),
        parameters: change_value(&tool.parameters, TextKind::Text, change),
    }
}

fn change_value(value: &Value, kind: TextKind, change: &mut dyn FnMut(TextKind, &str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(kind, text)),
        Value::Array(items) => items.iter().map(|item| change_value(item, kind, change)).collect(),
        Value::Object(fields) => {
            let mut field = |(key, value): (&String, &Value)| {
                let kind = if key == "type" { TextKind::Name } else { TextKind::Text };
                (change(TextKind::Name, key), change_value(value, kind, change))
            };
            fields.iter().map(&mut field).collect()
        }
        other => other.clone(),
    }
}

/// Replaces the names of control tokens while a template runs.
pub(super) struct Disguise<'a> {
    tokenizer: &'a Tokenizer,
    /// All of the conversation's text, in which no stand-in may occur.
    everything: String,
    /// A private-use character, and the name that it stands for.
    names: Vec<(char, String)>,
}

impl<'a> Disguise<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, messages: &[Message], tools: &[Tool]) -> Self {
        let everything = serde_json::to_string(&(messages, tools)).expect("plain data is always valid JSON");
        Disguise { tokenizer, everything, names: Vec::new() }
    }

    /// The message with every name of a control token replaced by a character.
    pub(super) fn message(&mut self, message: &Message) -> Message {
        change_message(message, &mut |_, text| self.text(text))
    }

    /// Like [`Disguise::message`], for a tool.
    pub(super) fn tool(&mut self, tool: &Tool) -> Tool {
        change_tool(tool, &mut |_, text| self.text(text))
    }

    fn text(&mut self, text: &str) -> String {
        let mut disguised = String::with_capacity(text.len());
        let mut end = 0;
        for place in self.tokenizer.control_names_in(text) {
            disguised.push_str(&text[end..place.start]);
            end = place.end;
            disguised.push(self.character_for(&text[place]));
        }
        disguised.push_str(&text[end..]);
        disguised
    }

    fn character_for(&mut self, name: &str) -> char {
        if let Some((character, _)) = self.names.iter().find(|(_, known)| known == name) {
            return *character;
        }
        let taken = |character: char| {
            self.names.iter().any(|(known, _)| *known == character) || self.everything.contains(character)
        };
        // This finds nothing only if the conversation holds every character of two planes.
        let free = ('\u{f0000}'..='\u{10fffd}').find(|character| !taken(*character));
        let character = free.unwrap_or(char::REPLACEMENT_CHARACTER);
        self.names.push((character, name.to_owned()));
        character
    }

    /// The text with its names restored, and their ranges.
    pub(super) fn take_off(&self, text: &str) -> (String, Vec<Range<usize>>) {
        let mut plain = String::with_capacity(text.len());
        let mut places = Vec::new();
        for character in text.chars() {
            match self.names.iter().find(|(known, _)| *known == character) {
                Some((_, name)) => {
                    places.push(plain.len()..plain.len() + name.len());
                    plain.push_str(name);
                }
                None => plain.push(character),
            }
        }
        (plain, places)
    }
}

/// Replaces every character that occurs in a control token's name, in either case, by one that occurs in no such name.
/// White space, and names within a tool's JSON, are kept, since templates depend on them.
pub(super) struct Neutral<'a> {
    letters: &'a BTreeSet<char>,
    stand_in: char,
    keeps_words: bool,
}

impl<'a> Neutral<'a> {
    /// If `keeps_words` is set, letters and digits are kept: for templates that refuse text without any.
    pub(super) fn new(tokenizer: &'a Tokenizer, keeps_words: bool) -> Self {
        let letters = tokenizer.control_letters();
        let stand_in = ('a'..='z').chain('一'..='龥').find(|letter| !letters.contains(letter));
        Neutral { letters, stand_in: stand_in.unwrap_or(char::REPLACEMENT_CHARACTER), keeps_words }
    }

    pub(super) fn message(&self, message: &Message) -> Message {
        change_message(message, &mut |kind, text| self.text(kind, text))
    }

    pub(super) fn tool(&self, tool: &Tool) -> Tool {
        change_tool(tool, &mut |kind, text| self.text(kind, text))
    }

    fn text(&self, kind: TextKind, text: &str) -> String {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$';
        if kind == TextKind::Name && text.chars().all(is_word) {
            return text.to_owned();
        }
        text.chars().map(|letter| if self.takes_part(letter) { self.stand_in } else { letter }).collect()
    }

    fn takes_part(&self, letter: char) -> bool {
        let is_one = |letter: char| self.letters.contains(&letter);
        let stays = letter.is_whitespace() || self.keeps_words && letter.is_alphanumeric();
        !stays && (is_one(letter) || letter.to_lowercase().any(is_one) || letter.to_uppercase().any(is_one))
    }
}
