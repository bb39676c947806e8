//! How fast memory is read: the processor's, or a GPU's. Every generated token reads the active weights of a model once,
//! so this bounds the speed of generation.
//!
//! Measuring takes a moment, so the figures are kept in the data folder, along with the machine or the GPU that they
//! are of. They are measured again after an hour, and the best reading counts: what else the machine does slows some
//! down. A folder that does not exist yet is not created for it.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hone_engine::Card;
use hone_files::write_private;
use hone_protocol::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Machine;

/// The files in the data folder.
const FILE: &str = "memory-bandwidth.json";
const CARD_FILE: &str = "gpu-memory-bandwidth.json";
/// Bytes to read: more than the caches of most machines hold.
pub const BUFFER_BYTES: u64 = 256 << 20;

/// A reading is not repeated within this time, in milliseconds.
const FRESH: u64 = 3_600_000;

/// The best reading, and what it is of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Measured<Of> {
    #[serde(flatten)]
    of: Of,
    bytes_per_second: f64,
    /// The time of the last reading.
    #[serde(default = "long_ago")]
    at: Timestamp,
}

fn long_ago() -> Timestamp {
    Timestamp(0)
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OfMachine {
    processor: String,
    physical_cores: usize,
    memory_bytes: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OfCard {
    product_name: String,
    memory_bytes: u64,
}

/// The bandwidth of this machine's memory in bytes per second: as measured before, or now.
pub(crate) fn of(machine: &Machine, data_folder: &Path) -> f64 {
    let (processor, physical_cores) = (machine.processor.clone(), machine.physical_cores);
    let of = OfMachine { processor, physical_cores, memory_bytes: machine.memory_bytes };
    let available = machine.available_memory_bytes.unwrap_or(BUFFER_BYTES);
    let measure = || Some(measure_within(available, machine.physical_cores));
    kept_or_measured(data_folder, FILE, of, measure).expect("it was measured")
}

/// The same of a GPU's memory; `None` if it is full.
pub(crate) fn of_card(card: &Card, data_folder: &Path) -> Option<f64> {
    let of = OfCard { product_name: card.product_name.clone(), memory_bytes: card.memory_bytes };
    kept_or_measured(data_folder, CARD_FILE, of, || card.measure_bandwidth())
}

fn kept_or_measured<Of: PartialEq + Serialize + DeserializeOwned>(
    data_folder: &Path,
    file: &str,
    of: Of,
    measure: impl FnOnce() -> Option<f64>,
) -> Option<f64> {
    // Two readings at the same time would each have half of the memory.
    static MEASURING: Mutex<()> = Mutex::new(());
    let _measuring = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = data_folder.join(file);
    let kept = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Measured<Of>>(&text).ok());
    let is_sound = |kept: &Measured<Of>| kept.bytes_per_second.is_finite() && kept.bytes_per_second > 0.0;
    let (kept, at) = (kept.filter(|kept| is_sound(kept) && kept.of == of), Timestamp::now());
    let best = kept.as_ref().map(|kept| kept.bytes_per_second);
    if kept.is_some_and(|kept| at.0.saturating_sub(kept.at.0) < FRESH) {
        return best;
    }
    let Some(reading) = measure() else { return best };
    let bytes_per_second = best.map_or(reading, |best| best.max(reading));
    let measured = Measured { of, bytes_per_second, at };
    if data_folder.is_dir()
        && let Err(error) =
            serde_json::to_vec(&measured).map_err(Into::into).and_then(|text| write_private(&path, &text))
    {
        tracing::debug!(%error, "the memory's bandwidth is measured again next time");
    }
    Some(bytes_per_second)
}

/// The bandwidth of this machine's memory for this many threads in bytes per second, measured now.
pub fn memory_bandwidth(n_threads: usize) -> f64 {
    measure_within(Machine::look().available_memory_bytes.unwrap_or(BUFFER_BYTES), n_threads)
}

/// Reads a part of the available memory.
fn measure_within(available_bytes: u64, n_threads: usize) -> f64 {
    hone_engine::memory_bandwidth(BUFFER_BYTES.min(available_bytes / 4) as usize, n_threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> Measured<OfMachine> {
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

        let old = Measured { at: Timestamp(0), ..kept(folder.path()) };
        fs::write(folder.path().join(FILE), serde_json::to_vec(&old).unwrap()).unwrap();
        assert!(of(&machine, folder.path()) > 1.5e9, "a better reading counts");
        let better = Measured { bytes_per_second: 9e13, at: Timestamp(0), ..old };
        fs::write(folder.path().join(FILE), serde_json::to_vec(&better).unwrap()).unwrap();
        assert_eq!(of(&machine, folder.path()), 9e13);

        let elsewhere = Measured { of: OfMachine { processor: "another".to_string(), ..better.of }, ..better };
        fs::write(folder.path().join(FILE), serde_json::to_vec(&elsewhere).unwrap()).unwrap();
        assert_ne!(of(&machine, folder.path()), 9e13);
        assert_eq!(kept(folder.path()).of.processor, machine.processor);

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
