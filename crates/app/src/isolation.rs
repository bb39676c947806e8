//! Checks that concurrently computed requests do not leak into each other's answers.
//!
//! Every request is answered alone first. In each round, all are then answered at the same time, alongside others that
//! are cancelled. Each has its own secret and owner, all share the beginning of their prompts, and some are sampled,
//! constrained to a form, or begin with the same words as another. Answers and log-probabilities must be equal to the
//! bit, no secret may be in another request's answer, and an owner who repeats another's prompt must find no more of it
//! in the cache than one who guesses.

mod served;

use hone_protocol::{
    Completion, Constraint, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, LogprobOptions,
    Message, OwnerId, Prompt, Role, SamplingOptions,
};
use serde::Serialize;

pub use self::served::{ServedReport, check_served};

/// The maximum tokens of an answer.
const ANSWER_TOKENS: usize = 24;
/// The number of events after which a request is cancelled.
const EVENTS_BEFORE_CANCELLING: usize = 6;
/// The common beginning of all prompts, long enough to be kept in the cache in blocks.
const COMMON: &str = "You keep notes for many people. Each person has a code, which you tell that person alone. Read the note \
                      below, and answer in one sentence what the code is for. Notes are short, and a code has six digits. ";

/// The findings of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IsolationReport {
    /// How many requests were answered at the same time.
    pub requests: usize,
    /// The number of rounds.
    pub rounds: usize,
    /// How many tokens, with their log-probabilities, were compared.
    pub tokens: usize,
    /// How many requests were cancelled meanwhile.
    pub cancelled: usize,
    /// Each violation, in words; empty if the requests are isolated.
    pub failures: Vec<String>,
}

/// Makes `requests` requests to `model`, first one by one, and then, in each of `rounds` rounds, all at the same time.
///
/// # Errors
/// When the model cannot answer.
pub fn check_isolation(
    generator: &dyn Generate,
    model: &str,
    requests: usize,
    rounds: usize,
) -> Result<IsolationReport, GenerateError> {
    let mut report = IsolationReport { requests, rounds, ..IsolationReport::default() };
    let secrets = (0..requests).map(|_| secret()).collect::<Result<Vec<u32>, _>>()?;
    let owners: Vec<OwnerId> = secrets.iter().map(|_| OwnerId::fresh()).collect();
    let request = |index: usize| request(model, index, secrets[index], owners[index]);
    let complete = |generation: Generation| generation.complete();
    let alone: Vec<Completion> =
        (0..requests).map(|index| complete(Generation::start(generator, request(index)))).collect::<Result<_, _>>()?;
    for round in 0..rounds {
        let started: Vec<Generation> =
            (0..requests).map(|index| Generation::start(generator, request(index))).collect();
        let others: Vec<Generation> = (0..requests)
            .map(|index| GenerateRequest { owner: Some(OwnerId::fresh()), ..request((index + round + 1) % requests) })
            .map(|request| Generation::start(generator, request))
            .collect();
        report.cancelled += others.into_iter().filter(cancels).count();
        for (index, generation) in started.into_iter().enumerate() {
            let together = generation.complete()?;
            report.tokens += together.token_ids.len();
            report.failures.extend(difference(index, &alone[index], &together));
            report.failures.extend(leak(index, &together, &secrets));
        }
    }
    report.failures.extend(cache_leak(generator, model, &secrets)?);
    Ok(report)
}

/// A random number of six digits.
fn secret() -> Result<u32, GenerateError> {
    let random =
        getrandom::u32().map_err(|error| GenerateError::Failed(format!("there are no random numbers: {error}")))?;
    Ok(100_000 + random % 900_000)
}

/// The question of a request.
fn note(index: usize, secret: &str) -> String {
    let purpose = ["door", "safe", "car", "boat"][index % 4];
    format!("{COMMON}Note {}: the code {secret} is for the {purpose}.", index / 2)
}

fn prompt(index: usize, secret: u32) -> Prompt {
    Prompt::Chat(vec![Message::new(Role::User, note(index, &secret.to_string()))])
}

/// Every second request is sampled, and every third is constrained to a form.
fn request(model: &str, index: usize, secret: u32, owner: OwnerId) -> GenerateRequest {
    let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.8 };
    GenerateRequest {
        sampling: SamplingOptions { temperature, seed: Some(index as u64), ..SamplingOptions::default() },
        max_tokens: Some(ANSWER_TOKENS),
        constraint: index.is_multiple_of(3).then(|| Constraint::Regex("[A-Za-z ,]{8,60}\\.".to_owned())),
        logprobs: LogprobOptions { top: Some(2), ..LogprobOptions::default() },
        owner: Some(owner),
        ..GenerateRequest::new(model, prompt(index, secret))
    }
}

/// Whether a request has not ended after a few events; it is dropped then.
fn cancels(generation: &Generation) -> bool {
    let mut events = generation.events().iter().take(EVENTS_BEFORE_CANCELLING);
    !events.any(|event| matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_)))
}

fn difference(index: usize, alone: &Completion, together: &Completion) -> Option<String> {
    let bits = |completion: &Completion| -> Vec<(u32, Vec<(u32, u32)>)> {
        let row =
            |row: &hone_protocol::TokenLogprobs| row.top.iter().map(|one| (one.id, one.logprob.to_bits())).collect();
        completion.logprobs.iter().map(|one| (one.logprob.to_bits(), row(one))).collect()
    };
    if alone.text != together.text || alone.token_ids != together.token_ids {
        return Some(format!("request {index} got {:?} alone, and {:?} beside others", alone.text, together.text));
    }
    (bits(alone) != bits(together)).then(|| format!("request {index} got other log-probabilities beside others"))
}

fn leak(index: usize, completion: &Completion, secrets: &[u32]) -> Option<String> {
    let of_others = secrets.iter().enumerate().filter(|(other, _)| *other != index);
    let found =
        of_others.filter(|(_, secret)| completion.text.contains(&secret.to_string())).map(|(other, _)| other).next();
    found.map(|other| format!("the answer to request {index} has the secret of request {other}"))
}

/// Whether the cache reveals another owner's question: the true secret must not be cached further than a guess.
fn cache_leak(generator: &dyn Generate, model: &str, secrets: &[u32]) -> Result<Vec<String>, GenerateError> {
    let cached = |index: usize, secret: u32| -> Result<usize, GenerateError> {
        let request = GenerateRequest { max_tokens: Some(1), ..request(model, index, secret, OwnerId::fresh()) };
        Ok(Generation::start(generator, request).complete()?.timings.cached_tokens)
    };
    let mut failures = Vec::new();
    for (index, secret_of_another) in secrets.iter().enumerate() {
        let (guessed, known) = (cached(index, secret()?)?, cached(index, *secret_of_another)?);
        if known > guessed {
            failures.push(format!(
                "the prompt of request {index} had {known} cached tokens for somebody else, and {guessed} with a wrong secret"
            ));
        }
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::{Script, Scripted};

    use super::*;

    fn text_of(request: &GenerateRequest) -> &str {
        let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
        &messages[0].content
    }

    #[test]
    fn answers_that_depend_on_nothing_else_pass() {
        let model = Scripted::new(|request| Script::saying(&[text_of(request)]));
        let report = check_isolation(&model, "m", 4, 2).unwrap();
        assert_eq!((report.failures, report.tokens), (Vec::<String>::new(), 8));
    }

    #[test]
    fn an_answer_of_another_and_its_secret_are_found() {
        let last = std::sync::Mutex::new(String::new());
        let model = Scripted::new(move |request| {
            let before = std::mem::replace(&mut *last.lock().unwrap(), text_of(request).to_owned());
            Script::saying(&[&before])
        });
        let report = check_isolation(&model, "m", 4, 1).unwrap();
        assert!(report.failures.iter().any(|failure| failure.contains("beside others")), "{report:#?}");
        assert!(report.failures.iter().any(|failure| failure.contains("has the secret of")), "{report:#?}");
    }
}
