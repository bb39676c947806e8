//! Requests to a generator, and the events that come back while it works.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::chat::{Message, Tool};
use crate::ids::{OwnerId, SessionId};
use crate::reasoning::ReasoningTags;
use crate::sampling::SamplingOptions;

/// How often a wait for events checks whether the request is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// Turns a prompt into text, token by token.
pub trait Generate: Send + Sync {
    /// Starts to generate. The answer arrives as events; dropping the returned [`Generation`] cancels the request
    /// before the next token or prefill chunk.
    ///
    /// # Errors
    /// When the request cannot even be queued. Later errors arrive as [`GenerationEvent::Failed`].
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError>;
}

/// A request to generate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// Name or path of the model.
    pub model: String,
    /// The input that the model continues.
    pub prompt: Prompt,
    /// How the next token is chosen.
    pub sampling: SamplingOptions,
    /// The most tokens to generate; `None` means until the model stops or its context is full.
    pub max_tokens: Option<usize>,
    /// The most tokens of prompt and answer together, if less than the model's context.
    pub context: Option<usize>,
    /// Tools that the model may call, described to it by its chat template; a call is part of the answer's text.
    pub tools: Vec<Tool>,
    /// Whether to describe the tools in the instructions, and constrain the form of calls, if the model's chat template
    /// does not support tools. Without it, such a request fails ([`GenerateError::NoTools`]).
    #[serde(default)]
    pub teaches_tools: bool,
    /// Whether and how long the model reasons, for a chat.
    pub thinking: ThinkingOptions,
    /// Generation ends before the first of these texts, which is not part of the answer.
    pub stop: Vec<String>,
    /// The form that constrains the answer.
    pub constraint: Option<Constraint>,
    /// Whether to complete a JSON answer that reaches a limit, for readers that check why it ended. A tool call is
    /// never completed: with half of its arguments it would do something else.
    #[serde(default)]
    pub completes_json: bool,
    /// A predetermined answer (teacher forcing): its tokens arrive as if the model had chosen them, with their
    /// log-probabilities if requested. It cannot be combined with a constraint.
    pub forced_answer: Option<String>,
    /// Whether a reward model rates the answer that the conversation ends with
    /// ([`Reward`](GenerationEvent::Reward)). Nothing is generated.
    #[serde(default)]
    pub wants_reward: bool,
    /// Which log-probabilities to report with every token.
    pub logprobs: LogprobOptions,
    /// The beginning of a chat's last message (apart from an answer that has begun) that many requests share. Its
    /// computed prefix stays in the cache, even if room is short.
    pub common_beginning: Option<String>,
    /// The request's priority.
    pub lane: Lane,
    /// The conversation that it belongs to. Sessions of a lane take turns, regardless of how many requests each of them
    /// has.
    pub session: Option<SessionId>,
    /// The owner, if clients have keys. Work computed for one owner is not reused for another, who could infer the
    /// question from the time and the usage.
    #[serde(default)]
    pub owner: Option<OwnerId>,
    /// Limit on the device time used. Time in the queue, other requests' shares of common steps, and the computation of
    /// a shared beginning (`common_beginning`) do not count.
    pub time_limit: Option<Duration>,
    /// Tokens that the answer needs after its free text ([`Constraint::FreeThenRegex`]). If given, the free text is
    /// ended early enough to leave time for them.
    pub conclusion_tokens: Option<usize>,
    /// Whether a prompt that takes too much of the time limit fails early, with [`GenerateError::TooSlow`], because its
    /// sender can shorten it.
    pub can_be_shortened: bool,
}

impl GenerateRequest {
    /// An interactive request with default sampling and only the model's own limits.
    pub fn new(model: impl Into<String>, prompt: Prompt) -> Self {
        GenerateRequest {
            model: model.into(),
            prompt,
            sampling: SamplingOptions::default(),
            max_tokens: None,
            context: None,
            tools: Vec::new(),
            teaches_tools: false,
            thinking: ThinkingOptions::default(),
            stop: Vec::new(),
            constraint: None,
            completes_json: false,
            forced_answer: None,
            wants_reward: false,
            logprobs: LogprobOptions::default(),
            common_beginning: None,
            lane: Lane::default(),
            session: None,
            owner: None,
            time_limit: None,
            conclusion_tokens: None,
            can_be_shortened: false,
        }
    }
}

/// A request's priority. Lanes listed first come first at every step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Someone is waiting for it: chat, the API.
    #[default]
    Interactive,
    /// Done alongside interactive work: grading, embedding, extraction.
    Background,
    /// Done when there is nothing else to do: grading a file.
    Batch,
}

impl Lane {
    /// All of them, the most urgent first.
    pub const ALL: [Lane; 3] = [Lane::Interactive, Lane::Background, Lane::Batch];

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Interactive => "interactive",
            Lane::Background => "background",
            Lane::Batch => "batch",
        }
    }
}

/// The input that a model continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompt {
    /// A conversation, rendered by the model's own chat template; the model takes the next turn.
    Chat(Vec<Message>),
    /// Text as given.
    Text {
        /// The text.
        text: String,
        /// Whether the names of control tokens in the text (`<|im_start|>`) become those tokens.
        parse_special: bool,
        /// Whether the tokens that the model's metadata asks for (BOS, EOS) are added around the text.
        add_special: bool,
    },
    /// Token ids as given.
    Tokens(Vec<u32>),
}

/// Reads a logarithm. JSON has no number for negative infinity: `null` is written in its place.
fn logarithm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f32::NEG_INFINITY))
}

/// The form that constrains an answer: tokens that would violate it are never chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Constraint {
    /// One of these texts.
    Choice(Vec<String>),
    /// A text that the regular expression matches as a whole.
    Regex(String),
    /// A JSON text that the schema accepts.
    JsonSchema(serde_json::Value),
    /// Free text that ends with `marker`, followed by a text that the regular expression matches as a whole. If the
    /// model ends its turn, or has written `free_tokens` tokens, without the marker, the marker is inserted.
    FreeThenRegex {
        /// The most tokens before the marker is inserted.
        free_tokens: usize,
        /// The text between the free text and the rest.
        marker: String,
        /// The form of the rest.
        regex: String,
    },
}

/// Whether and how long a model reasons before it answers. Options that its chat template does not know have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingOptions {
    /// Whether it reasons; `None` leaves it to the template.
    pub is_on: Option<bool>,
    /// How thoroughly it reasons.
    pub effort: Option<Effort>,
    /// The most tokens of reasoning, after which it is ended.
    pub budget: Option<usize>,
}

/// How thoroughly a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Briefly.
    Low,
    /// As it is trained to.
    Medium,
    /// At length.
    High,
}

impl Effort {
    /// Its name in a chat template.
    pub fn as_str(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }
}

/// Which log-probabilities to report. All are natural logarithms of the softmax of the model's own logits, before
/// penalties, bias, constraints and temperature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogprobOptions {
    /// Report the chosen token and this many of the likeliest ones; `None` reports nothing.
    pub top: Option<usize>,
    /// Also report these tokens, each named by its exact text; a text that is not a single token of the model is left
    /// out.
    pub named: Vec<String>,
    /// Also report the model's [state](TokenLogprobs::state).
    pub state: bool,
    /// Also report the prompt's tokens, except the first, which has no prediction. The prompt is then recomputed, since
    /// the cache holds no probabilities.
    #[serde(default)]
    pub of_prompt: bool,
}

impl LogprobOptions {
    /// Whether anything should be reported with every token of the answer.
    pub fn is_wanted(&self) -> bool {
        self.top.is_some() || !self.named.is_empty() || self.state
    }
}

/// The log-probability of one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Natural logarithm of its probability.
    #[serde(deserialize_with = "logarithm")]
    pub logprob: f32,
    /// The token's text; incomplete characters are replaced.
    pub text: String,
}

/// The log-probabilities at one position of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token that was chosen.
    pub id: u32,
    /// Its text; incomplete characters are replaced.
    #[serde(default)]
    pub text: String,
    /// Its bytes, if they are no whole text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<u8>,
    /// Its natural log-probability.
    #[serde(deserialize_with = "logarithm")]
    pub logprob: f32,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<TokenLogprob>,
    /// The requested tokens that exist, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<TokenLogprob>,
    /// The residual stream that predicts the token, after two thirds of the model's layers, if requested. It shows more
    /// of the model's knowledge about the text than the last layer, which only predicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<f32>,
}

/// The events of a request, in this order: any number of `Loading`, `Started`, any number of `Prefill`, `OfPrompt` and
/// `Token`, perhaps `StoppedBy`, and finally exactly one of `Finished` and `Failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GenerationEvent {
    /// The model is being loaded.
    Loading {
        /// Bytes of its weights done so far.
        done: u64,
        /// Bytes of its weights in all.
        total: u64,
    },
    /// The prompt is tokenized and fits.
    Started {
        /// Its token ids.
        prompt_token_ids: Vec<u32>,
        /// The reasoning tags that it has opened; the answer begins inside them.
        reasoning: Option<ReasoningTags>,
    },
    /// Prompt processing begins with the part already in the KV cache, or another part has been processed.
    Prefill {
        /// Prompt tokens done so far, including those from the KV cache.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// The log-probabilities of the next token of the prompt, if requested; the first one has none.
    OfPrompt(TokenLogprobs),
    /// The output of a reward model's head, if requested: higher for better answers, on the model's own scale. The
    /// difference of two is the log-odds that the first answer is preferred.
    Reward(f32),
    /// One more token.
    Token {
        /// Its id.
        id: u32,
        /// The text that this token completes: whole characters only, and nothing that may turn out to be the start of
        /// a stop text. It is often empty, and sometimes the text of several tokens.
        text: String,
        /// Log-probabilities, if requested.
        logprobs: Option<TokenLogprobs>,
    },
    /// The answer ends before this one of the request's stop texts.
    StoppedBy(String),
    /// The answer is complete.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// Text that had been held back until now.
        text: String,
        /// The cost.
        timings: Timings,
    },
    /// The answer could not be completed.
    Failed(GenerateError),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its turn, or its constraint was completed.
    Stop,
    /// Its constraint was completed, after its free text had been ended to stay within the time limit.
    Concluded,
    /// A stop text appeared.
    StopText,
    /// `max_tokens` was reached.
    Length,
    /// The model's context is full.
    ContextFull,
    /// The answer kept repeating itself ([`SamplingOptions::repetition_limit`]).
    Repetition,
}

impl FinishReason {
    /// Whether the answer ended by itself rather than being cut off.
    pub fn is_complete(self) -> bool {
        !matches!(self, FinishReason::Length | FinishReason::ContextFull | FinishReason::Repetition)
    }
}

/// The cost of a request, or of an answer that took several. Counts and seconds are totals; text that a later request
/// reads again counts as tokens of its prompt, too. Seconds are wall-clock time; a speed is 0 if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were already in the KV cache, from an earlier request with the same beginning.
    #[serde(default)]
    pub cached_tokens: usize,
    /// Seconds from the request's arrival to the start of the prompt's processing.
    #[serde(default)]
    pub queue_seconds: f64,
    /// Seconds from the start of the prompt's processing to the first token's logits.
    pub prompt_seconds: f64,
    /// Prompt tokens per second, not counting those from the KV cache.
    pub prompt_tokens_per_second: f64,
    /// Tokens of the answer.
    pub generation_tokens: usize,
    /// Seconds from the first token's logits to the last token.
    pub generation_seconds: f64,
    /// Generated tokens per second; the first token belongs to the prompt's time and is not counted.
    pub generation_tokens_per_second: f64,
    /// Tokens that were guessed and computed in advance.
    #[serde(default)]
    pub guessed_tokens: usize,
    /// Correct guesses, each of which saved a step.
    #[serde(default)]
    pub accepted_tokens: usize,
}

impl Timings {
    /// Adds the cost of another request for the same answer.
    pub fn add(&mut self, other: &Timings) {
        let speed = |seconds: [f64; 2], speeds: [f64; 2]| match seconds[0] + seconds[1] {
            // Seconds times speed gives the counted tokens: without the cached ones, and without each request's first
            // token.
            total if total > 0.0 => (seconds[0] * speeds[0] + seconds[1] * speeds[1]) / total,
            _ => 0.0,
        };
        self.prompt_tokens_per_second = speed(
            [self.prompt_seconds, other.prompt_seconds],
            [self.prompt_tokens_per_second, other.prompt_tokens_per_second],
        );
        self.generation_tokens_per_second = speed(
            [self.generation_seconds, other.generation_seconds],
            [self.generation_tokens_per_second, other.generation_tokens_per_second],
        );
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.queue_seconds += other.queue_seconds;
        self.prompt_seconds += other.prompt_seconds;
        self.generation_tokens += other.generation_tokens;
        self.generation_seconds += other.generation_seconds;
        self.guessed_tokens += other.guessed_tokens;
        self.accepted_tokens += other.accepted_tokens;
    }
}

/// A running request: its events, and the right to cancel it by dropping it.
#[derive(Debug)]
pub struct Generation {
    events: Receiver<GenerationEvent>,
    _wanted: Arc<()>,
}

/// The generator's end of a [`Generation`].
#[derive(Clone, Debug)]
pub struct GenerationSender {
    events: Sender<GenerationEvent>,
    wanted: Weak<()>,
}

impl GenerationSender {
    /// Sends an event to the caller, if it is still listening.
    pub fn send(&self, event: GenerationEvent) {
        // A dropped receiver is a cancelled request, which `is_cancelled` reports.
        let _ = self.events.send(event);
    }

    /// Whether the caller has dropped the request.
    pub fn is_cancelled(&self) -> bool {
        self.wanted.strong_count() == 0
    }
}

impl Generation {
    /// Sends a request to `generator`. If it is refused at once, its first event says so.
    pub fn start(generator: &dyn Generate, request: GenerateRequest) -> Generation {
        generator.generate(request).unwrap_or_else(|error| {
            let (sender, generation) = Generation::channel();
            sender.send(GenerationEvent::Failed(error));
            generation
        })
    }

    /// A request that has not started yet, and the end through which its generator reports. The channel is unbounded: a
    /// slow reader never holds up the generator, and a request's own limits bound what can accumulate.
    pub fn channel() -> (GenerationSender, Generation) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let wanted = Arc::new(());
        let sender = GenerationSender { events: sender, wanted: Arc::downgrade(&wanted) };
        (sender, Generation { events: receiver, _wanted: wanted })
    }

    /// The event channel, for waiting on several channels at once.
    pub fn events(&self) -> &Receiver<GenerationEvent> {
        &self.events
    }

    /// Waits until the prompt is tokenized, unless `is_over` returns true first; returns the tags that the prompt has
    /// opened.
    ///
    /// # Errors
    /// The error in [`GenerationEvent::Failed`], or [`GenerateError::Stopped`] when the generator is gone or `is_over`
    /// returns true.
    pub fn started_unless(&self, is_over: &dyn Fn() -> bool) -> Result<Option<ReasoningTags>, GenerateError> {
        loop {
            match self.next_unless(is_over)? {
                GenerationEvent::Started { reasoning, .. } => return Ok(reasoning),
                GenerationEvent::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Waits for the end and returns everything that has not been received yet, unless `is_over` returns true first.
    ///
    /// # Errors
    /// As [`started_unless`](Self::started_unless).
    pub fn complete_unless(self, is_over: &dyn Fn() -> bool) -> Result<Completion, GenerateError> {
        let mut completion = Completion::default();
        while !completion.take(self.next_unless(is_over)?)? {}
        Ok(completion)
    }

    /// The next event; `is_over` is checked ten times a second.
    fn next_unless(&self, is_over: &dyn Fn() -> bool) -> Result<GenerationEvent, GenerateError> {
        while !is_over() {
            match self.events.recv_timeout(LOOK) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(GenerateError::Stopped)
    }

    /// Waits for the end and returns everything.
    ///
    /// # Errors
    /// The error in [`GenerationEvent::Failed`], or [`GenerateError::Stopped`] when the generator is gone.
    pub fn complete(self) -> Result<Completion, GenerateError> {
        let mut completion = Completion::default();
        for event in &self.events {
            if completion.take(event)? {
                return Ok(completion);
            }
        }
        Err(GenerateError::Stopped)
    }
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The answer.
    pub text: String,
    /// Its token ids, without the token that ended it.
    pub token_ids: Vec<u32>,
    /// The prompt's token ids.
    pub prompt_token_ids: Vec<u32>,
    /// Why it ended; `None` while it has not.
    pub finish_reason: Option<FinishReason>,
    /// The cost.
    pub timings: Timings,
    /// A row per token, if log-probabilities were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprobs>,
    /// A row per token of the prompt except the first, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The reward, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f32>,
}

impl Completion {
    /// Adds an event; returns whether it was the last.
    ///
    /// # Errors
    /// The error in [`GenerationEvent::Failed`].
    pub fn take(&mut self, event: GenerationEvent) -> Result<bool, GenerateError> {
        match event {
            GenerationEvent::Started { prompt_token_ids, .. } => self.prompt_token_ids = prompt_token_ids,
            GenerationEvent::Loading { .. } | GenerationEvent::Prefill { .. } | GenerationEvent::StoppedBy(_) => {}
            GenerationEvent::OfPrompt(logprobs) => self.prompt_logprobs.push(logprobs),
            GenerationEvent::Reward(reward) => self.reward = Some(reward),
            GenerationEvent::Token { id, text, logprobs } => {
                self.token_ids.push(id);
                self.text.push_str(&text);
                self.logprobs.extend(logprobs);
            }
            GenerationEvent::Finished { reason, text, timings } => {
                self.text.push_str(&text);
                self.finish_reason = Some(reason);
                self.timings = timings;
                return Ok(true);
            }
            GenerationEvent::Failed(error) => return Err(error),
        }
        Ok(false)
    }
}

/// Why an answer could not be given.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerateError {
    /// The named model is not installed, or its file cannot be used.
    #[error("cannot load model {model:?}: {reason}")]
    Model {
        /// The name in the request.
        model: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The request contradicts itself or the model.
    #[error("{0}")]
    Request(String),
    /// The request has tools, but the model's chat template does not support them.
    #[error("the chat template of model {model:?} does not support tools")]
    NoTools {
        /// The name in the request.
        model: String,
    },
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt_tokens} tokens and the context holds {context_tokens}: shorten it by {} or more, or raise \
         the context length (--context)",
        (prompt_tokens + 1).saturating_sub(*context_tokens)
    )]
    ContextOverflow {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// The size of the model's context in tokens.
        context_tokens: usize,
    },
    /// Too many requests are already waiting.
    #[error(
        "{queued} {} requests wait already, which is the limit: try again in {:.1} seconds",
        lane.name(), retry_after.as_secs_f64()
    )]
    Busy {
        /// The lane whose queue is full.
        lane: Lane,
        /// Requests in it.
        queued: usize,
        /// An estimate of when there will be room.
        retry_after: Duration,
    },
    /// The request's time limit has passed.
    #[error("the time limit of {:.1} seconds has passed", limit.as_secs_f64())]
    TimedOut {
        /// The limit, counted from when the request first ran.
        limit: Duration,
    },
    /// The prompt cannot be computed early enough for the answer to be concluded within the time limit.
    #[error(
        "computing the prompt of {prompt_tokens} tokens takes too long for the time limit of {:.1} seconds, which leaves \
         time for {room}: shorten it, or raise the limit",
        limit.as_secs_f64()
    )]
    TooSlow {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Prompt tokens, including those in the KV cache, that can be computed in time.
        room: usize,
        /// The limit.
        limit: Duration,
    },
    /// Something failed while computing.
    #[error("generation failed: {0}")]
    Failed(String),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_requests_cost_is_added_up_and_their_speeds_are_those_of_all_that_was_computed() {
        let first = Timings {
            prompt_tokens: 100,
            cached_tokens: 60,
            queue_seconds: 0.5,
            prompt_seconds: 4.0,
            prompt_tokens_per_second: 10.0,
            generation_tokens: 5,
            generation_seconds: 2.0,
            generation_tokens_per_second: 2.0,
            guessed_tokens: 3,
            accepted_tokens: 1,
        };
        let second = Timings {
            prompt_tokens: 130,
            cached_tokens: 104,
            queue_seconds: 0.25,
            prompt_seconds: 1.0,
            prompt_tokens_per_second: 26.0,
            generation_tokens: 13,
            generation_seconds: 2.0,
            generation_tokens_per_second: 6.0,
            guessed_tokens: 4,
            accepted_tokens: 4,
        };
        let mut both = Timings::default();
        both.add(&first);
        assert_eq!(both, first);
        both.add(&second);
        let expected = Timings {
            prompt_tokens: 230,
            cached_tokens: 164,
            queue_seconds: 0.75,
            prompt_seconds: 5.0,
            prompt_tokens_per_second: (40.0 + 26.0) / 5.0,
            generation_tokens: 18,
            generation_seconds: 4.0,
            generation_tokens_per_second: (4.0 + 12.0) / 4.0,
            guessed_tokens: 7,
            accepted_tokens: 5,
        };
        assert_eq!(both, expected);
        both.add(&Timings::default());
        assert_eq!(both, expected);
    }
}
