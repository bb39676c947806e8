//! The loop of the engine thread.
//!
//! The thread handles one [`Event`] after the other, and then runs what the [scheduler](crate::scheduler) picks, step
//! by step. Models in memory, with their requests, are in [`residents`]; the [`loader`] brings them there.

mod loader;
mod resident;
mod residents;
mod saved_prefixes;
mod source;
mod verified;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hone_protocol::{GenerateError, GenerationEvent, GenerationSender, LocateModel, with_causes};

use super::request::RunningRequest;
use super::status::{EngineStatus, LaneStatus, QueuedStatus};
use super::submission::{LoadedTexts, Submission, prepare};
use super::{EngineOptions, Event};
use crate::constraint;
use crate::model::{ModelText, Speculation};
use crate::scheduler::metrics::LaneSummary;
use crate::scheduler::{ModelId, Pause, Refusal, RequestId, Scheduler, StepPlan, Turn};
use loader::Loader;
use resident::StepResult;
use residents::Residents;

pub(super) use loader::Loaded;

/// How long to wait for events when there are requests but none can be advanced.
const STUCK_PAUSE: Duration = Duration::from_millis(20);

/// How long to receive requests before the next step, if there is one.
const LONGEST_RECEIVING: Duration = Duration::from_millis(2);

/// How long to wait for events when nothing is scheduled.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Owns the models and works on the requests.
pub(super) struct Worker {
    events: Receiver<Event>,
    /// For threads that work on behalf of this one.
    sender: Sender<Event>,
    speculation: Speculation,
    residents: Residents,
    loader: Loader,
    n_requests: u64,
    /// Requests being turned into tokens by other threads.
    n_preparing: usize,
    /// Whether the scheduler last found nothing that could run.
    is_stuck: bool,
    /// Whether no handle is left that could send more requests.
    is_closed: bool,
}

impl Worker {
    pub(super) fn new(
        options: EngineOptions,
        locator: Arc<dyn LocateModel>,
        texts: LoadedTexts,
        sender: Sender<Event>,
        events: Receiver<Event>,
    ) -> Self {
        Worker {
            events,
            speculation: options.model.speculation,
            residents: Residents::new(Scheduler::new(options.memory, options.scheduler.clone())),
            loader: Loader::new(options, locator, texts, sender.clone()),
            sender,
            n_requests: 0,
            n_preparing: 0,
            is_stuck: false,
            is_closed: false,
        }
    }

    /// Works until every handle is gone and nothing is left to do.
    pub(super) fn run(mut self) {
        while self.receive() {
            self.residents.drop_cancelled();
            self.loader.unload_idle(&mut self.residents);
            self.loader.load_awaited(&mut self.residents);
            let turn = self.residents.turn();
            self.take(turn);
            let plan = self.residents.scheduler.plan(self.residents.now());
            self.is_stuck = plan.is_none() && !self.residents.scheduler.is_idle();
            if let Some(plan) = plan {
                self.step(&plan);
            }
            self.loader.load_awaited(&mut self.residents);
        }
        self.residents.save_prefixes();
        self.loader.join();
    }

    /// Receives pending events; waits for one if there is nothing else to do. Returns false at the end.
    fn receive(&mut self) -> bool {
        let is_idle = self.residents.scheduler.is_idle();
        let mut timeout = if is_idle || self.is_stuck { self.longest_wait() } else { Duration::ZERO };
        let began = Instant::now();
        loop {
            if self.is_closed && self.has_nothing_to_do() {
                return false;
            }
            let Ok(event) = self.events.recv_timeout(timeout) else { return true };
            self.handle(event);
            timeout = Duration::ZERO;
            // Receiving events takes time too, and other requests wait for their next tokens.
            if began.elapsed() > LONGEST_RECEIVING && !self.residents.scheduler.is_idle() {
                return true;
            }
        }
    }

    fn has_nothing_to_do(&self) -> bool {
        self.residents.scheduler.is_idle() && self.n_preparing == 0 && self.loader.is_idle()
    }

    /// How long to wait for an event when nothing can be done without one.
    fn longest_wait(&self) -> Duration {
        if self.is_stuck && !self.residents.scheduler.is_idle() {
            return STUCK_PAUSE;
        }
        self.loader.next_expiry(&self.residents).unwrap_or(LONGEST_WAIT)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Generate(submission) => {
                // Cancelled requests make room for new ones.
                self.residents.drop_cancelled();
                self.accept(submission);
            }
            // A caller that has stopped waiting does not need the answer.
            Event::Status(answer) => drop(answer.send(self.status())),
            Event::Unload(name, answer) => {
                self.loader.release(&name, &mut self.residents);
                let _ = answer.send(());
            }
            Event::Closed => self.is_closed = true,
            Event::Loading(id, done, total) => self.loader.tell_progress(id, done, total),
            Event::Loaded(loaded) => {
                let waiting = self.loader.finish(*loaded, &mut self.residents);
                self.accept_all(waiting);
            }
            Event::Prepared(request) => {
                self.n_preparing -= 1;
                request.into_iter().for_each(|request| self.accept(Submission::Prepared(request)));
            }
        }
    }

    /// Accepts a request: gives it to its model, or queues it until the model is in memory.
    fn accept(&mut self, submission: Submission) {
        let Some(model) = self.residents.of_file(submission.file()) else {
            return self.loader.wait_for_model(submission, &mut self.residents.scheduler);
        };
        let (id, text) = (model.id, model.model.text().clone());
        match submission {
            Submission::Unprepared(_) => self.prepare(vec![submission], text),
            Submission::Prepared(request) => self.admit(id, *request),
            Submission::Parked(request, parked) => {
                let now = self.residents.now();
                let Some((model, scheduler)) = self.residents.get(id) else { return };
                model.add(parked.id(), *request);
                scheduler.unpark(parked, id, now);
            }
        }
    }

    /// Accepts requests whose model is now in memory.
    fn accept_all(&mut self, mut waiting: Vec<Submission>) {
        let is_unprepared = |submission: &mut Submission| matches!(submission, Submission::Unprepared(_));
        let unprepared: Vec<Submission> = waiting.extract_if(.., is_unprepared).collect();
        waiting.into_iter().for_each(|submission| self.accept(submission));
        let model = unprepared.first().and_then(|submission| self.residents.of_file(submission.file()));
        if let Some(text) = model.map(|model| model.model.text().clone()) {
            self.prepare(unprepared, text);
        }
    }

    /// Tokenizes requests that came before their model was loaded, on a separate thread so that nothing is held up.
    fn prepare(&mut self, mut submissions: Vec<Submission>, text: Arc<ModelText>) {
        // Requests that need no template do not wait for those that do.
        submissions.sort_by_key(|submission| submission.may_take_long(&text));
        let (n_requests, speculation, events) = (submissions.len(), self.speculation, self.sender.clone());
        let callers: Vec<GenerationSender> = submissions.iter().filter_map(Submission::caller).cloned().collect();
        let prepare_all = move || {
            for submission in submissions {
                let Submission::Unprepared(located) = submission else { continue };
                // Without an engine, no one waits for the request.
                let _ = events.send(Event::Prepared(prepare(*located, &text, speculation).map(Box::new)));
            }
        };
        let builder = std::thread::Builder::new().name("hone-prepare".into()).stack_size(constraint::STACK_BYTES);
        match builder.spawn(prepare_all) {
            Ok(_) => self.n_preparing += n_requests,
            Err(error) => {
                let reason = format!("no thread can be created to prepare the prompt: {error}");
                tracing::error!(n_requests, reason);
                let failed = || GenerationEvent::Failed(GenerateError::Failed(reason.clone()));
                callers.iter().for_each(|caller| caller.send(failed()));
            }
        }
    }

    /// Hands a request to the scheduler.
    fn admit(&mut self, model: ModelId, request: RunningRequest) {
        if request.is_cancelled() {
            return;
        }
        let now = self.residents.now();
        let Some((model, scheduler)) = self.residents.get(model) else { return };
        self.n_requests += 1;
        let id = RequestId(self.n_requests);
        match scheduler.arrive(id, request.arrival(model.id), now) {
            Ok(()) => {
                request.announce();
                model.add(id, request);
            }
            Err(refusal) => request.fail(refused(refusal)),
        }
    }

    /// Takes places in the KV caches away from requests, and gives them to others.
    fn take(&mut self, turn: Turn) {
        for id in turn.expired {
            self.residents.of_request(id).into_iter().for_each(|(model, _)| model.time_out(id));
        }
        for (id, room) in turn.too_slow {
            self.residents.of_request(id).into_iter().for_each(|(model, _)| model.refuse_prompt(id, room));
        }
        for id in turn.concluding {
            self.residents.of_request(id).into_iter().for_each(|(model, _)| model.conclude(id));
        }
        for id in turn.dropped {
            self.residents.of_request(id).into_iter().for_each(|(model, _)| model.pause(id));
        }
        for id in turn.starting {
            let Some((model, scheduler)) = self.residents.of_request(id) else { continue };
            if let Err(error) = model.start(id, scheduler) {
                model.fail(&[id], &GenerateError::Failed(with_causes(&error)));
                scheduler.fail(id);
            }
        }
    }

    /// Carries out a step. A failure ends its requests. A panic also drops the model, whose state is then unknown; it
    /// is loaded again when it is next requested.
    fn step(&mut self, plan: &StepPlan) {
        let events = &self.events;
        let mut pause = pause_at(plan.pause, || !events.is_empty());
        let began = Instant::now();
        let Some((model, _)) = self.residents.get(plan.model) else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| model.carry_out(plan, &mut pause)));
        drop(pause);
        let (now, elapsed) = (self.residents.now(), began.elapsed());
        let Some((model, scheduler)) = self.residents.get(plan.model) else { return };
        match outcome {
            Ok(Ok(Some(StepResult { progress, guesses }))) => {
                scheduler.step_done(now, elapsed, &progress, guesses);
                progress.iter().filter(|progress| progress.has_ended).for_each(|ended| model.retire(ended.request));
            }
            Ok(Ok(None)) => scheduler.step_suspended(elapsed),
            Ok(Err(error)) => self.fail_step(plan, &with_causes(&error)),
            Err(_) => {
                let error = GenerateError::Failed("a step failed unexpectedly: this is a bug in hone".into());
                self.loader.drop_broken(plan.model, &error, &mut self.residents);
            }
        }
    }

    fn fail_step(&mut self, plan: &StepPlan, reason: &str) {
        tracing::error!(reason, "a step failed");
        let Some((model, scheduler)) = self.residents.get(plan.model) else { return };
        let requests: Vec<RequestId> = plan.entries.iter().map(|entry| entry.request).collect();
        model.fail(&requests, &GenerateError::Failed(reason.to_owned()));
        scheduler.step_failed();
        requests.iter().for_each(|id| scheduler.fail(*id));
    }

    fn status(&self) -> EngineStatus {
        let (now, scheduler) = (self.residents.now(), &self.residents.scheduler);
        let ready = self.residents.iter().map(|model| {
            let memory = scheduler.memory(model.id).unwrap_or_default();
            let idle = scheduler.idle_since(model.id).map(|since| now.saturating_sub(since).as_secs_f64());
            model.status(memory, scheduler.reserved_blocks(model.id), idle)
        });
        let name_of = |id: ModelId| self.residents.iter().find(|model| model.id == id).map(|model| &model.source.name);
        let queue = scheduler.queue(now).into_iter().map(|queued| QueuedStatus {
            model: name_of(queued.model).cloned().unwrap_or_default(),
            lane: queued.lane,
            position: queued.position,
            wait_seconds: queued.wait.as_secs_f64(),
        });
        EngineStatus {
            memory_budget: scheduler.budget(),
            models: ready.chain(self.loader.status(scheduler)).collect(),
            lanes: scheduler.metrics().summary().into_iter().map(|summary| self.lane_status(summary)).collect(),
            queue: queue.collect(),
        }
    }

    fn lane_status(&self, metrics: LaneSummary) -> LaneStatus {
        let (queued, running) = self.residents.scheduler.n_requests(metrics.lane);
        LaneStatus { queued, running, metrics }
    }
}

/// Says when a step is to be suspended; asked at the end of every slice.
fn pause_at(pause: Pause, has_news: impl Fn() -> bool) -> impl FnMut() -> bool {
    let began = Instant::now();
    let (mut last, mut longest_slice) = (began, Duration::ZERO);
    move || {
        let now = Instant::now();
        longest_slice = longest_slice.max(now - last);
        last = now;
        match pause {
            Pause::Never => false,
            Pause::OnArrival => has_news(),
            Pause::After(limit) => has_news() || now - began + longest_slice > limit,
        }
    }
}

fn refused(refusal: Refusal) -> GenerateError {
    match refusal {
        Refusal::QueueFull { lane, queued, retry_after } => GenerateError::Busy { lane, queued, retry_after },
        other => GenerateError::Request(other.to_string()),
    }
}
