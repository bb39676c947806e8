//! Answers of models that only workers have.
//!
//! The events of an answer come from a worker as they arise. If the worker is lost midway, another one is asked. It
//! computes the same tokens again, since the request has a seed; events that were already passed on are not repeated.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use hone_fleet::{BusSettings, Piece, Urgency};
use hone_models::Store;
use hone_protocol::{Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, GenerationSender, Lane};

use super::GENERATE;
use super::models::{FleetModels, KnownFleet};

/// Interval for checking whether an answer is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// The maximum number of workers tried for an answer.
const MOST_CALLS: usize = 5;

/// The engine, plus the models that only workers have. Local models do not depend on the bus.
pub(crate) struct RoutedGenerator {
    pub(crate) own: Arc<dyn Generate>,
    pub(crate) store: Arc<Store>,
    pub(crate) fleet: Arc<KnownFleet>,
    pub(crate) settings: BusSettings,
}

impl RoutedGenerator {
    fn elsewhere(&self, models: &Arc<FleetModels>, request: GenerateRequest) -> Result<Generation, GenerateError> {
        let failed = |reason: String| GenerateError::Failed(reason);
        let (sender, generation) = Generation::channel();
        let relay = Relay { models: Arc::clone(models), request: seeded(request)?, passed: Passed::new(sender) };
        thread::Builder::new()
            .name("hone-call".to_owned())
            .spawn(move || relay.run())
            .map_err(|error| failed(format!("the system provides no thread: {error}")))?;
        Ok(generation)
    }

    fn models(&self) -> Result<Arc<FleetModels>, GenerateError> {
        let models = self.fleet.get(&self.settings, &self.store);
        let models = models.map_err(|error| GenerateError::Failed(format!("{error:#}")))?;
        models.wait();
        Ok(models)
    }
}

/// The error for a model that no machine has.
fn missing(models: &FleetModels, model: &str) -> GenerateError {
    let there: Vec<String> = models.of_role(GENERATE).into_iter().map(|model| model.name).collect();
    let there = if there.is_empty() { "no model".to_owned() } else { there.join(", ") };
    let reason =
        format!("it is not installed here (`hone pull {model}` installs it), and the workers on the bus have {there}");
    GenerateError::Model { model: model.to_owned(), reason }
}

impl Generate for RoutedGenerator {
    fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        if self.store.has(&request.model) || self.store.show(&request.model).is_ok() {
            return self.own.generate(request);
        }
        let models = self.models()?;
        match models.has(GENERATE, &request.model) {
            true => self.elsewhere(&models, request),
            false => Err(missing(&models, &request.model)),
        }
    }
}

/// The request with a seed, so that two workers answer alike.
fn seeded(mut request: GenerateRequest) -> Result<GenerateRequest, GenerateError> {
    if request.sampling.seed.is_none() {
        let seed =
            getrandom::u32().map_err(|error| GenerateError::Failed(format!("there are no random numbers: {error}")))?;
        request.sampling.seed = Some(seed.into());
    }
    Ok(request)
}

/// An answer on its way from workers.
struct Relay {
    models: Arc<FleetModels>,
    request: GenerateRequest,
    passed: Passed,
}

impl Relay {
    fn run(mut self) {
        let content = serde_json::to_vec(&self.request).unwrap_or_default();
        let mut reason = String::new();
        for _ in 0..MOST_CALLS {
            match self.call(content.clone()) {
                Ended::Whole => return,
                Ended::GivenUp(why) => {
                    reason = why;
                    break;
                }
                Ended::Lost(why) => {
                    tracing::info!("an answer is asked for again: {why}");
                    reason = why;
                }
            }
        }
        self.passed.sender.send(GenerationEvent::Failed(GenerateError::Failed(reason)));
    }

    /// Asks a worker, and passes its events on.
    fn call(&mut self, content: Vec<u8>) -> Ended {
        let urgency = if self.request.lane == Lane::Interactive { Urgency::Now } else { Urgency::Later };
        let call = match self.models.call(GENERATE, &self.request.model, urgency, content) {
            Ok(call) => call,
            Err(unsent) => {
                return Ended::GivenUp(format!(
                    "the question is not sent to a worker: {unsent}; shorten it, or install the model here"
                ));
            }
        };
        let mut source = Source::default();
        self.passed.begin_anew();
        while !self.passed.sender.is_cancelled() {
            match call.pieces().recv_timeout(LOOK) {
                Ok(Piece::Part { attempt, number, content }) => {
                    match source.follows(attempt, number) {
                        Follows::Older => continue,
                        Follows::Gap => return Ended::Lost("a part of the answer was lost on its way".to_owned()),
                        Follows::Anew => self.passed.begin_anew(),
                        Follows::Next => {}
                    }
                    let Ok(events) = serde_json::from_slice::<Vec<GenerationEvent>>(&content) else {
                        return Ended::GivenUp(
                            "the worker has another version of hone: both must have the same".to_owned(),
                        );
                    };
                    for event in events {
                        if self.passed.pass(event) {
                            return Ended::Whole;
                        }
                    }
                }
                Ok(Piece::Lost(reason)) => return Ended::Lost(reason),
                Ok(Piece::GivenUp(reason)) => return Ended::GivenUp(reason),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ended::Lost("the connection has ended".to_owned()),
            }
        }
        Ended::Whole
    }
}

/// How a call ended.
enum Ended {
    /// With the last event, or because the rest is no longer wanted.
    Whole,
    /// Asking again may help.
    Lost(String),
    GivenUp(String),
}

/// The worker that sends the pieces.
#[derive(Default)]
struct Source {
    attempt: u32,
    /// The number of its next piece.
    next: u64,
}

/// The relation of a piece to those before it.
#[derive(Debug, PartialEq, Eq)]
enum Follows {
    Next,
    /// The first piece of a later worker.
    Anew,
    /// A piece of a worker that has been replaced.
    Older,
    /// An earlier piece is missing.
    Gap,
}

impl Source {
    fn follows(&mut self, attempt: u32, number: u64) -> Follows {
        if attempt < self.attempt {
            return Follows::Older;
        }
        let is_later = attempt > self.attempt;
        if is_later {
            *self = Source { attempt, next: 0 };
        }
        if number != self.next {
            return Follows::Gap;
        }
        self.next += 1;
        if is_later { Follows::Anew } else { Follows::Next }
    }
}

/// Identifies an event, to tell whether two workers answer alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Started,
    OfPrompt(u32),
    Reward,
    Token(u32),
    StoppedBy,
}

impl Mark {
    /// The mark of an event that every worker sends; `None` for others.
    fn of(event: &GenerationEvent) -> Option<Mark> {
        match event {
            GenerationEvent::Started { .. } => Some(Mark::Started),
            GenerationEvent::OfPrompt(logprobs) => Some(Mark::OfPrompt(logprobs.id)),
            GenerationEvent::Reward(_) => Some(Mark::Reward),
            GenerationEvent::Token { id, .. } => Some(Mark::Token(*id)),
            GenerationEvent::StoppedBy(_) => Some(Mark::StoppedBy),
            _ => None,
        }
    }
}

/// The events that have been passed on.
struct Passed {
    sender: GenerationSender,
    marks: Vec<Mark>,
    /// How many of them the current worker has also sent.
    n_again: usize,
}

impl Passed {
    fn new(sender: GenerationSender) -> Passed {
        Passed { sender, marks: Vec::new(), n_again: 0 }
    }

    /// Begins again with another worker.
    fn begin_anew(&mut self) {
        self.n_again = 0;
    }

    /// Passes an event on, unless this has been done; returns whether it was the last.
    fn pass(&mut self, event: GenerationEvent) -> bool {
        let expected = self.marks.get(self.n_again).copied();
        match (Mark::of(&event), expected) {
            (Some(mark), Some(expected)) if mark == expected => {
                self.n_again += 1;
                return false;
            }
            (Some(_), Some(_)) => return self.fail(),
            (Some(mark), None) => {
                self.marks.push(mark);
                self.n_again += 1;
            }
            (None, Some(_)) => match event {
                GenerationEvent::Finished { .. } => return self.fail(),
                GenerationEvent::Failed(_) => {}
                _ => return false,
            },
            (None, None) => {}
        }
        let is_last = matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_));
        self.sender.send(event);
        is_last
    }

    /// Fails, because two workers answer differently.
    fn fail(&self) -> bool {
        let reason = "the worker that answered was lost, and another one goes on differently: ask again";
        self.sender.send(GenerationEvent::Failed(GenerateError::Failed(reason.to_owned())));
        true
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{FinishReason, Timings};

    use super::*;

    fn started() -> GenerationEvent {
        GenerationEvent::Started { prompt_token_ids: vec![1], reasoning: None }
    }

    fn token(id: u32) -> GenerationEvent {
        GenerationEvent::Token { id, text: id.to_string(), logprobs: None }
    }

    fn finished() -> GenerationEvent {
        GenerationEvent::Finished { reason: FinishReason::Stop, text: String::new(), timings: Timings::default() }
    }

    /// The text after two workers, the first of which is lost before it has finished.
    fn after(first: Vec<GenerationEvent>, second: Vec<GenerationEvent>) -> Result<String, GenerateError> {
        let (sender, generation) = Generation::channel();
        let mut passed = Passed::new(sender);
        assert!(!first.into_iter().any(|event| passed.pass(event)));
        passed.begin_anew();
        assert!(second.into_iter().any(|event| passed.pass(event)), "the last event is passed on");
        generation.complete().map(|completion| completion.text)
    }

    #[test]
    fn another_worker_goes_on_where_the_first_was_lost() {
        let whole = || vec![started(), GenerationEvent::Prefill { done: 1, total: 1 }, token(1), token(2), finished()];
        assert_eq!(after(vec![], whole()).unwrap(), "12");
        assert_eq!(after(vec![started()], whole()).unwrap(), "12");
        assert_eq!(after(vec![started(), token(1)], whole()).unwrap(), "12");
        assert_eq!(after(vec![started(), token(1), token(2)], whole()).unwrap(), "12");
    }

    #[test]
    fn one_that_answers_differently_does_not() {
        let check = |second| assert!(after(vec![started(), token(1), token(2)], second).is_err());
        check(vec![started(), token(1), token(3), finished()]);
        check(vec![started(), token(1), finished()]);
        check(vec![GenerationEvent::Failed(GenerateError::Stopped)]);
    }

    #[test]
    fn pieces_come_in_order_or_are_missed() {
        let mut source = Source::default();
        let mut check = |attempt, number, expected| assert_eq!(source.follows(attempt, number), expected);
        check(1, 0, Follows::Anew);
        check(1, 1, Follows::Next);
        check(2, 0, Follows::Anew);
        check(1, 2, Follows::Older);
        check(2, 2, Follows::Gap);
    }
}
