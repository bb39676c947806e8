//! The size of models that fit into this machine's memory.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// The memory that a model takes for each byte of its file, with its KV cache.
const BYTES_PER_BYTE: f64 = 1.25;

/// The memory that is left to the rest of the system.
const SPARE_BYTES: u64 = 1 << 30;

/// The memory that a machine needs for a model whose file has this many bytes.
pub fn memory_needed(bytes: u64) -> u64 {
    (bytes as f64 * BYTES_PER_BYTE) as u64 + SPARE_BYTES
}

/// The size of the largest model file that fits into `limit` bytes of memory for models, or into this machine's memory.
/// `None` if neither is known.
pub fn largest_file(limit: Option<u64>) -> Option<u64> {
    let for_models = limit.or_else(|| Some(machine_memory()?.saturating_sub(SPARE_BYTES)))?;
    Some((for_models as f64 / BYTES_PER_BYTE) as u64)
}

/// The memory of a machine, or the share that a container may use.
pub fn memory_of(system: &System) -> u64 {
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    system.total_memory().min(of_group)
}

fn machine_memory() -> Option<u64> {
    let kinds = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(kinds).ok().as_ref().map(memory_of)
}
