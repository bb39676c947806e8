//! Decisions: a text and typed questions about it become probabilities of the questions' options.
//!
//! Each question is one request or a few, whose prompts begin with the text. The engine computes that beginning once
//! and forks it, so that a question costs its own tokens. The model's answer is forced, not generated: the result is
//! the probabilities, in its place, of the tokens that spell the options' labels, or of the options' texts.
//!
//! Two biases are removed. The model's response without any text is subtracted, as logarithms (Zhao et al., "Calibrate
//! Before Use", 2021); it is computed once per question and remembered. Options with labels are shown in several
//! orders, whose logarithms are averaged, so that the position of an option does not count.

mod asked;
mod biases;
mod distribution;
mod labels;

use std::iter::zip;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hone_protocol::{
    Decision, DecisionKind, DecisionQuestion, DecisionRequest, Decisions, Generate, GenerateError, GenerateRequest,
    Generation, LogprobOptions, Message, Prompt, Role, ThinkingOptions,
};

use asked::Asked;
use biases::{BiasKey, Biases};
use distribution::{OptionLogarithms, log_probabilities, mean_distribution};
use labels::labels;

/// Replaces the text when a model's bias is measured.
const NO_TEXT: &str = "N/A";

/// Makes decisions, and remembers the models' biases for past questions.
#[derive(Debug, Default)]
pub struct Decider {
    biases: Mutex<Biases>,
}

/// A request in progress.
struct Deciding<'a> {
    generator: &'a dyn Generate,
    request: &'a DecisionRequest,
    is_over: &'a dyn Fn() -> bool,
    /// The text that ends the reasoning opened by the model's template; usually empty.
    closing: String,
}

/// The model's response to a question.
struct Said {
    logarithms: OptionLogarithms,
    prompt_tokens: usize,
    cached_tokens: usize,
}

impl Decider {
    /// Maximum concurrent requests to the generator.
    pub const MOST_AT_ONCE: usize = 16;

    /// Identifies the way in which models are asked. Results obtained in another way do not apply.
    pub fn digest() -> String {
        asked::digest(NO_TEXT)
    }

    /// Answers the questions of a request.
    ///
    /// # Errors
    /// When a question has too few or too many options, the text is too long, the model cannot be asked, or no caller
    /// waits for the answers (`is_over`).
    pub fn decide(
        &self,
        generator: &dyn Generate,
        request: &DecisionRequest,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Decisions, GenerateError> {
        check(request)?;
        let mut deciding = Deciding { generator, request, is_over, closing: String::new() };
        let labels = labels(&deciding)?;
        let all = |question: &DecisionQuestion| {
            let form = request.tunings.of(question.kind.kind()).form;
            Asked::all(question, form, &labels, request.orders)
        };
        let questions: Vec<Vec<Asked>> = request.questions.iter().map(all).collect();
        let asked: Vec<&Asked> = questions.iter().flatten().collect();
        let mut said = vec![deciding.first(&request.state, asked[0])?];
        let biases = self.biases(&deciding, &asked)?;
        said.extend(deciding.said(&request.state, &asked[1..])?);
        let mut unbiased = zip(&said, biases).map(|(said, bias)| {
            zip(&said.logarithms, bias).map(|((option, said), (_, bias))| (*option, said - bias)).collect::<Vec<_>>()
        });
        let answer = |(question, asked): (&DecisionQuestion, &Vec<Asked>)| {
            let logarithms = unbiased.by_ref().take(asked.len()).flatten();
            let temperature = request.tunings.of(question.kind.kind()).temperature;
            Decision { probabilities: mean_distribution(question.kind.n_options(), logarithms, temperature) }
        };
        let answers = zip(&request.questions, &questions).map(answer).collect();
        let cached_tokens = said[0].cached_tokens;
        let computed: usize = said.iter().map(|said| said.prompt_tokens.saturating_sub(said.cached_tokens)).sum();
        Ok(Decisions { answers, prompt_tokens: cached_tokens + computed, cached_tokens })
    }

    /// The model's responses to the questions without a text.
    fn biases(&self, deciding: &Deciding<'_>, asked: &[&Asked]) -> Result<Vec<OptionLogarithms>, GenerateError> {
        let keys: Vec<BiasKey> = asked.iter().map(|asked| BiasKey::new(deciding.request, asked)).collect();
        let mut biases: Vec<Option<OptionLogarithms>> = {
            let known = self.known();
            keys.iter().map(|key| known.get(key)).collect()
        };
        let unknown: Vec<usize> = (0..asked.len()).filter(|index| biases[*index].is_none()).collect();
        let said = deciding.said(NO_TEXT, &unknown.iter().map(|index| asked[*index]).collect::<Vec<_>>())?;
        let mut known = self.known();
        for (index, said) in zip(unknown, said) {
            known.insert(keys[index], said.logarithms.clone());
            biases[index] = Some(said.logarithms);
        }
        Ok(biases.into_iter().flatten().collect())
    }

    fn known(&self) -> MutexGuard<'_, Biases> {
        self.biases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deciding<'_> {
    /// The model's response to the first question about a text. It shows whether the text is too long, and whether the
    /// model's template always opens its reasoning: an answer would then be looked for among thoughts.
    fn first(&mut self, text: &str, asked: &Asked) -> Result<Said, GenerateError> {
        let generation = Generation::start(self.generator, self.about(text, asked));
        match generation.started_unless(self.is_over)? {
            None => self.read(asked, generation),
            Some(tags) => {
                self.closing = tags.before_answer();
                drop(generation);
                self.read(asked, Generation::start(self.generator, self.about(text, asked)))
            }
        }
    }

    /// The model's responses to questions about a text.
    fn said(&self, text: &str, asked: &[&Asked]) -> Result<Vec<Said>, GenerateError> {
        let mut said = Vec::with_capacity(asked.len());
        for batch in asked.chunks(Decider::MOST_AT_ONCE) {
            let mut started = Vec::with_capacity(batch.len());
            for asked in batch {
                if (self.is_over)() {
                    return Err(GenerateError::Stopped);
                }
                started.push(Generation::start(self.generator, self.about(text, asked)));
            }
            for (asked, generation) in zip(batch, started) {
                said.push(self.read(asked, generation)?);
            }
        }
        Ok(said)
    }

    fn read(&self, asked: &Asked, generation: Generation) -> Result<Said, GenerateError> {
        let completion = generation.complete_unless(self.is_over)?;
        Ok(Said {
            logarithms: log_probabilities(asked, &completion, &self.closing)?,
            prompt_tokens: completion.timings.prompt_tokens,
            cached_tokens: completion.timings.cached_tokens,
        })
    }

    /// The request for the answer to a question about a text.
    fn about(&self, text: &str, asked: &Asked) -> GenerateRequest {
        GenerateRequest {
            forced_answer: Some(format!("{}{}", self.closing, asked.answer())),
            thinking: ThinkingOptions { is_on: Some(false), ..ThinkingOptions::default() },
            logprobs: LogprobOptions { top: Some(0), named: asked.named(), ..LogprobOptions::default() },
            ..self.of_prompt(Prompt::Chat(vec![Message::new(Role::User, asked.about(text))]))
        }
    }

    fn of_prompt(&self, prompt: Prompt) -> GenerateRequest {
        let DecisionRequest { model, lane, session, owner, .. } = self.request;
        GenerateRequest { lane: *lane, session: *session, owner: *owner, ..GenerateRequest::new(model, prompt) }
    }
}

fn check(request: &DecisionRequest) -> Result<(), GenerateError> {
    let refuse = |reason: String| Err(GenerateError::Request(reason));
    let (n, most) = (request.questions.len(), DecisionRequest::MOST_QUESTIONS);
    if n == 0 || n > most {
        return refuse(format!("there are {n} questions: 1 to {most} are possible"));
    }
    if request.orders == 0 {
        return refuse("the options are shown in no order: at least 1 is needed".to_owned());
    }
    for (number, question) in (1..).zip(&request.questions) {
        let (name, most) = match question.kind {
            DecisionKind::YesNo { .. } => continue,
            DecisionKind::Choice(_) => ("options", DecisionKind::MOST_OPTIONS),
            DecisionKind::Score(_) => ("levels", DecisionKind::MOST_LEVELS),
        };
        let n = question.kind.n_options();
        if n < 2 || n > most {
            return refuse(format!("question {number} has {n} {name}: 2 to {most} are possible"));
        }
    }
    Ok(())
}
