//! Products of every type of weights with few and with many rows.

use hone_kernels::step::{ProductOutput, ProgramBuilder, RowOperation, RowSet, Rows};
use hone_kernels::{ActivationBits, TensorType};

use super::{Loader, Random, Recipe, Tensor, Twins, VOCAB_SIZE, compare_many, embed, select, types_for, whole};

/// Relative to the sum of |w x|. With few rows, the device rounds activations to 8 bits, so that the error of one of
/// them is up to 1/254 of the largest of its 32; with many, weights and activations have the 8 bits of bfloat16. Most
/// errors of a sum cancel out: the largest was 2.6e-3.
const TOLERANCE: f32 = 5e-3;

/// A product of the first columns of a table's rows. The results are added to the other columns.
struct Products {
    width: usize,
    outputs: Vec<(Tensor, bool)>,
    table: Tensor,
}

impl Products {
    fn random(random: &mut Random, width: usize, first: TensorType, n_others: usize) -> Self {
        let others: Vec<TensorType> = (0..n_others).map(|_| random.pick(&types_for(width))).collect();
        let outputs: Vec<(Tensor, bool)> = [first]
            .iter()
            .chain(&others)
            .map(|tensor_type| {
                let n_rows = random.between(1, 45);
                (Tensor::random(random, *tensor_type, n_rows, width), random.is_lucky())
            })
            .collect();
        let n_out: usize = outputs.iter().map(|(tensor, _)| tensor.n_rows).sum();
        let table = Tensor::of_floats(width + n_out, &random.floats(VOCAB_SIZE * (width + n_out), 2.0));
        Products { width, outputs, table }
    }

    /// The error scales of a token's results: the sums of the absolute values of their terms.
    fn sizes(&self, token: u32, table: &[f32], weights: &[Vec<f32>]) -> Vec<f32> {
        let row = &table[token as usize * self.table.n_columns..][..self.table.n_columns];
        let (input, before) = row.split_at(self.width);
        let rows = weights.iter().flat_map(|weights| weights.chunks_exact(self.width));
        let size = |weights: &[f32]| std::iter::zip(weights, input).map(|(w, x)| (w * x).abs()).sum::<f32>();
        std::iter::zip(rows, before).map(|(weights, before)| size(weights) + 1e-2 * before.abs()).collect()
    }

    fn check(&self, random: &mut Random, twins: &mut Twins, n_tokens: usize) {
        let tokens = random.tokens(n_tokens);
        let (table, weights) = (self.table.values(), self.outputs.iter().map(|(tensor, _)| tensor.values()));
        let weights: Vec<Vec<f32>> = weights.collect();
        let sizes = tokens.iter().flat_map(|token| self.sizes(*token, &table, &weights));
        let (ours, theirs) = twins.run(&[whole(&tokens, &[0, 1])]);
        let types: Vec<TensorType> = self.outputs.iter().map(|(tensor, _)| tensor.tensor_type).collect();
        for (index, ((ours, theirs), size)) in std::iter::zip(&ours, &theirs).zip(sizes).enumerate() {
            let is_close = (ours - theirs).abs() <= TOLERANCE * size + 1e-6;
            let (row, column) = (index / twins.width, index % twins.width);
            let what = format!("{types:?} of {} columns, row {row} of {n_tokens}, column {column}", self.width);
            assert!(is_close, "{what}: {ours} and not {theirs}, of {size}");
        }
    }
}

impl Recipe for Products {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let embedded = embed(loader, builder, &self.table);
        let n_out = self.table.n_columns - self.width;
        let out = builder.rows(RowSet::Tokens, n_out);
        let input = builder.quantized(RowSet::Tokens, self.width, ActivationBits::Sixteen);
        let quantize = RowOperation::Quantize { from: embedded.part(0, self.width), to: input };
        let copy = RowOperation::Copy { from: embedded.part(self.width, n_out), to: out.all() };
        builder.for_each_row(RowSet::Tokens, vec![quantize, copy]);
        let mut first = 0;
        let mut outputs = Vec::new();
        for (tensor, add) in &self.outputs {
            let to = out.part(first, tensor.n_rows);
            outputs.push(ProductOutput { matrix: builder.matrix(loader.matrix(tensor)), to, add: *add });
            first += tensor.n_rows;
        }
        builder.product(input, &outputs);
        select(builder, out)
    }
}

fn check_products(random: &mut Random, width: usize, first: TensorType, n_others: usize) {
    let products = Products::random(random, width, first, n_others);
    let mut twins = Twins::new(&products);
    for (fewest, most) in [(1, 1), (2, 8), (9, 16), (17, 40)] {
        let n_tokens = random.between(fewest, most);
        products.check(random, &mut twins, n_tokens);
    }
}

#[test]
fn products_of_every_type_are_those_of_the_processor() {
    let mut random = Random::new(4);
    for tensor_type in TensorType::ALL {
        for _ in 0..3 {
            let unit = tensor_type.block_elements().max(32);
            let width = unit * random.between(1, 1024 / unit);
            check_products(&mut random, width, tensor_type, 0);
            let n_others = random.between(1, 6);
            check_products(&mut random, 256, tensor_type, n_others);
        }
    }
}

#[test]
fn products_of_floats_may_have_columns_that_are_no_whole_blocks() {
    let mut random = Random::new(5);
    for width in [8, 24, 40, 104, 264] {
        for tensor_type in [TensorType::F32, TensorType::F16, TensorType::BF16] {
            check_products(&mut random, width, tensor_type, 1);
        }
    }
}

#[test]
#[ignore = "takes minutes: scripts/check.sh batches runs it"]
fn many_random_batches_of_products_are_those_of_the_processor() {
    compare_many(|random| {
        let tensor_type = random.pick(&TensorType::ALL);
        let unit = tensor_type.block_elements().max(32);
        let n_others = random.below(7);
        let width = if n_others > 0 { 256 } else { unit * random.between(1, 1024 / unit) };
        check_products(random, width, tensor_type, n_others);
    });
}

/// A program that only embeds.
struct Embedding(Tensor);

impl Recipe for Embedding {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let embedded = embed(loader, builder, &self.0);
        select(builder, embedded)
    }
}

#[test]
fn tokens_are_embedded_from_every_type() {
    let mut random = Random::new(6);
    for tensor_type in TensorType::ALL {
        for n_columns in [256, 1280] {
            let table = Tensor::random(&mut random, tensor_type, VOCAB_SIZE, n_columns);
            let mut twins = Twins::new(&Embedding(table));
            // The device converts unsupported types to bfloat16.
            let tolerance = if crate::is_native(tensor_type) { 1e-6 } else { 4e-3 };
            twins.check(&[whole(&random.tokens(3), &[0])], tolerance, &tensor_type.to_string());
        }
    }
}
