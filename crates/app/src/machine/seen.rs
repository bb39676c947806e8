//! How fast models generate on this machine, as their answers showed.
//!
//! The speeds of the latest answers are kept in the data folder, along with the machine and the device that they are of.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hone_bus::{Agent, AgentHandle, Bus, Inbox, Overload, Subscription, Wakeup, spawn};
use hone_engine::DeviceChoice;
use hone_files::write_private;
use hone_models::Store;
use hone_protocol::{Envelope, LocateModel, Payload, Response, Subject};
use serde::{Deserialize, Serialize};

use super::Machine;
use super::bandwidth::OfMachine;

/// The file in the data folder.
const FILE: &str = "generation-speeds.json";
/// Tokens of the shortest answer whose speed counts.
const SHORTEST: usize = 32;
/// The number of a model's latest answers whose speeds are kept.
const LATEST: usize = 8;
/// Answers that may wait to be noted.
const WAITING: usize = 16;

/// What speeds are of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Setting {
    #[serde(flatten)]
    machine: OfMachine,
    /// The device that is configured.
    device: String,
}

impl Setting {
    fn new(machine: &Machine, device: DeviceChoice) -> Setting {
        Setting { machine: OfMachine::of(machine), device: device.to_string() }
    }
}

/// The speeds of one model.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Speeds {
    /// The size of its file: another file may have the same name later.
    bytes: u64,
    /// Tokens per second of the latest answers, the latest last.
    latest: Vec<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    of: Setting,
    models: BTreeMap<String, Speeds>,
}

/// How fast models generated here, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenSpeeds {
    models: BTreeMap<String, Speeds>,
}

impl SeenSpeeds {
    /// Those of this machine on the configured device.
    pub(crate) fn here(data_folder: &Path, machine: &Machine, device: DeviceChoice) -> SeenSpeeds {
        SeenSpeeds::read(&data_folder.join(FILE), &Setting::new(machine, device))
    }

    /// Those of another machine do not count, and neither does a damaged file.
    fn read(path: &Path, of: &Setting) -> SeenSpeeds {
        let kept = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        SeenSpeeds { models: kept.filter(|kept| kept.of == *of).map(|kept| kept.models).unwrap_or_default() }
    }

    /// The median of a model's latest answers in tokens per second.
    pub(crate) fn of(&self, name: &str, bytes: u64) -> Option<f64> {
        let mut latest = self.models.get(name).filter(|speeds| speeds.bytes == bytes)?.latest.clone();
        latest.retain(|speed| speed.is_finite() && *speed > 0.0);
        latest.sort_unstable_by(f64::total_cmp);
        latest.get(latest.len() / 2).copied()
    }

    /// The models with their sizes in bytes and their speeds in tokens per second.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, u64, f64)> {
        self.models
            .iter()
            .filter_map(|(name, speeds)| Some((name.as_str(), speeds.bytes, self.of(name, speeds.bytes)?)))
    }

    fn add(&mut self, name: &str, bytes: u64, speed: f64) {
        let speeds = self.models.entry(name.to_owned()).or_insert(Speeds { bytes, latest: Vec::new() });
        if speeds.bytes != bytes {
            *speeds = Speeds { bytes, latest: Vec::new() };
        }
        speeds.latest.push(speed);
        speeds.latest.drain(..speeds.latest.len().saturating_sub(LATEST));
    }

    #[cfg(test)]
    pub(crate) fn just(name: &str, bytes: u64, speed: f64) -> SeenSpeeds {
        let mut seen = SeenSpeeds::default();
        seen.add(name, bytes, speed);
        seen
    }
}

/// Notes the speeds of answers on a bus, by models of the store on the configured device, until the returned value is
/// dropped. If no thread can be started, none is noted.
pub(crate) fn note_speeds(
    bus: &Bus,
    data_folder: &Path,
    store: &Arc<Store>,
    device: DeviceChoice,
) -> Option<AgentHandle> {
    let (path, store) = (data_folder.join(FILE), Arc::clone(store));
    let make = move || Notes { path: path.clone(), store: Arc::clone(&store), device };
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
    path: PathBuf,
    store: Arc<Store>,
    device: DeviceChoice,
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
        let is_kept = self.path.parent().is_some_and(Path::is_dir);
        if timings.generation_tokens < SHORTEST || !is_kept {
            return Ok(());
        }
        let bytes = self.store.locate(model)?.size();
        let of = Setting::new(&Machine::look(), self.device);
        let mut seen = SeenSpeeds::read(&self.path, &of);
        seen.add(model, bytes, timings.generation_tokens_per_second);
        write_private(&self.path, &serde_json::to_vec(&Kept { of, models: seen.models })?)?;
        Ok(())
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
