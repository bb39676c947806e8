//! The decoder on an NVIDIA GPU, using this project's kernels.
//!
//! It runs the same program as the [native backend](super::native): every phase of it is one or a few launches, and
//! nothing is copied back before the logits. The results for a token depend, in the last bits, on how many tokens a
//! step has, because products of many rows use the tensor cores.

#[cfg(feature = "cuda")]
use std::collections::BTreeMap;
#[cfg(feature = "cuda")]
use std::sync::{Mutex, PoisonError};

use hone_kernels::step::{MatrixId, ProgramBuilder, VectorId};
use hone_kernels::{ActivationBits, KvFormat};
use hone_kernels_cuda::{DeviceError, DeviceMatrix, Program, ProgramError, SharedDevice, is_native};

use super::program::{self, Experts, Formats, InProgram, Linear, Results, Weights};
use super::progress::LoadedBytes;
use super::tensors::{ExpertTensors, LinearTensors, MatrixTensor, Placing, Storage, find};
use super::{Backend, BackendError, BatchEntry, LoadProgress, Logits};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType};
use crate::kv_cache::{BlockId, StateId};

/// A decoder's weights and cache on a GPU.
pub(crate) struct CudaBackend {
    device: SharedDevice,
    program: Program,
    results: Results,
    vocab_size: usize,
    hidden_size: usize,
    n_layers: usize,
    is_suspended: bool,
}

/// The GPU, which all models share.
///
/// # Errors
/// When it cannot be used.
#[cfg(feature = "cuda")]
pub(crate) fn open(ordinal: usize) -> Result<SharedDevice, BackendError> {
    static OPEN: Mutex<BTreeMap<usize, SharedDevice>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = open.get(&ordinal) {
        return Ok(device.clone());
    }
    let device = SharedDevice::open(ordinal).map_err(|error| super::candle::no_cuda(ordinal, &error.to_string()))?;
    open.insert(ordinal, device.clone());
    Ok(device)
}

fn device_error(error: DeviceError) -> BackendError {
    BackendError::Device(error.to_string())
}

fn program_error(error: ProgramError) -> BackendError {
    match error {
        ProgramError::Step(error) => BackendError::Step(error),
        ProgramError::Device(error) => device_error(error),
    }
}

impl CudaBackend {
    /// Loads a model's weights onto a device.
    ///
    /// # Errors
    /// When the file's tensors do not match `spec`, or the device has not enough memory.
    pub(crate) fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        kv_cache: KvFormat,
        device: &SharedDevice,
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let weights = load_weights(gguf, spec, device, progress)?;
        let formats = Formats { kv_cache, activations: ActivationBits::Eight };
        let (builder, results) = program::describe(spec, weights, formats);
        let read: Vec<_> = [results.states].into_iter().chain(results.head.iter().map(|head| head.hidden)).collect();
        let program = Program::new(device, builder.describe(results.logits), &read).map_err(device_error)?;
        let DecoderSpec { vocab_size, hidden_size, .. } = *spec;
        let (device, n_layers) = (device.clone(), spec.layers.len());
        Ok(CudaBackend { device, program, results, vocab_size, hidden_size, n_layers, is_suspended: false })
    }

    /// The results of the last step.
    fn logits(&self) -> Logits<'_> {
        let (logits, states) = (self.program.output(), self.program.selected_rows(self.results.states));
        let logits = Logits::new(logits, self.vocab_size, states, self.hidden_size);
        match &self.results.head {
            Some(head) => logits.with_hidden(self.program.selected_rows(head.hidden)),
            None => logits,
        }
    }

    /// Launches the step, layer by layer, until `pause` returns true.
    fn run_slices(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        let n_phases = self.program.n_phases().div_ceil(self.n_slices());
        self.is_suspended = false;
        while !self.program.resume(n_phases).map_err(program_error)? {
            if pause() {
                self.is_suspended = true;
                return Ok(None);
            }
        }
        Ok(Some(self.logits()))
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_name(&self) -> String {
        self.device.name()
    }

    /// One thread launches everything.
    fn n_threads(&self) -> usize {
        1
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        self.is_suspended = false;
        self.program.run(batch.iter().map(BatchEntry::sequence)).map_err(program_error)?;
        Ok(self.logits())
    }

    /// A few layers each: the end of a slice has to wait for the GPU.
    fn n_slices(&self) -> usize {
        self.n_layers.div_ceil(4)
    }

    fn forward_in_slices(
        &mut self,
        batch: &[BatchEntry<'_>],
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, BackendError> {
        self.is_suspended = false;
        self.program.begin(batch.iter().map(BatchEntry::sequence)).map_err(program_error)?;
        self.run_slices(pause)
    }

    fn resume(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        if !self.is_suspended {
            return Err(BackendError::NothingSuspended);
        }
        self.run_slices(pause)
    }

    fn predict(&mut self, entry: &BatchEntry<'_>, hidden: &[f32]) -> Result<Option<Logits<'_>>, BackendError> {
        let Some(head) = &self.results.head else { return Ok(None) };
        self.is_suspended = false;
        self.program.run_after_step([entry.sequence()], head.previous, hidden).map_err(program_error)?;
        Ok(Some(self.logits()))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.program.copy_block(from, to).map_err(device_error)
    }

    fn free_state(&mut self, state: StateId) {
        self.program.free_state(state);
    }

    /// Blocks are useless without the states of their positions.
    fn block_bytes(&self) -> usize {
        if self.program.state_bytes() > 0 { 0 } else { self.program.block_bytes() }
    }

    fn read_block(&self, block: BlockId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.program.read_block(block, out).map_err(device_error)
    }

    fn write_block(&mut self, block: BlockId, content: &[u8]) -> Result<(), BackendError> {
        self.program.write_block(block, content).map_err(device_error)
    }
}

/// Parts on a GPU.
struct OnCard {
    device: SharedDevice,
    builder: ProgramBuilder<DeviceMatrix>,
    loaded: LoadedBytes,
    /// Types that the kernels lack, and that have been logged.
    unpacked: Vec<TensorType>,
}

fn load_weights(
    gguf: &Gguf,
    spec: &DecoderSpec,
    device: &SharedDevice,
    progress: &LoadProgress,
) -> Result<Weights<OnCard>, BackendError> {
    let tensors = find(gguf, spec)?;
    let sizes = tensors.matrices().chain(tensors.expert_matrices()).map(|tensor| tensor.bytes.len());
    let loaded = progress.begin(sizes);
    let builder = ProgramBuilder::new();
    let mut placing = OnCard { device: device.clone(), builder, loaded, unpacked: Vec::new() };
    let parts = tensors.place(&mut placing)?;
    Ok(Weights { builder: placing.builder, parts })
}

impl OnCard {
    fn upload(&mut self, tensor: &MatrixTensor<'_>) -> Result<DeviceMatrix, BackendError> {
        let MatrixTensor { n_rows, n_columns, tensor_type, bytes, .. } = *tensor;
        if !is_native(tensor_type) && !self.unpacked.contains(&tensor_type) {
            self.unpacked.push(tensor_type);
            tracing::warn!("the GPU holds weights of type {tensor_type} as BF16, 16 bits each");
        }
        let matrix = DeviceMatrix::upload(&self.device, tensor_type, n_rows, n_columns, bytes).map_err(device_error)?;
        self.loaded.add(bytes.len());
        Ok(matrix)
    }
}

impl Storage for OnCard {
    type Matrix = MatrixId;
    type Linear = Linear;
    type Experts = Experts;
    type Vector = VectorId;
}

impl InProgram for OnCard {
    type Weights = DeviceMatrix;
}

impl Placing for OnCard {
    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<MatrixId, BackendError> {
        let matrix = self.upload(&tensor)?;
        Ok(self.builder.matrix(matrix))
    }

    fn experts(&mut self, tensors: ExpertTensors<'_>) -> Result<Experts, BackendError> {
        let all = self.upload(&tensors.weights)?;
        let matrices = self.builder.experts(all.split(tensors.n_experts));
        Ok(Experts { matrices, biases: tensors.bias.map(|biases| self.builder.vector(biases)) })
    }

    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Linear, BackendError> {
        let bias = tensors.bias.map(|bias| self.builder.vector(bias));
        Ok(Linear { matrix: self.matrix(tensors.weight)?, bias })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, BackendError> {
        Ok(self.builder.vector(values))
    }
}
