//! Turns a request into tokens, on the caller's thread, or on one of its own if its chat template may take long.

use std::time::Instant;

use hone_protocol::{
    CallFormat, Constraint, GenerateError, GenerateRequest, GenerationSender, Message, ModelFile, Prompt,
    ReasoningTags, ThinkingOptions, call_schema, with_causes,
};

use crate::constraint::ConstraintState;
use crate::model::{ModelError, ModelText};
use crate::sampler::{Breakers, Sampler};
use crate::template::{Chat, ChatTemplate, FORM, TemplateError, begun_answer};
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// Number of tokens at the end of a prompt in which the tag that opens reasoning is searched for.
const END_TOKENS: usize = 8;

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
    /// The tags that the prompt has opened, inside of which the answer begins.
    pub(super) reasoning: Option<ReasoningTags>,
    /// Number of leading prompt tokens that are shared with many other requests.
    pub(super) n_common: usize,
    /// Positions that the context leaves for the answer.
    room: usize,
    pub(super) choice: Choice,
    pub(super) named_tokens: Vec<u32>,
}

/// How the tokens of the answer are chosen.
pub(super) enum Choice {
    /// By the sampler, among the tokens that the constraint allows.
    Sampled(Box<Sampler>, Option<Box<ConstraintState>>),
    /// Given: these are the tokens.
    Forced(Vec<u32>),
}

impl Prepared {
    /// The maximum number of tokens in the answer.
    pub(super) fn max_tokens(&self, request: &GenerateRequest) -> usize {
        let most = if request.wants_reward { Some(1) } else { request.max_tokens };
        let wanted = most.unwrap_or(usize::MAX).min(self.room);
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
        check_purpose(request, model)?;
        let mut prompt = encode(request, events, model)?;
        let reasoning = open_reasoning(request, &mut prompt, model)?;
        let context_tokens = request.context.unwrap_or(usize::MAX).min(model.context_length());
        let room = context_tokens.saturating_sub(prompt.len());
        if room == 0 {
            return Err(GenerateError::ContextOverflow { prompt_tokens: prompt.len(), context_tokens });
        }
        let choice = choice(request, reasoning, model)?;
        if let Choice::Forced(tokens) = &choice
            && tokens.len() > room
        {
            return Err(GenerateError::ContextOverflow { prompt_tokens: prompt.len() + tokens.len(), context_tokens });
        }
        let named_tokens = named_tokens(&request.logprobs.named, model.tokenizer());
        let n_common = common_tokens(request, events, &prompt, model)?;
        Ok(Prepared { prompt, reasoning, n_common, room, choice, named_tokens })
    }
}

/// Checks that the model gives what the request wants: an answer, or a reward for one.
fn check_purpose(request: &GenerateRequest, model: &ModelText) -> Result<(), GenerateError> {
    match (request.wants_reward, model.gives_rewards()) {
        (false, true) => {
            Err(GenerateError::Model { model: request.model.clone(), reason: ModelError::Head.to_string() })
        }
        (true, false) => Err(refused(format!("{} is not a reward model: it answers", request.model))),
        (true, true) if !matches!(request.prompt, Prompt::Chat(_)) || request.forced_answer.is_some() => {
            Err(refused("a reward is for a conversation that ends with the answer: give the prompt as one"))
        }
        (true, true) if request.logprobs.of_prompt => Err(refused("a reward model gives no log-probabilities")),
        _ => Ok(()),
    }
}

fn choice(
    request: &GenerateRequest,
    reasoning: Option<ReasoningTags>,
    model: &ModelText,
) -> Result<Choice, GenerateError> {
    match (&request.forced_answer, &request.constraint) {
        (None, _) => {
            let tokens = 0..model.tokenizer().n_tokens() as u32;
            let breakers = || Breakers::among(tokens.map(|id| model.tokenizer().token_bytes(id)));
            let sampler = Sampler::new(request.sampling.clone(), model.vocab_size(), breakers).map_err(refused)?;
            Ok(Choice::Sampled(Box::new(sampler), constraint(request, reasoning, model)?.map(Box::new)))
        }
        (Some(answer), None) => {
            let tokens = model.tokenizer().encode(answer, EncodeOptions::default()).map_err(refused)?;
            if tokens.is_empty() { Err(refused("the forced answer is empty")) } else { Ok(Choice::Forced(tokens)) }
        }
        (Some(_), Some(_)) => Err(refused("a forced answer cannot be held to a constraint: give one of them")),
    }
}

/// The constraint on the answer: its form, which begins after the reasoning, and the reasoning's end.
fn constraint(
    request: &GenerateRequest,
    reasoning: Option<ReasoningTags>,
    model: &ModelText,
) -> Result<Option<ConstraintState>, GenerateError> {
    let most_tokens = match request.thinking.is_on {
        Some(false) => Some(0),
        _ => request.thinking.budget,
    };
    let state = match (reasoning, &request.constraint) {
        (_, Some(form @ Constraint::FreeThenRegex { .. })) | (None, Some(form)) => {
            model.constraints().and_then(|factory| factory.start(form))
        }
        (Some(tags), form) if form.is_some() || most_tokens.is_some() => {
            let most_tokens = most_tokens.unwrap_or(usize::MAX);
            let marker = if form.is_some() { tags.before_answer() } else { tags.close.to_owned() };
            model.constraints().and_then(|factory| factory.start_after(&marker, most_tokens, form.as_ref()))
        }
        (None, None) if is_taught(request, model) => return Ok(taught_calls(request, model)),
        _ => return Ok(None),
    };
    state.map(Some).map_err(refused)
}

/// Whether the model is told of tools that its template does not know, and is to be held to their schemas.
fn is_taught(request: &GenerateRequest, model: &ModelText) -> bool {
    // In its reasoning a model may write anything, and it may open the reasoning itself.
    let is_free = |template: &ChatTemplate| template.knows_tools() || template.reasoning_tags().is_some();
    let is_chat = matches!(request.prompt, Prompt::Chat(_));
    request.teaches_tools && !request.tools.is_empty() && is_chat && !model.template().is_ok_and(is_free)
}

/// Constrains the calls of a model that was not trained to make any to the schemas of the tools, as far as these can be
/// enforced.
fn taught_calls(request: &GenerateRequest, model: &ModelText) -> Option<ConstraintState> {
    let CallFormat { open, close, .. } = FORM;
    let state = model.constraints().and_then(|factory| factory.start_calls(open, &call_schema(&request.tools), close));
    state.inspect_err(|error| tracing::debug!("calls are not held to their schemas: {error}")).ok()
}

/// The tags that the prompt of a chat has opened at its end. Opens them if reasoning is requested and the template
/// supports it, so that the beginning of the answer is known. For a model that writes its turn as several messages, the
/// answer's message is begun if it should not reason.
fn open_reasoning(
    request: &GenerateRequest,
    prompt: &mut Vec<u32>,
    model: &ModelText,
) -> Result<Option<ReasoningTags>, GenerateError> {
    let Prompt::Chat(messages) = &request.prompt else { return Ok(None) };
    if request.wants_reward || begun_answer(messages).is_some() {
        return Ok(None);
    }
    let end = model.tokenizer().decode(&prompt[prompt.len().saturating_sub(END_TOKENS)..], true);
    if let Some(tags) = ReasoningTags::opened_by(&end) {
        return Ok(Some(*tags));
    }
    let ThinkingOptions { is_on, budget, .. } = request.thinking;
    let is_wanted = is_on.unwrap_or(budget.is_some());
    let Some(tags) = model.template().map_err(refused)?.reasoning_tags() else { return Ok(None) };
    let is_unwanted = is_on == Some(false) || request.constraint.is_some() || request.forced_answer.is_some();
    let beginning = match tags.messages {
        _ if is_wanted => tags.opening,
        Some(marks) if is_unwanted => marks.answer,
        _ => return Ok(None),
    };
    let options = EncodeOptions { parse_special: true, ..EncodeOptions::default() };
    prompt.extend(model.tokenizer().encode(beginning, options).map_err(refused)?);
    Ok(Some(*tags).filter(|_| is_wanted))
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
    let chat = Chat {
        messages,
        tools: &request.tools,
        teaches_tools: request.teaches_tools,
        thinking: request.thinking,
        opens_answer: !request.wants_reward,
        is_cancelled: &is_cancelled,
    };
    let encoded = template.encode_chat(model.tokenizer(), chat);
    encoded.map_err(|error| match error {
        TemplateError::NoTools => GenerateError::NoTools { model: request.model.clone() },
        other => GenerateError::Request(with_causes(&other)),
    })
}

/// Number of leading prompt tokens that belong to the beginning shared with other requests.
fn common_tokens(
    request: &GenerateRequest,
    events: &GenerationSender,
    prompt: &[u32],
    model: &ModelText,
) -> Result<usize, GenerateError> {
    let (Prompt::Chat(messages), Some(beginning)) = (&request.prompt, &request.common_beginning) else { return Ok(0) };
    let turns = begun_answer(messages).map_or(messages.as_slice(), |(_, before)| before);
    let mut messages = turns.to_vec();
    if let Some(last) = messages.last_mut() {
        last.content.clone_from(beginning);
    }
    let tokens = encode_chat(request, events, &messages, model)?;
    Ok(std::iter::zip(&tokens, prompt).take_while(|(ours, theirs)| ours == theirs).count())
}

/// The tokens of the names that are a single token.
fn named_tokens(names: &[String], tokenizer: &Tokenizer) -> Vec<u32> {
    names.iter().filter_map(|name| tokenizer.token_with_text(name)).collect()
}
