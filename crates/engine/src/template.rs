//! Conversations as the text that a model was trained on, and that text as token ids.
//!
//! The template is a Jinja program in the model's metadata, and comes from somewhere else: it runs with a bounded number
//! of instructions and a bounded output, and can reach nothing but the conversation. Where a file has none, one of the
//! well-known forms stands in, chosen by the control tokens that the vocabulary has.
//!
//! What people write stays text. A message that contains the name of a control token (`<|im_end|>`) reaches the model as
//! these letters: the name is replaced by a character for private use while the template runs, and put back as text that
//! is not searched for control tokens.

mod engine;
mod fallback;

use std::ops::Range;

use hone_protocol::{Message, Role};
use thiserror::Error;

use crate::gguf::{Gguf, GgufError, Value};
use crate::tokenizer::{Tokenizer, TokenizerError};
use engine::Engine;

const KEY: &str = "tokenizer.chat_template";

/// Why a conversation cannot be turned into a prompt.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// A metadata value is broken.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The template is no Jinja, or refuses the conversation.
    #[error("the model's chat template fails{}: {reason}", at_line(*line))]
    Failed {
        /// The template's line, counted from 1.
        line: Option<usize>,
        /// What went wrong, or what the template says.
        reason: String,
    },
    /// The file has no template and its vocabulary is of no well-known chat format.
    #[error(
        "the file has no {KEY}, and its vocabulary has the control tokens of no well-known chat format: it is not made \
         for conversations; give it plain text to continue"
    )]
    Missing,
    /// The prompt could not be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" in line {line}"))
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    engine: Engine,
}

impl ChatTemplate {
    /// The template in the file's metadata, or the one that its vocabulary suggests.
    ///
    /// # Errors
    /// When the template does not parse, or there is none and the vocabulary suggests none.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let name = gguf.string("general.name")?.unwrap_or_default();
        let source = match stored_template(gguf)? {
            Some(source) => source,
            None => fallback::template(tokenizer, name).ok_or(TemplateError::Missing)?,
        };
        Self::new(source, tokenizer)
    }

    /// A template given as text, for the vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// When it does not parse.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let name = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true)).unwrap_or_default();
        Ok(ChatTemplate { engine: Engine::new(source, name(tokenizer.bos()), name(tokenizer.eos()))? })
    }

    /// The text of a conversation, up to where the model's next turn begins. Where the template refuses a system message,
    /// its text stands before the first user message.
    ///
    /// # Errors
    /// When the template fails or refuses the conversation.
    pub fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        self.engine.render(messages).or_else(|error| match without_system(messages) {
            Some(folded) => self.engine.render(&folded).map_err(|_| error),
            None => Err(error),
        })
    }

    /// The token ids of a conversation, up to where the model's next turn begins, with one BOS where the model wants one.
    /// Control tokens come from the template alone, never from the text of a message.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn encode_chat(&self, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<u32>, TemplateError> {
        let mut disguise = Disguise::default();
        let disguised: Vec<Message> = messages
            .iter()
            .map(|message| Message::new(message.role, disguise.put_on(tokenizer, &message.content, messages)))
            .collect();
        let (text, literal) = disguise.take_off(&self.render(&disguised)?);
        Ok(tokenizer.encode_prompt(&text, &literal)?)
    }
}

/// The template under its plain key, or of the named ones the default, or the first.
fn stored_template(gguf: &Gguf) -> Result<Option<&str>, TemplateError> {
    for key in [KEY, "tokenizer.chat_template.default"] {
        if let Some(source) = gguf.string(key)? {
            return Ok(Some(source));
        }
    }
    let mut named = gguf.metadata().filter(|(key, _)| key.starts_with("tokenizer.chat_template."));
    Ok(named.find_map(|(_, value)| if let Value::String(source) = value { Some(source.as_str()) } else { None }))
}

/// The conversation with its system messages at the head of the first user message; `None` where there are none.
fn without_system(messages: &[Message]) -> Option<Vec<Message>> {
    let (system, mut others): (Vec<Message>, Vec<Message>) =
        messages.iter().cloned().partition(|message| message.role == Role::System);
    if system.is_empty() {
        return None;
    }
    let system: Vec<String> = system.into_iter().map(|message| message.content).collect();
    let system = system.join("\n\n");
    match others.iter_mut().find(|message| message.role == Role::User) {
        Some(first) => first.content = format!("{system}\n\n{}", first.content),
        None => others.insert(0, Message::new(Role::User, system)),
    }
    Some(others)
}

/// Stands in for the names of control tokens while a template runs.
#[derive(Debug, Default)]
struct Disguise {
    /// A character for private use, and the name that it stands for.
    names: Vec<(char, String)>,
}

impl Disguise {
    /// `content` with a character in place of every name of a control token; `messages` is the whole conversation, in
    /// which that character does not occur.
    fn put_on(&mut self, tokenizer: &Tokenizer, content: &str, messages: &[Message]) -> String {
        let mut disguised = String::with_capacity(content.len());
        let mut end = 0;
        for place in tokenizer.control_names_in(content) {
            disguised.push_str(&content[end..place.start]);
            end = place.end;
            disguised.push(self.character_for(&content[place], messages));
        }
        disguised.push_str(&content[end..]);
        disguised
    }

    fn character_for(&mut self, name: &str, messages: &[Message]) -> char {
        if let Some((character, _)) = self.names.iter().find(|(_, known)| known == name) {
            return *character;
        }
        let taken = |character: char| {
            self.names.iter().any(|(known, _)| *known == character)
                || messages.iter().any(|message| message.content.contains(character))
        };
        // The conversation would have to hold every character of two planes for this to find none.
        let free = ('\u{f0000}'..='\u{10fffd}').find(|character| !taken(*character));
        let character = free.unwrap_or(char::REPLACEMENT_CHARACTER);
        self.names.push((character, name.to_owned()));
        character
    }

    /// The text with its names again, and where those stand.
    fn take_off(&self, text: &str) -> (String, Vec<Range<usize>>) {
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
