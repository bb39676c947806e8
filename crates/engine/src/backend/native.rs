//! The decoder on the processor, using this project's kernels.
//!
//! Weights are copied once into the layout that the kernels prefer; the file is not needed after that. The decoder's
//! computation is described once as a [`program`] of the kernels, and a step of any batch is one run of it on a
//! persistent thread pool. All models share these threads, and a step can be suspended after any layer so that another
//! model's can run.

mod weights;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_kernels::pool::{Pool, performance_cores};
use hone_kernels::step::Program;
#[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
use hone_kernels::step::Rows;

#[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
use super::program::passing::{self, Passed};
use super::program::{self, Formats, Results, Weights};
use super::tensors::{ModelTensors, find};
use super::{ActivationBits, Backend, BackendError, BatchEntry, LoadProgress, Logits};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::kv_cache::{BlockId, KvFormat, StateId};
use weights::InMemory;

/// The compute threads of all models. They work on one step at a time.
#[derive(Clone)]
pub(crate) struct ComputeThreads(Arc<Mutex<Pool>>);

impl ComputeThreads {
    /// Creates `n_threads` threads; by default, one per performance core.
    pub(crate) fn new(n_threads: Option<usize>) -> Self {
        ComputeThreads(Arc::new(Mutex::new(Pool::new(or_performance_cores(n_threads)))))
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // A task that panicked leaves the pool as it was: the panic belongs to the step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn or_performance_cores(n_threads: Option<usize>) -> NonZeroUsize {
    n_threads.and_then(NonZeroUsize::new).unwrap_or_else(performance_cores)
}

/// A decoder's weights and cache in memory, and the threads that compute with them.
pub(crate) struct NativeBackend {
    program: Program,
    results: Results,
    threads: ComputeThreads,
    vocab_size: usize,
    hidden_size: usize,
    n_layers: usize,
    is_suspended: bool,
}

/// How a model is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NativeOptions {
    /// How keys and values are stored.
    pub kv_cache: KvFormat,
    /// The precision to which activations are rounded.
    pub activation_bits: ActivationBits,
    /// Experts of a mixture stay in the file, and those that are chosen are kept in this many bytes; `None` keeps all
    /// of them in memory.
    pub expert_bytes: Option<u64>,
    /// Threads that load it; `None` uses one per performance core.
    pub n_loading: Option<usize>,
}

impl NativeOptions {
    fn formats(self) -> Formats {
        Formats { kv_cache: self.kv_cache, activations: self.activation_bits }
    }

    fn load_weights(
        self,
        gguf: &Gguf,
        tensors: ModelTensors<'_>,
        progress: &LoadProgress,
    ) -> Result<Weights<InMemory>, BackendError> {
        let mut pool = Pool::new(or_performance_cores(self.n_loading));
        weights::load(gguf, tensors, self.expert_bytes, &mut pool, progress)
    }
}

impl NativeBackend {
    /// Loads a model's weights on threads of its own, so that loading does not delay other models' steps. Steps are
    /// computed by `threads`.
    ///
    /// # Errors
    /// When the file's tensors do not match `spec`.
    pub(crate) fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        options: NativeOptions,
        threads: ComputeThreads,
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let weights = options.load_weights(gguf, find(gguf, spec)?, progress)?;
        let (builder, results) = program::describe(spec, weights, options.formats());
        let program = builder.finish(results.logits);
        let DecoderSpec { vocab_size, hidden_size, .. } = *spec;
        let n_layers = spec.layers.len();
        Ok(NativeBackend { program, results, threads, vocab_size, hidden_size, n_layers, is_suspended: false })
    }

    /// Loads what follows the first layers of a model, and says which rows their results go to.
    ///
    /// # Errors
    /// As [`NativeBackend::load`].
    #[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
    pub(super) fn load_rest(
        gguf: &Gguf,
        spec: &DecoderSpec,
        rest: ModelTensors<'_>,
        options: NativeOptions,
        threads: ComputeThreads,
        progress: &LoadProgress,
    ) -> Result<(Self, Passed), BackendError> {
        let n_layers = rest.layers.len();
        let weights = options.load_weights(gguf, rest, progress)?;
        let first = spec.layers.len() - n_layers;
        let (builder, passed, results) = passing::describe_rest(spec, first, weights, options.formats());
        let program = builder.finish(results.logits);
        let DecoderSpec { vocab_size, hidden_size, .. } = *spec;
        let rest = NativeBackend { program, results, threads, vocab_size, hidden_size, n_layers, is_suspended: false };
        Ok((rest, passed))
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, batch: &[BatchEntry<'_>]) -> Result<(), BackendError> {
        self.is_suspended = false;
        self.program.begin(&self.threads.lock(), batch.iter().map(BatchEntry::sequence))?;
        Ok(())
    }

    /// Fills rows of the step that was begun.
    #[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
    pub(super) fn fill(&mut self, rows: Rows, values: &[f32]) {
        self.program.fill(rows, values);
    }

    /// Bytes of a cache block in these layers, and of a state.
    pub(super) fn block_and_state_bytes(&self) -> (usize, usize) {
        (self.program.block_bytes(), self.program.state_bytes())
    }

    /// Carries out the step that was begun.
    pub(super) fn finish(&mut self) -> Logits<'_> {
        self.program.resume(&mut self.threads.lock(), usize::MAX);
        self.logits()
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

    /// Carries out the step, layer by layer, until `pause` returns true.
    pub(super) fn run_slices(&mut self, pause: &mut dyn FnMut() -> bool) -> Option<Logits<'_>> {
        let n_phases = self.program.n_phases().div_ceil(self.n_slices());
        let mut pool = self.threads.lock();
        self.is_suspended = true;
        while !self.program.resume(&mut pool, n_phases) {
            if pause() {
                return None;
            }
        }
        self.is_suspended = false;
        drop(pool);
        Some(self.logits())
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    fn device_name(&self) -> String {
        "cpu".to_owned()
    }

    fn n_threads(&self) -> usize {
        self.threads.lock().n_threads()
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        self.begin(batch)?;
        Ok(self.finish())
    }

    fn n_slices(&self) -> usize {
        self.n_layers
    }

    fn forward_in_slices(
        &mut self,
        batch: &[BatchEntry<'_>],
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, BackendError> {
        self.begin(batch)?;
        Ok(self.run_slices(pause))
    }

    fn resume(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        if !self.is_suspended {
            return Err(BackendError::NothingSuspended);
        }
        Ok(self.run_slices(pause))
    }

    fn predict(&mut self, entry: &BatchEntry<'_>, hidden: &[f32]) -> Result<Option<Logits<'_>>, BackendError> {
        let Some(head) = &self.results.head else { return Ok(None) };
        self.is_suspended = false;
        self.program.run_after_step(&mut self.threads.lock(), [entry.sequence()], head.previous, hidden)?;
        Ok(Some(self.logits()))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.program.copy_block(from, to);
        Ok(())
    }

    fn free_state(&mut self, state: StateId) {
        self.program.free_state(state);
    }

    /// Blocks are useless without the states of their positions.
    fn block_bytes(&self) -> usize {
        let (block, state) = self.block_and_state_bytes();
        if state > 0 { 0 } else { block }
    }

    fn read_block(&self, block: BlockId, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.program.read_block(block, out);
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, content: &[u8]) -> Result<(), BackendError> {
        self.program.write_block(block, content);
        Ok(())
    }
}
