//! A waiting or running request: the remaining computation, and the answer so far.

mod clock;
mod decoding;
mod reply;
mod tokens;

use std::time::Duration;

use hone_protocol::{
    FinishReason, GenerateError, GenerationEvent, Lane, ModelFile, OwnerId, ReasoningTags, SessionId, Timings,
};

use super::prepare::{LocatedRequest, Prepared};
use crate::backend::Row;
use crate::heads::RewardHead;
use crate::kv_cache::CachedSequence;
use crate::model::{Advance, Model, Speculation};
use crate::scheduler::{Arrival, LAST_SENTENCE_TOKENS, ModelId, RequestId, RequestProgress};
use crate::speculation::Guess;
use crate::speculation::draft_model::OfRequest;
use crate::speculation::head::Head;
use crate::text_stream::TextStream;
use crate::tokenizer::Tokenizer;
use clock::{Clock, Counts};
use decoding::Decoding;
use reply::Reply;
use tokens::RequestTokens;

/// A request that is prepared for its model.
pub(super) struct RunningRequest {
    /// Its model, as named in the request.
    model: String,
    file: ModelFile,
    lane: Lane,
    session: Option<SessionId>,
    owner: Option<OwnerId>,
    n_prompt: usize,
    /// The tokens of the prompt whose log-probabilities are wanted: all but the first, or none. They are computed like
    /// guesses of an answer that are always right.
    scored: Vec<u32>,
    /// Number of them that have been scored.
    n_scored: usize,
    /// The tags that the prompt has opened.
    reasoning: Option<ReasoningTags>,
    /// Number of leading prompt tokens that are shared with many other requests.
    n_common: usize,
    conclusion_tokens: Option<usize>,
    can_be_shortened: bool,
    /// Whether an answer in JSON that reaches a limit is completed.
    completes_json: bool,
    tokens: RequestTokens,
    decoding: Decoding,
    reply: Reply,
    clock: Clock,
    /// The model's output for the second-to-last token, for its head; empty if it has none.
    hidden: Vec<f32>,
}

/// Reads a model's output.
#[derive(Clone, Copy)]
pub(super) struct RowReader<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// For a reward model.
    pub(super) reward_head: Option<&'a RewardHead>,
}

/// A source of guesses for a request's next tokens, used where its text does not repeat itself.
pub(super) enum Guesser<'a> {
    Nothing,
    DraftModel(OfRequest<'a>),
    HeadOf(&'a mut Model),
}

impl RunningRequest {
    /// Creates a request that starts when its turn comes.
    pub(super) fn new(prepared: Prepared, located: LocatedRequest, speculation: Speculation) -> Self {
        let LocatedRequest { request, file, events, arrived } = located;
        let max_tokens = prepared.max_tokens(&request);
        let Prepared { mut prompt, reasoning, n_common, choice, named_tokens, .. } = prepared;
        let (n_prompt, decoding) = (prompt.len(), Decoding::new(choice, speculation, &prompt));
        let scored = if request.logprobs.of_prompt { prompt.split_off(1) } else { Vec::new() };
        let reply = Reply {
            events,
            text: TextStream::new(request.stop),
            logprobs: request.logprobs,
            named_tokens,
            max_tokens,
            is_bounded_by_context: request.max_tokens.is_none_or(|wanted| max_tokens < wanted),
            n_generated: 0,
            has_ended: false,
        };
        RunningRequest {
            model: request.model,
            file,
            lane: request.lane,
            session: request.session,
            owner: request.owner,
            n_prompt,
            n_common: if scored.is_empty() { n_common } else { 0 },
            scored,
            n_scored: 0,
            reasoning,
            conclusion_tokens: request.conclusion_tokens,
            can_be_shortened: request.can_be_shortened,
            completes_json: request.completes_json && request.tools.is_empty(),
            decoding,
            tokens: RequestTokens::new(prompt),
            reply,
            clock: Clock::new(arrived, request.time_limit),
            hidden: Vec::new(),
        }
    }

    /// The request, as described to the scheduler.
    pub(super) fn arrival(&self, model: ModelId) -> Arrival {
        Arrival {
            model,
            lane: self.lane,
            session: self.session,
            prompt_tokens: self.n_prompt - self.scored.len(),
            answer_tokens: self.scored.len() + self.reply.max_tokens,
            time_limit: self.clock.time_limit,
            common_tokens: self.n_common,
            conclusion_tokens: self.conclusion_tokens,
            can_be_shortened: self.can_be_shortened,
        }
    }

    /// Tells the caller that the request has been accepted.
    pub(super) fn announce(&self) {
        let prompt_token_ids = [self.tokens.all(), &self.scored[self.n_scored..]].concat();
        self.reply.events.send(GenerationEvent::Started { prompt_token_ids, reasoning: self.reasoning });
    }

    /// Its model, as named in the request.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Its owner.
    pub(super) fn owner(&self) -> Option<OwnerId> {
        self.owner
    }

    /// The file of its model.
    pub(super) fn file(&self) -> &ModelFile {
        &self.file
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.events.is_cancelled()
    }

    /// Whether its caller has been sent the end of the answer or an error.
    pub(super) fn has_ended(&self) -> bool {
        self.reply.has_ended
    }

    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    pub(super) fn time_limit(&self) -> Option<Duration> {
        self.clock.time_limit
    }

    /// Ends the free text of its answer within about a sentence.
    pub(super) fn conclude(&mut self) {
        self.decoding.conclude(LAST_SENTENCE_TOKENS);
    }

    /// Tells the caller that computing the prompt takes too long, and how many of its tokens would fit.
    pub(super) fn refuse_prompt(&self, room: usize) {
        let limit = self.clock.time_limit.unwrap_or_default();
        self.fail(GenerateError::TooSlow { prompt_tokens: self.n_prompt, room, limit });
    }

    /// The prompt and the answer so far.
    pub(super) fn tokens(&self) -> &[u32] {
        self.tokens.all()
    }

    /// The beginning shared with many requests, as far as the cache holds it.
    pub(super) fn common_tokens(&self) -> &[u32] {
        let computed = self.tokens.computed();
        &computed[..self.n_common.min(computed.len())]
    }

    /// Number of its tokens in the cache.
    pub(super) fn n_computed(&self) -> usize {
        self.tokens.computed().len()
    }

    pub(super) fn sequence(&self) -> &CachedSequence {
        self.tokens.sequence()
    }

    /// Takes a place in the cache, which already holds the first of its tokens.
    pub(super) fn take_place(&mut self, sequence: CachedSequence) {
        self.tokens.occupy(sequence);
    }

    /// Gives up its place in the cache: returns the sequence and the tokens that it holds.
    pub(super) fn leave_place(&mut self, model: &mut Model) -> (CachedSequence, &[u32]) {
        self.tokens.leave(model)
    }

    /// Discards the results of an unfinished step and of wrong guesses.
    pub(super) fn undo_step(&mut self, model: &mut Model) {
        self.tokens.undo_step(model);
    }

    /// Describes a step that computes `chunk` of the tokens that are not in the cache yet, plus up to `most_guesses`
    /// guesses of the answer's next tokens.
    pub(super) fn begin_step(&mut self, chunk: usize, most_guesses: usize, guesser: Guesser<'_>) -> Advance<'_> {
        if self.clock.step_begins(self.n_computed()) {
            self.report_prefill();
        }
        self.tokens.begin_step(chunk);
        if self.tokens.wants_logits() {
            // The last token of an answer is never computed, so the cache has no room for it.
            let room = |n_left: usize| most_guesses.min(n_left - 1);
            let (unscored, n_left) = (&self.scored[self.n_scored..], self.reply.max_tokens - self.reply.n_generated);
            if !unscored.is_empty() {
                self.tokens.guess(&unscored[..room(unscored.len() + n_left).min(unscored.len())]);
            } else if self.clock.has_token() {
                self.guess(room(n_left), guesser);
            }
        }
        self.tokens.advance()
    }

    /// Whether the next token belongs to the prompt.
    fn is_scoring(&self) -> bool {
        self.n_scored < self.scored.len()
    }

    fn guess(&mut self, most: usize, guesser: Guesser<'_>) {
        let guesses = match guesser {
            Guesser::Nothing => self.decoding.draft(most, None),
            Guesser::DraftModel(mut model) => self.decoding.draft(most, Some(&mut model as &mut dyn Guess)),
            Guesser::HeadOf(model) => {
                let mut head = Head { model, sequence: self.tokens.sequence_mut(), hidden: &self.hidden };
                self.decoding.draft(most, Some(&mut head as &mut dyn Guess))
            }
        };
        self.tokens.guess(guesses);
    }

    fn report_prefill(&self) {
        self.reply.events.send(GenerationEvent::Prefill { done: self.n_computed(), total: self.n_prompt });
    }

    /// Records a finished step: if logits were wanted, chooses the next tokens from the next of `rows`. Returns how
    /// many of the step's tokens were guesses; [`RunningRequest::undo_step`] discards the wrong ones.
    pub(super) fn finish_step<'a>(&mut self, rows: &mut impl Iterator<Item = Row<'a>>, reader: RowReader<'_>) -> usize {
        let wants_logits = self.tokens.wants_logits();
        let guesses = self.tokens.finish_step();
        if self.reply.n_generated == 0 {
            self.report_prefill();
        }
        if wants_logits {
            self.choose_tokens(&guesses, rows, reader);
        }
        guesses.len()
    }

    /// Chooses a token from the first row, and from each following row as long as the guess matched the choice.
    fn choose_tokens<'a>(&mut self, guesses: &[u32], rows: &mut impl Iterator<Item = Row<'a>>, reader: RowReader<'_>) {
        let (mut n_right, are_known) = (0, self.is_scoring());
        for index in 0..=guesses.len() {
            let row = rows.next().expect("a row of logits for every one that was asked for");
            if self.reply.has_ended || n_right < index {
                continue;
            }
            let n_before = self.tokens.all().len();
            self.choose_token(row, reader);
            row.hidden.clone_into(&mut self.hidden);
            let is_right = index < guesses.len() && self.tokens.all().get(n_before) == guesses.get(index);
            n_right += usize::from(is_right);
        }
        self.tokens.accept(n_right);
        if !are_known {
            self.decoding.learn(guesses.len(), n_right);
        }
    }

    /// Chooses the next token, which may end the request.
    fn choose_token(&mut self, row: Row<'_>, reader: RowReader<'_>) {
        let outcome = match reader.reward_head {
            Some(head) => self.rate(row, head).map(Some),
            None if self.is_scoring() => Ok(self.score(row, reader.tokenizer)),
            None => self.decode(row, reader.tokenizer),
        };
        match outcome {
            Ok(None) => return,
            Ok(Some(reason)) => {
                let closing = if self.is_closed(reason) { self.decoding.closing() } else { Vec::new() };
                self.reply.finish(&closing, reason, self.timings());
            }
            Err(error) => self.reply.fail(error),
        }
        self.reply.has_ended = true;
    }

    /// Whether an answer in JSON is completed where it is cut off.
    fn is_closed(&self, reason: FinishReason) -> bool {
        self.completes_json && matches!(reason, FinishReason::Length | FinishReason::ContextFull)
    }

    /// Scores the next token of the prompt; returns the reason if nothing is to follow it.
    fn score(&mut self, row: Row<'_>, tokenizer: &Tokenizer) -> Option<FinishReason> {
        let token = self.scored[self.n_scored];
        self.n_scored += 1;
        self.tokens.push(token);
        self.reply.send_of_prompt(token, row, tokenizer);
        (!self.is_scoring() && self.reply.is_full()).then(|| self.reply.length_reason())
    }

    /// Rates the answer that the prompt ends with.
    fn rate(&mut self, row: Row<'_>, head: &RewardHead) -> Result<FinishReason, GenerateError> {
        self.clock.token_comes();
        let reward = head.reward(row.state).map_err(GenerateError::Failed)?;
        self.reply.events.send(GenerationEvent::Reward(reward));
        Ok(FinishReason::Stop)
    }

    /// Appends the next token to the answer; returns the reason if the answer ends with it.
    fn decode(&mut self, row: Row<'_>, tokenizer: &Tokenizer) -> Result<Option<FinishReason>, GenerateError> {
        self.clock.token_comes();
        if self.reply.is_full() {
            return Ok(Some(self.reply.length_reason()));
        }
        let token = self.decoding.choose(row.logits)?;
        if tokenizer.is_end_of_generation(token) {
            return Ok(Some(self.decoding.end_reason()));
        }
        self.decoding.observe(token);
        self.tokens.push(token);
        self.reply.send_token(token, row, tokenizer);
        Ok(if self.reply.text.stopped_by().is_some() {
            Some(FinishReason::StopText)
        } else if self.decoding.is_complete() {
            Some(self.decoding.end_reason())
        } else if self.decoding.repeats() {
            Some(FinishReason::Repetition)
        } else {
            self.reply.is_full().then(|| self.reply.length_reason())
        })
    }

    pub(super) fn fail(&self, error: GenerateError) {
        self.reply.fail(error);
    }

    /// Its progress, for the scheduler.
    pub(super) fn progress(&self, id: RequestId) -> RequestProgress {
        RequestProgress {
            request: id,
            computed: self.n_computed(),
            uncomputed: self.tokens.n_uncomputed(),
            generated: self.n_scored + self.reply.n_generated,
            has_ended: self.reply.has_ended,
        }
    }

    fn timings(&self) -> Timings {
        let (guessed, guessed_right) = self.decoding.guesses();
        let counts = Counts { prompt: self.n_prompt, generated: self.reply.n_generated, guessed, guessed_right };
        self.clock.timings(&counts)
    }
}
