//! The decoder on an NVIDIA GPU, using this project's kernels.
//!
//! It runs the same program as the [native backend](super::native): every phase of it is one or a few launches, and
//! nothing is copied back before the logits. The results for a token depend, in the last bits, on how many tokens a
//! step has, because products of many rows use the tensor cores.

#[cfg(feature = "cuda")]
use std::collections::BTreeMap;
#[cfg(feature = "cuda")]
use std::sync::{Mutex, PoisonError};

use hone_kernels::step::{MatrixId, ProgramBuilder, Sequence, VectorId};
use hone_kernels::{ActivationBits, KvFormat};
use hone_kernels_cuda::{DeviceError, DeviceMatrix, Program, ProgramError, SharedDevice, is_native};

use super::program::passing::{self, Passed};
use super::program::{self, Experts, Formats, InProgram, Linear, Results, Weights};
use super::progress::LoadedBytes;
use super::tensors::{ExpertTensors, LinearTensors, MatrixTensor, ModelTensors, Placing, Storage, find};
use super::{Backend, BackendError, BatchEntry, LoadProgress, Logits};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType};
use crate::kv_cache::{BlockId, StateId};

/// A decoder's weights and cache on a GPU.
pub(crate) struct CudaBackend {
    layers: Layers,
    results: Results,
    vocab_size: usize,
    hidden_size: usize,
    is_suspended: bool,
}

/// Layers of a decoder on a GPU, and whatever they read and write there.
pub(super) struct Layers {
    device: SharedDevice,
    program: Program,
    n_layers: usize,
}

impl Layers {
    pub(super) fn device_name(&self) -> String {
        self.device.name()
    }

    pub(super) fn n_layers(&self) -> usize {
        self.n_layers
    }

    pub(super) fn n_slices(&self) -> usize {
        self.n_layers.div_ceil(LAYERS_PER_SLICE)
    }

    /// Launches the step that was begun until `pause` returns true; returns whether it is done.
    pub(super) fn run_slices(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<bool, BackendError> {
        let n_phases = self.program.n_phases().div_ceil(self.n_slices());
        while !self.program.resume(n_phases).map_err(program_error)? {
            if pause() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes of a cache block in these layers, and of a state.
    pub(super) fn block_and_state_bytes(&self) -> (usize, usize) {
        (self.program.block_bytes(), self.program.state_bytes())
    }

    pub(super) fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.program.copy_block(from, to).map_err(device_error)
    }

    pub(super) fn free_state(&mut self, state: StateId) {
        self.program.free_state(state);
    }

    pub(super) fn read_block(&self, block: BlockId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.program.read_block(block, out).map_err(device_error)
    }

    pub(super) fn write_block(&mut self, block: BlockId, content: &[u8]) -> Result<(), BackendError> {
        self.program.write_block(block, content).map_err(device_error)
    }
}

/// The end of a slice has to wait for the GPU.
const LAYERS_PER_SLICE: usize = 4;

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
        let weights = load_weights(find(gguf, spec)?, device, progress)?;
        let formats = Formats { kv_cache, activations: ActivationBits::Eight };
        let (builder, results) = program::describe(spec, weights, formats);
        let read: Vec<_> = [results.states].into_iter().chain(results.head.iter().map(|head| head.hidden)).collect();
        let program = Program::new(device, builder.describe(results.logits), &read).map_err(device_error)?;
        let DecoderSpec { vocab_size, hidden_size, .. } = *spec;
        let layers = Layers { device: device.clone(), program, n_layers: spec.layers.len() };
        Ok(CudaBackend { layers, results, vocab_size, hidden_size, is_suspended: false })
    }

    /// The results of the last step.
    fn logits(&self) -> Logits<'_> {
        let program = &self.layers.program;
        let (logits, states) = (program.output(), program.selected_rows(self.results.states));
        let logits = Logits::new(logits, self.vocab_size, states, self.hidden_size);
        match &self.results.head {
            Some(head) => logits.with_hidden(program.selected_rows(head.hidden)),
            None => logits,
        }
    }

    /// Launches the step until `pause` returns true.
    fn run_slices(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        self.is_suspended = false;
        if self.layers.run_slices(pause)? {
            return Ok(Some(self.logits()));
        }
        self.is_suspended = true;
        Ok(None)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_name(&self) -> String {
        self.layers.device_name()
    }

    /// One thread launches everything.
    fn n_threads(&self) -> usize {
        1
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        self.is_suspended = false;
        self.layers.program.run(batch.iter().map(BatchEntry::sequence)).map_err(program_error)?;
        Ok(self.logits())
    }

    fn n_slices(&self) -> usize {
        self.layers.n_slices()
    }

    fn forward_in_slices(
        &mut self,
        batch: &[BatchEntry<'_>],
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, BackendError> {
        self.is_suspended = false;
        self.layers.program.begin(batch.iter().map(BatchEntry::sequence)).map_err(program_error)?;
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
        self.layers.program.run_after_step([entry.sequence()], head.previous, hidden).map_err(program_error)?;
        Ok(Some(self.logits()))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.layers.copy_block(from, to)
    }

    fn free_state(&mut self, state: StateId) {
        self.layers.free_state(state);
    }

    /// Blocks are useless without the states of their positions.
    fn block_bytes(&self) -> usize {
        let (block, state) = self.layers.block_and_state_bytes();
        if state > 0 { 0 } else { block }
    }

    fn read_block(&self, block: BlockId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.layers.read_block(block, out)
    }

    fn write_block(&mut self, block: BlockId, content: &[u8]) -> Result<(), BackendError> {
        self.layers.write_block(block, content)
    }
}

/// The first layers of a decoder on a GPU, which pass their results on.
pub(super) struct CudaBeginning {
    pub(super) layers: Layers,
    passed: Passed,
}

impl CudaBeginning {
    /// Loads the first layers of a model onto a device.
    ///
    /// # Errors
    /// When the device has not enough memory.
    pub(super) fn load(
        spec: &DecoderSpec,
        first: ModelTensors<'_>,
        kv_cache: KvFormat,
        device: &SharedDevice,
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let n_layers = first.layers.len();
        let weights = load_weights(first, device, progress)?;
        let formats = Formats { kv_cache, activations: ActivationBits::Eight };
        let (builder, passed) = passing::describe_beginning(spec, weights, formats);
        let (output, others) = passed.0.split_first().expect("the residual stream is passed on");
        let program = Program::new(device, builder.describe(*output), others).map_err(device_error)?;
        Ok(CudaBeginning { layers: Layers { device: device.clone(), program, n_layers }, passed })
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, batch: &[BatchEntry<'_>]) -> Result<(), BackendError> {
        let with_all_selected = batch.iter().map(|entry| {
            let sequence = entry.sequence();
            Sequence { first_selected: 0, n_selected: sequence.tokens.len(), ..sequence }
        });
        self.layers.program.begin(with_all_selected).map_err(program_error)
    }

    /// The results for all tokens of the last step.
    pub(super) fn results(&self) -> impl Iterator<Item = &[f32]> {
        self.passed.0.iter().map(|rows| self.layers.program.selected_rows(*rows))
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
    tensors: ModelTensors<'_>,
    device: &SharedDevice,
    progress: &LoadProgress,
) -> Result<Weights<OnCard>, BackendError> {
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
