//! The machine: processor, instruction sets, memory, and how fast memory is read and models generate there.

pub(crate) mod bandwidth;
pub(crate) mod seen;

pub use bandwidth::{BUFFER_BYTES, memory_bandwidth};
use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::room::memory_of;

/// The machine's properties.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The operating system.
    pub system: &'static str,
    /// The processor's architecture.
    pub architecture: &'static str,
    /// The processor's name.
    pub processor: String,
    /// Cores.
    pub physical_cores: usize,
    /// Hardware threads that this process may use.
    pub logical_cores: usize,
    /// The instruction sets that matter to the kernels.
    pub instruction_sets: Vec<&'static str>,
    /// The memory of the machine, or the limit of a container; `None` if the system does not tell.
    pub memory_bytes: Option<u64>,
    /// The part of the memory that is free or can be freed; `None` if the system does not tell.
    pub available_memory_bytes: Option<u64>,
}

impl Machine {
    /// Collects the facts.
    pub fn look() -> Machine {
        let kinds = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(kinds).ok();
        let logical_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let brand = system.as_ref().and_then(|system| system.cpus().first()).map_or("", |cpu| cpu.brand().trim());
        Machine {
            system: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            processor: if brand.is_empty() { "unknown".to_string() } else { brand.to_string() },
            physical_cores: System::physical_core_count().unwrap_or(logical_cores),
            logical_cores,
            instruction_sets: instruction_sets(),
            memory_bytes: system.as_ref().map(memory_of),
            available_memory_bytes: system.as_ref().map(System::available_memory),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected as has;
    present([
        ("sse4.2", has!("sse4.2")),
        ("avx", has!("avx")),
        ("avx2", has!("avx2")),
        ("fma", has!("fma")),
        ("f16c", has!("f16c")),
        ("avx512f", has!("avx512f")),
        ("avx512bw", has!("avx512bw")),
        ("avx512vl", has!("avx512vl")),
        ("avx512vnni", has!("avx512vnni")),
        ("avx512bf16", has!("avx512bf16")),
        ("avx512fp16", has!("avx512fp16")),
        ("avxvnni", has!("avxvnni")),
    ])
}

#[cfg(target_arch = "aarch64")]
fn instruction_sets() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected as has;
    present([
        ("neon", has!("neon")),
        ("fp16", has!("fp16")),
        ("dotprod", has!("dotprod")),
        ("i8mm", has!("i8mm")),
        ("bf16", has!("bf16")),
        ("sve", has!("sve")),
    ])
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instruction_sets() -> Vec<&'static str> {
    present([])
}

fn present<const N: usize>(known: [(&'static str, bool); N]) -> Vec<&'static str> {
    known.into_iter().filter_map(|(name, is_present)| is_present.then_some(name)).collect()
}
