//! Keeps the names of control tokens that people and tools write from becoming control tokens.

use std::ops::Range;

use hone_protocol::{Message, Tool, ToolCall};
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Stands in for the names of control tokens while a template runs.
pub(super) struct Disguise<'a> {
    tokenizer: &'a Tokenizer,
    /// All of the conversation's text: no stand-in occurs in it.
    everything: String,
    /// A character for private use, and the name that it stands for.
    names: Vec<(char, String)>,
}

impl<'a> Disguise<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, messages: &[Message], tools: &[Tool]) -> Self {
        let everything = serde_json::to_string(&(messages, tools)).expect("plain data is always valid JSON");
        Disguise { tokenizer, everything, names: Vec::new() }
    }

    /// The message with a character in place of every name of a control token.
    pub(super) fn message(&mut self, message: &Message) -> Message {
        let call = |call: &ToolCall| ToolCall { name: self.text(&call.name), arguments: self.value(&call.arguments) };
        let tool_calls = message.tool_calls.iter().map(call).collect();
        Message { role: message.role, content: self.text(&message.content), tool_calls }
    }

    /// The tool likewise.
    pub(super) fn tool(&mut self, tool: &Tool) -> Tool {
        Tool {
            name: self.text(&tool.name),
            description: self.text(&tool.description),
            parameters: self.value(&tool.parameters),
        }
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => fields.iter().map(|(key, value)| (self.text(key), self.value(value))).collect(),
            other => other.clone(),
        }
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
        // The conversation would have to hold every character of two planes for this to find none.
        let free = ('\u{f0000}'..='\u{10fffd}').find(|character| !taken(*character));
        let character = free.unwrap_or(char::REPLACEMENT_CHARACTER);
        self.names.push((character, name.to_owned()));
        character
    }

    /// The text with its names again, and where those stand.
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
