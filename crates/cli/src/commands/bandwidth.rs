//! How fast this machine reads its memory. Every generated token reads the active weights of a model once, so this
//! bounds the speed of generation on a processor.
//!
//! Measuring takes a moment, so the figure is kept in the data folder, along with the machine it was measured on. A
//! folder that does not exist yet is not created for it.

use std::fs;
use std::path::Path;

use hone_files::write_private;
use serde::{Deserialize, Serialize};

use crate::commands::doctor::machine::Machine;

/// The file in the data folder.
const FILE: &str = "memory-bandwidth.json";
/// Bytes to read: more than the caches of most machines hold.
const BUFFER_BYTES: u64 = 256 << 20;

/// A measured figure, and the machine it was measured on.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    processor: String,
    physical_cores: usize,
    memory_bytes: Option<u64>,
    bytes_per_second: f64,
}

impl Measured {
    fn is_of(&self, machine: &Machine) -> bool {
        let is_sound = self.bytes_per_second.is_finite() && self.bytes_per_second > 0.0;
        is_sound
            && (self.processor.as_str(), self.physical_cores, self.memory_bytes)
                == (machine.processor.as_str(), machine.physical_cores, machine.memory_bytes)
    }
}

/// The bandwidth of this machine's memory in bytes per second: as measured before, or now.
pub(super) fn of(machine: &Machine, data_folder: &Path) -> f64 {
    let path = data_folder.join(FILE);
    let kept = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Measured>(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.is_of(machine)) {
        return kept.bytes_per_second;
    }
    let available = machine.available_memory_bytes.unwrap_or(BUFFER_BYTES);
    let bytes_per_second = measure_within(available, machine.physical_cores);
    let (processor, physical_cores) = (machine.processor.clone(), machine.physical_cores);
    let measured = Measured { processor, physical_cores, memory_bytes: machine.memory_bytes, bytes_per_second };
    if data_folder.is_dir()
        && let Err(error) =
            serde_json::to_vec(&measured).map_err(Into::into).and_then(|text| write_private(&path, &text))
    {
        tracing::debug!(%error, "the memory's bandwidth is measured again next time");
    }
    bytes_per_second
}

/// The bandwidth for this many threads in bytes per second, measured now.
pub(super) fn measure(n_threads: usize) -> f64 {
    measure_within(Machine::look().available_memory_bytes.unwrap_or(BUFFER_BYTES), n_threads)
}

/// Reads a part of the available memory.
fn measure_within(available_bytes: u64, n_threads: usize) -> f64 {
    hone_engine::memory_bandwidth(BUFFER_BYTES.min(available_bytes / 4) as usize, n_threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> Measured {
        serde_json::from_slice(&fs::read(folder.join(FILE)).unwrap()).unwrap()
    }

    #[test]
    fn a_figure_is_kept_for_the_machine_that_it_is_of() {
        let (folder, machine) = (tempfile::tempdir().unwrap(), Machine::look());
        let measured = of(&machine, folder.path());
        assert!((1e8..1e14).contains(&measured), "{measured}");
        assert_eq!(kept(folder.path()).bytes_per_second, measured);

        let scripted = Measured { bytes_per_second: 1.5e9, ..kept(folder.path()) };
        fs::write(folder.path().join(FILE), serde_json::to_vec(&scripted).unwrap()).unwrap();
        assert_eq!(of(&machine, folder.path()), 1.5e9);

        let elsewhere = Measured { processor: "another".to_string(), ..scripted };
        fs::write(folder.path().join(FILE), serde_json::to_vec(&elsewhere).unwrap()).unwrap();
        assert_ne!(of(&machine, folder.path()), 1.5e9);
        assert_eq!(kept(folder.path()).processor, machine.processor);

        for nonsense in ["", "{}", "[1]", "{\"bytes_per_second\": 1}"] {
            fs::write(folder.path().join(FILE), nonsense).unwrap();
            assert!(of(&machine, folder.path()) > 1e8, "{nonsense}");
        }
    }

    #[test]
    fn a_folder_that_does_not_exist_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        assert!(of(&Machine::look(), &missing) > 0.0);
        assert!(!missing.exists());
    }
}
