//! The reply to a request's caller: the answer as text, log-probabilities, and how it ended.

use hone_protocol::{
    FinishReason, GenerateError, GenerationEvent, GenerationSender, LogprobOptions, Timings, TokenLogprob,
    TokenLogprobs,
};

use crate::backend::Row;
use crate::logprobs::{largest, log_sum_exp};
use crate::text_stream::TextStream;
use crate::tokenizer::Tokenizer;

/// The answer so far, and the channel to the caller.
pub(super) struct Reply {
    pub(super) events: GenerationSender,
    pub(super) text: TextStream,
    pub(super) logprobs: LogprobOptions,
    /// The tokens of the names whose log-probabilities are wanted.
    pub(super) named_tokens: Vec<u32>,
    /// The maximum number of tokens in the answer.
    pub(super) max_tokens: usize,
    /// Whether that maximum is set by the context and not by the request.
    pub(super) is_bounded_by_context: bool,
    pub(super) n_generated: usize,
    pub(super) has_ended: bool,
}

impl Reply {
    pub(super) fn fail(&self, error: GenerateError) {
        self.events.send(GenerationEvent::Failed(error));
    }

    /// Whether the answer has reached its maximum.
    pub(super) fn is_full(&self) -> bool {
        self.n_generated >= self.max_tokens
    }

    /// Why a full answer ended.
    pub(super) fn length_reason(&self) -> FinishReason {
        if self.is_bounded_by_context { FinishReason::ContextFull } else { FinishReason::Length }
    }

    /// Sends a token of the answer to the caller.
    pub(super) fn send_token(&mut self, token: u32, row: Row<'_>, tokenizer: &Tokenizer) {
        self.n_generated += 1;
        let logprobs = self.logprobs.is_wanted().then(|| self.logprobs_of(token, row, tokenizer));
        // A control token that does not end the answer has no text for the reader, unless it marks reasoning or a call.
        let is_mark = || tokenizer.is_reasoning_tag(token) || tokenizer.is_call_mark(token);
        let is_hidden = tokenizer.is_control(token) && !is_mark();
        let bytes = if is_hidden { &[] } else { tokenizer.token_bytes(token) };
        let text = self.text.push(bytes);
        self.events.send(GenerationEvent::Token { id: token, text, logprobs });
    }

    /// Sends the log-probabilities of a token of the prompt to the caller.
    pub(super) fn send_of_prompt(&mut self, token: u32, row: Row<'_>, tokenizer: &Tokenizer) {
        self.events.send(GenerationEvent::OfPrompt(self.logprobs_of(token, row, tokenizer)));
    }

    /// Sends the end of the answer, after the bytes that complete it.
    pub(super) fn finish(&mut self, closing: &[u8], reason: FinishReason, timings: Timings) {
        if let Some(stop) = self.text.stopped_by() {
            self.events.send(GenerationEvent::StoppedBy(stop.to_owned()));
        }
        let text = self.text.push(closing) + &self.text.finish();
        self.events.send(GenerationEvent::Finished { reason, text, timings });
    }

    fn logprobs_of(&self, token: u32, row: Row<'_>, tokenizer: &Tokenizer) -> TokenLogprobs {
        let Row { logits, state, .. } = row;
        let total = log_sum_exp(logits);
        let logprob = |id: u32| logits[id as usize] - total;
        let of_token = |id: u32| {
            let text = String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
            TokenLogprob { id, logprob: logprob(id), text }
        };
        let TokenLogprob { id, logprob, text } = of_token(token);
        let is_whole = !text.contains(char::REPLACEMENT_CHARACTER);
        TokenLogprobs {
            id,
            text,
            bytes: if is_whole { Vec::new() } else { tokenizer.token_bytes(token).to_vec() },
            logprob,
            top: largest(logits, self.logprobs.top.unwrap_or(0)).into_iter().map(of_token).collect(),
            named: self.named_tokens.iter().map(|id| of_token(*id)).collect(),
            state: if self.logprobs.state { state.to_vec() } else { Vec::new() },
        }
    }
}
