//! The state of the workers and of the processes that ask them, and the amount of work.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::stream::State;
use futures_util::StreamExt;
use hone_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::{ALL_WORK, DEAD, Fleet, Server, WORK, WORKER_LIFETIME, WORKERS, unusable};
use crate::error::FleetError;
use crate::requests::PAUSE;

/// The state of a process on the bus, as it reports itself: a worker, or without roles one that asks workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    /// Its unique name: letters, digits, `-` and `_`.
    pub name: String,
    /// The machine's name.
    pub machine: String,
    /// Its process ID on that machine.
    pub process: u32,
    /// The command that it was started with, such as `worker` or `chat`.
    pub command: String,
    /// The kinds of work that it does.
    pub roles: Vec<String>,
    /// The models that it uses, as text.
    pub model: String,
    /// The models that it offers by name.
    pub models: Vec<OfferedModel>,
    /// The device that it computes on.
    pub device: String,
    /// The number of jobs that it takes at a time.
    pub slots: usize,
    /// The number of jobs in progress.
    pub busy: usize,
    /// The number of jobs finished since its start.
    pub finished: u64,
    /// The number of jobs that failed.
    pub failed: u64,
    /// The number of jobs finished in the last minute.
    pub per_minute: f64,
    /// The same number for each kind of work.
    pub per_minute_by_role: BTreeMap<String, f64>,
    /// The number of tokens generated for callers.
    pub tokens: u64,
    /// The number of those tokens generated in the last minute.
    pub tokens_per_minute: f64,
    /// The time of its start.
    pub since: Timestamp,
    /// hone's version.
    pub version: String,
}

impl WorkerState {
    /// Whether it does work; otherwise it asks for it.
    pub fn is_worker(&self) -> bool {
        !self.roles.is_empty()
    }
}

/// A process that is reported until this is dropped, and a few seconds longer.
pub struct Reported(AbortHandle);

impl Drop for Reported {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A model that a worker offers, and its description; texts are empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferedModel {
    /// The kind of work that the worker does with it.
    pub role: String,
    /// Its name.
    pub name: String,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The SHA-256 of its file in hexadecimal, if known.
    pub digest: Option<String>,
    /// The format of its files, such as `gguf`.
    pub format: String,
    /// Its architecture, such as `llama`.
    pub family: String,
    /// The number of its parameters, such as `135M`.
    pub parameters: String,
    /// The quantization of its weights, such as `Q4_1`.
    pub quantization: String,
    /// The most tokens of a prompt and its answer together, if known.
    pub context: Option<usize>,
    /// Its abilities, such as `completion` and `tools`.
    pub capabilities: Vec<String>,
}

/// The amount of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Jobs that wait or are in progress.
    pub open: u64,
    /// The number of them for each kind of work.
    pub open_by_role: BTreeMap<String, u64>,
    /// Their size in bytes.
    pub bytes: u64,
    /// Jobs that were given up.
    pub dead: u64,
}

impl Server {
    async fn tell(&self, state: &WorkerState) -> Result<(), FleetError> {
        let failed = |error: &dyn std::error::Error| unusable(WORKERS, error);
        let content = serde_json::to_vec(state).unwrap_or_default();
        let bucket = self.jetstream.get_key_value(WORKERS).await.map_err(|error| failed(&error))?;
        bucket.put(&state.name, content.into()).await.map(drop).map_err(|error| failed(&error))
    }
}

impl Fleet {
    /// The interval at which a worker should call [`Fleet::tell`]: short enough that one message may be lost.
    pub const BEAT: Duration = Duration::from_secs(WORKER_LIFETIME.as_secs() / 3);

    /// Reports the state of a process. The report is valid for a few seconds.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn tell(&self, state: &WorkerState) -> Result<(), FleetError> {
        self.block_on(self.server.tell(state))
    }

    /// Reports the state of a process repeatedly, in the background.
    pub fn keep_telling(&self, state: WorkerState) -> Reported {
        let server = self.server.clone();
        let task = self.handle().spawn(async move {
            loop {
                server.connected().await;
                let told = server.tell(&state).await;
                if let Err(error) = &told {
                    tracing::debug!("the others do not hear of this process: {error}");
                }
                sleep(if told.is_ok() { Fleet::BEAT } else { PAUSE }).await;
            }
        });
        Reported(task.abort_handle())
    }

    /// Reports the end of a worker.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn tell_end(&self, name: &str) -> Result<(), FleetError> {
        self.block_on(async {
            let failed = |error: &dyn std::error::Error| unusable(WORKERS, error);
            let bucket = self.server.jetstream.get_key_value(WORKERS).await.map_err(|error| failed(&error))?;
            bucket.purge(name).await.map_err(|error| failed(&error))
        })
    }

    /// The present processes, by name.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn processes(&self) -> Result<Vec<WorkerState>, FleetError> {
        let mut processes = self.block_on(async {
            let failed = |error: &dyn std::error::Error| unusable(WORKERS, error);
            let bucket = self.server.jetstream.get_key_value(WORKERS).await.map_err(|error| failed(&error))?;
            let mut names = bucket.keys().await.map_err(|error| failed(&error))?;
            let mut found = Vec::new();
            while let Some(name) = names.next().await {
                let name = name.map_err(|error| failed(&error))?;
                let content = bucket.get(name).await.map_err(|error| failed(&error))?;
                found.extend(content.and_then(|content| serde_json::from_slice::<WorkerState>(&content).ok()));
            }
            Ok(found)
        })?;
        processes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(processes)
    }

    /// The amount of work.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn queues(&self) -> Result<Queues, FleetError> {
        self.block_on(async {
            let (work, dead) = (self.state(WORK).await?, self.state(DEAD).await?);
            let open_by_role = self.open_by_role().await?;
            Ok(Queues { open: work.messages, open_by_role, bytes: work.bytes, dead: dead.messages })
        })
    }

    async fn open_by_role(&self) -> Result<BTreeMap<String, u64>, FleetError> {
        let failed = |error: &dyn std::error::Error| unusable(WORK, error);
        let stream = self.server.jetstream.get_stream(WORK).await.map_err(|error| failed(&error))?;
        let mut subjects = stream.info_with_subjects(ALL_WORK).await.map_err(|error| failed(&error))?;
        let mut open: BTreeMap<String, u64> = BTreeMap::new();
        while let Some(subject) = subjects.next().await {
            let (subject, n_jobs) = subject.map_err(|error| failed(&error))?;
            let role = subject.split('.').nth(2).unwrap_or_default();
            *open.entry(role.to_owned()).or_default() += n_jobs as u64;
        }
        Ok(open)
    }

    async fn state(&self, name: &'static str) -> Result<State, FleetError> {
        let stream = self.server.jetstream.get_stream(name).await.map_err(|error| unusable(name, &error))?;
        Ok(stream.get_info().await.map_err(|error| unusable(name, &error))?.state)
    }
}
