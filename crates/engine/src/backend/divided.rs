//! A decoder whose first layers are on a GPU and whose other layers are on the processor, because the GPU's memory is
//! too small for all of them.
//!
//! Keys, values and states are where their layer is. Once in a step, the residual stream of its tokens crosses from the
//! GPU to the processor.

use super::cuda::CudaBeginning;
use super::native::NativeBackend;
use super::program::passing::Passed;
use super::tensors::find;
use super::{Backend, BackendError, BatchEntry, LoadProgress, Logits};
use crate::backend::native::{ComputeThreads, NativeOptions};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::kv_cache::{BlockId, StateId};
use hone_kernels_cuda::SharedDevice;

/// A decoder on two devices.
pub(crate) struct DividedBackend {
    first: CudaBeginning,
    rest: NativeBackend,
    /// Where the rest expects the results of the first layers.
    entrance: Passed,
    suspended: Suspended,
}

/// Where a step was suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspended {
    Nowhere,
    OnCard,
    OnProcessor,
}

impl DividedBackend {
    /// Loads the first `n_layers` layers of a model onto a GPU, and the rest into memory.
    ///
    /// # Errors
    /// When the file's tensors do not match `spec`, or the GPU has not enough memory.
    pub(crate) fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        n_layers: usize,
        device: &SharedDevice,
        (options, threads): (NativeOptions, ComputeThreads),
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let [first, rest] = find(gguf, spec)?.divide(n_layers);
        let [on_card, on_processor] = progress.divided([first.n_bytes(), rest.n_bytes()]);
        let first = CudaBeginning::load(spec, first, options.kv_cache, device, &on_card)?;
        let (rest, entrance) = NativeBackend::load_rest(gguf, spec, rest, options, threads, &on_processor)?;
        Ok(DividedBackend { first, rest, entrance, suspended: Suspended::Nowhere })
    }

    /// Prepares a step on both devices.
    fn begin(&mut self, batch: &[BatchEntry<'_>]) -> Result<(), BackendError> {
        self.suspended = Suspended::Nowhere;
        self.first.begin(batch)?;
        self.rest.begin(batch)
    }

    /// Takes the results of the first layers to the processor.
    fn cross(&mut self) {
        for (rows, values) in self.entrance.0.iter().zip(self.first.results()) {
            self.rest.fill(*rows, values);
        }
    }

    fn run_first(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        if !self.first.layers.run_slices(pause)? {
            self.suspended = Suspended::OnCard;
            return Ok(None);
        }
        self.cross();
        if pause() {
            self.suspended = Suspended::OnProcessor;
            return Ok(None);
        }
        Ok(self.run_rest(pause))
    }

    fn run_rest(&mut self, pause: &mut dyn FnMut() -> bool) -> Option<Logits<'_>> {
        self.suspended = Suspended::OnProcessor;
        let logits = self.rest.run_slices(pause)?;
        self.suspended = Suspended::Nowhere;
        Some(logits)
    }
}

impl Backend for DividedBackend {
    fn name(&self) -> &'static str {
        "divided"
    }

    fn device_name(&self) -> String {
        let layers = &self.first.layers;
        format!("{} ({} layers) and cpu", layers.device_name(), layers.n_layers())
    }

    fn n_threads(&self) -> usize {
        self.rest.n_threads()
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        self.begin(batch)?;
        self.first.layers.run_slices(&mut || false)?;
        self.cross();
        Ok(self.rest.finish())
    }

    fn n_slices(&self) -> usize {
        self.first.layers.n_slices() + self.rest.n_slices()
    }

    fn forward_in_slices(
        &mut self,
        batch: &[BatchEntry<'_>],
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, BackendError> {
        self.begin(batch)?;
        self.run_first(pause)
    }

    fn resume(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        match std::mem::replace(&mut self.suspended, Suspended::Nowhere) {
            Suspended::Nowhere => Err(BackendError::NothingSuspended),
            Suspended::OnCard => self.run_first(pause),
            Suspended::OnProcessor => Ok(self.run_rest(pause)),
        }
    }

    fn predict(&mut self, entry: &BatchEntry<'_>, hidden: &[f32]) -> Result<Option<Logits<'_>>, BackendError> {
        self.suspended = Suspended::Nowhere;
        self.rest.predict(entry, hidden)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.first.layers.copy_block(from, to)?;
        self.rest.copy_block(from, to)
    }

    fn free_state(&mut self, state: StateId) {
        self.first.layers.free_state(state);
        self.rest.free_state(state);
    }

    /// Blocks are useless without the states of their positions.
    fn block_bytes(&self) -> usize {
        let ((first, first_state), (rest, rest_state)) =
            (self.first.layers.block_and_state_bytes(), self.rest.block_and_state_bytes());
        if first_state + rest_state > 0 { 0 } else { first + rest }
    }

    fn read_block(&self, block: BlockId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.first.layers.read_block(block, out)?;
        self.rest.read_block(block, out)
    }

    fn write_block(&mut self, block: BlockId, content: &[u8]) -> Result<(), BackendError> {
        let (first, _) = self.first.layers.block_and_state_bytes();
        let (first, rest) = content.split_at(first);
        self.first.layers.write_block(block, first)?;
        self.rest.write_block(block, rest)
    }
}
