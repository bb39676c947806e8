//! Decisions: a text and typed questions about it become probabilities of the questions' options.
//!
//! Each question is a request of its own, whose prompt begins with the text. The engine computes that beginning once and
//! forks it, so that a question costs its own few tokens. The model's answer is given, not asked for: what counts are the
//! probabilities, in its place, of the tokens that spell the options' labels.
//!
//! Two biases are taken out of them. What the model says without any text is subtracted, as logarithms (Zhao et al.,
//! "Calibrate Before Use", 2021). And the options are shown in several orders, whose logarithms are averaged, so that the
//! place of an option does not count.

mod asked;
mod distribution;
mod labels;

use std::collections::HashMap;
use std::iter::zip;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hone_protocol::{
    Completion, Decision, DecisionKind, DecisionQuestion, DecisionRequest, Decisions, Generate, GenerateError,
    GenerateRequest, Generation, GenerationEvent, LogprobOptions, Message, Prompt, Role, ThinkingOptions,
};

use asked::Asked;
use distribution::{log_probabilities, mean_distribution};
use labels::labels;

/// What stands in the place of the text where a model's bias is looked at.
const NO_TEXT: &str = "N/A";
/// The most requests to the generator at a time.
const MOST_AT_ONCE: usize = 32;
/// The most biases that are remembered.
const MOST_BIASES: usize = 4096;

/// Decides, and remembers the biases of the models for the questions that it has been asked.
#[derive(Debug, Default)]
pub struct Decider {
    biases: Mutex<Biases>,
}

/// The logarithms of the options' probabilities without a text, by model, question and answer.
type Biases = HashMap<(String, String, String), Vec<(usize, f64)>>;

/// One request while it is answered.
struct Deciding<'a> {
    generator: &'a dyn Generate,
    request: &'a DecisionRequest,
    is_over: &'a dyn Fn() -> bool,
    /// What ends the reasoning that the model's template opens; usually empty.
    closing: String,
}

impl Decider {
    /// Identifies the way in which models are asked: what was found out about them in another way says nothing.
    pub fn digest() -> String {
        asked::digest()
    }

    /// Answers the questions of a request.
    ///
    /// # Errors
    /// When a question has too few or too many options, the model cannot be asked, or nobody waits any longer (`is_over`).
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
        deciding.find_closing(asked[0])?;
        let biases = self.biases(&deciding, &asked)?;
        let completions = deciding.completions(&request.state, &asked)?;
        let seen = zip(&asked, &completions).map(|(asked, seen)| log_probabilities(asked, seen, &deciding.closing));
        let seen: Vec<Vec<(usize, f64)>> = seen.collect::<Result<_, _>>()?;
        let mut unbiased = zip(seen, biases).map(|(seen, bias)| {
            zip(seen, bias).map(|((option, seen), (_, bias))| (option, seen - bias)).collect::<Vec<_>>()
        });
        let answer = |(question, asked): (&DecisionQuestion, &Vec<Asked>)| {
            let logarithms = unbiased.by_ref().take(asked.len()).flatten();
            let temperature = request.tunings.of(question.kind.kind()).temperature;
            Decision { probabilities: mean_distribution(question.kind.n_options(), logarithms, temperature) }
        };
        let answers = zip(&request.questions, &questions).map(answer).collect();
        let (prompt_tokens, cached_tokens) = tokens(&completions);
        Ok(Decisions { answers, prompt_tokens, cached_tokens })
    }

    /// What the model says to the questions without a text.
    fn biases(&self, deciding: &Deciding<'_>, asked: &[&Asked]) -> Result<Vec<Vec<(usize, f64)>>, GenerateError> {
        let key = |asked: &Asked| (deciding.request.model.clone(), asked.text.clone(), asked.answer().to_owned());
        let unknown: Vec<&Asked> = {
            let known = self.known();
            asked.iter().copied().filter(|asked| !known.contains_key(&key(asked))).collect()
        };
        let completions = deciding.completions(NO_TEXT, &unknown)?;
        let new = zip(&unknown, &completions).map(|(asked, seen)| log_probabilities(asked, seen, &deciding.closing));
        let new: Vec<Vec<(usize, f64)>> = new.collect::<Result<_, _>>()?;
        let fresh: Biases = zip(unknown, new).map(|(asked, bias)| (key(asked), bias)).collect();
        let mut known = self.known();
        let bias = |asked: &&Asked| {
            let key = key(asked);
            known.get(&key).or_else(|| fresh.get(&key)).cloned().unwrap_or_default()
        };
        let biases = asked.iter().map(bias).collect();
        if known.len() + fresh.len() > MOST_BIASES {
            known.clear();
        }
        known.extend(fresh);
        Ok(biases)
    }

    fn known(&self) -> MutexGuard<'_, Biases> {
        self.biases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deciding<'_> {
    /// What the model says to the questions about a text: a row of probabilities each.
    fn completions(&self, text: &str, asked: &[&Asked]) -> Result<Vec<Completion>, GenerateError> {
        let mut completions = Vec::with_capacity(asked.len());
        for batch in asked.chunks(MOST_AT_ONCE) {
            let start = |asked: &&Asked| Generation::start(self.generator, self.about(text, asked));
            let started: Vec<Generation> = batch.iter().map(start).collect();
            for generation in started {
                completions.push(generation.complete_unless(self.is_over)?);
            }
        }
        Ok(completions)
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

    /// Finds out whether the model's template opens its reasoning whatever is asked for: an answer would be looked for
    /// among thoughts.
    fn find_closing(&mut self, asked: &Asked) -> Result<(), GenerateError> {
        let generation = Generation::start(self.generator, self.about(NO_TEXT, asked));
        for event in generation.events() {
            match event {
                GenerationEvent::Started { reasoning, .. } => {
                    self.closing = reasoning.map(|tags| tags.before_answer()).unwrap_or_default();
                    return Ok(());
                }
                GenerationEvent::Failed(error) => return Err(error),
                _ if (self.is_over)() => break,
                _ => {}
            }
        }
        Err(GenerateError::Stopped)
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

/// The tokens of all prompts, those that they share counted once, and how many of them were there before.
fn tokens(completions: &[Completion]) -> (usize, usize) {
    let cached = completions.first().map_or(0, |first| first.timings.cached_tokens);
    let of_question = |completion: &Completion| completion.prompt_token_ids.len() - completion.timings.cached_tokens;
    (cached + completions.iter().map(of_question).sum::<usize>(), cached)
}
