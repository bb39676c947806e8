//! Turns the phases of a program into launches.

use std::collections::BTreeMap;

use bytemuck::{NoUninit, Zeroable, bytes_of};
use hone_kernels::step::{
    AttentionPhase, ConvolutionOptions, ExpertProductPhase, KeySharing, MatrixId, Output, Phase, ProductPhase,
    QuantizedRows, RecurOptions, RouterId, RowSet, StateLayerId, WeightMatrix,
};
use hone_kernels::{TensorType, Window};

use super::Program;
use super::encoding::FewRows;
use crate::arguments::{
    AttentionArguments, ConvolveArguments, DequantizeArguments, ExpertProductArguments, FewRowsArguments,
    MAX_FEW_OPERATIONS, MAX_OUTPUTS, Operation, OutputAt, PlanArguments, ProductArguments, QuantizedAt, RecurArguments,
    RowsArguments, SET_ROUTED, SET_SELECTED, SET_TOKENS, SpreadArguments, StatesArguments,
};
use crate::device::{DeviceError, Kernel, Matmul, Shape, SharedDevice};
use crate::shapes;

/// Maximum rows of one launch of a product. With more, a matrix is unpacked and multiplied on the tensor cores.
/// Measured on an H100.
const MAX_FEW_ROWS: usize = 16;
/// Elements of a matrix that are unpacked at a time. With a quarter of them, which the card's cache could hold, 32 rows took
/// half as long again on an H200: products of few rows of weights do not fill the card.
const UNPACKED_ELEMENTS: usize = 64 << 20;
/// Minimum rows of a sequence for which attention works on tiles of rows.
const PROMPT_ROWS: usize = 5;
/// Maximum elements of a row that a thread keeps while norming it: 4 · `MOST_KEPT` of the kernels.
const MAX_KEPT: u32 = 16;
/// Query heads of a group that attention of few rows processes at once in half of a tensor-core product.
const NARROW_HEADS: usize = 8;

/// All kernels, looked up once.
pub(super) struct Kernels {
    rows: Kernel,
    norm_rows: Kernel,
    quantize_rows: Kernel,
    head_rows: Kernel,
    products: BTreeMap<TensorType, Kernel>,
    expert_products: BTreeMap<TensorType, Kernel>,
    dequantize: Kernel,
    plan_routes: Kernel,
    spread: Kernel,
    attend_split: BTreeMap<(u32, usize), Kernel>,
    /// For groups of more than [`NARROW_HEADS`] query heads.
    attend_split_wide: BTreeMap<(u32, usize), Kernel>,
    merge_splits: Kernel,
    attend_prompt: BTreeMap<(u32, usize), Kernel>,
    convolve: Kernel,
    recur: Kernel,
}

impl Kernels {
    pub(super) fn new(device: &SharedDevice) -> Result<Self, DeviceError> {
        let find = |name: &str| device.0.kernel(name);
        let by_type = |prefix: &str| {
            let types = TensorType::ALL.into_iter().filter(|tensor_type| crate::is_native(*tensor_type));
            let kernel = |tensor_type: TensorType| {
                let name = format!("{prefix}_{}", tensor_type.to_string().to_lowercase());
                Ok::<_, DeviceError>((tensor_type, find(&name)?))
            };
            types.map(kernel).collect::<Result<BTreeMap<_, _>, _>>()
        };
        let by_format = |prefix: &str, widths: &[usize]| {
            let kinds = [(0, "f16"), (1, "q8_0")].into_iter();
            let kinds = kinds.flat_map(|(format, name)| widths.iter().map(move |width| (format, name, *width)));
            let kernel = |(format, name, width): (u32, &str, usize)| {
                Ok::<_, DeviceError>(((format, width), find(&format!("{prefix}_{name}_{width}"))?))
            };
            kinds.map(kernel).collect::<Result<BTreeMap<_, _>, _>>()
        };
        Ok(Kernels {
            rows: find("rows")?,
            norm_rows: find("norm_rows")?,
            quantize_rows: find("quantize_rows")?,
            head_rows: find("head_rows")?,
            products: by_type("product")?,
            expert_products: by_type("expert_product")?,
            dequantize: find("dequantize_to_bf16")?,
            plan_routes: find("plan_routes")?,
            spread: find("spread")?,
            attend_split: by_format("attend_split", &shapes::SPLIT_WIDTHS)?,
            attend_split_wide: by_format("attend_split_wide", &shapes::SPLIT_WIDTHS)?,
            merge_splits: find("merge_splits")?,
            attend_prompt: by_format("attend_prompt", &shapes::PROMPT_WIDTHS)?,
            convolve: find("convolve")?,
            recur: find("recur")?,
        })
    }
}

impl Program {
    pub(super) fn launch_phase(&mut self, index: usize) -> Result<(), DeviceError> {
        match &self.description.phases[index] {
            Phase::Rows { .. } if self.is_quantized_already(index) => Ok(()),
            Phase::Rows { set, .. } => self.launch_rows(index, *set),
            Phase::Product(product) => {
                let product = product.clone();
                self.launch_product(&product)
            }
            Phase::Attend(attention) => {
                let attention = self.description.attentions[*attention];
                self.launch_attention(&attention, self.quantized_results(index))
            }
            Phase::Plan(router) => self.launch_plan(*router),
            Phase::Spread { router, from, to } => self.launch_spread(*router, *from, *to),
            Phase::ExpertProduct(product) => self.launch_expert_product(product),
            Phase::Convolve(options) => self.launch_convolution(options),
            Phase::Recur(options) => self.launch_recurrence(options),
            // Attention merges immediately, and all experts are in memory.
            Phase::Merge(_) | Phase::Reserve { .. } | Phase::PackExperts => Ok(()),
        }
    }

    fn launch<A: NoUninit>(&self, kernel: Kernel, shape: Shape, arguments: &A) -> Result<(), DeviceError> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: the arguments have the kernel's type; the builder has checked all shapes, `prepare` has made room in
        // every buffer and in the cache for the batch, and the batch was checked.
        unsafe { self.device.0.launch(kernel, shape, bytes_of(arguments)) }
    }

    fn launch_rows(&self, index: usize, set: RowSet) -> Result<(), DeviceError> {
        let (n_rows, operations) = (self.n_rows(set), &self.operations[index]);
        let (slice_width, n_slices) = slices(operations.columns, n_rows);
        let width = if slice_width > 0 { slice_width } else { operations.widest };
        let most = if n_rows >= 64 { 256 } else { 1024 };
        let arguments = RowsArguments {
            batch: self.tables.batch,
            operations: operations.buffer.address(),
            n_operations: operations.len as u32,
            set: set_number(set),
            slice_width: slice_width as u32,
            reserved: 0,
        };
        let threads = width.div_ceil(4).next_power_of_two().clamp(64, most) as u32;
        let shape = Shape { grid: [n_rows, n_slices, 1], threads, shared: 0 };
        match &operations.few {
            Some((FewRows::Norm, few)) if few.iter().all(|one| one.a.width <= MAX_KEPT * threads) => {
                self.launch(self.kernels.norm_rows, shape, &few_rows(&arguments, few))
            }
            Some((FewRows::Quantize, few)) => {
                self.launch(self.kernels.quantize_rows, shape, &few_rows(&arguments, few))
            }
            Some((FewRows::Heads, few)) => self.launch(self.kernels.head_rows, shape, &few_rows(&arguments, few)),
            _ => self.launch(self.kernels.rows, shape, &arguments),
        }
    }

    fn launch_product(&mut self, product: &ProductPhase) -> Result<(), DeviceError> {
        let n_rows = self.n_rows(product.input.set());
        if !is_few(n_rows) {
            return product.outputs.iter().try_for_each(|output| self.launch_large_product(product.input, output));
        }
        let groups = by_type(&product.outputs, |matrix| self.description.matrices[matrix.index()].tensor_type());
        groups
            .iter()
            .try_for_each(|(tensor_type, outputs)| self.launch_small_product(product.input, *tensor_type, outputs))
    }

    /// A product of few rows with matrices of one type.
    fn launch_small_product(
        &self,
        input: QuantizedRows,
        tensor_type: TensorType,
        outputs: &[&Output<MatrixId>],
    ) -> Result<(), DeviceError> {
        let n_rows = self.n_rows(input.set()) as u32;
        let input = self.quantized[input.index()].at();
        let (outputs, n_outputs, n_out) = self.outputs_at(outputs);
        let arguments = ProductArguments { outputs, input, n_outputs, n_out, n_rows, reserved: 0 };
        let n_tiles = usize::from(n_rows > 0);
        self.launch(self.kernels.products[&tensor_type], shapes::product(n_out as usize, n_tiles), &arguments)
    }

    fn outputs_at(&self, outputs: &[&Output<MatrixId>]) -> ([OutputAt; MAX_OUTPUTS], u32, u32) {
        let mut at = [OutputAt::zeroed(); MAX_OUTPUTS];
        let mut n_out = 0;
        for (at, output) in at.iter_mut().zip(outputs) {
            let matrix = &self.description.matrices[output.matrix.index()];
            let (to, add) = (self.part_at(output.to), u32::from(output.add));
            *at = OutputAt { matrix: matrix.at(), to, add, first_row: n_out };
            n_out += matrix.n_rows() as u32;
        }
        (at, outputs.len() as u32, n_out)
    }

    /// Unpacks some rows of the matrix at a time.
    fn launch_large_product(&mut self, input: QuantizedRows, output: &Output<MatrixId>) -> Result<(), DeviceError> {
        let device = self.device.clone();
        let matrix = self.description.matrices[output.matrix.index()].clone();
        let (n_out, n_columns) = (matrix.n_rows(), matrix.n_columns());
        let rows_at_once = (UNPACKED_ELEMENTS / n_columns).clamp(1, n_out);
        let is_bf16 = matrix.tensor_type() == TensorType::BF16;
        if !is_bf16 {
            self.unpacked.reserve(&device, rows_at_once * n_columns * 2)?;
        }
        let (input, to) = (self.quantized[input.index()].at(), self.part_at(output.to));
        let n_rows = self.n_rows(output.to.rows().set());
        for first in (0..n_out).step_by(rows_at_once) {
            let n_unpacked = rows_at_once.min(n_out - first);
            let weights = if is_bf16 {
                matrix.at().data + (first * matrix.row_bytes()) as u64
            } else {
                let to = self.unpacked.address();
                let arguments =
                    DequantizeArguments { matrix: matrix.at(), to, first_row: first as u32, n_rows: n_unpacked as u32 };
                self.launch(self.kernels.dequantize, shapes::dequantize(n_unpacked), &arguments)?;
                to
            };
            let matmul = Matmul {
                weights,
                input: input.bf16,
                to: to.data + (first * size_of::<f32>()) as u64,
                to_stride: to.stride as usize,
                n_rows,
                n_out: n_unpacked,
                n_columns,
                add: output.add,
            };
            // SAFETY: the builder has checked the shapes, and there is room for all rows.
            unsafe { device.0.matmul(&matmul)? };
        }
        Ok(())
    }

    /// Whether attention works on tiles of rows, because a sequence has enough of them.
    pub(super) fn is_prompt(&self) -> bool {
        self.batch.spans(RowSet::Tokens).iter().any(|span| span.n_tokens >= PROMPT_ROWS)
    }

    /// Maximum number of parts of the longest context.
    pub(super) fn most_splits(&self) -> usize {
        let spans = self.batch.spans(RowSet::Tokens);
        most_splits(spans.iter().map(|span| span.position + span.n_tokens).max().unwrap_or(0))
    }

    /// Floats of the partial results of any attention of the batch.
    pub(super) fn n_partial_floats(&self) -> usize {
        if self.is_prompt() {
            return 0;
        }
        let floats = |attention: &AttentionPhase| {
            let (geometry, n_rows) = (attention.geometry, self.n_rows(attention.queries.rows().set()));
            let n_splits = splits(self.most_splits(), n_rows * geometry.n_kv_heads);
            n_rows * geometry.n_heads * n_splits * (geometry.head_dim + 2)
        };
        self.description.attentions.iter().map(floats).max().unwrap_or(0)
    }

    fn launch_attention(&self, phase: &AttentionPhase, quantized: Option<QuantizedRows>) -> Result<(), DeviceError> {
        let geometry = phase.geometry;
        let set = phase.queries.rows().set();
        let spans = self.batch.spans(set);
        let n_rows = self.n_rows(set);
        if n_rows == 0 {
            return Ok(());
        }
        let longest = spans.iter().map(|span| span.position + span.n_tokens).max().unwrap_or(0);
        let is_prompt = self.is_prompt();
        let n_splits = if is_prompt { 1 } else { splits(most_splits(longest), n_rows * geometry.n_kv_heads) };
        let n_sequences = spans.len();
        let (window_kind, window) = match geometry.window {
            None => (0, 0),
            Some(Window::Sliding(length)) => (1, length),
            Some(Window::Chunk(length)) => (2, length),
        };
        let arguments = AttentionArguments {
            batch: self.tables.batch,
            kv: self.cache.layer(phase.layer.index()),
            queries: self.part_at(phase.queries),
            to: self.part_at(phase.to),
            sinks: phase.sinks.map_or(0, |sinks| self.vector_at(sinks)),
            partials: self.partials.address(),
            set: set_number(set),
            n_heads: geometry.n_heads as u32,
            scale: geometry.scale,
            soft_cap: geometry.soft_cap.unwrap_or(0.0),
            window_kind,
            window: u32::try_from(window).unwrap_or(u32::MAX),
            n_splits: n_splits as u32,
            reserved: 0,
            quantized: quantized
                .filter(|_| !is_prompt)
                .map_or_else(QuantizedAt::default, |rows| self.quantized[rows.index()].at()),
        };
        let format = arguments.kv.format;
        if is_prompt {
            let width = shapes::width_for(geometry.head_dim, &shapes::PROMPT_WIDTHS);
            let shape = shapes::attend_prompt(n_rows, n_sequences, &geometry);
            return self.launch(self.kernels.attend_prompt[&(format, width)], shape, &arguments);
        }
        let width = shapes::width_for(geometry.head_dim, &shapes::SPLIT_WIDTHS);
        let shape = shapes::attend_split(n_rows, n_splits, &geometry);
        let is_narrow = geometry.n_heads <= NARROW_HEADS * geometry.n_kv_heads;
        let kernels = if is_narrow { &self.kernels.attend_split } else { &self.kernels.attend_split_wide };
        self.launch(kernels[&(format, width)], shape, &arguments)?;
        if n_splits == 1 {
            return Ok(());
        }
        self.launch(self.kernels.merge_splits, shapes::merge_splits(n_rows, &geometry), &arguments)
    }

    fn launch_plan(&self, router: RouterId) -> Result<(), DeviceError> {
        let routes = &self.routes[router.index()];
        let arguments = PlanArguments { routes: routes.at, n_rows: self.n_rows(routes.shape.base) as u32, reserved: 0 };
        self.launch(self.kernels.plan_routes, shapes::plan_routes(), &arguments)
    }

    fn launch_spread(&self, router: RouterId, from: QuantizedRows, to: QuantizedRows) -> Result<(), DeviceError> {
        let [from, to_at] = [from, to].map(|rows| self.quantized[rows.index()].at());
        let arguments = SpreadArguments { routes: self.routes[router.index()].at, from, to: to_at };
        self.launch(self.kernels.spread, shapes::spread(self.n_rows(RowSet::Routed(router))), &arguments)
    }

    fn launch_expert_product(&self, product: &ExpertProductPhase) -> Result<(), DeviceError> {
        let routes = &self.routes[product.router.index()];
        let n_ranks = self.n_rows(RowSet::Routed(product.router));
        let input: QuantizedAt = self.quantized[product.input.index()].at();
        let groups = by_type(&product.outputs, |experts| self.description.experts[experts.index()][0].tensor_type());
        for (tensor_type, members) in groups {
            let mut arguments = ExpertProductArguments { input, routes: routes.at, ..Zeroable::zeroed() };
            for (index, output) in members.iter().enumerate() {
                let matrix = &self.description.experts[output.matrix.index()][0];
                let (to, first_row) = (self.part_at(output.to), arguments.n_out);
                arguments.outputs[index] = OutputAt { matrix: matrix.at(), to, add: 0, first_row };
                arguments.matrix_bytes[index] = matrix.n_bytes() as u64;
                arguments.n_out += matrix.n_rows() as u32;
            }
            arguments.n_outputs = members.len() as u32;
            let n_tiles = routes.max_tiles(n_ranks);
            let shape = shapes::product(arguments.n_out as usize, n_tiles);
            self.launch(self.kernels.expert_products[&tensor_type], shape, &arguments)?;
        }
        Ok(())
    }

    fn states_of(&self, layer: StateLayerId) -> StatesArguments {
        let layer = self.description.states[layer.index()];
        StatesArguments {
            state_offset: layer.start as u64,
            n_channels: layer.shape.n_channels as u32,
            n_taps: layer.shape.n_taps as u32,
            n_heads: layer.shape.n_heads as u32,
            key_dim: layer.shape.key_dim as u32,
            value_dim: layer.shape.value_dim as u32,
            ..self.tables.states
        }
    }

    fn launch_convolution(&self, options: &ConvolutionOptions) -> Result<(), DeviceError> {
        let states = self.states_of(options.layer);
        let arguments = ConvolveArguments {
            states,
            from: self.part_at(options.from),
            to: self.part_at(options.to),
            taps: self.vector_at(options.taps),
            bias: options.bias.map_or(0, |bias| self.vector_at(bias)),
            has_silu: u32::from(options.has_silu),
            reserved: 0,
        };
        self.launch(
            self.kernels.convolve,
            shapes::convolve(self.batch.n_tokens(), states.n_channels as usize),
            &arguments,
        )
    }

    fn launch_recurrence(&self, options: &RecurOptions) -> Result<(), DeviceError> {
        let states = self.states_of(options.layer);
        let [keys, queries, values] = [options.keys, options.queries, options.values].map(|part| self.part_at(part));
        let [decays, strengths, to] = [options.decays, options.strengths, options.to].map(|part| self.part_at(part));
        let arguments = RecurArguments {
            states,
            keys,
            queries,
            values,
            decays,
            strengths,
            to,
            n_keys: options.keys.width() as u32 / states.key_dim,
            is_delta: u32::from(options.is_delta),
            is_interleaved: u32::from(options.sharing == KeySharing::Interleaved),
            reserved: 0,
        };
        let n_sequences = self.batch.spans(RowSet::Tokens).len();
        self.launch(self.kernels.recur, shapes::recur(n_sequences, &states), &arguments)
    }
}

/// The outputs of a product, in groups of one type that a launch takes.
fn by_type<M: Copy>(outputs: &[Output<M>], type_of: impl Fn(M) -> TensorType) -> Vec<(TensorType, Vec<&Output<M>>)> {
    let mut groups: Vec<(TensorType, Vec<&Output<M>>)> = Vec::new();
    for output in outputs {
        let tensor_type = type_of(output.matrix);
        let mut open = groups.iter_mut().filter(|(of, members)| *of == tensor_type && members.len() < MAX_OUTPUTS);
        match open.next() {
            Some((_, members)) => members.push(output),
            None => groups.push((tensor_type, vec![output])),
        }
    }
    groups
}

/// The launch arguments of a kernel for few operations, in place of `arguments`.
fn few_rows(arguments: &RowsArguments, few: &[Operation]) -> FewRowsArguments {
    let mut operations = [Operation::default(); MAX_FEW_OPERATIONS];
    operations[..few.len()].copy_from_slice(few);
    let RowsArguments { batch, n_operations, set, slice_width, .. } = *arguments;
    FewRowsArguments { batch, operations, n_operations, set, slice_width, reserved: 0 }
}

fn set_number(set: RowSet) -> u32 {
    match set {
        RowSet::Tokens => SET_TOKENS,
        RowSet::Selected => SET_SELECTED,
        RowSet::Routed(_) => SET_ROUTED,
    }
}

/// The width and number of slices into which rows are divided; a width of 0 if they are not divided. Few rows do not
/// fill a card.
fn slices(columns: Option<usize>, n_rows: usize) -> (usize, usize) {
    const SLICE: usize = 1024;
    match columns {
        Some(columns) if columns > SLICE && n_rows < 256 => (SLICE, columns.div_ceil(SLICE)),
        _ => (0, 1),
    }
}

/// Parts of a context that each have some work. Their number is a power of two, so that it rarely changes.
fn most_splits(longest: usize) -> usize {
    longest.div_ceil(128).next_power_of_two()
}

/// Parts into which a context is cut, so that there are about two blocks for every multiprocessor of a large card.
fn splits(most: usize, n_blocks: usize) -> usize {
    const BLOCKS: usize = 264;
    most.min(BLOCKS.div_ceil(n_blocks.max(1)).next_power_of_two()).clamp(1, 64)
}

/// Whether a product reads the weights without unpacking them first.
pub(super) fn is_few(n_rows: usize) -> bool {
    n_rows <= MAX_FEW_ROWS
}
