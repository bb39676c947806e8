//! Turns a request into tokens, on the caller's thread, or on one of its own if its chat template may take long.

use std::time::Instant;

use hone_protocol::{GenerateError, GenerateRequest, GenerationSender, Message, ModelFile, Prompt, with_causes};

use crate::constraint::ConstraintState;
use crate::model::ModelText;
use crate::sampler::Sampler;
use crate::template::TemplateError;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// A request whose model has been found.
pub(super) struct LocatedRequest {
    pub(super) request: GenerateRequest,
    pub(super) file: ModelFile,
    pub(super) events: GenerationSender,
    pub(super) arrived: Instant,
}

/// The validated parts of a request.
pub(super) struct Prepared {
    pub(super) prompt: Vec<u32>,
    /// How many of its first tokens are shared with many other requests.
    pub(super) n_common: usize,
    /// Positions that the context leaves for the answer.
    room: usize,
    pub(super) choice: Choice,
    pub(super) named_tokens: Vec<u32>,
}

/// What chooses the tokens of the answer.
pub(super) enum Choice {
    /// The sampler, among the tokens that the constraint allows.
    Sampled(Box<Sampler>, Option<ConstraintState>),
    /// Nothing: these are the tokens.
    Forced(Vec<u32>),
}

impl Prepared {
    /// The maximum number of tokens in the answer.
    pub(super) fn max_tokens(&self, request: &GenerateRequest) -> usize {
        let wanted = request.max_tokens.unwrap_or(usize::MAX).min(self.room);
        match &self.choice {
            Choice::Forced(tokens) => wanted.min(tokens.len()),
            Choice::Sampled(..) => wanted,
        }
    }

    /// Tokenizes the prompt, and validates it and the options.
    pub(super) fn new(
        request: &GenerateRequest,
        events: &GenerationSender,
        model: &ModelText,
    ) -> Result<Self, GenerateError> {
        let prompt = encode(request, events, model)?;
        let context_tokens = request.context.unwrap_or(usize::MAX).min(model.context_length());
        let room = context_tokens.saturating_sub(prompt.len());
        if room == 0 {
            return Err(GenerateError::ContextOverflow { prompt_tokens: prompt.len(), context_tokens });
        }
        let choice = choice(request, model)?;
        if let Choice::Forced(tokens) = &choice
            && tokens.len() > room
        {
            return Err(GenerateError::ContextOverflow { prompt_tokens: prompt.len() + tokens.len(), context_tokens });
        }
        let named_tokens = named_tokens(&request.logprobs.named, model.tokenizer());
        let n_common = common_tokens(request, events, &prompt, model)?;
        Ok(Prepared { prompt, n_common, room, choice, named_tokens })
    }
}

fn choice(request: &GenerateRequest, model: &ModelText) -> Result<Choice, GenerateError> {
    let start = |constraint| model.constraints().and_then(|factory| factory.start(constraint)).map_err(refused);
    match (&request.forced_answer, &request.constraint) {
        (None, constraint) => {
            let sampler = Sampler::new(request.sampling.clone(), model.vocab_size()).map_err(refused)?;
            Ok(Choice::Sampled(Box::new(sampler), constraint.as_ref().map(start).transpose()?))
        }
        (Some(answer), None) => {
            let tokens = model.tokenizer().encode(answer, EncodeOptions::default()).map_err(refused)?;
            if tokens.is_empty() { Err(refused("the forced answer is empty")) } else { Ok(Choice::Forced(tokens)) }
        }
        (Some(_), Some(_)) => Err(refused("a forced answer cannot be held to a constraint: give one of them")),
    }
}

fn refused(error: impl std::fmt::Display) -> GenerateError {
    GenerateError::Request(error.to_string())
}

fn encode(request: &GenerateRequest, events: &GenerationSender, model: &ModelText) -> Result<Vec<u32>, GenerateError> {
    let tokens = match &request.prompt {
        Prompt::Chat(messages) => encode_chat(request, events, messages, model)?,
        _ if !request.tools.is_empty() => {
            return Err(refused("tools are named to a model by its chat template: give the prompt as a conversation"));
        }
        Prompt::Text { text, parse_special, add_special } => {
            let options = EncodeOptions { parse_special: *parse_special, add_special: *add_special };
            model.tokenizer().encode(text, options).map_err(refused)?
        }
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    if let Some(unknown) = tokens.iter().find(|token| **token as usize >= model.vocab_size()) {
        return Err(refused(format!("token id {unknown} is not in the vocabulary of {}", model.vocab_size())));
    }
    if tokens.is_empty() {
        return Err(refused("the prompt is empty, and the model adds no token of its own: give it some text"));
    }
    Ok(tokens)
}

fn encode_chat(
    request: &GenerateRequest,
    events: &GenerationSender,
    messages: &[Message],
    model: &ModelText,
) -> Result<Vec<u32>, GenerateError> {
    let template = model.template().map_err(refused)?;
    let is_cancelled = || events.is_cancelled();
    let encoded = template.encode_chat_unless(model.tokenizer(), messages, &request.tools, &is_cancelled);
    encoded.map_err(|error| match error {
        TemplateError::NoTools => GenerateError::NoTools { model: request.model.clone() },
        other => GenerateError::Request(with_causes(&other)),
    })
}

/// How many of the prompt's first tokens belong to the beginning it shares with other requests.
fn common_tokens(
    request: &GenerateRequest,
    events: &GenerationSender,
    prompt: &[u32],
    model: &ModelText,
) -> Result<usize, GenerateError> {
    let (Prompt::Chat(messages), Some(beginning)) = (&request.prompt, &request.common_beginning) else { return Ok(0) };
    let mut messages = messages.clone();
    if let Some(last) = messages.last_mut() {
        last.content.clone_from(beginning);
    }
    let tokens = encode_chat(request, events, &messages, model)?;
    Ok(std::iter::zip(&tokens, prompt).take_while(|(ours, theirs)| ours == theirs).count())
}

/// The tokens of those names that are a single token.
fn named_tokens(names: &[String], tokenizer: &Tokenizer) -> Vec<u32> {
    names.iter().filter_map(|name| tokenizer.token_with_text(name)).collect()
}
