//! Where a model comes from, and how much memory it needs.

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::decoder::DecoderSpec;
use crate::engine::EngineOptions;
use crate::gguf::Gguf;
use crate::kv_cache::states::bytes_of_states;
use crate::model::{ModelError, Speculation, check_answers};
use crate::scheduler::ModelMemory;

/// A requested model.
#[derive(Clone, Debug)]
pub(super) struct ModelSource {
    /// The name under which it was first requested.
    pub(super) name: String,
    pub(super) file: ModelFile,
    /// Its draft model, if any.
    pub(super) draft: Option<ModelFile>,
    /// Whether its own head guesses, if it has one.
    pub(super) with_head: bool,
    pub(super) demand: Demand,
    /// Bytes of the experts that a token chooses.
    experts_per_token: u64,
    /// Whether it is never unloaded.
    pub(super) is_pinned: bool,
}

/// How much memory a model needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    own: Share,
    draft: Share,
    /// Positions of a full-length sequence.
    positions: usize,
    /// Number of full-length sequences requested.
    n_sequences: usize,
}

/// Bytes of weights, of the states that layers keep in place of a KV cache, and of a position in the KV cache.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    weights: u64,
    states: u64,
    position: u64,
    /// Bytes of the weights that may stay in the file.
    experts: u64,
    /// Bytes of the experts that a step needs at the same time.
    least_experts: u64,
}

/// A model's portion of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    pub(super) memory: ModelMemory,
    /// Positions of its KV cache.
    pub(super) positions: usize,
    /// Bytes for experts, if not all of them fit.
    pub(super) expert_bytes: Option<u64>,
}

impl Share {
    fn of(file: &ModelFile, gguf: &Gguf, spec: &DecoderSpec, options: &EngineOptions) -> Share {
        let experts = if options.model.keeps_experts_in_file(spec) { expert_bytes(gguf, spec) } else { Vec::new() };
        let states = match spec.is_recurrent() {
            true => bytes_of_states(spec.state_bytes(), options.model.n_sequences),
            false => 0,
        };
        Share {
            weights: file.size().saturating_sub(unread_bytes(gguf, spec)) + options.model.bytes_beyond_file(gguf),
            states,
            position: spec.kv_bytes_per_position(options.model.kv_cache, options.model.kv_row_alignment()),
            experts: experts.iter().sum(),
            least_experts: experts.into_iter().max().unwrap_or(0),
        }
    }

    fn memory(self, positions: usize) -> ModelMemory {
        ModelMemory { weights: self.weights, kv_cache: self.states + positions as u64 * self.position }
    }
}

impl Demand {
    /// Its portion of `room` available bytes: all weights, and a KV cache for as many of the requested full-length
    /// sequences as fit, but at least one. If not even that fits, some experts stay in the file.
    pub(super) fn within(&self, room: u64) -> Portion {
        let all = Share {
            weights: self.own.weights + self.draft.weights,
            states: self.own.states + self.draft.states,
            position: self.own.position + self.draft.position,
            ..self.own
        };
        let one = self.positions as u64 * all.position;
        let n_fitting = room.saturating_sub(all.weights + all.states).checked_div(one).unwrap_or(1);
        let positions = self.positions.saturating_mul((self.n_sequences as u64).min(n_fitting).max(1) as usize);
        let mut memory = all.memory(positions);
        let missing = memory.total().saturating_sub(room).min(all.experts - all.least_experts);
        memory.weights -= missing;
        Portion { memory, positions, expert_bytes: (missing > 0).then(|| all.experts - missing) }
    }

    /// Whether all of it fits into `room` bytes.
    pub(super) fn fits(&self, room: u64) -> bool {
        let Portion { memory, expert_bytes, .. } = self.within(room);
        memory.total() <= room && expert_bytes.is_none()
    }

    /// The demand without a draft model.
    pub(super) fn alone(self) -> Demand {
        Demand { draft: Share::default(), ..self }
    }

    /// The memory it takes with `positions` positions and no draft model.
    pub(super) fn without_draft(&self, positions: usize) -> ModelMemory {
        self.own.memory(positions)
    }
}

impl ModelSource {
    /// Reads the information needed before a model is loaded.
    ///
    /// # Errors
    /// When its file cannot be read, or does not describe a supported model.
    pub(super) fn read(
        file: ModelFile,
        name: &str,
        options: &EngineOptions,
        locator: &dyn LocateModel,
    ) -> Result<Self, ModelError> {
        let draft = draft_for(&file, options, locator);
        let with_head = draft.is_none() && options.model.speculation == Speculation::Auto;
        let (gguf, spec) = read_spec(&file, options, with_head)?;
        let is_it = |pinned: &String| pinned == name || locator.locate(pinned).is_ok_and(|found| found == file);
        let is_pinned = options.pinned.iter().any(is_it);
        let demand = Demand {
            own: Share::of(&file, &gguf, &spec, options),
            draft: draft.as_ref().map(|(_, share)| *share).unwrap_or_default(),
            positions: options.model.context_of(&spec),
            // Other models can never reclaim the memory of a pinned model.
            n_sequences: if is_pinned { 1 } else { options.model.n_sequences.max(1) },
        };
        let experts_per_token = match spec.experts {
            Some(experts) => demand.own.experts * experts.n_used as u64 / experts.n_experts as u64,
            None => 0,
        };
        let draft = draft.map(|(file, _)| file);
        Ok(ModelSource { name: name.to_owned(), draft, with_head, demand, experts_per_token, is_pinned, file })
    }

    /// Warns that the model will be slow, and why.
    pub(super) fn warn_of_experts(&self, kept: u64) {
        let mebibytes = |n_bytes: u64| n_bytes.div_ceil(1 << 20);
        tracing::warn!(
            "{} does not fit into memory: of its experts, {} of {} MiB are kept there, and the others are read from the file \
             when a token chooses them. A token chooses {} MiB, so it can take as long as the disk takes to read these. A \
             smaller model is faster, and so is more memory (--memory-limit)",
            self.name,
            mebibytes(kept),
            mebibytes(self.demand.own.experts),
            mebibytes(self.experts_per_token),
        );
    }
}

/// The draft model for the one in `file`; a model does not draft for itself.
fn draft_for(file: &ModelFile, options: &EngineOptions, locator: &dyn LocateModel) -> Option<(ModelFile, Share)> {
    let name = options.draft.as_ref().filter(|_| options.model.speculation == Speculation::Auto)?;
    let draft = match locator.locate(name) {
        Ok(draft) => Some(draft).filter(|draft| draft != file)?,
        Err(error) => {
            tracing::warn!("no draft model is used: {error}");
            return None;
        }
    };
    let spec = read_spec(&draft, options, false);
    let (gguf, spec) = spec.inspect_err(|error| warn_of_draft(name, &with_causes(error))).ok()?;
    // A draft that has to wait for the disk is useless.
    let share = Share { experts: 0, least_experts: 0, ..Share::of(&draft, &gguf, &spec, options) };
    Some((draft, share))
}

fn read_spec(file: &ModelFile, options: &EngineOptions, with_head: bool) -> Result<(Gguf, DecoderSpec), ModelError> {
    let gguf = Gguf::open_region(file)?;
    check_answers(&gguf)?;
    let mut spec = DecoderSpec::from_gguf(&gguf, options.model.context_length)?;
    spec.head = spec.head.filter(|_| with_head);
    Ok((gguf, spec))
}

/// Bytes of the experts of every layer.
fn expert_bytes(gguf: &Gguf, spec: &DecoderSpec) -> Vec<u64> {
    let of_layer = |layer: usize| {
        let prefix = format!("blk.{layer}.");
        let tensors = gguf.tensors().filter(|tensor| tensor.name.starts_with(&prefix));
        let experts = tensors.filter(|tensor| tensor.name.ends_with("_exps.weight"));
        experts.map(|tensor| tensor.n_bytes as u64).sum()
    };
    (0..n_blocks(spec)).map(of_layer).collect()
}

/// The layers, and the head.
fn n_blocks(spec: &DecoderSpec) -> usize {
    spec.layers.len() + usize::from(spec.head.is_some())
}

/// Bytes of blocks that predict further tokens and are not used.
fn unread_bytes(gguf: &Gguf, spec: &DecoderSpec) -> u64 {
    let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
    let unread = gguf.tensors().filter(|tensor| block(&tensor.name).is_some_and(|block| block >= n_blocks(spec)));
    unread.map(|tensor| tensor.n_bytes as u64).sum()
}

pub(super) fn warn_of_draft(name: &str, reason: &str) {
    tracing::warn!("the draft model {name} is not used: {reason}");
}
