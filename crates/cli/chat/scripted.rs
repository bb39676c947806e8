//! A model whose answers a test writes, and a screen that remembers what it was shown.

#![allow(clippy::unwrap_used)]

use crossbeam_channel::{Sender, bounded};
use hone_protocol::{
    FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, GenerationSender, Prompt,
    Timings,
};
use std::sync::Mutex;

use super::screen::Screen;
use super::session::Session;
use crate::config::Config;
use crate::interrupt::Interrupt;

/// Answers every request with the same pieces of text. A message counts as one token of the prompt.
pub(crate) struct Scripted {
    pieces: Vec<String>,
    held_back: String,
    finish_reason: Option<FinishReason>,
    failure: Option<GenerateError>,
    context: usize,
    requests: Mutex<Vec<GenerateRequest>>,
    running: Mutex<Option<GenerationSender>>,
}

impl Scripted {
    /// Gives these pieces, and stops.
    pub(crate) fn answering(pieces: &[&str]) -> Scripted {
        Scripted {
            pieces: pieces.iter().map(|piece| piece.to_string()).collect(),
            held_back: String::new(),
            finish_reason: Some(FinishReason::Stop),
            failure: None,
            context: usize::MAX,
            requests: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Fails after the prompt.
    pub(crate) fn failing(error: GenerateError) -> Scripted {
        Scripted { failure: Some(error), ..Scripted::answering(&[]) }
    }

    /// Ends for this reason.
    pub(crate) fn finishing(self, reason: FinishReason) -> Scripted {
        Scripted { finish_reason: Some(reason), ..self }
    }

    /// Gives this text with its end.
    pub(crate) fn held_back(self, text: &str) -> Scripted {
        Scripted { held_back: text.to_string(), ..self }
    }

    /// Goes on until it is cancelled.
    pub(crate) fn never_ending(self) -> Scripted {
        Scripted { finish_reason: None, ..self }
    }

    /// Holds prompts of at most this many messages.
    pub(crate) fn holding(self, messages: usize) -> Scripted {
        Scripted { context: messages, ..self }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<GenerateRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Whether the receiver of an answer without end is gone.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.running.lock().unwrap().as_ref().is_some_and(GenerationSender::is_cancelled)
    }

    fn events(&self, prompt_tokens: usize) -> Vec<GenerationEvent> {
        if prompt_tokens > self.context {
            let overflow = GenerateError::ContextOverflow { prompt_tokens, context_tokens: self.context };
            return vec![GenerationEvent::Failed(overflow)];
        }
        let mut events = vec![
            GenerationEvent::Started { prompt_token_ids: vec![1; prompt_tokens] },
            GenerationEvent::Prefill { done: prompt_tokens, total: prompt_tokens },
        ];
        if let Some(error) = &self.failure {
            events.push(GenerationEvent::Failed(error.clone()));
            return events;
        }
        events.extend(self.pieces.iter().map(|text| GenerationEvent::Token {
            id: 0,
            text: text.clone(),
            logprobs: None,
        }));
        let timings = Timings {
            prompt_tokens,
            prompt_seconds: 0.5,
            prompt_tokens_per_second: prompt_tokens as f64 / 0.5,
            generation_tokens: self.pieces.len(),
            generation_seconds: 0.25,
            generation_tokens_per_second: 8.0,
            ..Timings::default()
        };
        let text = self.held_back.clone();
        events.extend(self.finish_reason.map(|reason| GenerationEvent::Finished { reason, text, timings }));
        events
    }
}

impl Generate for Scripted {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let Prompt::Chat(messages) = &request.prompt else { panic!("a chat sends messages") };
        let (sender, generation) = Generation::channel();
        for event in self.events(messages.len()) {
            sender.send(event);
        }
        if self.finish_reason.is_none() {
            *self.running.lock().unwrap() = Some(sender);
        }
        self.requests.lock().unwrap().push(request);
        Ok(generation)
    }
}

/// Remembers what was shown: pieces of an answer on one line, each closed by `|`.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) seen: Vec<String>,
    pieces: String,
    press_after: Option<(usize, Sender<()>)>,
}

impl Recorder {
    /// Presses Ctrl-C after so many pieces.
    pub(crate) fn pressing(press: Sender<()>, pieces: usize) -> Recorder {
        Recorder { press_after: Some((pieces, press)), ..Recorder::default() }
    }
}

impl Screen for Recorder {
    fn waiting(&mut self) {}

    fn prompt_progress(&mut self, _done: usize, _total: usize) {}

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.pieces += &format!("{text}|");
        }
        if let Some((pieces, press)) = &mut self.press_after {
            *pieces -= 1;
            if *pieces == 0 {
                press.send(()).unwrap();
            }
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.seen.push(format!("{}end", std::mem::take(&mut self.pieces)));
        Ok(())
    }

    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.seen.push(text.to_string());
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.seen.push(format!("note: {text}"));
    }

    fn error(&mut self, text: &str) {
        self.seen.push(format!("error: {text}"));
    }
}

/// A session of so many exchanges.
pub(crate) fn session(exchanges: usize) -> Session {
    let mut session = Session::new(Config::defaults().unwrap());
    for number in 1..=exchanges {
        session.ask(format!("q{number}"));
        session.finish(format!("a{number}"), Some(FinishReason::Stop), Timings::default());
    }
    session
}

/// A Ctrl-C that is never pressed.
pub(crate) fn interrupt_never() -> Interrupt {
    Interrupt::from_channel(crossbeam_channel::never())
}

/// A Ctrl-C, and what presses it.
pub(crate) fn interrupt_now() -> (Interrupt, Sender<()>) {
    let (sender, receiver) = bounded(1);
    (Interrupt::from_channel(receiver), sender)
}
