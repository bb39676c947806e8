//! One loaded model: its tokenizer, its chat template, and a backend with a KV cache.

mod card;
mod loading;
mod prediction;
mod purpose;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use hone_kernels::platform::InstructionSet;
use hone_protocol::configured::{named, positive_or_none};
use hone_protocol::{ModelFile, OwnerId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::backend::{ActivationBits, Backend, BackendError, BatchEntry, DeviceChoice, Logits, SequenceStates};
use crate::constraint::ConstraintError;
use crate::decoder::{DecoderSpec, SpecError};
use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::heads::RewardHead;
use crate::kv_cache::prefix_tree::PrefixTree;
use crate::kv_cache::{BLOCK_TOKENS, BlockPool, CacheFull, CachedSequence, KvFormat, StatePool};
use crate::reuse::recycled;
use crate::template::TemplateHost;
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use card::Card;
pub use loading::{GpuLayers, LoadOptions};
pub(crate) use purpose::check_answers;
pub use purpose::{FileUse, ModelPurpose, check_file, model_purpose};
pub(crate) use text::ModelText;

/// The backend that runs the decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// Our own kernels on the processor and on NVIDIA GPUs, candle on any other device.
    #[default]
    Auto,
    /// candle, on any device.
    Candle,
    /// Our own kernels.
    Native,
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendChoice::Auto => "auto",
            BackendChoice::Candle => "candle",
            BackendChoice::Native => "native",
        })
    }
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

/// Whether tokens are guessed and computed in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// Guess where it helps. The generated text is the same either way.
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

/// How models are loaded and run. The fields that a user sets are read from keys of the configuration
/// (`config/engine.toml`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ModelOptions {
    /// The device that models run on.
    #[serde(deserialize_with = "named")]
    pub device: DeviceChoice,
    /// The backend that runs them.
    #[serde(deserialize_with = "named")]
    pub backend: BackendChoice,
    /// How many layers a GPU computes.
    #[serde(deserialize_with = "named")]
    pub gpu_layers: GpuLayers,
    /// Context length in positions, capped at the model's training length; `None` uses all of it.
    #[serde(rename = "context", deserialize_with = "positive_or_none")]
    pub context_length: Option<usize>,
    /// Number of full-length sequences that fit in the KV cache; at least one.
    #[serde(skip)]
    pub n_sequences: usize,
    /// Compute threads, for our own backend; `None` uses one per performance core.
    #[serde(rename = "threads", deserialize_with = "threads")]
    pub n_threads: Option<usize>,
    /// Whether tokens are guessed ahead.
    #[serde(deserialize_with = "named")]
    pub speculation: Speculation,
    /// Storage format of the KV cache.
    #[serde(deserialize_with = "named")]
    pub kv_cache: KvFormat,
    /// How activations are rounded.
    #[serde(deserialize_with = "activation_bits")]
    pub activation_bits: ActivationBits,
    /// Instruction set that our own kernels are limited to, process-wide; `None` uses the widest that the machine has.
    #[serde(deserialize_with = "instruction_set")]
    pub instruction_set: Option<InstructionSet>,
    /// Where the files' chat templates run.
    #[serde(skip)]
    pub templates: TemplateHost,
}

/// Maximum number of threads: a small multiple of the processor count, already slower than one per processor.
fn most_threads() -> usize {
    let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
    (4 * n_processors).clamp(64, 1024)
}

fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let (value, most) = (i64::deserialize(deserializer)?, most_threads());
    match usize::try_from(value).ok().filter(|threads| *threads <= most) {
        Some(threads) => Ok(Some(threads).filter(|threads| *threads > 0)),
        None => Err(D::Error::custom(format!("threads is {value}: it must be 0 to {most} on this machine"))),
    }
}

fn activation_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ActivationBits, D::Error> {
    u32::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
}

fn instruction_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InstructionSet>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "auto" => Ok(None),
        name => name.parse().map(Some).map_err(D::Error::custom),
    }
}

impl ModelOptions {
    /// GPU memory in bytes available to models, if they run on a GPU: free memory minus room for the steps.
    pub fn card_memory(&self) -> Option<u64> {
        const LEAST_RESERVE: u64 = 1 << 30;
        let free = Card::of(self)?.free_bytes;
        Some(free.saturating_sub(LEAST_RESERVE.max(free / 20)))
    }

    /// Alignment in bytes of a head's key or value in the cache.
    pub(crate) fn kv_row_alignment(&self) -> usize {
        loading::kv_row_alignment(self)
    }

    /// Bytes that a tensor needs in memory beyond its size in the file.
    pub(crate) fn bytes_beyond_file(&self, tensor: &TensorInfo) -> u64 {
        loading::bytes_beyond_file(self, tensor)
    }

    /// Whether a GPU and the processor may share a model.
    pub(crate) fn divides_models(&self) -> bool {
        loading::is_on_card(self)
    }

    /// The options that affect a model's results, not just its speed; in no particular format.
    pub fn arithmetic(&self) -> String {
        format!("{:?}", (self.backend, self.kv_cache, self.activation_bits, self.instruction_set))
    }

    /// Positions that the KV cache of a model has room for.
    pub(crate) fn cache_positions(&self, spec: &DecoderSpec) -> usize {
        self.context_of(spec).saturating_mul(self.n_sequences.max(1))
    }

    /// Whether a model's experts may stay in its file.
    pub(crate) fn keeps_experts_in_file(&self, spec: &DecoderSpec) -> bool {
        spec.experts.is_some() && loading::runner(self).is_ok_and(|runner| runner == loading::Runner::Native)
    }

    /// Context length for a model: as requested, but at most its training length.
    pub(crate) fn context_of(&self, spec: &DecoderSpec) -> usize {
        self.context_length.map_or(spec.context_length, |wanted| wanted.min(spec.context_length))
    }
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
    /// The model turns texts into states and generates no text.
    #[error("{architecture} is an encoder: it does not answer, but turns texts into vectors or scores them")]
    Encoder {
        /// Its architecture.
        architecture: &'static str,
    },
    /// The model ends in a head and generates no text.
    #[error("it ends in a head that scores texts, and does not answer: `hone rerank` runs it")]
    Head,
    /// The head of a reward model does not fit it.
    #[error("its head cannot be used: {0}")]
    RewardHead(String),
    /// The model is of a kind whose layout is not publicly documented.
    #[error("it is a decision model of the type {kind:?}, whose layout is not publicly described")]
    Decision {
        /// The type, as stated in the file.
        kind: String,
    },
    /// The vocabulary and the weights belong to different models.
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
    /// Indices of the tokens whose logits are wanted.
    pub logits: std::ops::Range<usize>,
}

fn check_vocabulary(tokenizer: &Tokenizer, spec: &DecoderSpec) -> Result<(), ModelError> {
    let (vocabulary, embeddings) = (tokenizer.n_tokens(), spec.vocab_size);
    if vocabulary > embeddings { Err(ModelError::VocabularyMismatch { vocabulary, embeddings }) } else { Ok(()) }
}

/// Usage of a model's KV cache, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUsage {
    /// Total blocks.
    pub capacity: usize,
    /// Empty blocks.
    pub free: usize,
    /// Blocks kept for future prompts; sequences may share them.
    pub kept: usize,
    /// Kept blocks that are never evicted.
    pub pinned: usize,
    /// Blocks evicted so far to make room for others.
    pub evicted: u64,
}

/// A model that is ready to run.
pub struct Model {
    spec: DecoderSpec,
    text: Arc<ModelText>,
    backend: Box<dyn Backend>,
    /// For a reward model.
    reward_head: Option<Arc<RewardHead>>,
    cache: BlockPool,
    states: StatePool,
    prefixes: PrefixTree,
    activation_bits: ActivationBits,
    /// Cost of a prediction by its head, in steps.
    head_cost: f32,
    /// Empty between steps.
    batch: Vec<BatchEntry<'static>>,
}

impl Model {
    /// Loads a model from its file.
    ///
    /// # Errors
    /// When the file is broken or not supported, or the device cannot be used.
    pub fn load(file: &ModelFile, options: impl Into<LoadOptions>) -> Result<Self, ModelError> {
        let load = options.into();
        let options = &load.model;
        let gguf = Gguf::open_region(file)?;
        match check_answers(&gguf) {
            Err(ModelError::Head) if load.states_of_last_layer || load.with_reward_head => {}
            checked => checked?,
        }
        let mut spec = DecoderSpec::from_gguf(&gguf, options.context_length)?;
        spec.head = spec.head.filter(|_| load.with_head);
        if load.states_of_last_layer || load.with_reward_head {
            spec.state_layer = spec.layers.len().saturating_sub(1);
        }
        // One thread builds the vocabulary while others pack the weights, so it costs no time.
        let (text, backend) = std::thread::scope(|scope| {
            let text =
                scope.spawn(|| ModelText::from_gguf(&gguf, &spec, options.context_of(&spec), &options.templates));
            let backend = loading::load_backend(&gguf, &spec, &load);
            (text.join().unwrap_or_else(|panic| resume_unwind(panic)), backend)
        });
        let cache_positions = load.cache_positions.unwrap_or_else(|| options.cache_positions(&spec));
        let reward_head = load.with_reward_head.then(|| RewardHead::read(&gguf, &spec).map(Arc::new));
        Ok(Model {
            reward_head: reward_head.transpose().map_err(ModelError::RewardHead)?,
            text: Arc::new(text?),
            backend: backend?,
            activation_bits: options.activation_bits,
            head_cost: prediction::head_cost(&gguf, &spec),
            cache: BlockPool::with_room_for(cache_positions),
            states: StatePool::new(spec.state_bytes()),
            prefixes: PrefixTree::default(),
            batch: Vec::new(),
            spec,
        })
    }

    /// The decoder's specification.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// Converts between text and the model's tokens.
    pub(crate) fn text(&self) -> &Arc<ModelText> {
        &self.text
    }

    /// The head that the model ends in, if it is a reward model in use as such.
    pub(crate) fn reward_head(&self) -> Option<&Arc<RewardHead>> {
        self.reward_head.as_ref()
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        self.text.tokenizer()
    }

    /// Name of the backend that runs it.
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// The device that it runs on, named as `--device` accepts it, or a description of both devices.
    pub fn device_name(&self) -> String {
        self.backend.device_name()
    }

    /// Number of compute threads.
    pub fn n_threads(&self) -> usize {
        self.backend.n_threads()
    }

    /// How activations are rounded.
    pub fn activation_bits(&self) -> ActivationBits {
        self.activation_bits
    }

    /// Positions that a sequence can have.
    pub fn context_length(&self) -> usize {
        self.text.context_length()
    }

    /// Appends tokens to sequences, all in one step, and returns the requested logits, in the order of the entries.
    /// Blocks kept for future prompts are evicted if there is no room.
    ///
    /// # Errors
    /// When the cache has no room or the device fails. The sequences may then have been extended by tokens that were
    /// not computed, and should be released.
    pub fn advance(&mut self, entries: &mut [Advance<'_>]) -> Result<Logits<'_>, ModelError> {
        let mut batch = recycled(std::mem::take(&mut self.batch));
        self.extend(entries, &mut batch)?;
        let logits = self.backend.forward(&batch);
        self.batch = recycled(batch);
        Ok(logits?)
    }

    /// Like [`Model::advance`], except that when `pause` returns true at the end of a slice, the step is suspended and
    /// `None` is returned. The next step discards a suspended one; its sequences must then be truncated to their
    /// previous length.
    ///
    /// # Errors
    /// As [`Model::advance`].
    pub fn advance_in_slices(
        &mut self,
        entries: &mut [Advance<'_>],
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Logits<'_>>, ModelError> {
        let mut batch = recycled(std::mem::take(&mut self.batch));
        self.extend(entries, &mut batch)?;
        let logits = self.backend.forward_in_slices(&batch, pause);
        self.batch = recycled(batch);
        Ok(logits?)
    }

    /// Extends the sequences and collects the backend's batch.
    fn extend<'a>(
        &mut self,
        entries: &'a mut [Advance<'_>],
        batch: &mut Vec<BatchEntry<'a>>,
    ) -> Result<(), ModelError> {
        for entry in entries {
            let position = entry.sequence.n_tokens();
            self.lengthen(entry.sequence, entry.tokens.len())?;
            let n_before = match self.states.is_used() {
                true => Some(entry.sequence.begin_states(&mut self.states, position, !entry.logits.is_empty())),
                false => None,
            };
            let sequence: &CachedSequence = entry.sequence;
            let states = n_before.map(|n_before| {
                let (before, written) = sequence.states().split_at(n_before);
                SequenceStates { before: before.last().map(|state| state.state), written }
            });
            let (blocks, logits) = (sequence.blocks(), entry.logits.clone());
            batch.push(BatchEntry { tokens: entry.tokens, position, blocks, logits, states });
        }
        self.free_idle_states();
        Ok(())
    }

    /// Appends positions to a sequence. Blocks kept for future prompts are evicted if there is no room.
    fn lengthen(&mut self, sequence: &mut CachedSequence, n_tokens: usize) -> Result<(), ModelError> {
        if let Err(full) = self.cache.check(sequence, n_tokens) {
            let has_room = self.prefixes.make_room(&mut self.cache, &mut self.states, full.needed);
            // A request that could not run otherwise takes precedence over blocks that only make others faster.
            if !has_room {
                self.prefixes.unpin_all();
                self.prefixes.make_room(&mut self.cache, &mut self.states, full.needed);
            }
        }
        if let Some(copy) = self.cache.extend(sequence, n_tokens)? {
            self.backend.copy_block(copy.from, copy.to)?;
        }
        Ok(())
    }

    fn free_idle_states(&mut self) {
        while let Some(state) = self.states.free_one() {
            self.backend.free_state(state);
        }
    }

    /// Resumes the suspended step.
    ///
    /// # Errors
    /// When no step is suspended, or the device fails.
    pub fn resume(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<Option<Logits<'_>>, ModelError> {
        Ok(self.backend.resume(pause)?)
    }

    /// Number of slices of about equal length into which a step is divided.
    pub(crate) fn n_slices(&self) -> usize {
        self.backend.n_slices()
    }

    /// Number of leading tokens that are cached from kept sequences without an owner.
    pub fn cached_tokens(&self, tokens: &[u32]) -> usize {
        self.cached_tokens_of(None, tokens)
    }

    /// Number of leading tokens that are cached from an owner's kept sequences.
    pub(crate) fn cached_tokens_of(&self, owner: Option<OwnerId>, tokens: &[u32]) -> usize {
        self.prefixes.cached_tokens(&self.states, owner, tokens)
    }

    /// A sequence with the longest prefix of the tokens that is cached from kept sequences without an owner.
    ///
    /// # Errors
    /// When the device fails.
    pub fn begin(&mut self, tokens: &[u32]) -> Result<CachedSequence, ModelError> {
        self.begin_of(None, tokens)
    }

    /// A sequence of an owner, with the longest prefix of the tokens that is cached from its kept sequences.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn begin_of(&mut self, owner: Option<OwnerId>, tokens: &[u32]) -> Result<CachedSequence, ModelError> {
        let found = self.prefixes.find(&mut self.cache, &mut self.states, owner, tokens);
        let copied = found.copy.map_or(Ok(()), |copy| self.backend.copy_block(copy.from, copy.to));
        match copied {
            Ok(()) => Ok(found.sequence),
            Err(error) => {
                self.release(found.sequence);
                Err(error.into())
            }
        }
    }

    /// Keeps a finished sequence with these tokens for its owner's prompts with the same beginning. The total kept is
    /// at most one context, so that memory does not grow with the number of conversations.
    pub fn keep(&mut self, tokens: &[u32], sequence: CachedSequence) {
        self.prefixes.keep(&mut self.cache, &mut self.states, tokens, sequence);
        let n_blocks = self.context_length().div_ceil(BLOCK_TOKENS);
        self.prefixes.shrink_to(&mut self.cache, &mut self.states, n_blocks);
        self.free_idle_states();
    }

    /// Bytes of a KV cache block outside the device; 0 if blocks cannot be copied out.
    pub(crate) fn block_bytes(&self) -> usize {
        self.backend.block_bytes()
    }

    /// Passes the content of every kept whole block of these tokens to `take`, in order.
    ///
    /// # Errors
    /// The error of `take` or of the device, after which it is not called again.
    pub(crate) fn read_kept<E: From<BackendError>>(
        &mut self,
        tokens: &[u32],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let n_whole = self.cached_tokens(tokens) / BLOCK_TOKENS * BLOCK_TOKENS;
        let found = self.prefixes.find(&mut self.cache, &mut self.states, None, &tokens[..n_whole]);
        let mut content = Vec::with_capacity(self.block_bytes());
        let outcome = found.sequence.blocks().iter().try_for_each(|block| {
            content.clear();
            self.backend.read_block(*block, &mut content)?;
            take(&content)
        });
        self.release(found.sequence);
        outcome
    }

    /// Keeps blocks of these tokens that were computed elsewhere. The tokens must fill whole blocks; `give` fills its
    /// argument with the content of one block after the other.
    ///
    /// # Errors
    /// When the cache has no room, or `give` fails; nothing is kept then.
    pub(crate) fn keep_content<E: From<CacheFull> + From<BackendError>>(
        &mut self,
        tokens: &[u32],
        mut give: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut sequence = CachedSequence::default();
        self.prefixes.make_room(&mut self.cache, &mut self.states, tokens.len().div_ceil(BLOCK_TOKENS));
        self.cache.extend(&mut sequence, tokens.len())?;
        let mut content = vec![0; self.block_bytes()];
        let outcome = sequence.blocks().iter().try_for_each(|block| {
            give(&mut content)?;
            self.backend.write_block(*block, &content)?;
            Ok(())
        });
        match outcome {
            Ok(()) => self.keep(tokens, sequence),
            Err(_) => self.cache.release(sequence),
        }
        outcome
    }

    /// Protects the kept blocks of these tokens from eviction until they are unpinned. Returns the number of pinned
    /// tokens.
    pub fn pin(&mut self, tokens: &[u32]) -> usize {
        self.prefixes.pin(tokens)
    }

    /// Undoes one pin of the number of tokens that [`Model::pin`] returned.
    pub(crate) fn unpin(&mut self, tokens: &[u32]) {
        self.prefixes.unpin(tokens);
    }

    /// Usage of the KV cache.
    pub fn cache_usage(&self) -> CacheUsage {
        CacheUsage {
            capacity: self.cache.capacity(),
            free: self.cache.n_free(),
            kept: self.prefixes.n_blocks(),
            pinned: self.prefixes.n_pinned(),
            evicted: self.prefixes.n_evicted(),
        }
    }

    /// A second sequence with the same content; both may continue independently.
    pub fn fork(&mut self, sequence: &CachedSequence) -> CachedSequence {
        let mut fork = self.cache.fork(sequence);
        fork.share_states(&mut self.states, sequence);
        fork
    }

    /// Drops everything from position `n_tokens` on. States cannot be cut: if the model keeps them, everything after
    /// the last state up to that position is dropped too, so the sequence may become shorter.
    pub fn truncate(&mut self, sequence: &mut CachedSequence, n_tokens: usize) {
        let n_tokens = sequence.cut_states(&mut self.states, n_tokens);
        self.cache.truncate(sequence, n_tokens);
    }

    /// Returns a sequence's blocks and states to the cache.
    pub fn release(&mut self, mut sequence: CachedSequence) {
        self.truncate(&mut sequence, 0);
        self.cache.release(sequence);
        self.free_idle_states();
    }

    /// Positions that the whole cache has room for.
    pub(crate) fn cache_positions(&self) -> usize {
        self.cache.capacity() * BLOCK_TOKENS
    }
}
