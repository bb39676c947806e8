//! An always current list of the workers, as they report themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::kv::Operation;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::connection::{Fleet, Server, WORKER_LIFETIME, WORKERS, unusable};
use crate::error::FleetError;
use crate::requests::PAUSE;
use crate::workers::{OfferedModel, WorkerState};

/// The longest wait for news before the list is checked for workers that have gone.
const LOOK: Duration = Duration::from_secs(2);

/// The present workers, tracked until it is dropped.
pub struct Roster {
    known: watch::Receiver<Known>,
    task: AbortHandle,
    fleet: Fleet,
}

/// All known processes.
#[derive(Clone, Default)]
struct Known {
    /// Whether the server has listed the present workers.
    is_complete: bool,
    /// Each process, with the time of its last report.
    processes: Vec<(Instant, Arc<WorkerState>)>,
}

impl Known {
    fn hear(&mut self, process: WorkerState) {
        self.forget(&process.name);
        self.processes.push((Instant::now(), Arc::new(process)));
    }

    fn forget(&mut self, name: &str) {
        self.processes.retain(|(_, known)| known.name != name);
    }
}

impl Roster {
    /// Starts tracking the workers of a fleet.
    pub fn begin(fleet: &Fleet) -> Roster {
        let (told, known) = watch::channel(Known::default());
        let task = fleet.handle().spawn(follow(fleet.server.clone(), told)).abort_handle();
        Roster { known, task, fleet: fleet.clone() }
    }

    /// Waits until the present workers are known, at most for `patience`; returns whether they are. Not to be called
    /// from an async runtime.
    pub fn wait(&self, patience: Duration) -> bool {
        self.wait_until(patience, |roster| roster.known.borrow().is_complete)
    }

    /// The present workers, and the processes that ask them, in alphabetical order.
    pub fn processes(&self) -> Vec<Arc<WorkerState>> {
        let known = self.known.borrow();
        let alive = known.processes.iter().filter(|(heard, _)| heard.elapsed() < WORKER_LIFETIME);
        let mut processes: Vec<Arc<WorkerState>> = alive.map(|(_, process)| Arc::clone(process)).collect();
        processes.sort_by(|one, other| one.name.cmp(&other.name));
        processes
    }

    /// The present workers, in alphabetical order.
    pub fn workers(&self) -> Vec<Arc<WorkerState>> {
        let mut workers = self.processes();
        workers.retain(|process| process.is_worker());
        workers
    }

    /// Waits until a condition holds for the workers, at most for `patience`; returns whether it does. Not to be called
    /// from an async runtime.
    pub fn wait_until(&self, patience: Duration, is_so: impl Fn(&Roster) -> bool) -> bool {
        let mut known = self.known.clone();
        let waiting = async { while !is_so(self) && known.changed().await.is_ok() {} };
        self.fleet.block_on(async { timeout(patience, waiting).await.is_ok() })
    }

    /// Whether a worker of this role has this model.
    pub fn has(&self, role: &str, model: &str) -> bool {
        self.workers()
            .iter()
            .any(|worker| worker.models.iter().any(|offered| offered.role == role && offered.name == model))
    }

    /// The models that workers of this role have, without duplicates, in alphabetical order.
    pub fn models(&self, role: &str) -> Vec<OfferedModel> {
        let workers = self.workers();
        let offered = workers.iter().flat_map(|worker| &worker.models).filter(|offered| offered.role == role);
        let mut models: Vec<OfferedModel> = offered.cloned().collect();
        models.sort_by(|one, other| one.name.cmp(&other.name));
        models.dedup_by(|one, other| one.name == other.name);
        models
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tracks the workers until the task is aborted.
async fn follow(server: Server, told: watch::Sender<Known>) {
    loop {
        server.connected().await;
        if let Err(error) = read(&server, &told).await {
            tracing::debug!("the workers are not heard of: {error}");
        }
        sleep(PAUSE).await;
    }
}

/// Reads the workers' reports until the server is lost.
async fn read(server: &Server, told: &watch::Sender<Known>) -> Result<(), FleetError> {
    server.prepare().await?;
    let failed = |error: &dyn std::error::Error| unusable(WORKERS, error);
    let bucket = server.jetstream.get_key_value(WORKERS).await.map_err(|error| failed(&error))?;
    // News is followed before the present workers are read, so that nothing is missed.
    let mut news = bucket.watch_all().await.map_err(|error| failed(&error))?;
    let mut names = bucket.keys().await.map_err(|error| failed(&error))?;
    // Known workers may be silent only because the connection was lost, and a new server knows no workers yet.
    let mut there = told.borrow().clone();
    there.processes.iter_mut().for_each(|(heard, _)| *heard = Instant::now());
    there.is_complete = true;
    while let Some(name) = names.next().await {
        let name = name.map_err(|error| failed(&error))?;
        let content = bucket.get(name).await.map_err(|error| failed(&error))?;
        content.and_then(|content| state_in(&content)).into_iter().for_each(|worker| there.hear(worker));
    }
    told.send_replace(there);
    loop {
        let entry = tokio::select! {
            entry = timeout(LOOK, news.next()) => entry,
            () = server.disconnected() => return Ok(()),
        };
        match entry {
            Ok(Some(entry)) => {
                let entry = entry.map_err(|error| failed(&error))?;
                told.send_modify(|known| match (entry.operation, state_in(&entry.value)) {
                    (Operation::Put, Some(worker)) => known.hear(worker),
                    _ => known.forget(&entry.key),
                });
            }
            Ok(None) => return Ok(()),
            Err(_) => told.send_modify(|known| known.processes.retain(|(heard, _)| heard.elapsed() < WORKER_LIFETIME)),
        }
    }
}

fn state_in(content: &[u8]) -> Option<WorkerState> {
    serde_json::from_slice(content).ok()
}
