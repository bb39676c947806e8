//! Operations on rows: each by itself at any width and place, and many after one another on the same rows.

use hone_kernels::step::{Part, ProductOutput, ProgramBuilder, RopePairs, RowOperation, RowSet, Rows, WeightMatrix};
use hone_kernels::{Activation, ActivationBits, TensorType};

use super::{Loader, Random, Recipe, Tensor, Twins, VOCAB_SIZE, compare_many, embed, select, select_some, whole};

/// Hands out columns of a row one after the other, with random gaps.
struct Columns {
    rows: Rows,
    next: usize,
}

impl Columns {
    fn take(&mut self, random: &mut Random, width: usize) -> Part {
        let first = self.next + random.below(4);
        self.next = first + width;
        self.rows.part(first, width)
    }

    fn take_many<const N: usize>(&mut self, random: &mut Random, width: usize) -> [Part; N] {
        [(); N].map(|()| self.take(random, width))
    }
}

/// Every operation, each on columns of its own, in any order and in phases of any length.
struct Alone {
    seed: u64,
    set: RowSet,
    table: Tensor,
}

const ALONE_WIDTH: usize = 8000;

fn width(random: &mut Random) -> usize {
    let most = random.pick(&[9, 70, 300]);
    random.between(1, most)
}

/// Operations on every element by itself.
fn on_elements<M: WeightMatrix>(
    random: &mut Random,
    builder: &mut ProgramBuilder<M>,
    columns: &mut Columns,
) -> Vec<RowOperation> {
    let mut parts = |random: &mut Random| {
        let width = width(random);
        columns.take_many::<2>(random, width)
    };
    let mut operations = Vec::new();
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::ClampedSilu] {
        let [gate, up] = parts(random);
        operations.push(RowOperation::Gate { activation, gate, up });
    }
    let [[from, to], [summand, sum], [by, product]] = [(); 3].map(|()| parts(random));
    operations.push(RowOperation::Copy { from, to });
    operations.push(RowOperation::Add { from: summand, to: sum });
    operations.push(RowOperation::Multiply { by, to: product });
    let [[scaled, capped], [gated, gate], [sharpened, biased]] = [(); 3].map(|()| parts(random));
    operations.push(RowOperation::Scale { values: scaled, factor: -0.7 });
    operations.push(RowOperation::SoftCap { values: capped, cap: 1.5 });
    operations.push(RowOperation::GateSigmoid { values: gated, gate });
    operations.push(RowOperation::Sharpen { values: sharpened, rate: 0.3, interval: 8, offset: random.below(3) });
    let bias = builder.vector(random.floats(biased.width(), 1.0));
    operations.push(RowOperation::AddBias { bias, to: biased });
    let [all, values] = parts(random);
    operations.push(RowOperation::GateSigmoid { values: all, gate: columns.take(random, 1) });
    operations.push(RowOperation::Sigmoid { values });
    operations
}

/// Operations on heads.
fn on_heads<M: WeightMatrix>(
    random: &mut Random,
    builder: &mut ProgramBuilder<M>,
    columns: &mut Columns,
) -> Vec<RowOperation> {
    let mut operations = Vec::new();
    let (n_heads, head_dim) = (random.between(1, 9), random.between(1, 40));
    let [first, second, sum, more] = columns.take_many(random, n_heads * head_dim);
    let from = columns.take(random, 2 * n_heads * head_dim);
    operations.push(RowOperation::Unzip { from, head_dim, first, second });
    let factors = builder.vector(random.floats(n_heads, 1.0));
    operations.push(RowOperation::AddHeads { from: more, factors, to: sum });
    let [steps, decays] = columns.take_many(random, n_heads);
    let [bias, rates] = [15.0, 0.2].map(|size| builder.vector(random.floats(n_heads, size)));
    operations.push(RowOperation::Decay { steps, decays, bias, rates });
    // Many narrow heads, few wide ones, and one that is wider than a warp keeps.
    let wide = random.between(513, 700);
    for (n_heads, head_dim) in [(n_heads, head_dim), (random.between(20, 40), random.between(1, 12)), (2, wide), (1, 7)]
    {
        let values = columns.take(random, n_heads * head_dim);
        let weight = builder.vector(random.floats(head_dim, 1.0));
        operations.push(RowOperation::Norm { values, weight, epsilon: 1e-5 });
    }
    operations
}

/// Rotations of whole heads and of parts, some of which are processed in fours.
fn rotations<M: WeightMatrix>(
    random: &mut Random,
    builder: &mut ProgramBuilder<M>,
    set: RowSet,
    columns: &mut Columns,
) -> (Vec<RowOperation>, Vec<RowOperation>) {
    let (mut angles, mut operations) = (Vec::new(), Vec::new());
    for pairs in [RopePairs::Neighbours, RopePairs::Halves] {
        for unit in [1, 4] {
            let n_pairs = unit * random.between(1, 6);
            let head_dim = 2 * n_pairs + unit * random.below(3);
            let frequencies = (0..n_pairs).map(|pair| 0.6f32.powi(pair as i32)).collect();
            let rope = builder.rope(set, pairs, frequencies, 1.2);
            angles.push(RowOperation::Angles(rope));
            for _ in 0..2 {
                let n_heads = random.between(1, 6);
                let heads = columns.take(random, n_heads * head_dim);
                operations.push(RowOperation::Rotate { heads, head_dim, rope });
            }
        }
    }
    (angles, operations)
}

impl Recipe for Alone {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let random = &mut Random::new(self.seed);
        let mut rows = embed(loader, builder, &self.table);
        if self.set == RowSet::Selected {
            rows = select(builder, rows);
        }
        let columns = &mut Columns { rows, next: 0 };
        let mut others = on_elements(random, builder, columns);
        others.extend(on_heads(random, builder, columns));
        let (mut operations, rotations) = rotations(random, builder, self.set, columns);
        others.extend(rotations);
        let order = random.order(others.len());
        operations.extend(order.iter().map(|index| others[*index as usize].clone()));
        while !operations.is_empty() {
            let n = random.between(1, 24).min(operations.len());
            builder.for_each_row(self.set, operations.drain(..n).collect());
        }
        if self.set == RowSet::Selected { rows } else { select(builder, rows) }
    }
}

/// Every element is compared by itself, because some operations give large numbers and some small ones. Differences in
/// the rounding of functions were up to 6e-7.
#[track_caller]
fn assert_every_element(ours: &[f32], theirs: &[f32], what: &str) {
    for (index, (ours, theirs)) in std::iter::zip(ours, theirs).enumerate() {
        let is_close = (ours - theirs).abs() <= 5e-6 * (theirs.abs() + 1.0);
        let (row, column) = (index / ALONE_WIDTH, index % ALONE_WIDTH);
        assert!(is_close, "{what}: row {row}, column {column}: {ours} and not {theirs}");
    }
}

#[test]
fn every_row_operation_gives_what_it_gives_on_the_processor_at_any_width_and_place() {
    let mut random = Random::new(11);
    for seed in 100..112 {
        let table = Tensor::of_floats(ALONE_WIDTH, &random.floats(VOCAB_SIZE * ALONE_WIDTH, 8.0));
        let set = random.pick(&[RowSet::Tokens, RowSet::Selected]);
        let mut twins = Twins::new(&Alone { seed, set, table });
        for n_tokens in [1, random.between(2, 12), 66] {
            let tokens = random.tokens(n_tokens);
            let (ours, theirs) = twins.run(&[select_some(&mut random, whole(&tokens, &[0, 1, 2]))]);
            assert_every_element(&ours, &theirs, &format!("seed {seed}, {n_tokens} tokens, {set:?}"));
        }
    }
}

/// Many operations on the same three parts of rows, each of which may depend on those before it.
struct Together {
    seed: u64,
    width: usize,
    n_operations: usize,
    /// Without norms, columns do not depend on each other, and wide rows are cut into slices.
    has_norms: bool,
    /// Whether the result is a product of the rows quantized last, instead of the rows.
    gives_product: bool,
    table: Tensor,
}

impl Together {
    fn random(random: &mut Random, seed: u64) -> Self {
        let most = random.pick(&[40, 300, 3000]);
        let unit = random.pick(&[1, 4, 32]);
        let width = random.between(1, most).next_multiple_of(unit);
        Together {
            seed,
            width,
            n_operations: random.between(3, 24),
            has_norms: random.below(3) > 0,
            gives_product: width.is_multiple_of(32) && random.is_lucky(),
            table: Tensor::of_floats(3 * width, &random.floats(VOCAB_SIZE * 3 * width, 2.0)),
        }
    }

    /// The next operation, with measures that keep numbers from growing without bound.
    fn next<M: WeightMatrix>(
        &self,
        random: &mut Random,
        builder: &mut ProgramBuilder<M>,
        parts: &[Part],
    ) -> Vec<RowOperation> {
        let order = random.order(3);
        let [to, from] = [order[0], order[1]].map(|index| parts[index as usize]);
        let cap = RowOperation::SoftCap { values: to, cap: 4.0 };
        let vector = builder.vector(random.floats(self.width, 1.0));
        match random.below(if self.has_norms { 12 } else { 7 }) {
            0 => vec![RowOperation::Copy { from, to }],
            1 | 2 => vec![RowOperation::Add { from, to }],
            3 => vec![RowOperation::Multiply { by: from, to }, cap],
            4 => vec![RowOperation::Gate { activation: Activation::Silu, gate: to, up: from }, cap],
            5 => vec![RowOperation::AddBias { bias: vector, to }, RowOperation::Scale { values: to, factor: 0.9 }],
            6 => vec![RowOperation::GateSigmoid { values: to, gate: from }],
            7 | 8 => vec![RowOperation::Norm { values: to, weight: vector, epsilon: 1e-5 }],
            9 => vec![RowOperation::Add { from, to }, RowOperation::Norm { values: to, weight: vector, epsilon: 1e-5 }],
            // As between two layers: the sum is kept, and its norm comes next.
            _ => vec![
                RowOperation::Add { from: parts[order[2] as usize], to: from },
                RowOperation::Copy { from, to },
                RowOperation::Norm { values: to, weight: vector, epsilon: 1e-5 },
            ],
        }
    }
}

impl Recipe for Together {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let random = &mut Random::new(self.seed);
        let embedded = embed(loader, builder, &self.table);
        let results = builder.rows(RowSet::Tokens, 3 * self.width + 9);
        let columns = &mut Columns { rows: results, next: 0 };
        let parts: [Part; 3] = columns.take_many(random, self.width);
        let input = builder.quantized(RowSet::Tokens, self.width, ActivationBits::Sixteen);
        let place = |index: usize| embedded.part(index * self.width, self.width);
        let mut operations: Vec<RowOperation> =
            (0..3).map(|index| RowOperation::Copy { from: place(index), to: parts[index] }).collect();
        for _ in 0..self.n_operations {
            operations.extend(self.next(random, builder, &parts));
            if random.below(4) == 0 {
                operations.push(RowOperation::Quantize { from: random.pick(&parts), to: input });
            }
        }
        let gate = RowOperation::Gate { activation: Activation::GeluTanh, gate: parts[0], up: parts[1] };
        operations.extend([gate, RowOperation::Quantize { from: parts[0], to: input }]);
        builder.for_each_row(RowSet::Tokens, operations);
        if !self.gives_product {
            return select(builder, results);
        }
        let types = [TensorType::F32, TensorType::Q4_0];
        let weights = types.map(|tensor_type| loader.matrix(&Tensor::random(random, tensor_type, 40, self.width)));
        let product = builder.rows(RowSet::Tokens, 80);
        let mut first = 0;
        let outputs = weights.map(|matrix| {
            first += 40;
            ProductOutput { matrix: builder.matrix(matrix), to: product.part(first - 40, 40), add: false }
        });
        builder.product(input, &outputs);
        select(builder, product)
    }
}

#[test]
fn row_operations_that_depend_on_each_other_see_what_those_before_them_wrote() {
    let mut random = Random::new(12);
    // Other differences were up to 3e-6.
    (200..260).for_each(|seed| check_together(&mut random, seed, 3e-5, 1e-6));
}

#[test]
#[ignore = "takes minutes: scripts/check.sh batches runs it"]
fn many_random_batches_of_row_operations_are_those_of_the_processor() {
    let mut seed = 10_000;
    compare_many(|random| {
        seed += 1;
        // Numbers of about 1 are rounded, also where they cancel each other, and a norm magnifies that.
        check_together(random, seed, 1e-3, 0.1);
    });
}

fn check_together(random: &mut Random, seed: u64, tolerance: f32, least: f32) {
    let together = Together::random(random, seed);
    let mut twins = Twins::new(&together);
    // Products have the precision of 8 bits.
    let tolerance = if together.gives_product { 2e-2 } else { tolerance };
    for n_tokens in [1, random.between(2, 30)] {
        let tokens = random.tokens(n_tokens);
        let Together { width, has_norms, gives_product, .. } = together;
        let what = format!("seed {seed}, {n_tokens} rows of {width}, norms: {has_norms}, product: {gives_product}");
        twins.check_from(least, &[whole(&tokens, &[0])], tolerance, &what);
    }
}
