//! Which backend runs a model.

use hone_kernels::platform::{self, InstructionSet, Kernels};

use super::{BackendChoice, ModelOptions};
use crate::backend::candle::CandleBackend;
use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{ActivationBits, Backend, BackendError, DeviceChoice, LoadProgress};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::kv_cache::KvFormat;

/// How a model is loaded alongside others.
#[derive(Clone)]
pub struct LoadOptions {
    /// Threads that compute all models' steps.
    pub threads: ComputeThreads,
    /// Threads that load this model; `None` uses one per performance core.
    pub n_loading: Option<usize>,
    /// Positions that the KV cache has room for.
    pub cache_positions: usize,
    /// Experts of a mixture stay in the file, and those that are chosen are kept in this many bytes; `None` keeps all of
    /// them in memory. Only the native backend does this.
    pub expert_bytes: Option<u64>,
    /// Whether the head that predicts further tokens is loaded, too, if the file has one.
    pub with_head: bool,
    /// Who is told how much of it is in memory.
    pub progress: LoadProgress,
}

/// Loads a model's weights onto the backend of the user's choice.
///
/// # Errors
/// When the device cannot be used, the file's tensors do not match `spec`, or the backend does not run such a model.
pub(super) fn load_backend(
    gguf: &Gguf,
    spec: &DecoderSpec,
    options: &ModelOptions,
    beside: &LoadOptions,
) -> Result<Box<dyn Backend>, BackendError> {
    if is_native(options)? {
        let ModelOptions { kv_cache, activation_bits, instruction_set, .. } = *options;
        instruction_set.map_or(Ok(()), limit_kernels)?;
        let LoadOptions { n_loading, expert_bytes, ref threads, ref progress, .. } = *beside;
        let native = NativeOptions { kv_cache, activation_bits, expert_bytes, n_loading };
        let backend = NativeBackend::load(gguf, spec, native, threads.clone(), progress)?;
        return Ok(Box::new(backend));
    }
    match options {
        ModelOptions { kv_cache: KvFormat::Q8_0, .. } => Err(BackendError::Device(
            "the candle backend has no KV cache in q8_0: set kv_cache to f16, or use --backend native".into(),
        )),
        ModelOptions { activation_bits: ActivationBits::Sixteen, .. } => Err(BackendError::Device(
            "the candle backend rounds activations to 8 bits in short steps: set activation_bits to 8, or use \
             --backend native"
                .into(),
        )),
        _ => Ok(Box::new(CandleBackend::load(gguf, spec, options.device, &beside.progress)?)),
    }
}

/// Whether the native backend runs a model.
///
/// # Errors
/// When the device cannot be used.
pub(super) fn is_native(options: &ModelOptions) -> Result<bool, BackendError> {
    match options.backend {
        BackendChoice::Candle => Ok(false),
        BackendChoice::Native if matches!(options.device, DeviceChoice::Cuda(_) | DeviceChoice::Metal) => {
            let reason = "the native backend computes on the processor: use --device cpu, or --backend candle";
            Err(BackendError::Device(reason.into()))
        }
        BackendChoice::Native => Ok(true),
        BackendChoice::Auto => options.device.is_processor(),
    }
}

/// Makes this process use the kernels of one instruction set.
fn limit_kernels(instruction_set: InstructionSet) -> Result<(), BackendError> {
    let kernels = Kernels::of(instruction_set).ok_or_else(|| {
        let available = InstructionSet::ALL.into_iter().filter(|set| Kernels::of(*set).is_some());
        let available: Vec<&str> = available.map(InstructionSet::name).collect();
        let wanted = instruction_set.name();
        BackendError::Device(format!(
            "this machine has no {wanted}: set instruction_set to auto (it has {})",
            available.join(", ")
        ))
    })?;
    platform::choose(kernels);
    Ok(())
}
