//! `hone worker`: does work that other machines ask for over a bus.

mod tally;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};
use hone_app::fleet::{
    EMBED, Fleet, FleetError, FleetJudge, FleetWork, GENERATE, GRADE, Job, JudgedElsewhere, Route, Work, WorkEnd,
    WorkerModels, WorkerState, own_state,
};
use hone_protocol::{Judging, JudgingMethod};
use hone_server::serve_worker_metrics;

use self::tally::Tally;
use super::serve::signal;
use crate::arguments::{WorkerArguments, WorkerRole};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The exit code of a process that a second Ctrl-C ends.
const INTERRUPTED: i32 = 130;

/// The time between two attempts to reach the server.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// Works until SIGTERM or Ctrl-C, and then gives back unfinished work.
///
/// # Errors
/// When the bus cannot be used, the judge may not grade, or a model cannot be found or downloaded.
pub(crate) fn run(app: &Invocation, arguments: &WorkerArguments) -> anyhow::Result<Outcome> {
    let Some(Reached { fleet, signals }) = reach(app)? else { return Ok(Outcome::Done) };
    let roles: Vec<&str> = arguments.roles.iter().copied().map(WorkerRole::as_str).collect();
    let generator = app.generator_here()?;
    let judge = roles.contains(&GRADE).then(|| FleetJudge::new(app, Arc::clone(&generator))).transpose()?;
    let models = WorkerModels::new(app, generator, &roles)?;
    let slots = arguments.slots.get();
    let worker = Worker { judge, models, is_stopping: AtomicBool::new(false), tally: Arc::default() };
    let state = first_state(app, &worker, &roles, slots)?;
    if let Some(address) = arguments.metrics {
        serve_metrics(app, &worker, &state, address)?;
    }
    let signals = signals.map_or_else(listen, Ok)?;
    let answers = worker.judge.as_ref().map(|_| Work::begin(&fleet, Route::of_role(GRADE), slots)).transpose()?;
    let FleetWork { questions, texts } = worker.models.begin(&fleet, slots)?;
    let does = worker.in_words();
    app.output.note(&format!("{} {does}, {slots} at a time; Ctrl-C ends it", state.name));
    thread::scope(|scope| {
        let mut buttons = Vec::new();
        worker.spawn(scope, slots, answers.as_ref(), &mut buttons, |job, pressed| worker.grade(job, pressed));
        worker.spawn(scope, slots, questions.as_ref(), &mut buttons, |job, pressed| {
            worker.count(GENERATE, worker.models.answer(job, pressed))
        });
        worker
            .spawn(scope, slots, texts.as_ref(), &mut buttons, |job, _| worker.count(EMBED, worker.models.embed(job)));
        worker.report(&fleet, &state, &signals);
        worker.is_stopping.store(true, Ordering::SeqCst);
        // No new work may arrive before the last jobs are given back.
        answers.iter().for_each(Work::stop);
        questions.iter().for_each(Work::stop);
        texts.iter().for_each(Work::stop);
        for button in buttons {
            // A button that is pressed already stays so.
            let _ = button.try_send(());
        }
        if let Err(error) = fleet.tell_end(&state.name) {
            tracing::debug!("the others are not told that this worker ends: {error}");
        }
    });
    answers.into_iter().for_each(Work::end);
    questions.into_iter().for_each(Work::end);
    texts.into_iter().for_each(Work::end);
    app.output.note(&format!("finished: {}, failed: {}", worker.tally.finished(), worker.tally.failed()));
    Ok(Outcome::Done)
}

/// Serves the worker's metrics at this address.
fn serve_metrics(app: &Invocation, worker: &Worker, state: &WorkerState, address: SocketAddr) -> anyhow::Result<()> {
    let (tally, state) = (Arc::clone(&worker.tally), state.clone());
    let address = serve_worker_metrics(address, move || tally.state(&state))
        .with_context(|| format!("figures cannot be served at {address}"))?;
    app.output.note(&format!("figures for Prometheus are at http://{address}/metrics"));
    Ok(())
}

/// A fleet whose server has been reached.
struct Reached {
    fleet: Fleet,
    /// The signals, if the server had to be waited for.
    signals: Option<Receiver<()>>,
}

/// The fleet, once its server can be reached; `None` if a signal comes first.
fn reach(app: &Invocation) -> anyhow::Result<Option<Reached>> {
    let mut signals = None;
    loop {
        let error = match app.reached_fleet() {
            Ok(fleet) => return Ok(Some(Reached { fleet, signals })),
            Err(error) => error,
        };
        if !matches!(error.downcast_ref(), Some(FleetError::Unreachable { .. })) {
            return Err(error);
        }
        let signals = match &mut signals {
            Some(signals) => signals,
            none => {
                app.output.note(&format!("{error:#}; the worker waits for it, and Ctrl-C ends it"));
                // Without a handler, the first process of a container ignores signals.
                none.insert(listen()?)
            }
        };
        if signals.recv_timeout(BETWEEN_ATTEMPTS) != Err(RecvTimeoutError::Timeout) {
            return Ok(None);
        }
    }
}

fn first_state(app: &Invocation, worker: &Worker, roles: &[&str], slots: usize) -> anyhow::Result<WorkerState> {
    Ok(WorkerState {
        roles: roles.iter().copied().map(str::to_owned).collect(),
        models: worker.models.offered().to_vec(),
        device: app.engine_options()?.model.device.open()?,
        slots: slots * roles.len(),
        ..own_state("worker")
    })
}

/// Sends a message for the first signal; the second ends the process.
fn listen() -> anyhow::Result<Receiver<()>> {
    let (told, signals) = bounded(1);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot listen for signals")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                signal().await;
                let _ = told.send(());
                signal().await;
                std::process::exit(INTERRUPTED);
            });
        })
        .context("cannot listen for signals")?;
    Ok(signals)
}

/// The judge, with its kind if it is the likelihood judge.
fn judge_of(judging: &Judging) -> String {
    match judging.method {
        JudgingMethod::Likelihood => format!("likelihood ({})", judging.judge),
        JudgingMethod::Prompted | JudgingMethod::Reward => judging.judge.clone(),
    }
}

struct Worker {
    judge: Option<FleetJudge>,
    models: WorkerModels,
    is_stopping: AtomicBool,
    tally: Arc<Tally>,
}

impl Worker {
    /// Starts a thread for each slot of a kind of work, if there is such work; each gets a button that ends it.
    fn spawn<'scope, T: Send>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        n_slots: usize,
        work: Option<&'scope Work<T>>,
        buttons: &mut Vec<Sender<()>>,
        do_one: impl Fn(Job<T>, &Receiver<()>) + Send + Sync + Copy + 'scope,
    ) {
        for work in work.into_iter().flat_map(|work| std::iter::repeat_n(work, n_slots)) {
            let (button, pressed) = bounded(1);
            buttons.push(button);
            scope.spawn(move || self.run(work.jobs(), &pressed, do_one));
        }
    }

    /// Does one job after the other, until the button is pressed.
    fn run<T>(&self, jobs: &Receiver<Job<T>>, pressed: &Receiver<()>, do_one: impl Fn(Job<T>, &Receiver<()>)) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            let job = select! {
                recv(pressed) -> _ => return,
                recv(jobs) -> job => job,
            };
            let Ok(job) = job else { return };
            // A press that came with it would be missed.
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            self.tally.begin();
            // Other workers may be able to do work that panics here.
            if catch_unwind(AssertUnwindSafe(|| do_one(job, pressed))).is_err() {
                self.tally.note_failed();
            }
            self.tally.end();
        }
    }

    /// Grades an answer, or compares two.
    fn grade(&self, job: Job, pressed: &Receiver<()>) {
        let answer = || match &self.judge {
            Some(judge) => judge.answer(&job.content, pressed),
            None => Ok(None),
        };
        let answered = catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| bail!("the judge panicked"));
        match answered {
            Ok(Some(JudgedElsewhere { message, judging })) => {
                self.tally.note_judge(judge_of(&judging));
                self.tally.note_finished(GRADE, 0);
                job.finish(&message);
            }
            // The job is given back.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("answers are not judged: {error:#}");
                self.tally.note_failed();
                job.fail(format!("{error:#}"));
            }
        }
    }

    /// Counts a job.
    fn count(&self, role: &'static str, end: WorkEnd) {
        match end {
            WorkEnd::Done(n_tokens) => self.tally.note_finished(role, n_tokens),
            WorkEnd::Left => {}
            WorkEnd::Failed => self.tally.note_failed(),
        }
    }

    /// Its work in words, with the models.
    fn in_words(&self) -> String {
        let judge = self.tally.judge().clone().or_else(|| Some(self.judge.as_ref()?.name().to_owned()));
        let grades = judge.map(|judge| format!("grades with {judge}"));
        let others = self.models.offered().iter().map(|model| match &*model.role {
            GENERATE => format!("answers with {}", model.name),
            EMBED => format!("embeds with {}", model.name),
            other => format!("does {other} with {}", model.name),
        });
        grades.into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }

    /// Reports this worker's state repeatedly, until a signal comes.
    fn report(&self, fleet: &Fleet, first: &WorkerState, signals: &Receiver<()>) {
        loop {
            let state = WorkerState { model: self.in_words(), ..self.tally.state(first) };
            if let Err(error) = fleet.tell(&state) {
                tracing::debug!("the others do not hear of this worker: {error}");
            }
            if signals.recv_timeout(Fleet::BEAT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
