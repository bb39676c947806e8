//! Random programs on the processor and on an emulated device, step by step: both must give the same results.

use std::cell::Cell;
use std::num::NonZeroUsize;

use hone_kernels::pool::Pool;
use hone_kernels::step::{self, ProgramBuilder, RowOperation, RowSet, Rows, Sequence, WeightMatrix};
use hone_kernels::{BLOCK_TOKENS, Matrix, TensorType, dequantize};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Program;
use crate::device::SharedDevice;
use crate::matrix::DeviceMatrix;

mod attention;
mod bandwidth;
mod experts;
mod matmul;
mod products;
mod row_operations;
mod states;

const VOCAB_SIZE: usize = 23;

/// Random numbers that are the same in every run.
struct Random(ChaCha8Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    fn is_lucky(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn floats(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| size * self.unit()).collect()
    }

    /// The numbers below `n`, in any order.
    fn order(&mut self, n: usize) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..n as u32).collect();
        (1..n).for_each(|last| numbers.swap(last, self.below(last + 1)));
        numbers
    }

    fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(VOCAB_SIZE) as u32).collect()
    }
}

/// A matrix in the format of a file.
struct Tensor {
    tensor_type: TensorType,
    n_rows: usize,
    n_columns: usize,
    bytes: Vec<u8>,
}

impl Tensor {
    fn of_floats(n_columns: usize, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { tensor_type: TensorType::F32, n_rows: values.len() / n_columns, n_columns, bytes }
    }

    /// Random bytes, with scales and minimums that are reasonable numbers.
    fn random(random: &mut Random, tensor_type: TensorType, n_rows: usize, n_columns: usize) -> Self {
        let n_elements = n_rows * n_columns;
        let mut bytes = vec![0; n_elements / tensor_type.block_elements() * tensor_type.block_bytes()];
        random.0.fill_bytes(&mut bytes);
        for block in bytes.chunks_exact_mut(tensor_type.block_bytes()) {
            let value = random.unit();
            match tensor_type {
                TensorType::F32 => block.copy_from_slice(&value.to_le_bytes()),
                TensorType::F16 => block.copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
                TensorType::BF16 => block.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
                TensorType::MXFP4 => block[0] = random.pick(&[119, 121, 122]),
                _ => {
                    for &at in scales(tensor_type) {
                        let size = random.pick(&[0.01, 0.02, 0.05]);
                        block[at..at + 2].copy_from_slice(&half::f16::from_f32(size * random.unit()).to_le_bytes());
                    }
                }
            }
        }
        Tensor { tensor_type, n_rows, n_columns, bytes }
    }

    fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.n_rows * self.n_columns];
        dequantize(self.tensor_type, &self.bytes, &mut values);
        values
    }
}

/// The offsets of the f16 numbers in a block.
fn scales(tensor_type: TensorType) -> &'static [usize] {
    match tensor_type {
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q6_K => &[208],
        TensorType::TQ1_0 => &[52],
        TensorType::TQ2_0 => &[64],
        _ => &[0],
    }
}

/// Types whose blocks fit rows of `n_columns` columns.
fn types_for(n_columns: usize) -> Vec<TensorType> {
    TensorType::ALL.into_iter().filter(|each| n_columns.is_multiple_of(each.block_elements())).collect()
}

/// The destination of a program's weights.
trait Loader {
    type Matrix: WeightMatrix;

    fn matrix(&self, tensor: &Tensor) -> Self::Matrix;

    /// Matrices stored one after the other in a tensor.
    fn experts(&self, tensor: &Tensor, n_experts: usize) -> Vec<Self::Matrix>;
}

struct Native;

impl Loader for Native {
    type Matrix = Matrix;

    fn matrix(&self, tensor: &Tensor) -> Matrix {
        Matrix::pack(tensor.tensor_type, tensor.n_rows, tensor.n_columns, &tensor.bytes).unwrap()
    }

    fn experts(&self, tensor: &Tensor, n_experts: usize) -> Vec<Matrix> {
        let (n_rows, n_columns) = (tensor.n_rows / n_experts, tensor.n_columns);
        let parts = tensor.bytes.chunks_exact(tensor.bytes.len() / n_experts);
        parts.map(|bytes| Matrix::pack(tensor.tensor_type, n_rows, n_columns, bytes).unwrap()).collect()
    }
}

struct Emulated(SharedDevice);

impl Loader for Emulated {
    type Matrix = DeviceMatrix;

    fn matrix(&self, tensor: &Tensor) -> DeviceMatrix {
        let Tensor { tensor_type, n_rows, n_columns, ref bytes } = *tensor;
        DeviceMatrix::upload(&self.0, tensor_type, n_rows, n_columns, bytes).unwrap()
    }

    fn experts(&self, tensor: &Tensor, n_experts: usize) -> Vec<DeviceMatrix> {
        self.matrix(tensor).split(n_experts)
    }
}

/// Describes a program, the same one for every loader, and returns the rows of its results.
trait Recipe {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows;
}

thread_local! {
    /// The steps that this thread has compared.
    static N_COMPARED: Cell<usize> = const { Cell::new(0) };
}

/// Compares random programs until 2000 steps have been compared: with the five kinds of programs, 10 000.
fn compare_many(mut check: impl FnMut(&mut Random)) {
    for seed in 10_000.. {
        if N_COMPARED.get() >= 2000 {
            println!("{} steps of {} programs", N_COMPARED.get(), seed - 10_000);
            return;
        }
        println!("seed {seed}");
        check(&mut Random::new(seed));
    }
}

/// A program on the processor and on the emulated device.
struct Twins {
    native: step::Program,
    pool: Pool,
    emulated: Program,
    width: usize,
}

impl Twins {
    fn new(recipe: &impl Recipe) -> Self {
        let mut builder = ProgramBuilder::new();
        let output = recipe.describe(&Native, &mut builder);
        let native = builder.finish(output);
        let device = SharedDevice::host();
        let mut builder = ProgramBuilder::new();
        let output = recipe.describe(&Emulated(device.clone()), &mut builder);
        let emulated = Program::new(&device, builder.describe(output), &[]).unwrap();
        Twins { native, pool: Pool::new(NonZeroUsize::MIN), emulated, width: output.width() }
    }

    /// Runs a step on both, and returns the results of the emulated and of the native one.
    fn run(&mut self, sequences: &[Sequence<'_>]) -> (Vec<f32>, Vec<f32>) {
        self.emulated.run(sequences.iter().copied()).unwrap();
        let theirs = self.native.run(&mut self.pool, sequences.iter().copied()).unwrap().to_vec();
        let ours = self.emulated.output().to_vec();
        N_COMPARED.set(N_COMPARED.get() + 1);
        assert_eq!(ours.len(), theirs.len(), "both have a row for each selected token");
        assert!(theirs.iter().all(|value| value.is_finite()), "the expected values are numbers");
        (ours, theirs)
    }

    /// Runs a step on both, and checks that no row differs by more than this fraction of its largest value.
    #[track_caller]
    fn check(&mut self, sequences: &[Sequence<'_>], tolerance: f32, what: &str) {
        self.check_from(1e-6, sequences, tolerance, what);
    }

    /// Checks that no value differs by more than `tolerance` times the largest value of its row, or times `least` if that is larger.
    #[track_caller]
    fn check_from(&mut self, least: f32, sequences: &[Sequence<'_>], tolerance: f32, what: &str) {
        let (ours, theirs) = self.run(sequences);
        let rows = std::iter::zip(ours.chunks_exact(self.width), theirs.chunks_exact(self.width));
        for (row, (ours, theirs)) in rows.enumerate() {
            let largest = theirs.iter().fold(least, |largest: f32, value| largest.max(value.abs()));
            let gaps = std::iter::zip(ours, theirs).map(|(one, other)| (one - other).abs() / largest);
            if let Some((column, gap)) = gaps.enumerate().find(|(_, gap)| gap.is_nan() || *gap > tolerance) {
                let (one, other) = (ours[column], theirs[column]);
                panic!("{what}: row {row} differs at {column} by {gap}: {one} and not {other}");
            }
        }
    }
}

/// Rows of all tokens, taken from a table.
fn embed<L: Loader>(loader: &L, builder: &mut ProgramBuilder<L::Matrix>, table: &Tensor) -> Rows {
    let to = builder.rows(RowSet::Tokens, table.n_columns);
    let table = builder.matrix(loader.matrix(table));
    builder.for_each_row(RowSet::Tokens, vec![RowOperation::Embed { table, scale: 1.0, to }]);
    to
}

/// These rows of the selected tokens.
fn select<M: WeightMatrix>(builder: &mut ProgramBuilder<M>, rows: Rows) -> Rows {
    let selected = builder.rows(RowSet::Selected, rows.width());
    let gather = RowOperation::Gather { from: rows.all(), to: selected.all() };
    builder.for_each_row(RowSet::Selected, vec![gather]);
    selected
}

/// A sequence from its beginning, all of whose results are wanted.
fn whole<'a>(tokens: &'a [u32], blocks: &'a [u32]) -> Sequence<'a> {
    Sequence { tokens, position: 0, blocks, first_selected: 0, n_selected: tokens.len(), states: None }
}

/// A sequence that grows from step to step.
struct Text {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    n_done: usize,
}

/// Texts of `n_tokens` tokens, with blocks in any order.
fn texts(random: &mut Random, n_texts: usize, n_tokens: usize) -> Vec<Text> {
    let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS);
    let order = random.order(n_texts * n_blocks);
    let text = |blocks: &[u32]| Text { tokens: random.tokens(n_tokens), blocks: blocks.to_vec(), n_done: 0 };
    order.chunks_exact(n_blocks).map(text).collect()
}

impl Text {
    /// Its next tokens.
    fn advance(&mut self, n_tokens: usize) -> Sequence<'_> {
        let position = self.n_done;
        self.n_done += n_tokens;
        Sequence { position, ..whole(&self.tokens[position..self.n_done], &self.blocks) }
    }
}

/// Wants only some results of a sequence, maybe none.
fn select_some<'a>(random: &mut Random, sequence: Sequence<'a>) -> Sequence<'a> {
    let first_selected = random.below(sequence.tokens.len() + 1);
    let n_selected = random.below(sequence.tokens.len() - first_selected + 1);
    Sequence { first_selected, n_selected, ..sequence }
}
