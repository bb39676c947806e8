//! A generator whose answers are written by a test: code that uses a model can be tested without one, in milliseconds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::generate::{
    FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, GenerationSender, Prompt,
    Timings, TokenLogprobs,
};

/// The response to one request.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The text of each token.
    pub pieces: Vec<String>,
    /// Log-probabilities of the tokens, starting with the first.
    pub logprobs: Vec<TokenLogprobs>,
    /// Text that comes with the last event.
    pub held_back: String,
    /// Why the answer ends; `None` makes it endless, until it is cancelled or its time limit has passed.
    pub finish_reason: Option<FinishReason>,
    /// The stop text before which it ends.
    pub stopped_by: Option<String>,
    /// The reward for an answer, from a reward model.
    pub reward: Option<f32>,
    /// The error after the pieces, if any.
    pub failure: Option<GenerateError>,
    /// The cost. The tokens of prompt and answer are counted automatically.
    pub timings: Timings,
}

impl Script {
    /// Says these pieces and stops.
    pub fn saying(pieces: &[&str]) -> Script {
        let pieces = pieces.iter().map(|piece| (*piece).to_owned()).collect();
        Script { pieces, finish_reason: Some(FinishReason::Stop), ..Script::default() }
    }

    /// Fails after the prompt, or before it if the model cannot be loaded.
    pub fn failing(error: GenerateError) -> Script {
        Script { failure: Some(error), ..Script::default() }
    }

    /// Says these pieces and never ends.
    pub fn never_ending(pieces: &[&str]) -> Script {
        Script { finish_reason: None, ..Script::saying(pieces) }
    }

    fn events(self, prompt_tokens: usize) -> Vec<GenerationEvent> {
        if let Some(error @ GenerateError::Model { .. }) = self.failure {
            return vec![GenerationEvent::Failed(error)];
        }
        let mut events = vec![
            GenerationEvent::Started { prompt_token_ids: vec![1; prompt_tokens], reasoning: None },
            GenerationEvent::Prefill { done: self.timings.cached_tokens, total: prompt_tokens },
            GenerationEvent::Prefill { done: prompt_tokens, total: prompt_tokens },
        ];
        let generation_tokens = self.pieces.len();
        let mut logprobs = self.logprobs.into_iter();
        let token = |text: String| GenerationEvent::Token { id: 0, text, logprobs: logprobs.next() };
        events.extend(self.pieces.into_iter().map(token));
        if let Some(error) = self.failure {
            events.push(GenerationEvent::Failed(error));
            return events;
        }
        events.extend(self.reward.map(GenerationEvent::Reward));
        events.extend(self.stopped_by.map(GenerationEvent::StoppedBy));
        let timings = Timings { prompt_tokens, generation_tokens, ..self.timings };
        let finished = |reason| GenerationEvent::Finished { reason, text: self.held_back, timings };
        events.extend(self.finish_reason.map(finished));
        events
    }
}

/// Answers every request with a function of it. Each message of a chat, or word of a text, counts as one prompt token.
pub struct Scripted {
    respond: Box<dyn Fn(&GenerateRequest) -> Script + Send + Sync>,
    requests: Mutex<Vec<GenerateRequest>>,
    running: Mutex<Vec<GenerationSender>>,
}

impl Scripted {
    /// Answers requests with `respond`.
    pub fn new(respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static) -> Scripted {
        Scripted { respond: Box::new(respond), requests: Mutex::default(), running: Mutex::default() }
    }

    /// Gives every request the same answer.
    pub fn always(script: Script) -> Scripted {
        Scripted::new(move |_| script.clone())
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<GenerateRequest> {
        lock(&self.requests).clone()
    }

    /// Whether at least one endless answer was begun, and all of them have been cancelled.
    pub fn was_cancelled(&self) -> bool {
        let running = lock(&self.running);
        !running.is_empty() && running.iter().all(GenerationSender::is_cancelled)
    }
}

impl Generate for Scripted {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let script = (self.respond)(&request);
        let (sender, generation) = Generation::channel();
        let goes_on = script.finish_reason.is_none() && script.failure.is_none();
        for event in script.events(prompt_tokens(&request.prompt)) {
            sender.send(event);
        }
        if goes_on {
            if let Some(limit) = request.time_limit {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(limit);
                    sender.send(GenerationEvent::Failed(GenerateError::TimedOut { limit }));
                });
            }
            lock(&self.running).push(sender);
        }
        lock(&self.requests).push(request);
        Ok(generation)
    }
}

fn prompt_tokens(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Chat(messages) => messages.len(),
        Prompt::Text { text, .. } => text.split_whitespace().count(),
        Prompt::Tokens(tokens) => tokens.len(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
