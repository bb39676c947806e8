//! `hone worker`: does work that other machines ask for over a bus.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};
use hone_app::fleet::{Fleet, FleetJudge, GRADE, Job, Work, WorkerState, machine_name};
use hone_protocol::{Envelope, Grade, GradedAnswer, JudgingMethod, Payload, Timestamp};

use super::serve::signal;
use crate::arguments::WorkerArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The work of the last minute is counted.
const MINUTE: Duration = Duration::from_secs(60);
/// How long a judge that failed is left alone, at first; twice as long after every further failure.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
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
    app.output.note(&format!("{} grades, {} at a time, with {}; Ctrl-C ends it", state.name, state.slots, state.model));
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
    let (machine, process) = (machine_name(), std::process::id());
    let device = app.config.entries().get("engine.device").and_then(|entry| entry.value.as_str());
    WorkerState {
        // Containers may have the same names and numbers.
        name: format!("{machine}-{process}-{:04x}", Timestamp::now().0 & 0xffff),
        machine,
        process,
        roles: vec![GRADE.to_owned()],
        model: judge.name().to_owned(),
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

/// The work that has been done.
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
        let mut pause = SHORTEST_PAUSE;
        while !self.is_stopping.load(Ordering::SeqCst) {
            let job = select! {
                recv(pressed) -> _ => return,
                recv(self.work.jobs()) -> job => job,
            };
            let Ok(job) = job else { return };
            // A press that came with it would be forgotten.
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            self.tally.busy.fetch_add(1, Ordering::Relaxed);
            let is_able = self.do_one(job, pressed);
            self.tally.busy.fetch_sub(1, Ordering::Relaxed);
            if is_able {
                pause = SHORTEST_PAUSE;
            } else if pressed.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = (2 * pause).min(LONGEST_PAUSE);
            } else {
                return;
            }
        }
    }

    /// Does a piece of work; returns whether the judge was able to.
    fn do_one(&self, job: Job, pressed: &Receiver<()>) -> bool {
        let answer = || self.judge.answer(&job.envelope, pressed);
        let answered = catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| bail!("the judge panicked"));
        match answered {
            Ok(Some(result)) => {
                self.tally.note_finished(&result);
                job.finish(result);
                true
            }
            // It is given back.
            Ok(None) => true,
            Err(error) => {
                tracing::warn!("an answer is not graded: {error:#}");
                self.tally.failed.fetch_add(1, Ordering::Relaxed);
                job.fail(format!("{error:#}"));
                false
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
