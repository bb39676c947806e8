//! Where a model comes from, and how much memory it needs.

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::decoder::DecoderSpec;
use crate::engine::EngineOptions;
use crate::gguf::Gguf;
use crate::kv_cache::states::bytes_of_states;
use crate::model::{ModelError, Speculation};
use crate::scheduler::ModelMemory;

/// A requested model.
#[derive(Clone, Debug)]
pub(super) struct ModelSource {
    /// The name under which it was first requested.
    pub(super) name: String,
    pub(super) file: ModelFile,
    /// Its draft model, if any.
    pub(super) draft: Option<ModelFile>,
    pub(super) demand: Demand,
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
    /// How many full-length sequences are requested.
    n_sequences: usize,
}

/// Bytes of weights, of the states that layers keep in place of a KV cache, and of a position in the KV cache.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    weights: u64,
    states: u64,
    position: u64,
}

impl Share {
    fn of(file: &ModelFile, spec: &DecoderSpec, options: &EngineOptions) -> Share {
        let states = match spec.is_recurrent() {
            true => bytes_of_states(spec.state_bytes(), options.model.n_sequences),
            false => 0,
        };
        Share { weights: file.size(), states, position: spec.kv_bytes_per_position(options.model.kv_cache) }
    }

    fn memory(self, positions: usize) -> ModelMemory {
        ModelMemory { weights: self.weights, kv_cache: self.states + positions as u64 * self.position }
    }
}

impl Demand {
    /// The memory it takes when `room` bytes are available, and the positions of its KV cache: as many full-length
    /// sequences as are requested and fit, but at least one.
    pub(super) fn within(&self, room: u64) -> (ModelMemory, usize) {
        let all = Share {
            weights: self.own.weights + self.draft.weights,
            states: self.own.states + self.draft.states,
            position: self.own.position + self.draft.position,
        };
        let one = self.positions as u64 * all.position;
        let n_fitting = room.saturating_sub(all.weights + all.states).checked_div(one).unwrap_or(1);
        let positions = self.positions.saturating_mul((self.n_sequences as u64).min(n_fitting).max(1) as usize);
        (all.memory(positions), positions)
    }

    /// The same without a draft model.
    pub(super) fn alone(self) -> Demand {
        Demand { draft: Share::default(), ..self }
    }

    /// The memory it takes with `positions` positions and no draft model.
    pub(super) fn without_draft(&self, positions: usize) -> ModelMemory {
        self.own.memory(positions)
    }
}

impl ModelSource {
    /// Reads what must be known before a model is loaded.
    ///
    /// # Errors
    /// When its file cannot be read, or does not describe a supported model.
    pub(super) fn read(
        file: ModelFile,
        name: &str,
        options: &EngineOptions,
        locator: &dyn LocateModel,
    ) -> Result<Self, ModelError> {
        let spec = read_spec(&file, options)?;
        let draft = draft_for(&file, options, locator);
        let is_it = |pinned: &String| pinned == name || locator.locate(pinned).is_ok_and(|found| found == file);
        let is_pinned = options.pinned.iter().any(is_it);
        let demand = Demand {
            own: Share::of(&file, &spec, options),
            draft: draft.as_ref().map(|(file, spec)| Share::of(file, spec, options)).unwrap_or_default(),
            positions: options.model.context_of(&spec),
            // Other models can never reclaim what a pinned model takes.
            n_sequences: if is_pinned { 1 } else { options.model.n_sequences.max(1) },
        };
        Ok(ModelSource { name: name.to_owned(), draft: draft.map(|(file, _)| file), demand, is_pinned, file })
    }
}

/// The draft model for the one in `file`; a model does not draft for itself.
fn draft_for(file: &ModelFile, options: &EngineOptions, locator: &dyn LocateModel) -> Option<(ModelFile, DecoderSpec)> {
    let name = options.draft.as_ref().filter(|_| options.model.speculation == Speculation::Auto)?;
    let draft = match locator.locate(name) {
        Ok(draft) => Some(draft).filter(|draft| draft != file)?,
        Err(error) => {
            tracing::warn!("no draft model is used: {error}");
            return None;
        }
    };
    let spec = read_spec(&draft, options);
    spec.inspect_err(|error| warn_of_draft(name, &with_causes(error))).ok().map(|spec| (draft, spec))
}

fn read_spec(file: &ModelFile, options: &EngineOptions) -> Result<DecoderSpec, ModelError> {
    Ok(DecoderSpec::from_gguf(&Gguf::open_region(file)?, options.model.context_length)?)
}

pub(super) fn warn_of_draft(name: &str, reason: &str) {
    tracing::warn!("the draft model {name} is not used: {reason}");
}
