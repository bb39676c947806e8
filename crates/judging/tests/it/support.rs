//! Judges over a model whose answers are scripted by a test.

use std::sync::Arc;

use hone_judging::scripted::turn;
use hone_judging::{Fallback, Judge, JudgeSettings, scripted};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{
    Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, TokenLogprob, TokenLogprobs,
};

/// The model that gave the answers.
pub(crate) const ANSWERER: &str = "smollm2:135m";

/// The shipped settings with a change.
pub(crate) fn settings(change: impl FnOnce(&mut JudgeSettings)) -> JudgeSettings {
    let mut settings = JudgeSettings { fallback: Fallback::Generator, ..JudgeSettings::shipped() };
    change(&mut settings);
    settings
}

/// A judge with the shipped settings and the answering model as its stand-in, and the model behind it.
pub(crate) fn judge(respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static) -> (Judge, Arc<Scripted>) {
    scripted::judge(settings(|_| ()), respond)
}

/// The single turn of a request with its fences removed, and their boundary.
pub(crate) fn unfenced(request: &GenerateRequest) -> (String, String) {
    let text = turn(request);
    let boundaries: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("<<<")).collect();
    let boundary = boundaries[0];
    let closings = text.lines().filter(|line| *line == format!("{boundary}>>>")).count();
    assert!(boundaries.iter().all(|other| *other == boundary) && closings == boundaries.len(), "{text}");
    assert_eq!(text.matches(boundary).count(), 2 * closings, "{text}");
    let bare = text.replace(&format!("<<<{boundary}\n"), "").replace(&format!("\n{boundary}>>>"), "");
    (bare, boundary.to_owned())
}

/// A position where the token `chosen` was chosen, with these probabilities of the tokens.
pub(crate) fn row(chosen: &str, probabilities: &[(&str, f32)]) -> TokenLogprobs {
    let named: Vec<TokenLogprob> = (10..)
        .zip(probabilities)
        .map(|(id, (text, probability))| TokenLogprob { id, logprob: probability.ln(), text: (*text).to_owned() })
        .collect();
    let id = named.iter().find(|named| named.text == chosen).map_or(0, |named| named.id);
    TokenLogprobs { id, text: chosen.to_owned(), logprob: -1.0, named, ..TokenLogprobs::default() }
}

/// The error for a model that is not installed.
pub(crate) fn missing(model: &str) -> Script {
    let reason = format!("model `{model}` is not installed: run `hone pull {model}`");
    Script::failing(GenerateError::Model { model: model.to_owned(), reason })
}

/// Counts four characters of a prompt as a token and stops when its own context is full, like the engine.
pub(crate) struct Counting {
    pub(crate) context: usize,
    pub(crate) scripted: Scripted,
}

impl Generate for Counting {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let prompt_tokens = turn(&request).chars().count() / 4;
        let context_tokens = self.context.min(request.context.unwrap_or(usize::MAX));
        let (sender, generation) = Generation::channel();
        if prompt_tokens >= context_tokens {
            sender.send(GenerationEvent::Failed(GenerateError::ContextOverflow { prompt_tokens, context_tokens }));
            return Ok(generation);
        }
        sender.send(GenerationEvent::Started { prompt_token_ids: vec![1; prompt_tokens], reasoning: None });
        let answer = self.scripted.generate(request)?;
        // All events of a script are available at once.
        answer.events().try_iter().skip(1).for_each(|event| sender.send(event));
        Ok(generation)
    }
}

/// Refuses or drops every request.
pub(crate) enum Broken {
    Refusing,
    Losing,
}

impl Generate for Broken {
    fn generate(&self, _: GenerateRequest) -> Result<Generation, GenerateError> {
        match self {
            Broken::Refusing => Err(GenerateError::Stopped),
            Broken::Losing => Ok(Generation::channel().1),
        }
    }
}
