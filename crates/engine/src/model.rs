//! One loaded model: its tokenizer, its chat template, and a backend with a KV cache.

use std::sync::Arc;

use hone_protocol::ModelFile;
use thiserror::Error;

use crate::backend::candle::{CandleBackend, open_device};
use crate::backend::native::NativeBackend;
use crate::backend::{Backend, BackendError, BatchEntry, DeviceChoice, KvCacheFormat, Logits};
use crate::constraint::{ConstraintError, ConstraintFactory};
use crate::decoder::{DecoderSpec, SpecError};
use crate::gguf::{Gguf, GgufError};
use crate::kv_cache::{BlockPool, CacheFull, CachedSequence};
use crate::reuse::recycled;
use crate::template::{ChatTemplate, TemplateError};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// What runs the decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The fastest for the device.
    #[default]
    Auto,
    /// candle, on any device.
    Candle,
    /// Our own kernels, on the processor.
    Native,
}

impl std::str::FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(BackendChoice::Auto),
            "candle" => Ok(BackendChoice::Candle),
            "native" => Ok(BackendChoice::Native),
            _ => Err(format!("unknown backend {text:?}: expected auto, candle or native")),
        }
    }
}

/// Whether tokens are guessed and computed before it is known that they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// Where it helps. What is generated is the same with and without.
    #[default]
    Auto,
    /// Never.
    Off,
}

impl std::str::FromStr for Speculation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Speculation::Auto),
            "off" => Ok(Speculation::Off),
            _ => Err(format!("unknown speculation {text:?}: expected auto or off")),
        }
    }
}

/// How models are loaded and run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelOptions {
    /// Where they run.
    pub device: DeviceChoice,
    /// What runs them.
    pub backend: BackendChoice,
    /// Positions of a context, at most as many as the model was trained for; `None` takes them all.
    pub context_length: Option<usize>,
    /// How many sequences of full length the KV cache has room for; at least one.
    pub n_sequences: usize,
    /// Threads that compute, where the backend is our own; `None` takes one for every physical core.
    pub n_threads: Option<usize>,
    /// Whether tokens are guessed ahead.
    pub speculation: Speculation,
    /// How the KV cache is stored.
    pub kv_cache: KvCacheFormat,
}

/// Why a model cannot be loaded or run.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant says whose error it carries")]
pub enum ModelError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    CacheFull(#[from] CacheFull),
    /// The vocabulary and the weights are of different models.
    #[error("the vocabulary has {vocabulary} tokens and the embeddings have {embeddings} rows")]
    VocabularyMismatch {
        /// Tokens of the tokenizer.
        vocabulary: usize,
        /// Rows of the embedding matrix.
        embeddings: usize,
    },
}

/// A sequence's new tokens, for [`Model::advance`].
pub struct Advance<'a> {
    /// The sequence that they are appended to.
    pub sequence: &'a mut CachedSequence,
    /// The tokens.
    pub tokens: &'a [u32],
    /// For which of them (by index) logits are wanted.
    pub logits: std::ops::Range<usize>,
}

/// A model that is ready to run.
pub struct Model {
    spec: DecoderSpec,
    tokenizer: Arc<Tokenizer>,
    template: Result<ChatTemplate, TemplateError>,
    constraints: Option<ConstraintFactory>,
    backend: Box<dyn Backend>,
    cache: BlockPool,
    context_length: usize,
    /// Empty between steps.
    batch: Vec<BatchEntry<'static>>,
}

impl Model {
    /// Loads a model from its file.
    ///
    /// # Errors
    /// When the file is broken or not supported, or the device cannot be used.
    pub fn load(file: &ModelFile, options: &ModelOptions) -> Result<Self, ModelError> {
        let gguf = Gguf::open_region(file)?;
        let spec = DecoderSpec::from_gguf(&gguf, options.context_length)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        if tokenizer.n_tokens() > spec.vocab_size {
            let (vocabulary, embeddings) = (tokenizer.n_tokens(), spec.vocab_size);
            return Err(ModelError::VocabularyMismatch { vocabulary, embeddings });
        }
        let template = ChatTemplate::from_gguf(&gguf, &tokenizer);
        let backend = load_backend(&gguf, &spec, options)?;
        let context_length = context_length(&spec, options.context_length);
        Ok(Model {
            tokenizer: Arc::new(tokenizer),
            template,
            constraints: None,
            backend,
            cache: BlockPool::with_room_for(context_length.saturating_mul(options.n_sequences.max(1))),
            context_length,
            batch: Vec::new(),
            spec,
        })
    }

    /// What the decoder looks like.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// When the file has none that can be used: the model continues text, and cannot chat.
    pub fn template(&self) -> Result<&ChatTemplate, &TemplateError> {
        self.template.as_ref()
    }

    /// Name of the backend that runs it.
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// The device that it runs on, by the name that `--device` knows it by.
    pub fn device_name(&self) -> String {
        self.backend.device_name()
    }

    /// Threads that compute.
    pub fn n_threads(&self) -> usize {
        self.backend.n_threads()
    }

    /// Positions that a sequence can have.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Makes constraints over the model's vocabulary; prepared at the first use.
    ///
    /// # Errors
    /// When the vocabulary cannot be constrained.
    pub fn constraints(&mut self) -> Result<&ConstraintFactory, ConstraintError> {
        match &mut self.constraints {
            Some(factory) => Ok(factory),
            empty => Ok(empty.insert(ConstraintFactory::new(&self.tokenizer)?)),
        }
    }

    /// Appends tokens to sequences, all in one step, and returns the logits wanted, in the order of the entries.
    ///
    /// # Errors
    /// When the cache has no room or the device fails; the sequences may then have been extended by tokens that were not
    /// computed, and should be released.
    pub fn advance(&mut self, entries: &mut [Advance<'_>]) -> Result<Logits<'_>, ModelError> {
        let mut batch = recycled(std::mem::take(&mut self.batch));
        for entry in entries {
            let position = entry.sequence.n_tokens();
            if let Some(copy) = self.cache.extend(entry.sequence, entry.tokens.len())? {
                self.backend.copy_block(copy.from, copy.to)?;
            }
            let blocks = entry.sequence.blocks();
            batch.push(BatchEntry { tokens: entry.tokens, position, blocks, logits: entry.logits.clone() });
        }
        let logits = self.backend.forward(&batch);
        self.batch = recycled(batch);
        Ok(logits?)
    }

    /// A second sequence with the same content; both may go on separately.
    pub fn fork(&mut self, sequence: &CachedSequence) -> CachedSequence {
        self.cache.fork(sequence)
    }

    /// Forgets everything from position `n_tokens` on.
    pub fn truncate(&mut self, sequence: &mut CachedSequence, n_tokens: usize) {
        self.cache.truncate(sequence, n_tokens);
    }

    /// Takes a sequence's part of the cache back.
    pub fn release(&mut self, sequence: CachedSequence) {
        self.cache.release(sequence);
    }

    /// Positions that the cache has room for in all.
    pub fn cache_positions(&self) -> usize {
        self.cache.capacity() * crate::kv_cache::BLOCK_TOKENS
    }
}

fn load_backend(gguf: &Gguf, spec: &DecoderSpec, options: &ModelOptions) -> Result<Box<dyn Backend>, BackendError> {
    let is_native = match options.backend {
        BackendChoice::Candle => false,
        BackendChoice::Native if matches!(options.device, DeviceChoice::Cuda(_) | DeviceChoice::Metal) => {
            let reason = "the native backend computes on the processor: use --device cpu, or --backend candle";
            return Err(BackendError::Device(reason.into()));
        }
        BackendChoice::Native => true,
        BackendChoice::Auto => cfg!(target_arch = "x86_64") && is_processor(options.device)?,
    };
    if is_native {
        return Ok(Box::new(NativeBackend::load(gguf, spec, options.n_threads, options.kv_cache)?));
    }
    match options.kv_cache {
        KvCacheFormat::F16 => Ok(Box::new(CandleBackend::load(gguf, spec, options.device)?)),
        KvCacheFormat::Q8_0 => Err(BackendError::Device(
            "the candle backend has no KV cache in q8_0: set kv_cache to f16, or use --backend native".into(),
        )),
    }
}

/// Whether models run on the processor where this device is asked for.
fn is_processor(device: DeviceChoice) -> Result<bool, BackendError> {
    Ok(open_device(device)?.is_cpu())
}

/// The positions wanted, but no more than the model was trained for.
fn context_length(spec: &DecoderSpec, wanted: Option<usize>) -> usize {
    match wanted {
        Some(wanted) if wanted > spec.context_length => {
            tracing::debug!(
                wanted,
                trained = spec.context_length,
                "the context is as long as the model was trained for"
            );
            spec.context_length
        }
        Some(wanted) => wanted,
        None => spec.context_length,
    }
}
