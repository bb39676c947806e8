//! The loop of the engine thread.
//!
//! The thread takes in what it is asked, and then lets the [scheduler](crate::scheduler) say what runs next, step by step.
//! What the scheduler knows as numbers lies here: requests with their tokens in [`resident`], models that are to come in
//! [`awaited`], and those that are being loaded in [`loading`].

mod awaited;
mod loading;
mod resident;
mod saved_prefixes;
mod source;
mod verified;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, never, select_biased};
use hone_protocol::{GenerateError, LocateModel, with_causes};

use super::request::RunningRequest;
use super::status::{EngineStatus, LaneStatus, ModelState, ModelStatus, QueuedStatus};
use super::submission::{LoadedTexts, Submission};
use super::{EngineOptions, Message};
use crate::backend::native::ComputeThreads;
use crate::scheduler::residency::{ModelMemory, Residency};
use crate::scheduler::{ModelId, Pause, Refusal, RequestId, Scheduler, StepPlan, Turn};
use awaited::AwaitedModel;
use loading::{Loaded, LoadingModel};
use resident::{ResidentModel, StepResult};

/// How long to wait for news where requests are there and none of them can go on.
const STUCK_PAUSE: Duration = Duration::from_millis(20);

/// How long to take in requests before the next step where there is one.
const LONGEST_RECEIVING: Duration = Duration::from_millis(2);

/// Owns the models and works on the requests.
pub(super) struct Worker {
    options: EngineOptions,
    locator: Arc<dyn LocateModel>,
    /// The models in memory, for those who prepare requests.
    texts: LoadedTexts,
    messages: Receiver<Message>,
    /// What other threads do for this one comes in here.
    help: Receiver<Help>,
    help_sender: Sender<Help>,
    /// How much of it is to come.
    n_helping: usize,
    threads: ComputeThreads,
    scheduler: Scheduler,
    residency: Residency,
    models: Vec<ResidentModel>,
    loading: Vec<LoadingModel>,
    awaited: Vec<AwaitedModel>,
    /// Threads that save what was computed with models that leave.
    leaving: Vec<JoinHandle<()>>,
    n_requests: u64,
    n_models: u32,
    /// Simulated time of the scheduler begins here.
    started: Instant,
    /// Whether the last look found nothing that could go on.
    is_stuck: bool,
    /// Whether nobody is left who could ask for more.
    is_closed: bool,
}

/// What another thread has done.
enum Help {
    Loaded(Box<Loaded>),
    /// A request has been prepared, or was wrong and has been told so.
    Prepared(Option<Box<RunningRequest>>),
}

impl Worker {
    pub(super) fn new(
        options: EngineOptions,
        locator: Arc<dyn LocateModel>,
        texts: LoadedTexts,
        messages: Receiver<Message>,
    ) -> Self {
        let (help_sender, help) = crossbeam_channel::unbounded();
        Worker {
            locator,
            texts,
            messages,
            help,
            help_sender,
            n_helping: 0,
            threads: ComputeThreads::new(options.model.n_threads),
            scheduler: Scheduler::new(options.scheduler.clone()),
            residency: Residency::new(options.memory),
            models: Vec::new(),
            loading: Vec::new(),
            awaited: Vec::new(),
            leaving: Vec::new(),
            n_requests: 0,
            n_models: 0,
            started: Instant::now(),
            is_stuck: false,
            is_closed: false,
            options,
        }
    }

    /// Works until every handle is gone and nothing is left to do.
    pub(super) fn run(mut self) {
        while self.receive() {
            self.drop_cancelled();
            self.unload_idle();
            self.load_awaited();
            for model in &self.models {
                self.scheduler.set_pinned_blocks(model.id, model.model.cache_usage().pinned);
            }
            let turn = self.scheduler.turn(self.now());
            self.take(turn);
            let plan = self.scheduler.plan(self.now());
            self.is_stuck = plan.is_none() && !self.scheduler.is_idle();
            if let Some(plan) = plan {
                self.step(&plan);
            }
            self.load_awaited();
        }
        self.models.iter_mut().for_each(ResidentModel::save_prefix);
        self.leaving.into_iter().for_each(loading::wait_for);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes in what has come; waits for it where there is nothing else to do. Returns false at the end.
    fn receive(&mut self) -> bool {
        let mut can_wait = self.scheduler.is_idle() || self.is_stuck;
        let began = Instant::now();
        loop {
            if self.is_closed && self.has_nothing_to_do() {
                return false;
            }
            let timeout = if can_wait { self.longest_wait() } else { Duration::ZERO };
            let (help, messages) = (self.help.clone(), self.messages.clone());
            select_biased! {
                recv(help) -> help => help.into_iter().for_each(|help| self.take_help(help)),
                recv(messages) -> message => match message {
                    Ok(message) => self.handle(message),
                    // No handle is left; requests may be.
                    Err(_) => (self.messages, self.is_closed) = (never(), true),
                },
                default(timeout) => return true,
            }
            can_wait = false;
            // Taking in what comes takes time, too, and others wait for their next tokens.
            if began.elapsed() > LONGEST_RECEIVING && !self.scheduler.is_idle() {
                return true;
            }
        }
    }

    fn has_nothing_to_do(&self) -> bool {
        self.scheduler.is_idle() && self.n_helping == 0 && self.awaited.is_empty()
    }

    /// How long to wait for news where nothing can be done without any.
    fn longest_wait(&self) -> Duration {
        if self.is_stuck && !self.scheduler.is_idle() {
            return STUCK_PAUSE;
        }
        let expiry = self.options.keep_alive.and_then(|keep_alive| self.residency.next_expiry(keep_alive));
        expiry.map_or(Duration::from_secs(3600), |expiry| expiry.saturating_sub(self.now()))
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Generate(submission) => {
                // What has been taken back makes room for what comes.
                self.drop_cancelled();
                self.accept(submission);
            }
            // Who has stopped waiting for the answer does not need it.
            Message::Status(answer) => drop(answer.send(self.status())),
        }
    }

    fn take_help(&mut self, help: Help) {
        self.n_helping -= 1;
        match help {
            Help::Loaded(loaded) => self.take_loaded(*loaded),
            Help::Prepared(Some(request)) => self.accept(Submission::Prepared(request)),
            Help::Prepared(None) => {}
        }
    }

    /// Takes a request in: gives it to its model, or lets it wait until that is in memory.
    fn accept(&mut self, submission: Submission) {
        let Some(index) = self.models.iter().position(|model| model.source.file == *submission.file()) else {
            return self.wait_for_model(submission);
        };
        match submission {
            Submission::Unprepared(_) => self.prepare(index, vec![submission]),
            Submission::Prepared(request) => self.admit(index, *request),
            Submission::Parked(request, parked) => {
                let now = self.now();
                let model = &mut self.models[index];
                model.add(parked.id(), *request);
                self.scheduler.unpark(parked, model.id, now);
            }
        }
    }

    /// Has requests turned into tokens that came before their model was there, on a thread that holds nobody up.
    fn prepare(&mut self, index: usize, mut submissions: Vec<Submission>) {
        if submissions.is_empty() {
            return;
        }
        let (text, speculation) = (self.models[index].model.text().clone(), self.options.model.speculation);
        // What needs no template does not wait for one.
        submissions.sort_by_key(|submission| submission.may_take_long(&text));
        let (n_requests, results) = (submissions.len(), self.help_sender.clone());
        let prepare = move || {
            for submission in submissions {
                let Submission::Unprepared(queued) = submission else { continue };
                // Without an engine nobody waits for the request.
                let _ = results.send(Help::Prepared(queued.prepare(&text, speculation).map(Box::new)));
            }
        };
        match std::thread::Builder::new().name("hone-prepare".into()).spawn(prepare) {
            Ok(_) => self.n_helping += n_requests,
            // The requests went with the thread; whoever asks finds their channels closed.
            Err(error) => tracing::error!(%error, n_requests, "requests are lost: no thread can be made"),
        }
    }

    /// Hands a request to the scheduler.
    fn admit(&mut self, index: usize, request: RunningRequest) {
        if request.is_cancelled() {
            return;
        }
        let model = &mut self.models[index];
        self.n_requests += 1;
        let id = RequestId(self.n_requests);
        match self.scheduler.arrive(id, request.arrival(model.id), self.started.elapsed()) {
            Ok(()) => {
                request.announce();
                model.add(id, request);
            }
            Err(refusal) => request.fail(refused(refusal)),
        }
    }

    fn drop_cancelled(&mut self) {
        for model in &mut self.models {
            for id in model.cancelled() {
                self.scheduler.cancel(id);
                model.retire(id);
            }
        }
    }

    /// Makes and takes places in the KV caches.
    fn take(&mut self, turn: Turn) {
        for id in turn.expired {
            if let Some(model) = self.model_of(id) {
                model.time_out(id);
            }
        }
        for id in turn.dropped {
            if let Some(model) = self.model_of(id) {
                model.pause(id);
            }
        }
        for id in turn.starting {
            let Some(model) = self.models.iter_mut().find(|model| model.has(id)) else { continue };
            if let Err(error) = model.start(id, &mut self.scheduler) {
                model.fail(&[id], &GenerateError::Failed(with_causes(&error)));
                self.scheduler.fail(id);
            }
        }
    }

    fn model_of(&mut self, id: RequestId) -> Option<&mut ResidentModel> {
        self.models.iter_mut().find(|model| model.has(id))
    }

    /// Carries out a step. A failure ends its requests; a panic also drops the model, whose state is not known then, and
    /// it is loaded again when it is next asked for.
    fn step(&mut self, plan: &StepPlan) {
        let Some(index) = self.models.iter().position(|model| model.id == plan.model) else { return };
        let model = &mut self.models[index];
        let (messages, help) = (&self.messages, &self.help);
        let mut pause = pause_at(plan.pause, || !messages.is_empty() || !help.is_empty());
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| model.carry_out(plan, &mut pause)));
        drop(pause);
        let elapsed = began.elapsed();
        match outcome {
            Ok(Ok(Some(StepResult { progress, guesses }))) => {
                let now = self.started.elapsed();
                self.scheduler.step_done(now, elapsed, &progress, guesses);
                progress.iter().filter(|progress| progress.has_ended).for_each(|ended| model.retire(ended.request));
            }
            Ok(Ok(None)) => self.scheduler.step_suspended(elapsed),
            Ok(Err(error)) => self.fail_step(index, plan, &with_causes(&error)),
            Err(_) => self.drop_broken(plan.model),
        }
    }

    fn fail_step(&mut self, index: usize, plan: &StepPlan, reason: &str) {
        tracing::error!(reason, "a step failed");
        let requests: Vec<RequestId> = plan.entries.iter().map(|entry| entry.request).collect();
        self.models[index].fail(&requests, &GenerateError::Failed(reason.to_owned()));
        self.scheduler.step_failed();
        requests.iter().for_each(|id| self.scheduler.fail(*id));
    }

    fn drop_broken(&mut self, id: ModelId) {
        let error = GenerateError::Failed("a step failed unexpectedly: this is a bug in hone".into());
        for parked in self.scheduler.park(id, self.now()) {
            self.scheduler.fail_parked(&parked);
        }
        if let Some(mut model) = self.forget(id) {
            model.fail_all(&error);
        }
    }

    /// Lets go of a model, and has saved what is worth it.
    fn let_go(&mut self, mut model: ResidentModel) {
        if !model.saves_prefix() {
            return;
        }
        // Writing it takes longer than others should wait for their next tokens.
        let leave = move || model.save_prefix();
        self.leaving.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name("hone-leave".into()).spawn(leave) {
            Ok(thread) => self.leaving.push(thread),
            Err(error) => tracing::warn!(%error, "what was computed of the conversation is not saved"),
        }
    }

    /// Removes a model from everything that knows it.
    fn forget(&mut self, id: ModelId) -> Option<ResidentModel> {
        self.scheduler.remove_model(id);
        self.residency.remove(id);
        let index = self.models.iter().position(|model| model.id == id)?;
        let model = self.models.swap_remove(index);
        self.texts.remove(&model.source.file);
        Some(model)
    }

    /// Takes note of which models have requests, and how urgent those are.
    fn note_urgency(&mut self) {
        let now = self.now();
        for model in &self.models {
            self.residency.set_urgency(model.id, self.scheduler.urgency(model.id), now);
        }
    }

    /// Lets models go that nobody has used for a while.
    fn unload_idle(&mut self) {
        self.note_urgency();
        let now = self.now();
        let expired = self.options.keep_alive.map(|keep_alive| self.residency.expire(keep_alive, now));
        for id in expired.into_iter().flatten() {
            self.unload(id);
        }
    }

    fn status(&self) -> EngineStatus {
        let now = self.now();
        let ready = self.models.iter().map(|model| {
            let memory = self.residency.memory(model.id).unwrap_or_default();
            let idle = self.residency.idle_since(model.id).map(|since| now.saturating_sub(since).as_secs_f64());
            model.status(memory, self.scheduler.reserved_blocks(model.id), idle)
        });
        let awaited = |state, memory: ModelMemory, awaited: &AwaitedModel| {
            ModelStatus::awaited(&awaited.source.name, state, memory, awaited.waiting.len())
        };
        let loading = self.loading.iter().map(|loading| {
            let memory = self.residency.memory(loading.id).unwrap_or_default();
            awaited(ModelState::Loading, memory, &loading.awaited)
        });
        let waiting = self.awaited.iter().map(|one| awaited(ModelState::Waiting, one.source.demand.within(0).0, one));
        let name_of =
            |id: ModelId| self.models.iter().find(|model| model.id == id).map(|model| model.source.name.clone());
        let queue = self.scheduler.queue(now).into_iter().map(|queued| QueuedStatus {
            model: name_of(queued.model).unwrap_or_default(),
            lane: queued.lane,
            position: queued.position,
            wait_seconds: queued.wait.as_secs_f64(),
        });
        EngineStatus {
            memory_budget: self.residency.budget(),
            models: ready.chain(loading).chain(waiting).collect(),
            lanes: self.scheduler.metrics().summary().into_iter().map(|summary| self.lane_status(summary)).collect(),
            queue: queue.collect(),
        }
    }

    fn lane_status(&self, metrics: crate::scheduler::metrics::LaneSummary) -> LaneStatus {
        let (queued, running) = self.scheduler.n_requests(metrics.lane);
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
