//! A decoder's step on a device: the phases that a [`ProgramBuilder`](hone_kernels::step::ProgramBuilder) has
//! described, each as one launch or a few. Nothing is read back before the results.

mod encoding;
mod launching;
mod memory;
mod tables;
#[cfg(feature = "host")]
#[cfg(test)]
mod tests;

use std::ops::Range;

use hone_kernels::step::{
    Batch, Description, Phase, QuantizedRows, RouterShape, RowOperation, RowSet, Rows, Sequence, StepError,
};
use thiserror::Error;

use crate::arguments::{Operation, RoutesAt, TILE_RANKS};
use crate::device::{Address, Buffer, DeviceError, Recording, SharedDevice};
use crate::host_memory::HostMemory;
use crate::matrix::DeviceMatrix;
use encoding::FewRows;
use launching::Kernels;
use memory::{Cache, Growing, Quantized, SCALE_ELEMENTS, States};
use tables::Tables;

/// Why a step failed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    /// The batch is not valid; nothing has run.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A decoder that is ready to run: its weights, its part of the cache, and the memory of a step, on a device.
pub struct Program {
    device: SharedDevice,
    kernels: Kernels,
    description: Description<DeviceMatrix>,
    vectors: Vec<Buffer>,
    /// Frequencies of the position encodings.
    frequencies: Vec<Buffer>,
    rows: Vec<Growing>,
    quantized: Vec<Quantized>,
    routes: Vec<Routes>,
    cache: Cache,
    states: States,
    /// The operations of every phase over rows.
    operations: Vec<Operations>,
    /// Whether buffers have moved since the operations were written.
    is_stale: bool,
    tables: Tables,
    batch: Batch,
    /// A matrix in bfloat16, while it is multiplied with many rows.
    unpacked: Growing,
    /// Partial results of attention.
    partials: Growing,
    downloads: Vec<Download>,
    /// Steps of few tokens, recorded.
    recordings: Vec<(StepKey, Recording)>,
    /// The phases that are left to run; empty when the step is done.
    unfinished: Range<usize>,
}

/// Everything that the launches of a step of few tokens depend on, as long as no buffer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepKey {
    tables: (Address, Address),
    n_tokens: usize,
    n_selected: usize,
    n_sequences: usize,
    most_splits: usize,
}

/// Maximum number of recorded steps: batch sizes come and go.
const MAX_RECORDINGS: usize = 32;

/// Rows of the selected tokens, on the host.
struct Download {
    rows: Rows,
    memory: HostMemory,
    /// Floats of the last step.
    n_floats: usize,
}

/// A phase's operations, on the device.
struct Operations {
    buffer: Buffer,
    len: usize,
    /// Operations passed with the launch, if there is a kernel for just them.
    few: Option<(FewRows, Vec<Operation>)>,
    /// The columns of all operations, if columns may be divided.
    columns: Option<usize>,
    widest: usize,
}

/// The choices among experts by the rows of a step.
struct Routes {
    shape: RouterShape,
    at: RoutesAt,
    /// By row and choice, and by rank: ranks, rows, experts, weights; then the tiles.
    memory: Growing,
    /// The number of tiles.
    n_tiles: Buffer,
}

impl Routes {
    fn new(device: &SharedDevice, shape: RouterShape) -> Result<Self, DeviceError> {
        let n_tiles = Buffer::zeroed(device, size_of::<u32>())?;
        // Numbers of a row: four lists and three per tile, of which there are no more than ranks.
        let memory = Growing::new(device, shape.base, 7 * shape.n_used * size_of::<u32>())?;
        let at = RoutesAt { n_experts: shape.n_experts as u32, n_used: shape.n_used as u32, ..RoutesAt::default() };
        Ok(Routes { shape, at, memory, n_tiles })
    }

    /// Makes room for the choices of `n_rows` rows; `choices` is their address.
    fn reserve(&mut self, device: &SharedDevice, n_rows: usize, choices: u64) -> Result<bool, DeviceError> {
        let mut moved = self.memory.reserve(device, n_rows)?;
        moved |= self.at.choices != choices;
        let n_ranks = (self.memory.n_rows() * self.shape.n_used) as u64;
        let list = |index: u64| self.memory.address() + index * n_ranks * size_of::<u32>() as u64;
        (self.at.ranks, self.at.rows, self.at.experts, self.at.weights) = (list(0), list(1), list(2), list(3));
        (self.at.tiles, self.at.n_tiles, self.at.choices) = (list(4), self.n_tiles.address(), choices);
        Ok(moved)
    }

    /// An upper bound on the number of tiles for `n_ranks` ranks.
    fn max_tiles(&self, n_ranks: usize) -> usize {
        n_ranks.min(n_ranks.div_ceil(TILE_RANKS) + self.shape.n_experts)
    }
}

impl Program {
    /// Loads a builder's program onto a device. `results` are rows that are read after every step in addition to the
    /// program's output.
    ///
    /// # Errors
    /// When the device does not have enough memory, or fails.
    pub fn new(
        device: &SharedDevice,
        description: Description<DeviceMatrix>,
        results: &[Rows],
    ) -> Result<Self, DeviceError> {
        let floats = |values: &Vec<f32>| Buffer::from_bytes(device, bytemuck::cast_slice(values));
        let rows = |(set, width): &(RowSet, usize)| Growing::new(device, *set, width * size_of::<f32>());
        let download = |rows: &Rows| Download { rows: *rows, memory: HostMemory::new(device), n_floats: 0 };
        Ok(Program {
            device: device.clone(),
            kernels: Kernels::new(device)?,
            vectors: description.vectors.iter().map(floats).collect::<Result<_, _>>()?,
            frequencies: description
                .ropes
                .iter()
                .map(|rope| floats(&rope.inverse_frequencies))
                .collect::<Result<_, _>>()?,
            rows: description.rows.iter().map(rows).collect::<Result<_, _>>()?,
            quantized: description
                .quantized
                .iter()
                .map(|shape| Quantized::new(device, shape.set, shape.width))
                .collect::<Result<_, _>>()?,
            routes: description.routers.iter().map(|shape| Routes::new(device, *shape)).collect::<Result<_, _>>()?,
            cache: Cache::new(device, &description.layers)?,
            states: States::new(&description.states),
            operations: Vec::new(),
            is_stale: true,
            tables: Tables::new(device)?,
            batch: Batch::default(),
            unpacked: Growing::new(device, RowSet::Tokens, 1)?,
            partials: Growing::new(device, RowSet::Tokens, size_of::<f32>())?,
            downloads: [description.output].iter().chain(results).map(download).collect(),
            recordings: Vec::new(),
            unfinished: 0..0,
            description,
        })
    }

    /// Begins a step that [`Program::resume`] then carries out in parts. An earlier unfinished step is abandoned.
    ///
    /// # Errors
    /// When the batch is not valid or the device fails; there is then no step to resume.
    pub fn begin<'a>(&mut self, sequences: impl IntoIterator<Item = Sequence<'a>>) -> Result<(), ProgramError> {
        self.unfinished = 0..0;
        let exists = |state| self.states.exists(state);
        let states: Option<&dyn Fn(u32) -> bool> =
            if self.description.states.is_empty() { None } else { Some(&exists) };
        self.batch.fill(sequences, self.description.vocab_size, states)?;
        self.prepare(true)?;
        self.unfinished = 0..self.description.n_step_phases;
        Ok(())
    }

    /// Carries out the next `n_phases` phases of the current step, or all of them if it has few tokens. Returns whether
    /// the step is done.
    ///
    /// # Errors
    /// When the device fails; the step cannot be resumed then.
    pub fn resume(&mut self, n_phases: usize) -> Result<bool, ProgramError> {
        let Range { start, end } = std::mem::take(&mut self.unfinished);
        if start >= end {
            return Err(DeviceError::Failed("there is no step to resume".into()).into());
        }
        if start == 0 && self.has_few_tokens() {
            self.launch_step(end)?;
            self.download()?;
            return Ok(true);
        }
        let phases = start..(start + n_phases).min(end);
        for phase in phases.clone() {
            self.launch_phase(phase)?;
        }
        self.unfinished = phases.end..end;
        if self.unfinished.is_empty() {
            self.download()?;
            return Ok(true);
        }
        // Waits, so that a caller that interrupts the step has the card at once.
        self.device.0.synchronize()?;
        Ok(false)
    }

    /// Whether the step's launches are the same as for other steps of its size.
    fn has_few_tokens(&self) -> bool {
        launching::is_few(self.batch.n_tokens())
            && self.batch.spans(RowSet::Tokens).iter().all(|span| span.n_tokens == 1)
    }

    /// The launches of a step, recorded; `None` if that fails, which affects only speed.
    fn record(&mut self, n_phases: usize) -> Option<Recording> {
        self.device.0.begin_recording().ok()?;
        let launched = (0..n_phases).try_for_each(|phase| self.launch_phase(phase));
        let recording = self.device.0.end_recording();
        launched.ok()?;
        recording.ok()?
    }

    /// Launches a step of few tokens at once: its hundreds of launches were recorded when the first of its kind ran.
    fn launch_step(&mut self, n_phases: usize) -> Result<(), DeviceError> {
        let key = StepKey {
            tables: self.tables.place(),
            n_tokens: self.batch.n_tokens(),
            n_selected: self.batch.selected().len(),
            n_sequences: self.batch.spans(RowSet::Tokens).len(),
            most_splits: self.most_splits(),
        };
        if !self.recordings.iter().any(|(known, _)| *known == key) {
            let Some(recording) = self.record(n_phases) else {
                return (0..n_phases).try_for_each(|phase| self.launch_phase(phase));
            };
            if self.recordings.len() == MAX_RECORDINGS {
                self.recordings.remove(0);
            }
            self.recordings.push((key, recording));
        }
        let (_, recording) = self.recordings.iter().find(|(known, _)| *known == key).expect("it was just recorded");
        // SAFETY: recordings are dropped when a buffer moves, and the key says where the tables are.
        unsafe { self.device.0.replay(recording) }
    }

    /// Runs a whole step.
    ///
    /// # Errors
    /// As [`Program::begin`] and [`Program::resume`].
    pub fn run<'a>(&mut self, sequences: impl IntoIterator<Item = Sequence<'a>>) -> Result<(), ProgramError> {
        self.begin(sequences)?;
        self.resume(usize::MAX / 2)?;
        Ok(())
    }

    /// Runs the phases after a step's own, with `values` as the `input` rows of the tokens. These phases neither read
    /// nor write states. An unfinished step is abandoned.
    ///
    /// # Errors
    /// As [`Program::begin`] and [`Program::resume`].
    ///
    /// # Panics
    /// When `values` are not rows of all tokens.
    pub fn run_after_step<'a>(
        &mut self,
        sequences: impl IntoIterator<Item = Sequence<'a>>,
        input: Rows,
        values: &[f32],
    ) -> Result<(), ProgramError> {
        self.unfinished = 0..0;
        self.batch.fill(sequences, self.description.vocab_size, None)?;
        self.prepare(false)?;
        assert_eq!(values.len(), self.batch.n_tokens() * input.width(), "there is a row for every token");
        self.rows[input.index()].buffer().upload(0, bytemuck::cast_slice(values))?;
        for phase in self.description.n_step_phases..self.description.phases.len() {
            self.launch_phase(phase)?;
        }
        self.download()?;
        Ok(())
    }

    /// The output rows of the last step's selected tokens, in their order.
    pub fn output(&self) -> &[f32] {
        self.downloads[0].floats()
    }

    /// These rows of the last step's selected tokens, in their order.
    ///
    /// # Panics
    /// When they were not among the results that the program was made with.
    pub fn selected_rows(&self, rows: Rows) -> &[f32] {
        let found = self.downloads.iter().find(|download| download.rows == rows);
        found.expect("only what was named as a result is read").floats()
    }

    /// The number of phases in a step.
    pub fn n_phases(&self) -> usize {
        self.description.n_step_phases
    }

    /// Copies the keys and values of a cache block in all layers.
    ///
    /// # Errors
    /// When the device fails.
    pub fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.cache.grow(&self.device, from.max(to) as usize + 1)?;
        self.cache.copy_block(&self.device, from, to)
    }

    /// Appends the keys and values of a cache block in all layers to `out`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read_block(&self, block: u32, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        self.cache.read_block(block, out)
    }

    /// Writes content returned by [`Program::read_block`] into a cache block.
    ///
    /// # Errors
    /// When the device fails.
    pub fn write_block(&mut self, block: u32, content: &[u8]) -> Result<(), DeviceError> {
        self.cache.grow(&self.device, block as usize + 1)?;
        self.cache.write_block(block, content)
    }

    /// Bytes of a cache block in all layers.
    pub fn block_bytes(&self) -> usize {
        self.cache.block_bytes()
    }

    /// Bytes of a state; 0 if no layer keeps one.
    pub fn state_bytes(&self) -> usize {
        self.states.bytes()
    }

    /// Frees the memory of a state that is no longer needed.
    pub fn free_state(&mut self, state: u32) {
        self.states.free(state);
    }

    /// The destination of a phase's attention results if they are quantized without other operations before, and if
    /// every group of elements that share a scale belongs to one head.
    fn quantized_results(&self, phase: usize) -> Option<QuantizedRows> {
        let phases = &self.description.phases;
        let Phase::Attend(attention) = phases[phase] else { return None };
        let attention = &self.description.attentions[attention];
        let next = phases[phase + 1..].iter().find(|next| !matches!(next, Phase::Merge(_)))?;
        let Phase::Rows { operations, .. } = next else { return None };
        match operations[..] {
            [RowOperation::Quantize { from, to }]
                if from == attention.to && attention.geometry.head_dim.is_multiple_of(SCALE_ELEMENTS) =>
            {
                Some(to)
            }
            _ => None,
        }
    }

    /// Whether the preceding attention has already quantized the rows of a phase.
    fn is_quantized_already(&self, phase: usize) -> bool {
        let before = self.description.phases[..phase].iter().rposition(|before| !matches!(before, Phase::Merge(_)));
        !self.is_prompt() && before.is_some_and(|before| self.quantized_results(before).is_some())
    }

    fn n_rows(&self, set: RowSet) -> usize {
        match set {
            RowSet::Tokens => self.batch.n_tokens(),
            RowSet::Selected => self.batch.selected().len(),
            RowSet::Routed(router) => {
                let RouterShape { base, n_used, .. } = self.description.routers[router.index()];
                self.n_rows(base) * n_used
            }
        }
    }

    /// Makes room for the batch, and uploads its tables.
    fn prepare(&mut self, with_states: bool) -> Result<(), DeviceError> {
        let device = self.device.clone();
        self.cache.grow(&device, self.batch.n_blocks())?;
        if with_states {
            for state in self.batch.written_states().collect::<Vec<u32>>() {
                self.states.make(&device, state)?;
            }
        }
        for index in 0..self.rows.len() {
            let n_rows = self.n_rows(self.rows[index].set);
            self.is_stale |= self.rows[index].reserve(&device, n_rows)?;
        }
        for index in 0..self.quantized.len() {
            let n_rows = self.n_rows(self.quantized[index].set);
            self.is_stale |= self.quantized[index].reserve(&device, n_rows)?;
        }
        for index in 0..self.routes.len() {
            let shape = self.routes[index].shape;
            let choices = self.rows[shape.choices.index()].address();
            let n_rows = self.n_rows(shape.base);
            self.is_stale |= self.routes[index].reserve(&device, n_rows, choices)?;
        }
        self.is_stale |= self.partials.reserve(&device, self.n_partial_floats())?;
        if self.is_stale {
            self.recordings.clear();
            self.write_operations()?;
            self.is_stale = false;
        }
        let states = with_states && !self.description.states.is_empty();
        self.tables.fill(&device, &self.batch, states.then_some(&self.states))
    }

    fn write_operations(&mut self) -> Result<(), DeviceError> {
        let encoded: Vec<Vec<Operation>> = self.description.phases.iter().map(|phase| self.encode(phase)).collect();
        let mut operations = Vec::with_capacity(encoded.len());
        for (encoded, phase) in encoded.iter().zip(&self.description.phases) {
            operations.push(Operations {
                buffer: Buffer::from_bytes(&self.device, bytemuck::cast_slice(encoded))?,
                len: encoded.len(),
                few: FewRows::of(encoded).map(|kind| (kind, encoded.clone())),
                columns: encoding::independent_columns(phase),
                widest: encoding::widest(encoded),
            });
        }
        self.operations = operations;
        Ok(())
    }

    /// Waits for the step and fetches its results.
    fn download(&mut self) -> Result<(), DeviceError> {
        let n_rows = self.batch.selected().len();
        for download in &mut self.downloads {
            download.n_floats = n_rows * download.rows.width();
            let n_bytes = download.n_floats * size_of::<f32>();
            let to = download.memory.reserve(n_bytes)?;
            self.rows[download.rows.index()].buffer().download(0, to)?;
        }
        Ok(())
    }
}

impl Download {
    fn floats(&self) -> &[f32] {
        &bytemuck::cast_slice(self.memory.bytes())[..self.n_floats]
    }
}
