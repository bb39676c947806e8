//! Whether a model fits a machine, and how fast it would be there: estimates from its size and its active parameters.

use hone_app::describe::bytes;
use hone_app::room::memory_needed;
use hone_models::{CatalogModel, InstalledModel};
use serde::Serialize;

use crate::commands::doctor::machine::Machine;
use crate::invocation::Invocation;

/// This machine's limits on models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The machine's memory, if the system tells.
    pub(crate) memory_bytes: Option<u64>,
    /// How fast it is read, in bytes per second.
    pub(crate) bandwidth: f64,
}

/// The estimated memory needs and speed of a model here.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    /// Memory that it needs, with a KV cache and a reserve for everything else.
    needs_memory: u64,
    /// Whether this machine has that much; `None` if that is unknown.
    fits: Option<bool>,
    /// Whether it runs here although it does not fit, because experts are read from its file when they are chosen.
    runs_from_file: bool,
    /// Tokens per second at which memory lets it generate; `None` if it does not generate or does not fit.
    tokens_per_second: Option<f64>,
}

impl Limits {
    /// The limits of this machine, whose memory bandwidth is measured if it was not before.
    pub(in crate::commands) fn here(app: &Invocation, machine: &Machine) -> Limits {
        Limits { memory_bytes: machine.memory_bytes, bandwidth: super::bandwidth::of(machine, app.data_folder()) }
    }

    /// The estimate for a model of the catalog.
    pub(crate) fn known(self, model: &CatalogModel) -> Estimate {
        let generates = model.role.writes();
        self.estimate(model.size(), generates.then(|| model.active_bytes()))
    }

    /// The estimate for an installed model. Only its catalog entry tells how much of it is active.
    pub(crate) fn installed(self, model: &InstalledModel, known: Option<&CatalogModel>) -> Estimate {
        let known = known.filter(|known| known.role.writes() && known.size() > 0);
        // It may be installed in another quantization than the catalog's.
        let share = |known: &CatalogModel| known.active_bytes() as f64 / known.size() as f64;
        self.estimate(model.size(), known.map(|known| (model.size() as f64 * share(known)) as u64))
    }

    fn estimate(self, size: u64, active_bytes: Option<u64>) -> Estimate {
        let needs_memory = memory_needed(size);
        let fits = self.memory_bytes.map(|memory| needs_memory <= memory);
        let active_bytes = active_bytes.filter(|bytes| *bytes > 0);
        let is_mixture = active_bytes.is_some_and(|bytes| bytes < size);
        let holds_a_token =
            active_bytes.zip(self.memory_bytes).is_some_and(|(bytes, memory)| memory_needed(bytes) <= memory);
        let runs_from_file = fits == Some(false) && is_mixture && holds_a_token;
        let active_bytes = active_bytes.filter(|_| fits != Some(false));
        let tokens_per_second = active_bytes.map(|bytes| self.bandwidth / bytes as f64);
        Estimate { needs_memory, fits, runs_from_file, tokens_per_second }
    }

    /// An explanation of the columns, for display.
    pub(crate) fn remark(self) -> String {
        let memory = self.memory_bytes.map_or("unknown".to_string(), bytes);
        let bandwidth = self.bandwidth / 1e9;
        format!(
            "FITS compares a model with this machine's memory ({memory}), where a mixture of experts may fit in part: the other experts are read from the disk; SPEED is about what memory allows ({bandwidth:.1} GB/s): `hone bench` measures it"
        )
    }
}

impl Estimate {
    /// Whether the model fits, and generates this many tokens per second.
    pub(crate) fn is_as_fast_as(&self, speed: f64) -> bool {
        self.fits == Some(true) && self.tokens_per_second.is_some_and(|tokens_per_second| tokens_per_second >= speed)
    }

    /// The two columns.
    pub(crate) fn columns(&self) -> [String; 2] {
        let fits = match self.fits {
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
        let limits = Limits { memory_bytes: memory.map(|gib| gib << 30), bandwidth: 20e9 };
        let catalog = Catalog::built_in().unwrap();
        assert_eq!(limits.known(catalog.find(name).unwrap()).columns(), expected, "{name} in {memory:?}");
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
