//! Runs a decoder on a device.
//!
//! A backend owns a model's weights and the storage of its KV cache, and knows nothing of requests: it advances a
//! ragged batch of sequences by one step and returns the requested logits. Which cache blocks belong to which sequence
//! is decided above it, by [`crate::kv_cache`].

pub(crate) mod candle;
#[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
pub(crate) mod divided;
pub(crate) mod native;
mod program;
mod progress;
mod tensors;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::OnceLock;

use hone_kernels::step::Sequence;
use thiserror::Error;

use crate::kv_cache::{BlockId, StateId};

pub use hone_kernels::ActivationBits;
pub(crate) use hone_kernels::step::SequenceStates;
pub use progress::LoadProgress;

/// One sequence's part of a step.
#[derive(Clone, Debug)]
pub(crate) struct BatchEntry<'a> {
    /// Tokens to process: a part of a prompt, or the token sampled last.
    pub tokens: &'a [u32],
    /// Position of the first of them in the sequence; the cache holds everything before it.
    pub position: usize,
    /// The sequence's cache blocks, in order, with room for the new tokens. The blocks that are written to belong to it
    /// alone.
    pub blocks: &'a [BlockId],
    /// Indices into `tokens` for which logits are wanted.
    pub logits: Range<usize>,
    /// Its states, if the model keeps any.
    pub states: Option<SequenceStates<'a>>,
}

impl<'a> BatchEntry<'a> {
    /// The entry's sequence, as programs take it.
    fn sequence(&self) -> Sequence<'a> {
        Sequence {
            tokens: self.tokens,
            position: self.position,
            blocks: self.blocks,
            first_selected: self.logits.start,
            n_selected: self.logits.len(),
            states: self.states,
        }
    }
}

/// Logits of a step, with rows in the order in which the entries requested them. They live in the backend's memory
/// until its next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits<'a> {
    values: &'a [f32],
    vocab_size: usize,
    states: &'a [f32],
    state_size: usize,
    hidden: &'a [f32],
}

/// The results of a step at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// The logits of every token of the vocabulary.
    pub logits: &'a [f32],
    /// The residual stream after the layer that the decoder's specification names.
    pub state: &'a [f32],
    /// The input of the model's head at this position; empty if the model has no head.
    pub hidden: &'a [f32],
}

impl<'a> Logits<'a> {
    /// Consecutive rows of `vocab_size` logits, and as many rows of `state_size` values of the residual stream.
    pub(crate) fn new(values: &'a [f32], vocab_size: usize, states: &'a [f32], state_size: usize) -> Self {
        assert!(values.len().is_multiple_of(vocab_size), "logits are whole rows");
        assert_eq!(values.len() / vocab_size * state_size, states.len(), "a state for each row of logits");
        Logits { values, vocab_size, states, state_size, hidden: &[] }
    }

    /// Adds the input of the model's head, as wide as the states.
    pub(crate) fn with_hidden(self, hidden: &'a [f32]) -> Self {
        assert_eq!(hidden.len(), self.states.len(), "a row for each row of logits");
        Logits { hidden, ..self }
    }

    /// All results for each position.
    pub fn rows_with_states(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let mut hidden = self.hidden.chunks_exact(self.state_size);
        std::iter::zip(self.rows(), self.states.chunks_exact(self.state_size)).map(move |(logits, state)| Row {
            logits,
            state,
            hidden: hidden.next().unwrap_or_default(),
        })
    }

    /// One row per position for which logits were requested.
    pub fn rows(&self) -> std::slice::ChunksExact<'a, f32> {
        self.values.chunks_exact(self.vocab_size)
    }
}

/// Runs one decoder on one device.
pub(crate) trait Backend: Send {
    /// The backend's name.
    fn name(&self) -> &'static str;

    /// The device it runs on, named as `--device` accepts it, or a description of both devices.
    fn device_name(&self) -> String;

    /// Number of compute threads.
    fn n_threads(&self) -> usize;

    /// Advances every entry by its tokens: writes their keys and values into the cache and computes the requested
    /// logits. Every entry belongs to a different sequence.
    ///
    /// # Errors
    /// When the device fails (for example, out of memory). The cache's content at the new positions is then undefined.
    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError>;

    /// Number of parts of about equal length into which a step can be divided, so that other models' steps can run in
    /// between; 1 if a step cannot be suspended.
    fn n_slices(&self) -> usize {
        1
    }

    /// Like [`Backend::forward`], except that when `pause` returns true at the end of a part, the step is suspended and
    /// `None` is returned. [`Backend::resume`] continues it. Starting another step discards it: its data at the new
    /// positions is overwritten when those positions are computed again.
    ///
    /// # Errors
    /// As [`Backend::forward`].
    fn forward_in_slices(
        &mut self,
        batch: &[BatchEntry<'_>],
        _pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, BackendError> {
        self.forward(batch).map(Some)
    }

    /// Resumes the suspended step.
    ///
    /// # Errors
    /// When no step is suspended, or as [`Backend::forward`].
    fn resume(&mut self, _pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, BackendError> {
        Err(BackendError::NothingSuspended)
    }

    /// The logits of the token after the entry's only one, predicted by the model's head from that token and from the
    /// `hidden` of the previous position's row; the new row's `hidden` predicts the token after that. `None` if the
    /// model has no head. The entry's states are neither read nor written. A suspended step is discarded.
    ///
    /// # Errors
    /// As [`Backend::forward`].
    fn predict(&mut self, _entry: &BatchEntry<'_>, _hidden: &[f32]) -> Result<Option<Logits<'_>>, BackendError> {
        Ok(None)
    }

    /// Copies all layers' keys and values of one cache block.
    ///
    /// # Errors
    /// When the device fails.
    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError>;

    /// Frees the memory of a state that no sequence holds.
    fn free_state(&mut self, _state: StateId) {}

    /// Bytes of a cache block across all layers, if blocks can be copied out of the device and back; otherwise 0.
    fn block_bytes(&self) -> usize {
        0
    }

    /// Appends a cache block's content to `out`.
    ///
    /// # Errors
    /// When the device fails.
    fn read_block(&self, _block: BlockId, _out: &mut Vec<u8>) -> Result<(), BackendError> {
        Ok(())
    }

    /// Restores the content that [`Backend::read_block`] returned into a cache block.
    ///
    /// # Errors
    /// When the device fails, or has no memory left.
    fn write_block(&mut self, _block: BlockId, _content: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }
}

/// A device failed, or a model cannot run on it.
#[derive(Debug, Error)]
pub enum BackendError {
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// The file's tensors do not fit the model that its metadata describes.
    #[error("tensor {name:?} {reason}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A computation failed.
    #[error("computing failed")]
    Compute(#[from] candle_core::Error),
    /// There is no step to resume.
    #[error("no step is suspended")]
    NothingSuspended,
    /// The batch is not valid.
    #[error("the batch cannot be computed: {0}")]
    Step(#[from] hone_kernels::step::StepError),
}

impl From<BackendError> for std::io::Error {
    fn from(error: BackendError) -> Self {
        std::io::Error::other(error)
    }
}

/// The device that a user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The fastest available.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU, by its ordinal.
    Cuda(usize),
    /// The Apple GPU.
    Metal,
}

impl DeviceChoice {
    /// Opens the device and returns its name, as accepted by `--device`.
    ///
    /// # Errors
    /// When this binary was not built for it, or the machine does not have it; the message says what to do.
    pub fn open(self) -> Result<String, BackendError> {
        candle::open_device(self).map(|device| candle::device_name(&device))
    }

    /// The device that this choice resolves to on this machine. The fastest is determined once, because that opens
    /// every kind of device.
    pub(crate) fn resolve(self) -> DeviceChoice {
        static FASTEST: OnceLock<DeviceChoice> = OnceLock::new();
        let find = || DeviceChoice::Auto.open().ok().and_then(|name| name.parse().ok()).unwrap_or(DeviceChoice::Cpu);
        match self {
            DeviceChoice::Auto => *FASTEST.get_or_init(find),
            chosen => chosen,
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Metal => f.write_str("metal"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "metal" => Ok(DeviceChoice::Metal),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(DeviceChoice::Cuda)
                .ok_or_else(|| format!("unknown device {text:?}: expected auto, cpu, cuda, cuda:N or metal")),
        }
    }
}
