//! `hone ps`: the running hone processes with their models, memory, lanes and queues.

use std::time::Duration;

use hone_app::describe::bytes;
use hone_app::fleet::{FleetOverview, WorkerState};
use hone_app::running::{RunningProcess, processes};
use hone_engine::{EngineStatus, LaneStatus, ModelState, ModelStatus, QueuedStatus};
use hone_memory::MemoryStore;
use hone_protocol::Timestamp;
use serde::Serialize;

use super::cards;
use crate::arguments::PsArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Refresh interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Prints them, once or repeatedly.
///
/// # Errors
/// When nothing can be printed.
pub(crate) fn run(app: &Invocation, arguments: &PsArguments) -> anyhow::Result<Outcome> {
    if arguments.watch && !arguments.json.json && !app.output.stdout_is_terminal {
        return Err(usage("--watch needs a terminal, or --json, which prints a line each time"));
    }
    loop {
        if arguments.watch && !arguments.json.json {
            app.output.clear_screen()?;
        }
        print_all(app, arguments)?;
        if !arguments.watch {
            return Ok(Outcome::Done);
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn print_all(app: &Invocation, arguments: &PsArguments) -> anyhow::Result<()> {
    let running = processes(app.data_folder());
    let grades_due = n_grades_due(app);
    if arguments.all {
        return print_fleet(app, arguments, &running);
    }
    if arguments.json.json {
        let with_due = |process| JsonProcess { process, grades_due };
        return app.output.print_json(&running.iter().map(with_due).collect::<Vec<_>>());
    } else if running.is_empty() {
        app.output.note("hone is not running");
    } else {
        for process in &running {
            print(app, process)?;
        }
        for card in cards::all() {
            app.output.print_line(&format!("card: {}", card.describe()))?;
        }
    }
    if grades_due > 0 {
        app.output.note(&format!(
            "remembered answers that are due for a grade: {grades_due}; `hone grade --due` grades them"
        ));
    }
    Ok(())
}

/// The output of `--all --json`.
#[derive(Serialize)]
struct JsonFleet<'a> {
    processes: &'a [RunningProcess],
    #[serde(flatten)]
    fleet: FleetOverview,
}

/// Prints the processes of this machine, the workers of the bus and those who use them, and the amount of pending work.
fn print_fleet(app: &Invocation, arguments: &PsArguments, running: &[RunningProcess]) -> anyhow::Result<()> {
    let fleet = app.reached_overview()?;
    if arguments.json.json {
        return app.output.print_json(&JsonFleet { processes: running, fleet });
    }
    let FleetOverview { workers, users, queues, seconds_to_drain, .. } = fleet;
    running.iter().try_for_each(|process| print(app, process))?;
    let header = ["WORKER", "WHAT IT DOES", "DEVICE", "BUSY", "FINISHED", "FAILED", "LAST MINUTE", "TOKENS"];
    app.output.print_titled(&header, workers.iter().map(|worker| worker_row(worker)))?;
    app.output.print_titled(&["USED BY", "AS", "MACHINE", "FOR"], users.iter().map(|user| user_row(user)))?;
    if workers.is_empty() {
        app.output.note("no worker is on the bus: `hone worker --bus URL` starts one");
    }
    let drained =
        seconds_to_drain.filter(|_| queues.open > 0).map(|seconds| format!(", done in {}", in_words(seconds)));
    let by_role = queues.open_by_role.iter().map(|(role, open)| format!("; {role}: {open}")).collect::<String>();
    app.output.note(&format!(
        "open: {} ({}{by_role}){}; given up: {}",
        queues.open,
        bytes(queues.bytes),
        drained.unwrap_or_default(),
        queues.dead
    ));
    Ok(())
}

/// A span of time, in seconds or minutes.
fn in_words(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

fn worker_row(worker: &WorkerState) -> Vec<String> {
    let WorkerState { name, model, device, busy, slots, finished, failed, per_minute, tokens_per_minute, .. } = worker;
    vec![
        name.clone(),
        model.clone(),
        device.clone(),
        format!("{busy} of {slots}"),
        finished.to_string(),
        failed.to_string(),
        format!("{per_minute:.0}"),
        format!("{tokens_per_minute:.0}"),
    ]
}

fn user_row(user: &WorkerState) -> Vec<String> {
    let WorkerState { name, command, machine, since, .. } = user;
    let seconds = Timestamp::now().0.saturating_sub(since.0) as f64 / 1000.0;
    vec![name.clone(), format!("hone {command}"), machine.clone(), in_words(seconds)]
}

/// A process in the output of `--json`.
#[derive(Serialize)]
struct JsonProcess<'a> {
    #[serde(flatten)]
    process: &'a RunningProcess,
    /// Remembered answers whose grades are due, which the processes share.
    grades_due: usize,
}

/// The number of remembered answers whose grades are due. An unreadable memory counts as empty.
fn n_grades_due(app: &Invocation) -> usize {
    if !app.has_memory() {
        return 0;
    }
    let backlog = MemoryStore::open(&app.memory_folder(), app.memory_options()).and_then(|store| store.backlog());
    let backlog = backlog.inspect_err(|error| tracing::debug!(%error, "nobody knows what is due")).unwrap_or_default();
    backlog.iter().filter(|entry| entry.due.grade).count()
}

fn print(app: &Invocation, running: &RunningProcess) -> anyhow::Result<()> {
    let RunningProcess { process, command, status } = running;
    let EngineStatus { memory_budget, models, lanes, queue } = status;
    let admitted = models.iter().filter(|model| model.state != ModelState::Waiting);
    let taken: u64 = admitted.map(|model| model.weight_bytes + model.kv_cache_bytes).sum();
    let budget = memory_budget.map(|budget| format!(" of {}", bytes(budget))).unwrap_or_default();
    app.output
        .print_line(&format!("process {process}, hone {command}: {}{budget} reserved for models", bytes(taken)))?;
    let header = ["MODEL", "STATE", "DEVICE", "WEIGHTS", "KV CACHE", "KV USED", "REQUESTS", "IDLE"];
    app.output.print_titled(&header, models.iter().map(model_row))?;
    let header =
        ["LANE", "QUEUED", "RUNNING", "ANSWERED", "FIRST TOKEN p50/p95", "NEXT TOKEN p50/p95", "TOKENS", "CACHED"];
    let used = lanes.iter().filter(|lane| lane.metrics.counts.arrived > 0);
    app.output.print_titled(&header, used.map(lane_row))?;
    app.output.print_titled(&["WAITING", "LANE", "PLACE", "ABOUT"], queue.iter().map(queue_row))
}

fn model_row(model: &ModelStatus) -> Vec<String> {
    let state = match model.state {
        ModelState::Waiting => "waiting",
        ModelState::Loading => "loading",
        ModelState::Ready => "ready",
    };
    let cache = &model.cache;
    let used = (cache.capacity - cache.free) * 100 / cache.capacity.max(1);
    vec![
        model.name.clone(),
        state.to_owned(),
        if model.device.is_empty() { "-".to_owned() } else { model.device.clone() },
        bytes(model.weight_bytes),
        bytes(model.kv_cache_bytes),
        format!("{used} %"),
        model.requests.to_string(),
        model.idle_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s")),
    ]
}

fn lane_row(lane: &LaneStatus) -> Vec<String> {
    let LaneStatus { queued, running, metrics } = lane;
    let pair = |p50: f64, p95: f64| format!("{:.0}/{:.0} ms", p50 * 1e3, p95 * 1e3);
    let (first, between, counts) = (metrics.time_to_first_token, metrics.time_between_tokens, metrics.counts);
    vec![
        metrics.lane.name().to_owned(),
        queued.to_string(),
        running.to_string(),
        counts.finished.to_string(),
        pair(first.p50_seconds, first.p95_seconds),
        pair(between.p50_seconds, between.p95_seconds),
        (counts.prompt_tokens + counts.generated_tokens).to_string(),
        counts.cached_tokens.to_string(),
    ]
}

fn queue_row(queued: &QueuedStatus) -> Vec<String> {
    let QueuedStatus { model, lane, position, wait_seconds } = queued;
    vec![model.clone(), lane.name().to_owned(), position.to_string(), format!("{wait_seconds:.1} s")]
}
