//! How fast models generate on this machine, as their answers showed.
//!
//! The speeds of the latest answers are kept in the data folder, along with the machine and the device that they are of.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hone_bus::{Agent, AgentHandle, Bus, Inbox, Overload, Subscription, Wakeup, spawn};
use hone_engine::ModelOptions;
use hone_models::Store;
use hone_protocol::{Envelope, LocateModel, Payload, Response, Subject, Timings};
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::kept::write;

/// The file in the data folder.
const FILE: &str = "generation-speeds.json";
/// Tokens of the shortest answer whose speed counts.
const SHORTEST: usize = 32;
/// The number of a model's latest answers whose speeds are kept.
const LATEST: usize = 8;
/// Answers that may wait to be noted.
const WAITING: usize = 16;

/// What the speeds in a group are of: the machine, and the device that is configured.
fn setting(machine: &Machine, options: &ModelOptions) -> String {
    let Machine { processor, physical_cores, memory_bytes, .. } = machine;
    let memory = memory_bytes.unwrap_or(0);
    format!("{processor}, {physical_cores} cores, {memory} bytes, {}, {:?}", options.device, options.gpu_layers)
}

/// The speed of one answer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Reading {
    tokens_per_second: f64,
    /// Steps of the model, which are fewer where it accepts guesses of tokens.
    steps_per_second: f64,
}

impl Reading {
    fn of(timings: &Timings) -> Reading {
        let tokens = timings.generation_tokens.max(1) as f64;
        let guessed = timings.accepted_tokens as f64 / tokens;
        let tokens_per_second = timings.generation_tokens_per_second;
        Reading { tokens_per_second, steps_per_second: tokens_per_second * (1.0 - guessed) }
    }
}

/// The speeds of one model.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Speeds {
    /// The size of its file: another file may have the same name later.
    bytes: u64,
    /// Its latest answers, in order.
    latest: Vec<Reading>,
}

impl Speeds {
    fn median(&self, figure: impl Fn(&Reading) -> f64) -> Option<f64> {
        let mut latest: Vec<f64> = self.latest.iter().map(figure).collect();
        latest.retain(|speed| speed.is_finite() && *speed > 0.0);
        latest.sort_unstable_by(f64::total_cmp);
        latest.get(latest.len() / 2).copied()
    }
}

/// How fast models generated, by name, in every setting.
type Kept = BTreeMap<String, BTreeMap<String, Speeds>>;

/// A damaged file is one without speeds.
fn read(path: &Path) -> Kept {
    fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// How fast models generated here, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenSpeeds {
    models: BTreeMap<String, Speeds>,
}

impl SeenSpeeds {
    /// The speeds that were seen on this machine with the configured device.
    pub(crate) fn here(data_folder: &Path, machine: &Machine, options: &ModelOptions) -> SeenSpeeds {
        let models = read(&data_folder.join(FILE)).remove(&setting(machine, options));
        SeenSpeeds { models: models.unwrap_or_default() }
    }

    /// The median of a model's latest answers in tokens per second.
    pub(crate) fn of(&self, name: &str, bytes: u64) -> Option<f64> {
        let speeds = self.models.get(name).filter(|speeds| speeds.bytes == bytes)?;
        speeds.median(|reading| reading.tokens_per_second)
    }

    /// The models with their sizes in bytes and their steps per second.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (&str, u64, f64)> {
        let steps = |speeds: &Speeds| speeds.median(|reading| reading.steps_per_second);
        self.models.iter().filter_map(move |(name, speeds)| Some((name.as_str(), speeds.bytes, steps(speeds)?)))
    }

    #[cfg(test)]
    pub(crate) fn just(name: &str, bytes: u64, speed: f64) -> SeenSpeeds {
        let reading = Reading { tokens_per_second: speed, steps_per_second: speed };
        SeenSpeeds { models: [(name.to_owned(), Speeds { bytes, latest: vec![reading] })].into() }
    }
}

/// Notes the speeds of answers on a bus, by models of the store with these options, until the returned value is dropped.
/// If no thread can be started, none is noted.
pub(crate) fn note_speeds(
    bus: &Bus,
    data_folder: &Path,
    store: &Arc<Store>,
    options: &ModelOptions,
) -> Option<AgentHandle> {
    let (folder, store, options) = (data_folder.to_path_buf(), Arc::clone(store), options.clone());
    let make = move || Notes { folder: folder.clone(), store: Arc::clone(&store), options: options.clone() };
    let subscription = Subscription {
        name: "speeds".to_owned(),
        subjects: vec![Subject::ResponseGeneration],
        sessions: None,
        capacity: WAITING,
        overload: Overload::DropOldest,
    };
    spawn(bus, subscription, make).inspect_err(|error| tracing::debug!(%error, "speeds are not noted")).ok()
}

struct Notes {
    folder: PathBuf,
    store: Arc<Store>,
    options: ModelOptions,
}

impl Notes {
    fn take(&self, envelope: &Envelope) {
        if let Payload::ResponseGeneration(response) = &envelope.payload
            && let Err(error) = self.note(response)
        {
            tracing::debug!(%error, "the speed of an answer was not noted");
        }
    }

    /// Adds the speed of an answer by a model of this machine.
    fn note(&self, Response { model, timings, .. }: &Response) -> anyhow::Result<()> {
        if timings.generation_tokens < SHORTEST || !self.folder.is_dir() {
            return Ok(());
        }
        let bytes = self.store.locate(model)?.size();
        let path = self.folder.join(FILE);
        let mut kept = read(&path);
        let models = kept.entry(setting(&Machine::look(), &self.options)).or_default();
        let speeds = models.entry(self.store.installed_name(model)).or_insert(Speeds { bytes, latest: Vec::new() });
        if speeds.bytes != bytes {
            *speeds = Speeds { bytes, latest: Vec::new() };
        }
        speeds.latest.push(Reading::of(timings));
        speeds.latest.drain(..speeds.latest.len().saturating_sub(LATEST));
        write(&self.folder, &path, &kept)
    }
}

impl Agent for Notes {
    type Event = Arc<Envelope>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Arc<Envelope>> {
        match inbox.wait::<Infallible>([])? {
            Wakeup::Message(envelope) => Some(envelope),
            Wakeup::Work(_, Ok(never)) => match never {},
            Wakeup::Work(_, Err(_)) => None,
        }
    }

    fn handle_event(&mut self, envelope: Arc<Envelope>, _: &mut Inbox) {
        self.take(&envelope);
    }

    /// A program that asks one question ends with its answer.
    fn stopped(&mut self, inbox: &mut Inbox) {
        inbox.messages().try_iter().for_each(|envelope| self.take(&envelope));
    }

    fn recover(&mut self, _: &Envelope) {}
}
