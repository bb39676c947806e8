//! Requests on their way to the model that works on them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use hone_protocol::{GenerateError, GenerationEvent, GenerationSender, Lane, ModelFile};

use super::prepare::{LocatedRequest, Prepared};
use super::request::RunningRequest;
use crate::model::{ModelText, Speculation};
use crate::scheduler::ParkedRequest;

/// Turns a request into tokens and validates it. If it is invalid, its caller is told and `None` is returned.
pub(super) fn prepare(located: LocatedRequest, model: &ModelText, speculation: Speculation) -> Option<RunningRequest> {
    let events = located.events.clone();
    let prepare =
        || Ok(RunningRequest::new(Prepared::new(&located.request, &located.events, model)?, located, speculation));
    let bug = || Err(GenerateError::Failed("the request failed unexpectedly: this is a bug in hone".into()));
    let prepared = catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(|_| bug());
    prepared.map_err(|error| events.send(GenerationEvent::Failed(error))).ok()
}

/// A request that has not reached its model yet.
pub(super) enum Submission {
    /// Its model was not in memory when the request came, so it could not be turned into tokens.
    Unprepared(Box<LocatedRequest>),
    /// It has been prepared and is new to the scheduler.
    Prepared(Box<RunningRequest>),
    /// Its model had to leave memory while it waited or ran.
    Parked(Box<RunningRequest>, ParkedRequest),
}

impl Submission {
    pub(super) fn model(&self) -> &str {
        match self {
            Submission::Unprepared(located) => &located.request.model,
            Submission::Prepared(request) | Submission::Parked(request, _) => request.model(),
        }
    }

    pub(super) fn file(&self) -> &ModelFile {
        match self {
            Submission::Unprepared(located) => &located.file,
            Submission::Prepared(request) | Submission::Parked(request, _) => request.file(),
        }
    }

    /// The caller of a request that has not been prepared.
    pub(super) fn caller(&self) -> Option<&GenerationSender> {
        match self {
            Submission::Unprepared(located) => Some(&located.events),
            Submission::Prepared(_) | Submission::Parked(..) => None,
        }
    }

    pub(super) fn lane(&self) -> Lane {
        match self {
            Submission::Unprepared(located) => located.request.lane,
            Submission::Prepared(request) | Submission::Parked(request, _) => request.lane(),
        }
    }

    /// Whether it wants an answer rated. One that has been prepared suits its model.
    pub(super) fn wants_reward(&self) -> bool {
        match self {
            Submission::Unprepared(located) => located.request.wants_reward,
            Submission::Prepared(_) | Submission::Parked(..) => true,
        }
    }

    /// Whether preparing it may take as long as a chat template is allowed to.
    pub(super) fn may_take_long(&self, model: &ModelText) -> bool {
        matches!(self, Submission::Unprepared(located) if model.may_take_long(&located.request.prompt))
    }

    pub(super) fn is_cancelled(&self) -> bool {
        match self {
            Submission::Unprepared(located) => located.events.is_cancelled(),
            Submission::Prepared(request) | Submission::Parked(request, _) => request.is_cancelled(),
        }
    }

    pub(super) fn fail(&self, error: GenerateError) {
        match self {
            Submission::Unprepared(located) => located.events.send(GenerationEvent::Failed(error)),
            Submission::Prepared(request) | Submission::Parked(request, _) => request.fail(error),
        }
    }
}

/// The texts of the models in memory, for callers that prepare requests.
#[derive(Clone, Default)]
pub(super) struct LoadedTexts(Arc<Mutex<Texts>>);

type Texts = Vec<(ModelFile, Arc<ModelText>)>;

impl LoadedTexts {
    pub(super) fn get(&self, file: &ModelFile) -> Option<Arc<ModelText>> {
        self.with(|texts| texts.iter().find(|(other, _)| other == file).map(|(_, text)| text.clone()))
    }

    pub(super) fn insert(&self, file: ModelFile, text: Arc<ModelText>) {
        self.with(|texts| texts.push((file, text)));
    }

    pub(super) fn remove(&self, file: &ModelFile) {
        self.with(|texts| texts.retain(|(other, _)| other != file));
    }

    fn with<T>(&self, run: impl FnOnce(&mut Texts) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
