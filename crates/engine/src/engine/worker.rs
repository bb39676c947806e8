//! The loop of the engine thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::Receiver;
use hone_protocol::{GenerateError, GenerateRequest, GenerationEvent, LocateModel, ModelFile, with_causes};

use super::QueuedRequest;
use super::request::{Prepared, RunningRequest};
use crate::model::{Advance, Model, ModelError, ModelOptions};
use crate::reuse::recycled;

/// Tokens that a step of generating requests has room for, guessed ones among them: with more, arithmetic takes longer
/// than reading the weights.
const MAX_STEP_TOKENS: usize = 16;

/// Owns the models and works on the requests.
pub(super) struct Worker {
    options: ModelOptions,
    locator: Arc<dyn LocateModel>,
    requests: Receiver<QueuedRequest>,
    models: Vec<LoadedModel>,
}

struct LoadedModel {
    file: ModelFile,
    model: Model,
    running: Vec<RunningRequest>,
    /// Admitted when the cache has room.
    waiting: VecDeque<RunningRequest>,
    /// Empty between steps.
    entries: Vec<Advance<'static>>,
}

impl Worker {
    pub(super) fn new(options: ModelOptions, locator: Arc<dyn LocateModel>, requests: Receiver<QueuedRequest>) -> Self {
        Worker { options, locator, requests, models: Vec::new() }
    }

    /// Works until every handle is gone and nothing is left to do.
    pub(super) fn run(mut self) {
        while self.receive() {
            for index in (0..self.models.len()).rev() {
                self.step(index);
            }
        }
    }

    /// Takes in what has been asked; waits for it where there is nothing else to do. Returns false at the end.
    fn receive(&mut self) -> bool {
        if self.models.iter().all(LoadedModel::is_idle) {
            match self.requests.recv() {
                Ok(request) => self.accept(request),
                Err(_) => return false,
            }
        }
        while let Ok(request) = self.requests.try_recv() {
            self.accept(request);
        }
        true
    }

    fn accept(&mut self, queued: QueuedRequest) {
        let QueuedRequest { request, events } = queued;
        if events.is_cancelled() {
            return;
        }
        let admitted = catch_unwind(AssertUnwindSafe(|| self.admit(&request)));
        let bug = || Err(GenerateError::Failed("the request failed unexpectedly: this is a bug in hone".into()));
        match admitted.unwrap_or_else(|_| bug()) {
            Ok((index, prepared)) => {
                let request = RunningRequest::new(prepared, &request, events, self.options.speculation);
                self.models[index].waiting.push_back(request);
            }
            Err(error) => events.send(GenerationEvent::Failed(error)),
        }
    }

    fn admit(&mut self, request: &GenerateRequest) -> Result<(usize, Prepared), GenerateError> {
        let index = self.find_or_load(&request.model)?;
        Ok((index, Prepared::new(request, &mut self.models[index].model)?))
    }

    fn find_or_load(&mut self, name: &str) -> Result<usize, GenerateError> {
        let failed = |reason: String| GenerateError::Model { model: name.to_owned(), reason };
        let file = self.locator.locate(name).map_err(|error| failed(error.to_string()))?;
        if let Some(index) = self.models.iter().position(|loaded| loaded.file == file) {
            return Ok(index);
        }
        let model = Model::load(&file, &self.options).map_err(|error| failed(with_causes(&error)))?;
        tracing::debug!(model = name, "loaded");
        self.models.push(LoadedModel {
            file,
            model,
            running: Vec::new(),
            waiting: VecDeque::new(),
            entries: Vec::new(),
        });
        Ok(self.models.len() - 1)
    }

    /// Advances every request of a model. A failure ends them; a panic also drops the model, whose state is not known
    /// then, and it is loaded again when it is next asked for.
    fn step(&mut self, index: usize) {
        let loaded = &mut self.models[index];
        match catch_unwind(AssertUnwindSafe(|| loaded.step())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => loaded.fail_running(&with_causes(&error)),
            Err(_) => {
                let LoadedModel { running, waiting, .. } = self.models.swap_remove(index);
                let error = GenerateError::Failed("a step failed unexpectedly: this is a bug in hone".into());
                running.iter().chain(&waiting).for_each(|request| request.fail(error.clone()));
            }
        }
    }
}

impl LoadedModel {
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    fn step(&mut self) -> Result<(), ModelError> {
        self.release_where(RunningRequest::is_cancelled);
        self.admit_waiting();
        if self.running.is_empty() {
            return Ok(());
        }
        let tokenizer = self.model.tokenizer().clone();
        self.draft();
        let mut entries = recycled(std::mem::take(&mut self.entries));
        entries.extend(self.running.iter_mut().map(entry));
        let logits = self.model.advance(&mut entries);
        self.entries = recycled(entries);
        let mut rows = logits?.rows();
        self.running.iter_mut().for_each(|request| request.finish_step(&mut rows, &tokenizer));
        self.release_where(RunningRequest::has_ended);
        self.running.iter_mut().for_each(|request| request.forget_wrong_guesses(&mut self.model));
        Ok(())
    }

    /// Lets requests guess as far as the step has room for: the more there are, the less a guess is worth.
    fn draft(&mut self) {
        let most = (MAX_STEP_TOKENS / self.running.len()).saturating_sub(1);
        self.running.iter_mut().for_each(|request| request.draft(most));
    }

    fn release_where(&mut self, is_over: impl Fn(&RunningRequest) -> bool) {
        let mut index = 0;
        while let Some(request) = self.running.get(index) {
            match is_over(request) {
                true => self.model.release(self.running.remove(index).sequence),
                false => index += 1,
            }
        }
    }

    /// Admits requests in the order of their arrival while the cache has room for all that they may come to need.
    fn admit_waiting(&mut self) {
        self.waiting.retain(|request| !request.is_cancelled());
        while let Some(request) = self.waiting.front() {
            let block = crate::kv_cache::BLOCK_TOKENS;
            let reserved: usize =
                self.running.iter().map(|running| running.max_positions().next_multiple_of(block)).sum();
            let wanted = request.max_positions().next_multiple_of(block);
            if reserved + wanted > self.model.cache_positions() && !self.running.is_empty() {
                return;
            }
            self.running.extend(self.waiting.pop_front());
        }
    }

    /// Ends the requests that took part in a step that failed.
    fn fail_running(&mut self, reason: &str) {
        tracing::error!(reason, "a step failed");
        for request in std::mem::take(&mut self.running) {
            request.fail(GenerateError::Failed(reason.to_owned()));
            self.model.release(request.sequence);
        }
    }
}

fn entry(request: &mut RunningRequest) -> Advance<'_> {
    let logits = request.wanted_logits();
    let (sequence, tokens) = request.step_parts();
    Advance { sequence, tokens, logits }
}
