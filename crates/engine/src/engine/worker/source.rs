//! Where a model comes from, and how much memory it needs.

use std::sync::Arc;

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::decoder::DecoderSpec;
use crate::engine::EngineOptions;
use crate::gguf::{Gguf, TensorInfo};
use crate::heads::is_reward_model;
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
    /// Whether it rates answers instead of giving them.
    pub(super) gives_rewards: bool,
    pub(super) demand: Demand,
    /// Bytes of the experts that a token chooses.
    experts_per_token: u64,
    /// Whether it is never unloaded.
    pub(super) is_pinned: bool,
}

/// How much memory a model needs.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    own: Share,
    draft: Share,
    division: Division,
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

/// How a GPU and the processor may share a model.
#[derive(Clone, Debug)]
struct Division {
    /// The numbers of first layers that a GPU can compute alone, in ascending order, and what these need; empty if the
    /// model may not be divided.
    cuts: Arc<[(usize, Share)]>,
    /// Whether it is divided even if all of it fits.
    is_wanted: bool,
    /// Bytes of the embeddings, which both devices may need.
    embeddings: u64,
    n_layers: usize,
}

/// A model's portion of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    pub(super) memory: ModelMemory,
    /// Positions of its KV cache.
    pub(super) positions: usize,
    /// Bytes for experts, if not all of them fit.
    pub(super) expert_bytes: Option<u64>,
    /// The number of first layers that a GPU computes, if not all of them fit.
    pub(super) n_gpu_layers: Option<usize>,
    /// Bytes that the other layers need in the processor's memory.
    pub(super) beside_card: u64,
}

impl Share {
    fn of(file: &ModelFile, gguf: &Gguf, spec: &DecoderSpec, options: &EngineOptions) -> Share {
        let experts = if options.model.keeps_experts_in_file(spec) { expert_bytes(gguf, spec) } else { Vec::new() };
        let states = match spec.is_recurrent() {
            true => bytes_of_states(spec.state_bytes(), options.model.n_sequences),
            false => 0,
        };
        let beyond: u64 = gguf.tensors().map(|tensor| options.model.bytes_beyond_file(tensor)).sum();
        Share {
            weights: file.size().saturating_sub(unread_bytes(gguf, spec)) + beyond,
            states,
            position: spec.kv_bytes_per_position(options.model.kv_cache, options.model.kv_row_alignment()),
            experts: experts.iter().sum(),
            least_experts: experts.into_iter().max().unwrap_or(0),
        }
    }

    /// The first layers, and the embeddings before them.
    fn of_first(n_layers: usize, gguf: &Gguf, spec: &DecoderSpec, options: &EngineOptions) -> Share {
        let is_read = |name: &str| block(name).map_or(is_embedding(name), |block| block < n_layers);
        let tensors = gguf.tensors().filter(|tensor| is_read(&tensor.name));
        let bytes = |tensor: &TensorInfo| tensor.n_bytes as u64 + options.model.bytes_beyond_file(tensor);
        let first = spec.beginning(n_layers);
        let states =
            if first.is_recurrent() { bytes_of_states(first.state_bytes(), options.model.n_sequences) } else { 0 };
        let position = first.kv_bytes_per_position(options.model.kv_cache, options.model.kv_row_alignment());
        Share { weights: tensors.map(bytes).sum(), states, position, experts: 0, least_experts: 0 }
    }

    fn memory(self, positions: usize) -> ModelMemory {
        ModelMemory { weights: self.weights, kv_cache: self.states + positions as u64 * self.position }
    }
}

impl Division {
    fn of(gguf: &Gguf, spec: &DecoderSpec, options: &EngineOptions) -> Division {
        let wanted = options.model.gpu_layers.most().map(|n_layers| spec.cut_at(n_layers));
        let numbers: Vec<usize> = match wanted {
            _ if !options.model.divides_models() => Vec::new(),
            None => std::iter::once(0).chain(spec.cuts()).collect(),
            Some(cut) => cut.into_iter().collect(),
        };
        let share = |n| if n == 0 { Share::default() } else { Share::of_first(n, gguf, spec, options) };
        let embeddings = gguf.tensors().filter(|tensor| is_embedding(&tensor.name));
        Division {
            is_wanted: wanted.is_some() && !numbers.is_empty(),
            cuts: numbers.into_iter().map(|n| (n, share(n))).collect(),
            embeddings: embeddings.map(|tensor| tensor.n_bytes as u64).sum(),
            n_layers: spec.layers.len(),
        }
    }
}

impl Demand {
    /// Its portion of `room` available bytes: all weights, and a KV cache for as many of the requested full-length
    /// sequences as fit, but at least one. If not even that fits, some experts stay in the file, or the last layers on
    /// the processor.
    pub(super) fn within(&self, room: u64) -> Portion {
        let whole = self.whole_within(room);
        if whole.memory.total() <= room && !self.division.is_wanted {
            return whole;
        }
        let divided = |(n_layers, first): &(usize, Share)| {
            let [first, all] = [*first, self.own].map(|share| share.memory(self.positions));
            let draft = self.draft.memory(self.positions);
            let embeddings = if *n_layers > 0 { self.division.embeddings } else { 0 };
            Portion {
                memory: ModelMemory {
                    weights: first.weights + draft.weights,
                    kv_cache: first.kv_cache + draft.kv_cache,
                },
                positions: self.positions,
                expert_bytes: None,
                n_gpu_layers: Some(*n_layers),
                beside_card: (all.total() + embeddings).saturating_sub(first.total()),
            }
        };
        let mut portions = self.division.cuts.iter().rev().map(divided);
        let fitting = portions.clone().find(|portion| portion.memory.total() <= room);
        fitting.or_else(|| portions.next_back()).unwrap_or(whole)
    }

    /// As [`Demand::within`], of a model that is not divided.
    pub(super) fn whole_within(&self, room: u64) -> Portion {
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
        let expert_bytes = (missing > 0).then(|| all.experts - missing);
        Portion { memory, positions, expert_bytes, n_gpu_layers: None, beside_card: 0 }
    }

    /// Whether a GPU and the processor may share it.
    pub(super) fn may_be_divided(&self) -> bool {
        !self.division.cuts.is_empty()
    }

    /// Whether all of it fits into `room` bytes.
    pub(super) fn fits(&self, room: u64) -> bool {
        let Portion { memory, expert_bytes, n_gpu_layers, .. } = self.within(room);
        memory.total() <= room && expert_bytes.is_none() && (n_gpu_layers.is_none() || self.division.is_wanted)
    }

    /// The demand without a draft model.
    pub(super) fn alone(self) -> Demand {
        Demand { draft: Share::default(), ..self }
    }

    /// Subtracts the draft model's part from the `memory` that all models take with a cache of `positions` positions.
    pub(super) fn without_draft(&self, memory: ModelMemory, positions: usize) -> ModelMemory {
        let draft = self.draft.memory(positions);
        ModelMemory { weights: memory.weights - draft.weights, kv_cache: memory.kv_cache - draft.kv_cache }
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
        let gives_rewards = is_reward_model(&gguf);
        let is_it = |pinned: &String| pinned == name || locator.locate(pinned).is_ok_and(|found| found == file);
        let is_pinned = options.pinned.iter().any(is_it);
        let demand = Demand {
            own: Share::of(&file, &gguf, &spec, options),
            draft: draft.as_ref().map(|(_, share)| *share).unwrap_or_default(),
            division: Division::of(&gguf, &spec, options),
            positions: options.model.context_of(&spec),
            // Other models can never reclaim the memory of a pinned model.
            n_sequences: if is_pinned { 1 } else { options.model.n_sequences.max(1) },
        };
        let experts_per_token = match spec.experts {
            Some(experts) => demand.own.experts * experts.n_used as u64 / experts.n_experts as u64,
            None => 0,
        };
        let draft = draft.map(|(file, _)| file);
        Ok(ModelSource {
            name: name.to_owned(),
            draft,
            with_head,
            gives_rewards,
            demand,
            experts_per_token,
            is_pinned,
            file,
        })
    }

    /// Says that not all layers run on the GPU.
    pub(super) fn warn_of_division(&self, n_gpu_layers: usize) {
        let (name, &Division { n_layers, is_wanted, .. }) = (&self.name, &self.demand.division);
        if is_wanted {
            tracing::info!(
                "the GPU computes {n_gpu_layers} of the {n_layers} layers of {name}, the processor the others"
            );
            return;
        }
        tracing::warn!(
            "{name} does not fit into the GPU's memory: {n_gpu_layers} of its {n_layers} layers are computed there, and the \
             others on the processor, which is slower. A smaller model is faster, and so is a shorter context \
             (engine.context)"
        );
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
    match check_answers(&gguf) {
        Err(ModelError::Head) if is_reward_model(&gguf) => {}
        checked => checked?,
    }
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

/// The number of the block that a tensor belongs to, if any.
fn block(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Whether a tensor is needed before the first layer.
fn is_embedding(name: &str) -> bool {
    name.starts_with("token_embd") || name.starts_with("per_layer_")
}

/// Bytes of blocks that predict further tokens and are not used.
fn unread_bytes(gguf: &Gguf, spec: &DecoderSpec) -> u64 {
    let unread = gguf.tensors().filter(|tensor| block(&tensor.name).is_some_and(|block| block >= n_blocks(spec)));
    unread.map(|tensor| tensor.n_bytes as u64).sum()
}

pub(super) fn warn_of_draft(name: &str, reason: &str) {
    tracing::warn!("the draft model {name} is not used: {reason}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIONS: usize = 10;

    fn share(weights: u64, position: u64) -> Share {
        Share { weights, position, ..Share::default() }
    }

    /// A model of four layers of 100 bytes, with 20 for the embeddings, that cannot be cut after the third layer. A
    /// layer has 1 byte per position.
    fn demand(draft: u64, is_wanted: bool) -> Demand {
        let cuts = [(0, Share::default()), (1, share(120, 1)), (2, share(220, 2))];
        let cuts = if is_wanted { &cuts[1..2] } else { &cuts[..] };
        let division = Division { cuts: cuts.into(), is_wanted, embeddings: 20, n_layers: 4 };
        let draft = share(draft, 0);
        Demand { own: share(420, 4), draft, division, positions: POSITIONS, n_sequences: 3 }
    }

    #[track_caller]
    fn check(demand: &Demand, room: u64, n_gpu_layers: Option<usize>, total: u64, beside_card: u64) {
        let portion = demand.within(room);
        assert_eq!(
            (portion.n_gpu_layers, portion.memory.total(), portion.beside_card),
            (n_gpu_layers, total, beside_card),
            "in {room} bytes"
        );
        let is_whole = n_gpu_layers.is_none() || demand.division.is_wanted;
        assert_eq!(demand.fits(room), is_whole && total <= room, "in {room} bytes");
    }

    #[test]
    fn a_gpu_computes_as_many_layers_as_it_has_room_for() {
        let demand = demand(0, false);
        check(&demand, 1000, None, 420 + 3 * 40, 0);
        check(&demand, 460, None, 460, 0);
        check(&demand, 459, Some(2), 240, 460 + 20 - 240);
        check(&demand, 240, Some(2), 240, 460 + 20 - 240);
        check(&demand, 239, Some(1), 130, 460 + 20 - 130);
        check(&demand, 129, Some(0), 0, 460);
        check(&demand, 0, Some(0), 0, 460);
    }

    #[test]
    fn a_draft_model_is_not_divided() {
        check(&demand(50, false), 511, None, 510, 0);
        check(&demand(50, false), 300, Some(2), 290, 460 + 20 - 240);
        check(&demand(50, false), 40, Some(0), 50, 460);
    }

    #[test]
    fn a_number_of_layers_that_was_asked_for_is_kept() {
        check(&demand(0, true), 1000, Some(1), 130, 460 + 20 - 130);
        check(&demand(0, true), 100, Some(1), 130, 460 + 20 - 130);
    }
}
