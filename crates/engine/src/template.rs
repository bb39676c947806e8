//! Renders conversations as the text that a model was trained on, and that text as token ids.
//!
//! The template is a Jinja program in the model's metadata, and is not trusted. It can access nothing but the
//! conversation, and runs in a [process of its own](worker) within 256 MiB of memory, 64 MiB of stack and 5 seconds per
//! rendering, of which minijinja may execute two million instructions; exceeding a limit fails that request. The
//! process is started when the template is first used, so plain text continuation never starts it. A file without a
//! template gets one of the well-known formats, chosen by the control tokens in its vocabulary; those, and the
//! templates of the catalog's files, are known and run in this process.
//!
//! Text from people and tools stays text. If a message contains the name of a control token (`<|im_end|>`), the model
//! sees its letters: the name is replaced by a private-use character while the template runs, and restored as text in
//! which control tokens are not recognized. If a template makes such a name out of other text (`<|IM_END|>` in lower
//! case), the conversation is refused.

mod adaptation;
mod conversation;
mod disguise;
mod fallback;
mod host;
mod json;
mod known;
mod messages;
mod process;
mod python;
mod rendering;
mod source;
mod taught_tools;
pub mod worker;

use std::collections::BTreeMap;

use hone_protocol::{Message, ReasoningTags, Role, ThinkingOptions, Tool};
use thiserror::Error;

use crate::gguf::{Gguf, GgufError, Value};
use crate::tokenizer::{Tokenizer, TokenizerError};
use disguise::{Disguise, Neutral};
use host::Template;
use messages::TemplateRequest;
use source::TemplateSource;

pub use host::TemplateHost;
pub use messages::Failure;
pub(crate) use taught_tools::FORM;

const KEY: &str = "tokenizer.chat_template";
/// Maximum length of a template in bytes. Templates of well-known models have up to about twenty kilobytes.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Why a conversation cannot be turned into a prompt.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// A metadata value is broken.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The template is not valid Jinja, or refuses the conversation.
    #[error("the model's chat template fails {0}")]
    Failed(Failure),
    /// The template is too long.
    #[error("{KEY} has {n_bytes} bytes: a chat template may have {MAX_TEMPLATE_BYTES}")]
    TooLong {
        /// Its length.
        n_bytes: usize,
    },
    /// The template exceeds a limit.
    #[error("the model's chat template {0}: use a file with another one, or give plain text to continue")]
    Exceeded(String),
    /// The process in which the template should run is unavailable.
    #[error("cannot run the model's chat template in a process of its own")]
    Process(#[source] std::io::Error),
    /// The template makes a control token out of a message's text.
    #[error(
        "the model's chat template turns text of the conversation into the control token {name:?}: reword it, or use a \
         file with another template"
    )]
    MakesControlToken {
        /// The token's name.
        name: String,
    },
    /// The request was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The file has no template and its vocabulary matches no well-known chat format.
    #[error(
        "the file has no {KEY}, and its vocabulary has the control tokens of no well-known chat format: it is not made \
         for conversations; give it plain text to continue"
    )]
    Missing,
    /// The request has tools, and the template does not mention any.
    #[error("the model's chat template does not support tools")]
    NoTools,
    /// The prompt could not be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// The input of a template: a conversation, up to the start of the model's next turn.
#[derive(Clone, Copy)]
pub struct Chat<'a> {
    /// Its turns.
    pub messages: &'a [Message],
    /// The tools that the model may call.
    pub tools: &'a [Tool],
    /// Whether a model whose template knows no tools is told of them in its instructions.
    pub teaches_tools: bool,
    /// Whether and how thoroughly the model reasons.
    pub thinking: ThinkingOptions,
    /// Whether the text ends at the start of the model's next turn instead of after the last message.
    pub opens_answer: bool,
    /// Returns whether the prompt is no longer wanted.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Chat<'a> {
    /// A conversation without tools, with default options.
    pub fn of(messages: &'a [Message]) -> Chat<'a> {
        Chat {
            messages,
            tools: &[],
            teaches_tools: false,
            thinking: ThinkingOptions::default(),
            opens_answer: true,
            is_cancelled: &|| false,
        }
    }

    /// Like [`Chat::of`], but the text ends after the last message.
    pub fn finished(messages: &'a [Message]) -> Chat<'a> {
        Chat { opens_answer: false, ..Chat::of(messages) }
    }
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    plain: Template,
    /// The template for conversations with tools, if the file has a separate one.
    with_tools: Option<Template>,
    /// Whether it is a known template that passes text through unchanged.
    is_known: bool,
}

impl ChatTemplate {
    /// The template in the file's metadata, or the one that its vocabulary suggests. It is not parsed yet;
    /// [`ChatTemplate::check`] does that.
    ///
    /// # Errors
    /// When the template is too long, or the file has no template and the vocabulary suggests none.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer, host: &TemplateHost) -> Result<Self, TemplateError> {
        let name = gguf.string("general.name")?.unwrap_or_default();
        let with_tools = gguf.string("tokenizer.chat_template.tool_use")?;
        let Some(text) = stored_template(gguf)? else {
            let text = fallback::template(tokenizer, name).ok_or(TemplateError::Missing)?;
            return ChatTemplate::known(text, tokenizer);
        };
        if with_tools.is_none() && known::is_known(text) {
            return ChatTemplate::known(text, tokenizer);
        }
        let with_tools = with_tools.map(|text| source(text, tokenizer)).transpose()?;
        Ok(ChatTemplate {
            plain: Template::at(host, source(text, tokenizer)?),
            with_tools: with_tools.map(|source| Template::at(host, source)),
            is_known: false,
        })
    }

    fn known(text: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        Ok(ChatTemplate {
            plain: Template::at(&TemplateHost::InProcess, source(text, tokenizer)?),
            with_tools: None,
            is_known: true,
        })
    }

    /// Whether rendering may take up to the time limit, and so should not block others.
    pub(crate) fn may_take_long(&self) -> bool {
        self.plain.is_elsewhere()
    }

    /// Checks whether the template can be used at all.
    ///
    /// # Errors
    /// When it does not parse, or exceeds a limit.
    pub fn check(&self) -> Result<(), TemplateError> {
        let templates = std::iter::once(&self.plain).chain(&self.with_tools);
        templates.into_iter().try_for_each(|template| template.ask(&TemplateRequest::Check, &|| false).map(drop))
    }

    /// Renders a conversation as text, up to the start of the model's next turn, including the beginning of that turn
    /// if the conversation ends with it. If no answer is opened, the text ends with the last turn. A conversation that
    /// the template refuses is adapted to it.
    ///
    /// # Errors
    /// When the template fails or refuses the conversation, does not support the given tools, or the request was
    /// cancelled.
    pub fn render(&self, chat: Chat<'_>) -> Result<String, TemplateError> {
        let Some((begun, before)) = begun_answer(chat.messages).filter(|_| chat.opens_answer) else {
            return self.render_turns(chat);
        };
        let mut text = self.render_turns(Chat { messages: before, ..chat })?;
        text.push_str(&self.before_answer(&text));
        text.push_str(&begun.content);
        Ok(text)
    }

    /// Renders turns that end before the model's.
    fn render_turns(&self, chat: Chat<'_>) -> Result<String, TemplateError> {
        let template = self.with_tools.as_ref().filter(|_| !chat.tools.is_empty()).unwrap_or(&self.plain);
        if chat.tools.is_empty() || template.mentions_tools() {
            return adaptation::render(template, chat);
        }
        if !chat.teaches_tools {
            return Err(TemplateError::NoTools);
        }
        let messages = taught_tools::told(chat.messages, chat.tools);
        adaptation::render(template, Chat { messages: &messages, tools: &[], ..chat })
    }

    /// Whether the template knows tools, so that its model was trained to call them.
    pub(crate) fn knows_tools(&self) -> bool {
        self.with_tools.as_ref().unwrap_or(&self.plain).mentions_tools()
    }

    /// The text between the end of a prompt and an answer that has begun: the end of the reasoning that the prompt
    /// opens, or the header of the answer.
    fn before_answer(&self, prompt: &str) -> String {
        match (ReasoningTags::opened_by(prompt), self.reasoning_tags().and_then(|tags| tags.messages)) {
            (Some(tags), None) => format!("{}\n\n", tags.close),
            (Some(tags), Some(_)) => tags.before_answer(),
            (None, Some(marks)) => marks.answer.to_owned(),
            (None, None) => String::new(),
        }
    }

    /// The template's tags for reasoning, if it supports reasoning.
    pub fn reasoning_tags(&self) -> Option<&'static ReasoningTags> {
        self.plain.reasoning_tags()
    }

    /// The token ids of a conversation, up to the start of the model's next turn, with one BOS if the model expects
    /// one. Control tokens come from the template alone, never from the text of a message or a tool.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and when the template makes a control token out of a text.
    pub fn encode_chat(&self, tokenizer: &Tokenizer, chat: Chat<'_>) -> Result<Vec<u32>, TemplateError> {
        let mut disguise = Disguise::new(tokenizer, chat.messages, chat.tools);
        let messages: Vec<Message> = chat.messages.iter().map(|message| disguise.message(message)).collect();
        let tools: Vec<Tool> = chat.tools.iter().map(|tool| disguise.tool(tool)).collect();
        let chat = Chat { messages: &messages, tools: &tools, ..chat };
        let (text, literal) = disguise.take_off(&self.render(chat)?);
        if !self.is_known {
            let found = tokenizer.control_tokens_in(&text, &literal);
            self.check_control_tokens(&found, tokenizer, chat)?;
        }
        Ok(tokenizer.encode_prompt(&text, &literal)?)
    }

    /// Checks that the control tokens `found` in the rendered conversation come from the template: a neutral version of
    /// the conversation must have as many of each.
    fn check_control_tokens(&self, found: &[u32], tokenizer: &Tokenizer, chat: Chat<'_>) -> Result<(), TemplateError> {
        let render = |keeps_words: bool| {
            let neutral = Neutral::new(tokenizer, keeps_words);
            let messages: Vec<Message> = chat.messages.iter().map(|message| neutral.message(message)).collect();
            let tools: Vec<Tool> = chat.tools.iter().map(|tool| neutral.tool(tool)).collect();
            self.render(Chat { messages: &messages, tools: &tools, ..chat })
        };
        let text = match render(false) {
            Err(TemplateError::Failed(_)) => render(true)?,
            rendered => rendered?,
        };
        let mut expected = BTreeMap::<u32, usize>::new();
        tokenizer.control_tokens_in(&text, &[]).into_iter().for_each(|id| *expected.entry(id).or_default() += 1);
        for id in found {
            match expected.get_mut(id) {
                Some(count) if *count > 0 => *count -= 1,
                _ => return Err(TemplateError::MakesControlToken { name: tokenizer.decode(&[*id], true) }),
            }
        }
        Ok(())
    }
}

fn source(text: &str, tokenizer: &Tokenizer) -> Result<TemplateSource, TemplateError> {
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(TemplateError::TooLong { n_bytes: text.len() });
    }
    let name = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true)).unwrap_or_default();
    Ok(TemplateSource { text: text.to_owned(), bos: name(tokenizer.bos()), eos: name(tokenizer.eos()) })
}

/// The template under its plain key; otherwise, of the named ones, the default or the first.
fn stored_template(gguf: &Gguf) -> Result<Option<&str>, TemplateError> {
    for key in [KEY, "tokenizer.chat_template.default"] {
        if let Some(source) = gguf.string(key)? {
            return Ok(Some(source));
        }
    }
    let mut named = gguf.metadata().filter(|(key, _)| key.starts_with("tokenizer.chat_template."));
    Ok(named.find_map(|(_, value)| if let Value::String(source) = value { Some(source) } else { None }))
}

/// The begun answer at the end of a conversation, if there is one, and the turns before it.
pub(crate) fn begun_answer(messages: &[Message]) -> Option<(&Message, &[Message])> {
    let (last, before) = messages.split_last()?;
    let is_begun = last.role == Role::Assistant && last.tool_calls.is_empty() && !last.content.is_empty();
    (is_begun && !before.is_empty()).then_some((last, before))
}
