//! `hone worker`: does work that other machines ask for over a bus.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};
use hone_app::fleet::{Fleet, FleetJudge, GRADE, Job, Work, WorkerState, worker_name};
use hone_protocol::{Envelope, Grade, GradedAnswer, JudgingMethod, Payload, Timestamp};

use super::serve::signal;
use crate::arguments::WorkerArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The work of the last minute is counted.
const MINUTE: Duration = Duration::from_secs(60);
/// The exit code of a process that a second Ctrl-C ends.
const INTERRUPTED: i32 = 130;

/// Works until SIGTERM or Ctrl-C, and gives back what it has not finished then.
///
/// # Errors
/// When the bus cannot be used, or the judge may not grade.
pub(crate) fn run(app: &Invocation, arguments: &WorkerArguments) -> anyhow::Result<Outcome> {
    if let Some(role) = arguments.roles.iter().find(|role| *role != GRADE) {
        return Err(usage(format!("there is no role {role}: {GRADE} is the only one")));
    }
    let fleet = app.reached_fleet()?;
    let judge = FleetJudge::new(app, app.generator()?)?;
    let state = first_state(app, arguments, &judge);
    let work = Work::begin(&fleet, GRADE, state.slots)?;
    app.output.note(&format!(
        "{} grades as the judge {}, {} at a time; Ctrl-C ends it",
        state.name, state.model, state.slots
    ));
    let signals = signals()?;
    let worker = Worker { judge, work, is_stopping: AtomicBool::new(false), tally: Tally::default() };
    thread::scope(|scope| {
        let (buttons, pressed): (Vec<Sender<()>>, Vec<Receiver<()>>) = (0..state.slots).map(|_| bounded(1)).unzip();
        for pressed in pressed {
            let worker = &worker;
            scope.spawn(move || worker.run(&pressed));
        }
        worker.report(&fleet, &state, &signals);
        worker.is_stopping.store(true, Ordering::SeqCst);
        for button in buttons {
            // One that is pressed already stays so.
            let _ = button.try_send(());
        }
    });
    let Worker { work, tally, .. } = worker;
    work.end();
    if let Err(error) = fleet.tell_end(&state.name) {
        tracing::debug!("the others are not told that this worker has ended: {error}");
    }
    app.output.note(&format!("finished: {}, failed: {}", tally.finished(), tally.failed()));
    Ok(Outcome::Done)
}

fn first_state(app: &Invocation, arguments: &WorkerArguments, judge: &FleetJudge) -> WorkerState {
    let (machine, process) = (worker_name(), std::process::id());
    let device = app.config.entries().get("engine.device").and_then(|entry| entry.value.as_str());
    WorkerState {
        name: format!("{machine}-{process}"),
        machine,
        process,
        roles: vec![GRADE.to_owned()],
        model: judge.names(),
        device: device.unwrap_or_default().to_owned(),
        slots: arguments.slots.get(),
        since: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..WorkerState::default()
    }
}

/// Gives something for the first signal; the second ends the process.
fn signals() -> anyhow::Result<Receiver<()>> {
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

/// What has been done.
#[derive(Default)]
struct Tally {
    busy: AtomicUsize,
    finished: AtomicU64,
    failed: AtomicU64,
    /// When the work of the last minute was finished.
    latest: Mutex<VecDeque<Instant>>,
    /// The judge that gave the last grade; the likelihood judge may stand in for the configured one.
    judge: Mutex<Option<String>>,
}

impl Tally {
    fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn note_finished(&self, result: &Envelope) {
        if let Payload::CritiqueResult(GradedAnswer { grade, .. }) = &result.payload {
            *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = Some(judge_of(grade));
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).push_back(Instant::now());
    }

    /// How many were finished in the last minute.
    fn per_minute(&self) -> f64 {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while latest.front().is_some_and(|finished| finished.elapsed() > MINUTE) {
            latest.pop_front();
        }
        latest.len() as f64
    }
}

/// Who gave a grade.
fn judge_of(grade: &Grade) -> String {
    match grade.judging.method {
        JudgingMethod::Likelihood => format!("likelihood ({})", grade.judging.judge),
        JudgingMethod::Prompted => grade.judging.judge.clone(),
    }
}

struct Worker {
    judge: FleetJudge,
    work: Work,
    is_stopping: AtomicBool,
    tally: Tally,
}

impl Worker {
    /// Does one piece of work after the other, until the button is pressed.
    fn run(&self, pressed: &Receiver<()>) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            let job = select! {
                recv(pressed) -> _ => return,
                recv(self.work.jobs()) -> job => job,
            };
            let Ok(job) = job else { return };
            self.tally.busy.fetch_add(1, Ordering::Relaxed);
            self.do_one(job, pressed);
            self.tally.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn do_one(&self, job: Job, pressed: &Receiver<()>) {
        match self.judge.answer(&job.envelope, pressed) {
            Ok(Some(result)) => {
                self.tally.note_finished(&result);
                job.finish(result);
            }
            // It is given back.
            Ok(None) => drop(job),
            Err(error) => {
                tracing::warn!("an answer is not graded: {error:#}");
                self.tally.failed.fetch_add(1, Ordering::Relaxed);
                job.fail(format!("{error:#}"));
            }
        }
    }

    /// Says again and again how this worker is, until a signal comes.
    fn report(&self, fleet: &Fleet, state: &WorkerState, signals: &Receiver<()>) {
        loop {
            let judge = self.tally.judge.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let state = WorkerState {
                model: judge.unwrap_or_else(|| state.model.clone()),
                busy: self.tally.busy.load(Ordering::Relaxed),
                finished: self.tally.finished(),
                failed: self.tally.failed(),
                per_minute: self.tally.per_minute(),
                ..state.clone()
            };
            if let Err(error) = fleet.tell(&state) {
                tracing::debug!("the others do not hear of this worker: {error}");
            }
            if signals.recv_timeout(Fleet::BEAT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
