//! Conversations as the text that a model was trained on, and that text as token ids.
//!
//! The template is a Jinja program in the model's metadata, and comes from somewhere else: it runs with a bounded number
//! of instructions and a bounded output, and can reach nothing but the conversation. Where a file has none, one of the
//! well-known forms stands in, chosen by the control tokens that the vocabulary has.
//!
//! What people and tools write stays text. A message that contains the name of a control token (`<|im_end|>`) reaches the
//! model as these letters: the name is replaced by a character for private use while the template runs, and put back as
//! text that is not searched for control tokens.

mod conversation;
mod disguise;
mod engine;
mod fallback;

use hone_protocol::{Message, Role, Tool};
use thiserror::Error;

use crate::gguf::{Gguf, GgufError, Value};
use crate::tokenizer::{Tokenizer, TokenizerError};
use disguise::Disguise;
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
    /// There are tools, and the template does not mention any.
    #[error("the model's chat template knows no tools")]
    NoTools,
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
    /// The one for conversations with tools, where the file has one of its own.
    with_tools: Option<Engine>,
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
        let mut template = Self::new(source, tokenizer)?;
        if let Some(source) = gguf.string("tokenizer.chat_template.tool_use")? {
            template.with_tools = Some(new_engine(source, tokenizer)?);
        }
        Ok(template)
    }

    /// A template given as text, for the vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// When it does not parse.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        Ok(ChatTemplate { engine: new_engine(source, tokenizer)?, with_tools: None })
    }

    /// The text of a conversation, up to where the model's next turn begins. Where the template refuses a system message,
    /// its text stands before the first user message.
    ///
    /// # Errors
    /// When the template fails or refuses the conversation, or there are tools and it knows none.
    pub fn render(&self, messages: &[Message], tools: &[Tool]) -> Result<String, TemplateError> {
        let engine = self.with_tools.as_ref().filter(|_| !tools.is_empty()).unwrap_or(&self.engine);
        if !tools.is_empty() && !engine.mentions_tools() {
            return Err(TemplateError::NoTools);
        }
        engine.render(messages, tools).or_else(|error| match without_system(messages) {
            Some(folded) => engine.render(&folded, tools).map_err(|_| error),
            None => Err(error),
        })
    }

    /// The token ids of a conversation, up to where the model's next turn begins, with one BOS where the model wants one.
    /// Control tokens come from the template alone, never from the text of a message or a tool.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn encode_chat(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Tool],
    ) -> Result<Vec<u32>, TemplateError> {
        let mut disguise = Disguise::new(tokenizer, messages, tools);
        let messages: Vec<Message> = messages.iter().map(|message| disguise.message(message)).collect();
        let tools: Vec<Tool> = tools.iter().map(|tool| disguise.tool(tool)).collect();
        let (text, literal) = disguise.take_off(&self.render(&messages, &tools)?);
        Ok(tokenizer.encode_prompt(&text, &literal)?)
    }
}

fn new_engine(source: &str, tokenizer: &Tokenizer) -> Result<Engine, TemplateError> {
    let name = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true)).unwrap_or_default();
    Engine::new(source, name(tokenizer.bos()), name(tokenizer.eos()))
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
