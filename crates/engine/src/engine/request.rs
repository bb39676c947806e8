//! One request while it runs: what is still to be computed, and what has been answered.

use std::time::Instant;

use hone_protocol::{
    FinishReason, GenerateError, GenerateRequest, GenerationEvent, GenerationSender, LogprobOptions, Message, Prompt,
    Timings, TokenLogprob, TokenLogprobs,
};

use crate::constraint::{ConstraintState, Taken};
use crate::kv_cache::CachedSequence;
use crate::logprobs::{largest, log_sum_exp};
use crate::model::Model;
use crate::sampler::Sampler;
use crate::template::TemplateError;
use crate::text_stream::TextStream;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// The most prompt tokens of one request that a step computes.
const PREFILL_CHUNK: usize = 512;

/// A request that has been admitted.
pub(super) struct RunningRequest {
    events: GenerationSender,
    pub(super) sequence: CachedSequence,
    /// Tokens that are not in the cache yet: the rest of the prompt, or the token sampled last.
    pending: Vec<u32>,
    n_prompt: usize,
    n_generated: usize,
    max_tokens: usize,
    /// Whether the answer is bounded by the context and not by the request.
    is_bounded_by_context: bool,
    sampler: Sampler,
    constraint: Option<ConstraintState>,
    text: TextStream,
    logprobs: LogprobOptions,
    named_tokens: Vec<u32>,
    started: Instant,
    first_token: Option<Instant>,
}

impl RunningRequest {
    /// A request that starts when its turn comes.
    pub(super) fn new(prepared: Prepared, request: &GenerateRequest, events: GenerationSender) -> Self {
        events.send(GenerationEvent::Started { prompt_token_ids: prepared.prompt.clone() });
        let mut sampler = prepared.sampler;
        prepared.prompt.iter().for_each(|token| sampler.observe(*token));
        let max_tokens = request.max_tokens.unwrap_or(usize::MAX);
        RunningRequest {
            events,
            sequence: CachedSequence::default(),
            n_prompt: prepared.prompt.len(),
            pending: prepared.prompt,
            n_generated: 0,
            max_tokens: max_tokens.min(prepared.room),
            is_bounded_by_context: prepared.room < max_tokens,
            sampler,
            constraint: prepared.constraint,
            text: TextStream::new(request.stop.clone()),
            logprobs: request.logprobs.clone(),
            named_tokens: prepared.named_tokens,
            started: Instant::now(),
            first_token: None,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.events.is_cancelled()
    }

    /// Positions that the request may come to fill.
    pub(super) fn max_positions(&self) -> usize {
        self.n_prompt + self.max_tokens
    }

    /// The next tokens and the sequence that they are appended to.
    pub(super) fn step_parts(&mut self) -> (&mut CachedSequence, &[u32]) {
        (&mut self.sequence, &self.pending[..self.pending.len().min(PREFILL_CHUNK)])
    }

    /// Whether the next step ends with a token to be sampled.
    pub(super) fn wants_logits(&self) -> bool {
        self.pending.len() <= PREFILL_CHUNK
    }

    /// Takes note of a step whose logits were not wanted.
    pub(super) fn finish_chunk(&mut self) {
        self.pending.drain(..PREFILL_CHUNK);
        self.report_prefill();
    }

    /// Chooses the next token from the step's logits. Returns whether the request has ended.
    pub(super) fn finish_step(&mut self, logits: &[f32], tokenizer: &Tokenizer) -> bool {
        self.pending.clear();
        if self.first_token.is_none() {
            self.first_token = Some(Instant::now());
            self.report_prefill();
        }
        if self.max_tokens == 0 {
            return self.finish(self.length_reason());
        }
        match self.choose(logits) {
            Ok(token) if tokenizer.is_end_of_generation(token) => self.finish(FinishReason::Stop),
            Ok(token) => self.take_token(token, logits, tokenizer),
            Err(error) => {
                self.fail(error);
                true
            }
        }
    }

    pub(super) fn fail(&self, error: GenerateError) {
        self.events.send(GenerationEvent::Failed(error));
    }

    fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerateError> {
        let failed = |error: crate::constraint::ConstraintError| GenerateError::Failed(error.to_string());
        let no_choice = || GenerateError::Failed("the model's logits are no numbers: its file is damaged".into());
        let Some(constraint) = &mut self.constraint else {
            return self.sampler.sample(logits, |_| ()).ok_or_else(no_choice);
        };
        loop {
            let allowed = constraint.allowed().map_err(failed)?;
            let constrain = |logits: &mut [f32]| allowed.into_iter().for_each(|mask| mask.apply(logits));
            let token = self.sampler.sample(logits, constrain).ok_or_else(no_choice)?;
            if constraint.accept(token).map_err(failed)? == Taken::Appended {
                return Ok(token);
            }
        }
    }

    fn take_token(&mut self, token: u32, logits: &[f32], tokenizer: &Tokenizer) -> bool {
        self.n_generated += 1;
        self.sampler.observe(token);
        self.pending.push(token);
        let logprobs = self.logprobs.is_wanted().then(|| self.report_logprobs(token, logits, tokenizer));
        // A control token that does not end the answer says nothing to a reader.
        let bytes = if tokenizer.is_control(token) { &[] } else { tokenizer.token_bytes(token) };
        let text = self.text.push(bytes);
        self.events.send(GenerationEvent::Token { id: token, text, logprobs });
        if self.text.stopped() {
            return self.finish(FinishReason::StopText);
        }
        if self.constraint.as_ref().is_some_and(ConstraintState::is_complete) {
            return self.finish(FinishReason::Stop);
        }
        self.n_generated >= self.max_tokens && self.finish(self.length_reason())
    }

    fn length_reason(&self) -> FinishReason {
        if self.is_bounded_by_context { FinishReason::ContextFull } else { FinishReason::Length }
    }

    fn finish(&mut self, reason: FinishReason) -> bool {
        let text = self.text.finish();
        self.events.send(GenerationEvent::Finished { reason, text, timings: self.timings() });
        true
    }

    fn report_prefill(&self) {
        let done = self.n_prompt - self.pending.len().min(self.n_prompt);
        self.events.send(GenerationEvent::Prefill { done, total: self.n_prompt });
    }

    fn report_logprobs(&self, token: u32, logits: &[f32], tokenizer: &Tokenizer) -> TokenLogprobs {
        let total = log_sum_exp(logits);
        let logprob = |id: u32| logits[id as usize] - total;
        let row = |id: u32| {
            let text = String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
            TokenLogprob { id, logprob: logprob(id), text }
        };
        TokenLogprobs {
            id: token,
            logprob: logprob(token),
            top: largest(logits, self.logprobs.top.unwrap_or(0)).into_iter().map(row).collect(),
            named: self.named_tokens.iter().map(|id| row(*id)).collect(),
        }
    }

    fn timings(&self) -> Timings {
        let now = Instant::now();
        let first_token = self.first_token.unwrap_or(now);
        let prompt_seconds = (first_token - self.started).as_secs_f64();
        let generation_seconds = (now - first_token).as_secs_f64();
        let rate = |count: usize, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Timings {
            prompt_tokens: self.n_prompt,
            prompt_seconds,
            prompt_tokens_per_second: rate(self.n_prompt, prompt_seconds),
            generation_tokens: self.n_generated,
            generation_seconds,
            generation_tokens_per_second: rate(self.n_generated.saturating_sub(1), generation_seconds),
            ..Timings::default()
        }
    }
}

/// Everything of a request that can turn out wrong, checked.
pub(super) struct Prepared {
    prompt: Vec<u32>,
    /// Positions that the context leaves for the answer.
    room: usize,
    sampler: Sampler,
    constraint: Option<ConstraintState>,
    named_tokens: Vec<u32>,
}

impl Prepared {
    /// Tokenizes the prompt and checks it and the options.
    pub(super) fn new(request: &GenerateRequest, model: &mut Model) -> Result<Self, GenerateError> {
        let prompt = encode(request, model)?;
        let context_tokens = request.context.unwrap_or(usize::MAX).min(model.context_length());
        let room = context_tokens.saturating_sub(prompt.len());
        if room == 0 {
            return Err(GenerateError::ContextOverflow { prompt_tokens: prompt.len(), context_tokens });
        }
        let sampler = Sampler::new(request.sampling.clone(), model.spec().vocab_size).map_err(refused)?;
        let named_tokens = named_tokens(&request.logprobs.named, model.tokenizer());
        let constraint = match &request.constraint {
            Some(constraint) => {
                Some(model.constraints().and_then(|factory| factory.start(constraint)).map_err(refused)?)
            }
            None => None,
        };
        Ok(Prepared { prompt, room, sampler, constraint, named_tokens })
    }
}

fn refused(error: impl std::fmt::Display) -> GenerateError {
    GenerateError::Request(error.to_string())
}

fn encode(request: &GenerateRequest, model: &Model) -> Result<Vec<u32>, GenerateError> {
    let tokens = match &request.prompt {
        Prompt::Chat(messages) => encode_chat(request, messages, model)?,
        _ if !request.tools.is_empty() => {
            return Err(refused("tools are named to a model by its chat template: give the prompt as a conversation"));
        }
        Prompt::Text { text, parse_special, add_special } => {
            let options = EncodeOptions { parse_special: *parse_special, add_special: *add_special };
            model.tokenizer().encode(text, options).map_err(refused)?
        }
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    if let Some(unknown) = tokens.iter().find(|token| **token as usize >= model.spec().vocab_size) {
        return Err(refused(format!("token id {unknown} is not in the vocabulary of {}", model.spec().vocab_size)));
    }
    if tokens.is_empty() {
        return Err(refused("the prompt is empty, and the model adds no token of its own: give it some text"));
    }
    Ok(tokens)
}

fn encode_chat(request: &GenerateRequest, messages: &[Message], model: &Model) -> Result<Vec<u32>, GenerateError> {
    let template = model.template().map_err(refused)?;
    template.encode_chat(model.tokenizer(), messages, &request.tools).map_err(|error| match error {
        TemplateError::NoTools => GenerateError::NoTools { model: request.model.clone() },
        other => refused(other),
    })
}

/// The tokens of those names that are single tokens.
fn named_tokens(names: &[String], tokenizer: &Tokenizer) -> Vec<u32> {
    names.iter().filter_map(|name| tokenizer.token_with_text(name)).collect()
}
