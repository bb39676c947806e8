//! Where a model comes from, and what it will take.

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::decoder::DecoderSpec;
use crate::engine::EngineOptions;
use crate::gguf::Gguf;
use crate::model::{ModelError, Speculation};
use crate::scheduler::ModelMemory;

/// A model that was asked for.
#[derive(Clone, Debug)]
pub(super) struct ModelSource {
    /// As it was first asked for.
    pub(super) name: String,
    pub(super) file: ModelFile,
    /// The model that may guess for it.
    pub(super) draft: Option<ModelFile>,
    pub(super) demand: Demand,
    /// Whether it stays in memory whatever comes.
    pub(super) is_pinned: bool,
}

/// What a model takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    own: Share,
    draft: Share,
    /// Positions of a sequence of full length.
    positions: usize,
    /// How many of those are asked for.
    n_sequences: usize,
}

/// Bytes of weights, and of a position in the KV cache.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    weights: u64,
    position: u64,
}

impl Share {
    fn of(file: &ModelFile, spec: &DecoderSpec, options: &EngineOptions) -> Share {
        Share { weights: file.length, position: spec.kv_bytes_per_position(options.model.kv_cache) }
    }

    fn memory(self, positions: usize) -> ModelMemory {
        ModelMemory { weights: self.weights, kv_cache: positions as u64 * self.position }
    }
}

impl Demand {
    /// What it takes in so much room, and positions of its KV cache: as many sequences of full length as are asked for, or
    /// fewer where that is what there is room for, but one.
    pub(super) fn within(&self, room: u64) -> (ModelMemory, usize) {
        let all =
            Share { weights: self.own.weights + self.draft.weights, position: self.own.position + self.draft.position };
        let one = self.positions as u64 * all.position;
        let n_fitting = room.saturating_sub(all.weights).checked_div(one).unwrap_or(1);
        let positions = self.positions.saturating_mul((self.n_sequences as u64).min(n_fitting).max(1) as usize);
        (all.memory(positions), positions)
    }

    /// The same where nothing guesses for it.
    pub(super) fn alone(self) -> Demand {
        Demand { draft: Share::default(), ..self }
    }

    /// What it takes with so many positions where nothing guesses for it.
    pub(super) fn without_draft(&self, positions: usize) -> ModelMemory {
        self.own.memory(positions)
    }
}

impl ModelSource {
    /// Reads what there is to know before a model is loaded.
    ///
    /// # Errors
    /// When its file cannot be read, or describes no model that is known.
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
            // What a pinned model takes, others never get back.
            n_sequences: if is_pinned { 1 } else { options.model.n_sequences.max(1) },
        };
        Ok(ModelSource { name: name.to_owned(), draft: draft.map(|(file, _)| file), demand, is_pinned, file })
    }
}

/// The model that may guess for the one in `file`; it does not guess for itself.
fn draft_for(file: &ModelFile, options: &EngineOptions, locator: &dyn LocateModel) -> Option<(ModelFile, DecoderSpec)> {
    let name = options.draft.as_ref().filter(|_| options.model.speculation == Speculation::Auto)?;
    let draft = match locator.locate(name) {
        Ok(draft) => Some(draft).filter(|draft| draft != file)?,
        Err(error) => {
            tracing::warn!("no draft model guesses: {error}");
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
    tracing::warn!("the draft model {name} does not guess: {reason}");
}
