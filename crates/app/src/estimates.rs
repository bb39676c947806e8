//! Whether a model fits a machine, and how fast it would be there: estimates from its size and its active parameters.

mod offers;

use hone_engine::{Card, GpuLayers};
use hone_models::{Catalog, CatalogModel, InstalledModel, Role};
use serde::Serialize;

use crate::App;
use crate::describe::bytes;
use crate::machine::seen::SeenSpeeds;
use crate::machine::{BUFFER_BYTES, Machine, bandwidth};
use crate::room::memory_needed;

pub use offers::Offers;

/// Maximum share of the memory for a suggested model, in per cent: other programs need some, too.
const MOST_MEMORY: u64 = 60;

/// Tokens per second that are about as fast as people read.
const READING_SPEED: f64 = 8.0;

/// This machine's limits on models.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The machine's memory, if the system tells.
    pub(crate) memory_bytes: Option<u64>,
    /// How fast it is read while a model generates, in bytes per second.
    pub(crate) bandwidth: f64,
    /// The GPU's limits, if one runs models.
    pub(crate) card: Option<CardLimits>,
    /// How fast models generated.
    seen: SeenSpeeds,
}

/// A GPU's limits on models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardLimits {
    memory_bytes: u64,
    /// How fast it is read, in bytes per second.
    bandwidth: f64,
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
    /// Tokens per second at which it generated or memory would let it generate; `None` if it does not generate or does
    /// not fit.
    pub tokens_per_second: Option<f64>,
    /// Whether that is the median of its latest answers.
    pub speed_is_seen: bool,
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
        let seen = SeenSpeeds::here(data_folder, machine, &app.config.engine.options.model);
        let bandwidth = match card {
            None => bandwidth_seen(&seen, app.store.catalog(), machine.memory_bytes),
            Some(_) => None,
        };
        let bandwidth = bandwidth.unwrap_or_else(|| bandwidth::of(machine, data_folder));
        Limits { memory_bytes: machine.memory_bytes, bandwidth, card, seen }
    }

    /// The largest generator of the catalog that leaves room for other programs and is as fast as people read; `None` if
    /// it is not larger than the one named `present`, or the size of that one is unknown.
    pub fn suggested<'a>(&self, app: &'a App, present: &str) -> Option<(&'a CatalogModel, Estimate)> {
        let limits = self.with_room_for_others();
        let catalog = app.store.catalog();
        let installed = || app.model_file(present).ok().map(|file| file.size());
        let present = catalog.about(present).map(CatalogModel::size).or_else(installed)?;
        let answers = catalog.models.iter().filter(|model| model.role == Role::Generator && model.size() > present);
        let estimated = answers.map(|model| (model, limits.known(model)));
        estimated.filter(|(_, estimate)| estimate.is_as_fast_as(READING_SPEED)).max_by_key(|(model, _)| model.size())
    }

    fn with_room_for_others(&self) -> Limits {
        let share = |bytes: u64| bytes / 100 * MOST_MEMORY;
        let card = self.card.map(|card| CardLimits { memory_bytes: share(card.memory_bytes), ..card });
        Limits { memory_bytes: self.memory_bytes.map(share), card, ..self.clone() }
    }

    /// The estimate for a model of the catalog.
    pub fn known(&self, model: &CatalogModel) -> Estimate {
        let generates = model.role.writes();
        self.estimate(&model.name, model.size(), generates.then(|| model.active_bytes()))
    }

    /// The estimate for an installed model. Only its catalog entry tells how much of it is active.
    pub fn installed(&self, model: &InstalledModel, known: Option<&CatalogModel>) -> Estimate {
        let active_bytes = known.and_then(|known| active_bytes(model.size(), known));
        self.estimate(&model.name, model.size(), active_bytes)
    }

    fn estimate(&self, name: &str, size: u64, active_bytes: Option<u64>) -> Estimate {
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
        let estimated = active_bytes.map(|bytes| 1.0 / (seconds_per_byte * bytes as f64));
        let seen = self.seen.of(name, size);
        let is_divided = fits == Some(true) && share_on_card > 0.0 && share_on_card < 1.0;
        let tokens_per_second = seen.or(estimated);
        Estimate { needs_memory, fits, is_divided, runs_from_file, tokens_per_second, speed_is_seen: seen.is_some() }
    }

    /// An explanation of the columns, for display.
    pub fn remark(&self) -> String {
        let memory = self.memory_bytes.map_or("unknown".to_string(), bytes);
        let bandwidth = self.bandwidth / 1e9;
        let (fits, allowed) = match self.card {
            Some(card) => (
                format!(
                    "the GPU's memory ({}) and this machine's ({memory}), which may share its layers",
                    bytes(card.memory_bytes)
                ),
                format!("{:.1} GB/s on the GPU, {bandwidth:.1} GB/s beside it", card.bandwidth / 1e9),
            ),
            None => (
                format!(
                    "this machine's memory ({memory}), where a mixture of experts may fit in part: the other experts are read from the disk"
                ),
                format!("{bandwidth:.1} GB/s"),
            ),
        };
        format!(
            "FITS compares a model with {fits}; SPEED is what its latest answers reached or, with ~, what memory allows ({allowed}): models that fit the processor's caches are faster"
        )
    }
}

/// Bytes of a model's file of this size that every token reads, if it writes text. It may be in another quantization
/// than the catalog's.
fn active_bytes(size: u64, known: &CatalogModel) -> Option<u64> {
    let share = || known.active_bytes() as f64 / known.size() as f64;
    (known.role.writes() && known.size() > 0).then(|| (size as f64 * share()) as u64)
}

/// The bandwidth that the largest model of the catalog reached when it generated, in bytes per second. Models that may
/// stay in the processor's caches tell nothing about larger ones, and neither do those that do not fit into memory.
fn bandwidth_seen(seen: &SeenSpeeds, catalog: &Catalog, memory_bytes: Option<u64>) -> Option<f64> {
    let is_telling = |size: u64| size >= BUFFER_BYTES && memory_bytes.is_some_and(|most| memory_needed(size) <= most);
    let telling = seen.steps().filter(|(_, size, _)| is_telling(*size));
    let reached = telling.filter_map(|(name, size, steps)| Some((active_bytes(size, catalog.about(name)?)?, steps)));
    reached.max_by_key(|(bytes, _)| *bytes).map(|(bytes, steps)| bytes as f64 * steps)
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
            Some(speed) => {
                format!("{}{speed:.*} tokens/s", if self.speed_is_seen { "" } else { "~" }, usize::from(speed < 10.0))
            }
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

    fn limits(memory: Option<u64>, seen: SeenSpeeds) -> Limits {
        Limits { memory_bytes: memory.map(|gib| gib << 30), bandwidth: 20e9, card: None, seen }
    }

    /// The columns of a model of the catalog on a machine with this memory in GiB, which reads 20 GB/s.
    fn check(name: &str, memory: Option<u64>, expected: [&str; 2]) {
        check_in(&limits(memory, SeenSpeeds::default()), name, expected);
    }

    #[track_caller]
    fn check_in(limits: &Limits, name: &str, expected: [&str; 2]) {
        let catalog = Catalog::built_in().unwrap();
        assert_eq!(limits.known(catalog.find(name).unwrap()).columns(), expected, "{name} with {limits:?}");
    }

    #[test]
    fn a_gpu_runs_what_it_has_room_for_and_shares_the_rest() {
        let with_card = |gib: u64| Limits {
            card: Some(CardLimits { memory_bytes: gib << 30, bandwidth: 400e9 }),
            ..limits(Some(32), SeenSpeeds::default())
        };
        check_in(&with_card(16), "qwen3:8b", ["yes", "~80 tokens/s"]);
        check_in(&with_card(4), "qwen3:8b", ["yes, in part on the GPU", "~8.9 tokens/s"]);
        check_in(&with_card(4), "all-minilm:l6-v2", ["yes", "-"]);
        check_in(&Limits { memory_bytes: Some(1 << 30), ..with_card(4) }, "qwen3:8b", ["no, needs 7.36 GB", "-"]);
        check_in(&Limits { memory_bytes: None, ..with_card(16) }, "qwen3:8b", ["yes", "~80 tokens/s"]);
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
    fn a_speed_that_was_seen_takes_the_place_of_an_estimate() {
        let catalog = Catalog::built_in().unwrap();
        let size = |name: &str| catalog.find(name).unwrap().size();
        let seen = SeenSpeeds::just("smollm2:135m", size("smollm2:135m"), 321.4);
        let memory = Some(16 << 30);
        assert_eq!(bandwidth_seen(&seen, &catalog, memory), None, "it may stay in the caches");
        check_in(&limits(Some(16), seen), "smollm2:135m", ["yes", "321 tokens/s"]);
        let another_file = SeenSpeeds::just("smollm2:135m", 1, 321.4);
        check_in(&limits(Some(16), another_file), "smollm2:135m", ["yes", "~203 tokens/s"]);
        let seen = SeenSpeeds::just("qwen3:8b", size("qwen3:8b"), 2.0);
        assert_eq!(bandwidth_seen(&seen, &catalog, memory), Some(2.0 * size("qwen3:8b") as f64));
        assert_eq!(bandwidth_seen(&seen, &catalog, Some(4 << 30)), None, "it was read from the disk");
        check_in(&limits(Some(16), seen), "qwen3:8b", ["yes", "2.0 tokens/s"]);
    }

    #[test]
    fn what_is_unknown_is_not_guessed() {
        check("all-minilm:l6-v2", Some(16), ["yes", "-"]);
        check("qwen3:8b", None, ["?", "~4.0 tokens/s"]);
    }
}
