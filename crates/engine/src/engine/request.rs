//! One request while it runs: what is still to be computed, and what has been answered.

use std::time::{Duration, Instant};

use hone_protocol::{
    FinishReason, GenerateError, GenerationEvent, GenerationSender, Lane, LogprobOptions, ModelFile, SessionId,
    Timings, TokenLogprob, TokenLogprobs,
};

use super::prepare::Prepared;
use super::submission::QueuedRequest;
use crate::constraint::{ConstraintState, Taken};
use crate::kv_cache::CachedSequence;
use crate::logprobs::{largest, log_sum_exp};
use crate::model::{Advance, Model, Speculation};
use crate::sampler::Sampler;
use crate::scheduler::{Arrival, ModelId, Progress, RequestId};
use crate::speculation::Drafter;
use crate::speculation::draft_model::DraftModel;
use crate::text_stream::TextStream;
use crate::tokenizer::Tokenizer;

/// A request that is prepared for its model.
pub(super) struct RunningRequest {
    events: GenerationSender,
    /// Its model, as it was named.
    model: String,
    file: ModelFile,
    lane: Lane,
    session: Option<SessionId>,
    /// Its place in the KV cache, while it has one; during a step longer than `n_computed` by what is being computed.
    sequence: CachedSequence,
    /// The prompt and the answer so far.
    tokens: Vec<u32>,
    /// How many of them the cache holds.
    n_computed: usize,
    /// How many more of them the present step computes, guesses among them.
    chunk: usize,
    /// How many of the tokens are guesses, which come last, while a step finds out whether they are right.
    n_drafted: usize,
    drafter: Option<Drafter>,
    /// Guesses in all, and how many of them were right.
    guesses: (usize, usize),
    n_prompt: usize,
    /// How many of them many requests have in common.
    n_common: usize,
    n_generated: usize,
    max_tokens: usize,
    /// Whether the answer is bounded by the context and not by the request.
    is_bounded_by_context: bool,
    sampler: Sampler,
    constraint: Option<ConstraintState>,
    text: TextStream,
    logprobs: LogprobOptions,
    named_tokens: Vec<u32>,
    has_ended: bool,
    time_limit: Option<Duration>,
    arrived: Instant,
    /// When its first step began.
    first_run: Option<Instant>,
    /// Tokens that the cache held then.
    n_cached: usize,
    first_token: Option<Instant>,
}

impl RunningRequest {
    /// A request that starts when its turn comes.
    pub(super) fn new(prepared: Prepared, queued: QueuedRequest, speculation: Speculation) -> Self {
        let QueuedRequest { request, file, events, arrived } = queued;
        let max_tokens = prepared.max_tokens(&request);
        let mut sampler = prepared.sampler;
        prepared.prompt.iter().for_each(|token| sampler.observe(*token));
        RunningRequest {
            events,
            model: request.model,
            file,
            lane: request.lane,
            session: request.session,
            sequence: CachedSequence::default(),
            n_prompt: prepared.prompt.len(),
            n_common: prepared.n_common,
            n_drafted: 0,
            drafter: (speculation == Speculation::Auto).then(|| Drafter::new(&prepared.prompt)),
            guesses: (0, 0),
            tokens: prepared.prompt,
            n_computed: 0,
            chunk: 0,
            n_generated: 0,
            max_tokens,
            is_bounded_by_context: request.max_tokens.is_none_or(|wanted| max_tokens < wanted),
            sampler,
            constraint: prepared.constraint,
            text: TextStream::new(request.stop),
            logprobs: request.logprobs,
            named_tokens: prepared.named_tokens,
            has_ended: false,
            time_limit: request.time_limit,
            arrived,
            first_run: None,
            n_cached: 0,
            first_token: None,
        }
    }

    /// What the scheduler has to know of it.
    pub(super) fn arrival(&self, model: ModelId) -> Arrival {
        Arrival {
            model,
            lane: self.lane,
            session: self.session,
            prompt_tokens: self.n_prompt,
            answer_tokens: self.max_tokens,
            time_limit: self.time_limit,
        }
    }

    /// Tells whoever asks that the request has been taken.
    pub(super) fn announce(&self) {
        self.events.send(GenerationEvent::Started { prompt_token_ids: self.tokens.clone() });
    }

    /// Its model, as it was named.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The file of its model.
    pub(super) fn file(&self) -> &ModelFile {
        &self.file
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.events.is_cancelled()
    }

    /// Whether it has been answered, or told that it will not be.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    pub(super) fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// The prompt and the answer so far.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The tokens that many requests begin with, as far as the cache holds them.
    pub(super) fn common_tokens(&self) -> &[u32] {
        &self.tokens[..self.n_common.min(self.n_computed)]
    }

    /// How many of its tokens the cache holds.
    pub(super) fn n_computed(&self) -> usize {
        self.n_computed
    }

    pub(super) fn sequence(&self) -> &CachedSequence {
        &self.sequence
    }

    /// Has a place in the cache, which holds the first of its tokens already.
    pub(super) fn take_place(&mut self, sequence: CachedSequence) {
        self.n_computed = sequence.n_tokens();
        self.sequence = sequence;
    }

    /// Gives up its place in the cache: returns the sequence, and the tokens that it holds.
    pub(super) fn leave_place(&mut self, model: &mut Model) -> (CachedSequence, &[u32]) {
        self.undo_step(model);
        let n_computed = std::mem::take(&mut self.n_computed);
        (std::mem::take(&mut self.sequence), &self.tokens[..n_computed])
    }

    /// Forgets what a step has begun to compute, and what it has computed of wrong guesses.
    pub(super) fn undo_step(&mut self, model: &mut Model) {
        model.truncate(&mut self.sequence, self.n_computed);
        self.tokens.truncate(self.tokens.len() - std::mem::take(&mut self.n_drafted));
        self.chunk = 0;
    }

    /// What a step computes that takes so many of the tokens that are not in the cache yet, and guesses up to
    /// `most_guesses` of the answer's next.
    pub(super) fn begin_step(
        &mut self,
        chunk: usize,
        most_guesses: usize,
        draft_model: Option<(&mut DraftModel, RequestId)>,
    ) -> Advance<'_> {
        if self.first_run.is_none() {
            self.first_run = Some(Instant::now());
            self.n_cached = self.n_computed;
            self.report_prefill();
        }
        self.chunk = chunk;
        if self.first_token.is_some() && self.wants_logits() {
            self.draft(most_guesses, draft_model);
        }
        let end = self.n_computed + self.chunk;
        let n_rows = if self.wants_logits() { 1 + self.n_drafted } else { 0 };
        let logits = self.chunk - n_rows..self.chunk;
        Advance { sequence: &mut self.sequence, tokens: &self.tokens[self.n_computed..end], logits }
    }

    /// Adds guesses of what comes next to the step.
    fn draft(&mut self, most: usize, model: Option<(&mut DraftModel, RequestId)>) {
        let Some(drafter) = &mut self.drafter else { return };
        // The last token of an answer is never computed, so that there is no room for it in the cache.
        let drafted = drafter.draft(most.min(self.max_tokens - self.n_generated - 1), model);
        let n_allowed = match &mut self.constraint {
            Some(constraint) => constraint.n_allowed(drafted),
            None => drafted.len(),
        };
        self.tokens.extend_from_slice(&drafted[..n_allowed]);
        self.n_drafted = n_allowed;
        self.chunk += n_allowed;
    }

    /// Whether the step ends with a token to be chosen.
    fn wants_logits(&self) -> bool {
        self.n_computed + self.chunk == self.tokens.len()
    }

    /// Takes note of a step: chooses the next tokens, where logits were wanted, from the next of `rows`. Returns how many
    /// of the step's tokens were guesses. [`RunningRequest::undo_step`] forgets the wrong ones.
    pub(super) fn finish_step<'a>(
        &mut self,
        rows: &mut impl Iterator<Item = &'a [f32]>,
        tokenizer: &Tokenizer,
    ) -> usize {
        let wants_logits = self.wants_logits();
        let n_drafted = std::mem::take(&mut self.n_drafted);
        self.n_computed += std::mem::take(&mut self.chunk) - n_drafted;
        if self.n_generated == 0 {
            self.report_prefill();
        }
        if wants_logits {
            self.finish_tokens(n_drafted, rows, tokenizer);
        }
        n_drafted
    }

    /// Chooses a token from the first row, and from the next as long as what was guessed is what was chosen.
    fn finish_tokens<'a>(
        &mut self,
        n_drafted: usize,
        rows: &mut impl Iterator<Item = &'a [f32]>,
        tokenizer: &Tokenizer,
    ) {
        let drafted = self.tokens.split_off(self.tokens.len() - n_drafted);
        let mut n_right = 0;
        for index in 0..=n_drafted {
            let logits = rows.next().expect("a row of logits for every one that was asked for");
            if self.has_ended || n_right < index {
                continue;
            }
            let n_before = self.tokens.len();
            self.has_ended = self.finish_token(logits, tokenizer);
            n_right += usize::from(index < n_drafted && self.tokens.get(n_before) == drafted.get(index));
        }
        // An answer's last token is not computed, even where it was guessed.
        self.n_computed = (self.n_computed + n_right).min(self.tokens.len() - 1);
        if let Some(drafter) = self.drafter.as_mut().filter(|_| n_drafted > 0) {
            drafter.learn(n_drafted, n_right);
            self.guesses = (self.guesses.0 + n_drafted, self.guesses.1 + n_right);
        }
    }

    /// Where it stands, for the scheduler.
    pub(super) fn progress(&self, id: RequestId) -> Progress {
        Progress {
            request: id,
            computed: self.n_computed,
            uncomputed: self.tokens.len() - self.n_computed,
            generated: self.n_generated,
            has_ended: self.has_ended,
        }
    }

    /// Chooses the next token. Returns whether the request has ended.
    fn finish_token(&mut self, logits: &[f32], tokenizer: &Tokenizer) -> bool {
        if self.first_token.is_none() {
            self.first_token = Some(Instant::now());
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
        self.drafter.iter_mut().for_each(|drafter| drafter.observe(token));
        self.tokens.push(token);
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
        self.events.send(GenerationEvent::Prefill { done: self.n_computed, total: self.n_prompt });
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
        let first_run = self.first_run.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        let prompt_seconds = (first_token - first_run).as_secs_f64();
        let generation_seconds = (now - first_token).as_secs_f64();
        let rate = |count: usize, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Timings {
            prompt_tokens: self.n_prompt,
            cached_tokens: self.n_cached,
            queue_seconds: (first_run - self.arrived).as_secs_f64(),
            prompt_seconds,
            prompt_tokens_per_second: rate(self.n_prompt - self.n_cached, prompt_seconds),
            generation_tokens: self.n_generated,
            generation_seconds,
            generation_tokens_per_second: rate(self.n_generated.saturating_sub(1), generation_seconds),
            guessed_tokens: self.guesses.0,
            accepted_tokens: self.guesses.1,
        }
    }
}
