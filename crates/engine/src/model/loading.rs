//! Which backend runs a model.

use std::fmt;
use std::str::FromStr;

use hone_kernels::platform::{self, InstructionSet, Kernels};

use super::{BackendChoice, ModelOptions};
use crate::backend::candle::CandleBackend;
#[cfg(feature = "cuda")]
use crate::backend::cuda::{self, CudaBackend};
#[cfg(feature = "cuda")]
use crate::backend::divided::DividedBackend;
use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{ActivationBits, Backend, BackendError, DeviceChoice, LoadProgress};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorInfo};
use crate::kv_cache::KvFormat;

/// How many of a model's layers a GPU computes, the first ones. The processor computes the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// All of them if they fit into the GPU's memory, otherwise as many as do.
    #[default]
    Auto,
    /// This many, or a few less if the model cannot be cut there.
    AtMost(usize),
}

impl GpuLayers {
    /// The chosen number, if any.
    pub(crate) fn most(self) -> Option<usize> {
        match self {
            GpuLayers::Auto => None,
            GpuLayers::AtMost(n_layers) => Some(n_layers),
        }
    }
}

impl fmt::Display for GpuLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuLayers::Auto => f.write_str("auto"),
            GpuLayers::AtMost(n_layers) => write!(f, "{n_layers}"),
        }
    }
}

impl FromStr for GpuLayers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(GpuLayers::Auto),
            (_, Ok(n_layers)) => Ok(GpuLayers::AtMost(n_layers)),
            _ => Err(format!("unknown number of GPU layers {text:?}: expected auto or a number")),
        }
    }
}

/// Options for loading one model: the user's configuration, and the decisions of the model's owner. Made from
/// [`ModelOptions`], they give the model the process to itself.
#[derive(Clone, Default)]
pub struct LoadOptions {
    /// How the user wants models to run.
    pub(crate) model: ModelOptions,
    /// Receives the loading progress.
    pub(crate) progress: LoadProgress,
    /// Threads that compute its steps, shared with other models; `None` creates its own.
    pub(crate) threads: Option<ComputeThreads>,
    /// Threads that load it; `None` uses as many as compute its steps.
    pub(crate) n_loading: Option<usize>,
    /// Positions that the KV cache has room for; `None` follows the model options.
    pub(crate) cache_positions: Option<usize>,
    /// Experts of a mixture stay in the file, and those that are chosen are kept in this many bytes; `None` keeps all
    /// of them in memory. Only the native backend does this.
    pub(crate) expert_bytes: Option<u64>,
    /// The number of first layers that a GPU computes, or a few less if the model cannot be cut there; `None` means all.
    pub(crate) n_gpu_layers: Option<usize>,
    /// Whether the head that predicts further tokens is loaded, too, if the file has one.
    pub(crate) with_head: bool,
    /// Whether a position's state is taken after the last layer instead of the usual one.
    pub(crate) states_of_last_layer: bool,
    /// Whether a reward model's head is loaded, too, which reads the states of the last layer.
    pub(crate) with_reward_head: bool,
}

impl LoadOptions {
    /// Tells `progress` how much of the model is in memory.
    #[must_use]
    pub fn with_progress(self, progress: LoadProgress) -> Self {
        LoadOptions { progress, ..self }
    }
}

impl LoadOptions {
    /// The number of first layers of this model that a GPU computes; `None` means all.
    fn layers_on_card(&self, spec: &DecoderSpec) -> Option<usize> {
        self.n_gpu_layers.and_then(|n_layers| spec.cut_at(n_layers))
    }

    /// The backend that runs the model: without layers for a GPU, it is the processor's.
    fn runner(&self, spec: &DecoderSpec) -> Result<Runner, BackendError> {
        Ok(match runner(&self.model)? {
            Runner::Cuda(_) if self.layers_on_card(spec) == Some(0) => Runner::Native,
            runner => runner,
        })
    }

    /// How the processor runs the model, or a part of it.
    fn native(&self) -> Result<(NativeOptions, ComputeThreads), BackendError> {
        let ModelOptions { kv_cache, activation_bits, instruction_set, n_threads, .. } = self.model;
        instruction_set.map_or(Ok(()), limit_kernels)?;
        let n_loading = self.n_loading.or(n_threads);
        let options = NativeOptions { kv_cache, activation_bits, expert_bytes: self.expert_bytes, n_loading };
        Ok((options, self.threads.clone().unwrap_or_else(|| ComputeThreads::new(n_threads))))
    }
}

impl From<ModelOptions> for LoadOptions {
    fn from(model: ModelOptions) -> Self {
        LoadOptions { n_gpu_layers: model.gpu_layers.most(), model, ..LoadOptions::default() }
    }
}

impl From<&ModelOptions> for LoadOptions {
    fn from(model: &ModelOptions) -> Self {
        model.clone().into()
    }
}

/// Loads a model's weights onto the backend of the user's choice.
///
/// # Errors
/// When the device cannot be used, the file's tensors do not match `spec`, or the backend does not run such a model.
pub(super) fn load_backend(
    gguf: &Gguf,
    spec: &DecoderSpec,
    load: &LoadOptions,
) -> Result<Box<dyn Backend>, BackendError> {
    let LoadOptions { model, progress, .. } = load;
    let runner = load.runner(spec)?;
    #[cfg(feature = "cuda")]
    if let Runner::Cuda(ordinal) = runner {
        if model.activation_bits == ActivationBits::Sixteen {
            return Err(BackendError::Device(
                "a GPU rounds activations to 8 bits in short steps: set activation_bits to 8, or use --device cpu"
                    .into(),
            ));
        }
        let device = cuda::open(ordinal)?;
        return Ok(match load.layers_on_card(spec) {
            None => Box::new(CudaBackend::load(gguf, spec, model.kv_cache, &device, progress)?),
            Some(n) => Box::new(DividedBackend::load(gguf, spec, n, &device, load.native()?, progress)?),
        });
    }
    if runner == Runner::Native {
        let (native, threads) = load.native()?;
        return Ok(Box::new(NativeBackend::load(gguf, spec, native, threads, progress)?));
    }
    match model {
        ModelOptions { kv_cache: KvFormat::Q8_0, .. } => Err(BackendError::Device(
            "the candle backend has no KV cache in q8_0: set kv_cache to f16, or use --backend native".into(),
        )),
        ModelOptions { activation_bits: ActivationBits::Sixteen, .. } => Err(BackendError::Device(
            "the candle backend rounds activations to 8 bits in short steps: set activation_bits to 8, or use \
             --backend native"
                .into(),
        )),
        _ => Ok(Box::new(CandleBackend::load(gguf, spec, model.device, progress)?)),
    }
}

/// The backend that runs models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// Our own kernels on the processor.
    Native,
    /// Our own kernels on a GPU.
    Cuda(usize),
    /// candle.
    Candle,
}

/// The backend that runs models with these options.
///
/// # Errors
/// When the backend has no kernels for the device.
pub(super) fn runner(options: &ModelOptions) -> Result<Runner, BackendError> {
    match (options.backend, options.device) {
        (BackendChoice::Candle, _) => Ok(Runner::Candle),
        (BackendChoice::Native, DeviceChoice::Metal) => {
            let reason = "the native backend has no kernels for Metal: use --device cpu, or --backend candle";
            Err(BackendError::Device(reason.into()))
        }
        (backend, device) => Ok(match device.resolve() {
            DeviceChoice::Cuda(ordinal) => Runner::Cuda(ordinal),
            DeviceChoice::Metal if backend == BackendChoice::Auto => Runner::Candle,
            _ => Runner::Native,
        }),
    }
}

/// Alignment in bytes of a position's key or value in a cache.
pub(super) fn kv_row_alignment(options: &ModelOptions) -> usize {
    if is_on_card(options) { 16 } else { 1 }
}

/// Whether models run on a GPU with our own kernels, so that they can be divided between it and the processor.
pub(super) fn is_on_card(options: &ModelOptions) -> bool {
    matches!(runner(options), Ok(Runner::Cuda(_)))
}

/// Bytes that a GPU needs beyond those of the file for a tensor, if its kernels lack the tensor's type.
#[cfg_attr(not(feature = "cuda"), allow(unused_variables, reason = "only cards need more"))]
pub(super) fn bytes_beyond_file(options: &ModelOptions, tensor: &TensorInfo) -> u64 {
    #[cfg(feature = "cuda")]
    if is_on_card(options) && !hone_kernels_cuda::is_native(tensor.tensor_type) {
        let n_elements = tensor.n_bytes / tensor.tensor_type.block_bytes() * tensor.tensor_type.block_elements();
        return (2 * n_elements).saturating_sub(tensor.n_bytes) as u64;
    }
    0
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
