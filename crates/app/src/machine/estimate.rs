//! Whether a model fits a machine, and how fast it would be there: estimates from its size and its active parameters.

use hone_engine::{Card, GpuLayers};
use hone_models::{CatalogModel, InstalledModel, Role};
use serde::Serialize;

use super::{Machine, bandwidth};
use crate::App;
use crate::describe::bytes;
use crate::room::memory_needed;

/// Maximum share of the memory for a suggested model, in per cent: other programs need some, too.
const MOST_MEMORY: u64 = 60;

/// Tokens per second that are about as fast as people read.
const READING_SPEED: f64 = 8.0;

/// This machine's limits on models.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The machine's memory, if the system tells.
    pub(crate) memory_bytes: Option<u64>,
    /// How fast it is read, in bytes per second.
    pub bandwidth: f64,
    /// Those of the GPU that runs models, if any.
    pub card: Option<CardLimits>,
}

/// A GPU's limits on models.
#[derive(Clone, Copy, Debug)]
pub struct CardLimits {
    pub memory_bytes: u64,
    /// How fast it is read, in bytes per second.
    pub bandwidth: f64,
}

/// The estimated memory needs and speed of a model here.
#[derive(Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Memory that it needs, with a KV cache and a reserve for everything else.
    pub needs_memory: u64,
    /// Whether this machine has that much; `None` if that is unknown.
    pub fits: Option<bool>,
    /// Whether the GPU has room for some of its layers only, so that the processor computes the others.
    pub is_divided: bool,
    /// Whether it runs here although it does not fit, because experts are read from its file when they are chosen.
    pub runs_from_file: bool,
    /// Tokens per second at which memory lets it generate; `None` if it does not generate or does not fit.
    pub tokens_per_second: Option<f64>,
}

impl Limits {
    /// The limits of this machine, whose memory bandwidth is measured if it was not before.
    pub fn here(app: &App, machine: &Machine) -> Limits {
        let data_folder = app.data_folder();
        let options = app.model_options().ok().filter(|options| options.gpu_layers != GpuLayers::AtMost(0));
        let card = options.and_then(|options| Card::of(&options)).and_then(|card| {
            let bandwidth = bandwidth::of_card(&card, data_folder)?;
            Some(CardLimits { memory_bytes: card.memory_bytes, bandwidth })
        });
        Limits { memory_bytes: machine.memory_bytes, bandwidth: bandwidth::of(machine, data_folder), card }
    }

    /// The largest generator of the catalog that leaves room for other programs and is as fast as people read; `None` if
    /// it is not larger than the one named `present`, or the size of that one is unknown.
    pub fn suggested<'a>(self, app: &'a App, present: &str) -> Option<(&'a CatalogModel, Estimate)> {
        let limits = self.with_room_for_others();
        let catalog = app.store.catalog();
        let installed = || app.model_file(present).ok().map(|file| file.size());
        let present = catalog.about(present).map(CatalogModel::size).or_else(installed)?;
        let answers = catalog.models.iter().filter(|model| model.role == Role::Generator && model.size() > present);
        let estimated = answers.map(|model| (model, limits.known(model)));
        estimated.filter(|(_, estimate)| estimate.is_as_fast_as(READING_SPEED)).max_by_key(|(model, _)| model.size())
    }

    fn with_room_for_others(self) -> Limits {
        let share = |bytes: u64| bytes / 100 * MOST_MEMORY;
        let card = self.card.map(|card| CardLimits { memory_bytes: share(card.memory_bytes), ..card });
        Limits { memory_bytes: self.memory_bytes.map(share), card, ..self }
    }

    /// The estimate for a model of the catalog.
    pub fn known(self, model: &CatalogModel) -> Estimate {
        let generates = model.role.writes();
        self.estimate(model.size(), generates.then(|| model.active_bytes()))
    }

    /// The estimate for an installed model. Only its catalog entry tells how much of it is active.
    pub fn installed(self, model: &InstalledModel, known: Option<&CatalogModel>) -> Estimate {
        let known = known.filter(|known| known.role.writes() && known.size() > 0);
        // It may be installed in another quantization than the catalog's.
        let share = |known: &CatalogModel| known.active_bytes() as f64 / known.size() as f64;
        self.estimate(model.size(), known.map(|known| (model.size() as f64 * share(known)) as u64))
    }

    fn estimate(self, size: u64, active_bytes: Option<u64>) -> Estimate {
        let needs_memory = memory_needed(size);
        let share_on_card = self.card.map_or(0.0, |card| card.memory_bytes as f64 / needs_memory as f64).min(1.0);
        let needs_beside_card = needs_memory.saturating_sub(self.card.map_or(0, |card| card.memory_bytes));
        let fits = match self.memory_bytes {
            _ if needs_beside_card == 0 => Some(true),
            memory => memory.map(|memory| needs_beside_card <= memory),
        };
        let active_bytes = active_bytes.filter(|bytes| *bytes > 0);
        let is_mixture = active_bytes.is_some_and(|bytes| bytes < size);
        let holds_a_token =
            active_bytes.zip(self.memory_bytes).is_some_and(|(bytes, memory)| memory_needed(bytes) <= memory);
        let runs_from_file = fits == Some(false) && is_mixture && holds_a_token;
        let active_bytes = active_bytes.filter(|_| fits != Some(false));
        let seconds_per_byte =
            self.card.map_or(0.0, |card| share_on_card / card.bandwidth) + (1.0 - share_on_card) / self.bandwidth;
        let tokens_per_second = active_bytes.map(|bytes| 1.0 / (seconds_per_byte * bytes as f64));
        let is_divided = fits == Some(true) && share_on_card > 0.0 && share_on_card < 1.0;
        Estimate { needs_memory, fits, is_divided, runs_from_file, tokens_per_second }
    }

    /// An explanation of the columns, for display.
    pub fn remark(self) -> String {
        let memory = self.memory_bytes.map_or("unknown".to_string(), bytes);
        let bandwidth = self.bandwidth / 1e9;
        match self.card {
            Some(card) => format!(
                "FITS compares a model with the GPU's memory ({}) and this machine's ({memory}), which may share its layers; SPEED is about what memory allows ({:.1} GB/s on the GPU, {bandwidth:.1} GB/s beside it): `hone bench` measures it",
                bytes(card.memory_bytes),
                card.bandwidth / 1e9
            ),
            None => format!(
                "FITS compares a model with this machine's memory ({memory}), where a mixture of experts may fit in part: the other experts are read from the disk; SPEED is about what memory allows ({bandwidth:.1} GB/s): `hone bench` measures it"
            ),
        }
    }
}

impl Estimate {
    /// Whether the model fits, and generates this many tokens per second.
    fn is_as_fast_as(&self, speed: f64) -> bool {
        self.fits == Some(true) && self.tokens_per_second.is_some_and(|tokens_per_second| tokens_per_second >= speed)
    }

    /// The two columns.
    pub fn columns(&self) -> [String; 2] {
        let fits = match self.fits {
            Some(true) if self.is_divided => "yes, in part on the GPU".to_string(),
            Some(true) => "yes".to_string(),
            Some(false) if self.runs_from_file => format!("in part, needs {}", bytes(self.needs_memory)),
            Some(false) => format!("no, needs {}", bytes(self.needs_memory)),
            None => "?".to_string(),
        };
        let speed = match self.tokens_per_second {
            Some(speed) if speed < 10.0 => format!("~{speed:.1} tokens/s"),
            Some(speed) => format!("~{speed:.0} tokens/s"),
            None if self.runs_from_file => "the disk's".to_string(),
            None => "-".to_string(),
        };
        [fits, speed]
    }
}

#[cfg(test)]
mod tests {
    use hone_models::Catalog;

    use super::*;

    /// The columns of a model of the catalog on a machine with this memory in GiB, which reads 20 GB/s.
    fn check(name: &str, memory: Option<u64>, expected: [&str; 2]) {
        let limits = Limits { memory_bytes: memory.map(|gib| gib << 30), bandwidth: 20e9, card: None };
        check_in(limits, name, expected);
    }

    #[track_caller]
    fn check_in(limits: Limits, name: &str, expected: [&str; 2]) {
        let catalog = Catalog::built_in().unwrap();
        assert_eq!(limits.known(catalog.find(name).unwrap()).columns(), expected, "{name} with {limits:?}");
    }

    #[test]
    fn a_gpu_runs_what_it_has_room_for_and_shares_the_rest() {
        let with_card = |gib: u64| Limits {
            memory_bytes: Some(32 << 30),
            bandwidth: 20e9,
            card: Some(CardLimits { memory_bytes: gib << 30, bandwidth: 400e9 }),
        };
        check_in(with_card(16), "qwen3:8b", ["yes", "~80 tokens/s"]);
        check_in(with_card(4), "qwen3:8b", ["yes, in part on the GPU", "~8.9 tokens/s"]);
        check_in(with_card(4), "all-minilm:l6-v2", ["yes", "-"]);
        check_in(Limits { memory_bytes: Some(1 << 30), ..with_card(4) }, "qwen3:8b", ["no, needs 7.36 GB", "-"]);
        check_in(Limits { memory_bytes: None, ..with_card(16) }, "qwen3:8b", ["yes", "~80 tokens/s"]);
    }

    #[test]
    fn a_mixture_of_experts_needs_its_whole_size_and_reads_its_active_share() {
        check("qwen3.6:35b-a3b", Some(32), ["yes", "~11 tokens/s"]);
        check("qwen3.6:35b-a3b", Some(16), ["in part, needs 28.74 GB", "the disk's"]);
        check("qwen3.6:35b-a3b", Some(1), ["no, needs 28.74 GB", "-"]);
        check("gpt-oss:20b", Some(24), ["yes", "~9.6 tokens/s"]);
    }

    #[test]
    fn a_dense_model_reads_everything() {
        check("qwen3:8b", Some(16), ["yes", "~4.0 tokens/s"]);
        check("smollm2:135m", Some(16), ["yes", "~203 tokens/s"]);
        check("qwen3:8b", Some(4), ["no, needs 7.36 GB", "-"]);
    }

    #[test]
    fn what_is_unknown_is_not_guessed() {
        check("all-minilm:l6-v2", Some(16), ["yes", "-"]);
        check("qwen3:8b", None, ["?", "~4.0 tokens/s"]);
    }
}
