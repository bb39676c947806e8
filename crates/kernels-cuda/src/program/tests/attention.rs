//! Attention over a cache, with everything before it: norms of heads, rotations, and writing keys and values.

use hone_kernels::step::{
    AttentionOptions, Part, ProductOutput, ProgramBuilder, RopePairs, RowOperation, RowSet, Rows, Sequence,
    WeightMatrix,
};
use hone_kernels::{ActivationBits, KvFormat, TensorType, Window};

use super::{Loader, Random, Recipe, Tensor, Twins, VOCAB_SIZE, compare_many, embed, select, select_some, texts};

/// Attention of prompts rounds queries and the weights of values to halves, which have 11 bits. The largest error was
/// 6e-4 of the largest value.
const PROMPT_TOLERANCE: f32 = 3e-3;

/// Attention of single tokens is nearly as precise as floats: 1e-6. But keys are rotated on both sides before the cache
/// rounds them, so that one of them may round to the next half or quant.
const TOLERANCE: f32 = 2e-4;

/// A product of the results rounds them to 8 bits on the device, or to bfloat16.
const PROJECTED_TOLERANCE: f32 = 3e-2;

struct Attention {
    format: KvFormat,
    head_dim: usize,
    n_kv_heads: usize,
    group: usize,
    window: Option<Window>,
    soft_cap: Option<f32>,
    pairs: RopePairs,
    n_pairs: usize,
    attends_from_selected: bool,
    sinks: Option<Vec<f32>>,
    norm: Option<Vec<f32>>,
    table: Tensor,
    /// The matrix that the results are multiplied with.
    projection: Option<Tensor>,
}

impl Attention {
    fn random(random: &mut Random, head_dim: usize, format: KvFormat) -> Self {
        // Wide heads are slow to emulate.
        let n_kv_heads = random.between(1, if head_dim > 128 { 2 } else { 4 });
        let group = random.between(1, 8);
        let width = (group + 2) * n_kv_heads * head_dim;
        let length = random.between(1, 50);
        let window = random.pick(&[None, Some(Window::Sliding(length)), Some(Window::Chunk(length))]);
        let pairs = random.pick(&[RopePairs::Neighbours, RopePairs::Halves]);
        // Rotations of whole heads, and of parts of them.
        let n_pairs = random.pick(&[head_dim / 2, head_dim / 4, 3]);
        Attention {
            format,
            head_dim,
            n_kv_heads,
            group,
            window,
            soft_cap: random.pick(&[None, Some(3.0)]),
            pairs,
            n_pairs,
            attends_from_selected: random.is_lucky(),
            sinks: random.is_lucky().then(|| random.floats(group * n_kv_heads, 2.0)),
            norm: random.is_lucky().then(|| random.floats(head_dim, 1.5)),
            table: Tensor::of_floats(width, &random.floats(VOCAB_SIZE * width, 1.5)),
            projection: None,
        }
    }

    /// Changes the number of heads of a group, and adds a product of the results.
    fn projected(self, random: &mut Random, group: usize, tensor_type: TensorType) -> Self {
        let n_heads = group * self.n_kv_heads;
        let width = (n_heads + 2 * self.n_kv_heads) * self.head_dim;
        Attention {
            group,
            sinks: self.sinks.is_some().then(|| random.floats(n_heads, 2.0)),
            table: Tensor::of_floats(width, &random.floats(VOCAB_SIZE * width, 1.5)),
            projection: Some(Tensor::random(random, tensor_type, 40, n_heads * self.head_dim)),
            ..self
        }
    }

    fn n_heads(&self) -> usize {
        self.group * self.n_kv_heads
    }

    fn name(&self) -> String {
        let Attention { format, head_dim, n_kv_heads, group, window, soft_cap, pairs, n_pairs, .. } = self;
        format!(
            "{format:?}, {n_kv_heads} x {group} heads of {head_dim}, {window:?}, cap {soft_cap:?}, {n_pairs} {pairs:?}, \
             {} sinks, {} norm, {} selected",
            self.sinks.is_some(),
            self.norm.is_some(),
            self.attends_from_selected
        )
    }

    /// The operations on queries or keys before they are used.
    fn prepare<M: WeightMatrix>(&self, builder: &mut ProgramBuilder<M>, heads: &[Part]) -> Vec<RowOperation> {
        let frequencies = (0..self.n_pairs).map(|pair| 0.7f32.powi(pair as i32)).collect();
        let rope = builder.rope(RowSet::Tokens, self.pairs, frequencies, 1.1);
        let mut operations = vec![RowOperation::Angles(rope)];
        if let Some(norm) = &self.norm {
            let weight = builder.vector(norm.clone());
            operations.extend(heads.iter().map(|values| RowOperation::Norm { values: *values, weight, epsilon: 1e-5 }));
        }
        let head_dim = self.head_dim;
        operations.extend(heads.iter().map(|heads| RowOperation::Rotate { heads: *heads, head_dim, rope }));
        operations
    }
}

impl Recipe for Attention {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let (width, kv_width) = (self.n_heads() * self.head_dim, self.n_kv_heads * self.head_dim);
        let projected = embed(loader, builder, &self.table);
        let queries = projected.part(0, width);
        let (keys, values) = (projected.part(width, kv_width), projected.part(width + kv_width, kv_width));
        let layer = builder.kv_layer(self.format, self.n_kv_heads, self.head_dim);
        let mut operations = self.prepare(builder, &[queries, keys]);
        operations.push(RowOperation::WriteKv { layer, keys, values });
        builder.for_each_row(RowSet::Tokens, operations);
        let sinks = self.sinks.clone().map(|sinks| builder.vector(sinks));
        let set = if self.attends_from_selected { RowSet::Selected } else { RowSet::Tokens };
        let attended = builder.rows(set, width);
        let mut from = queries;
        if self.attends_from_selected {
            let chosen = builder.rows(set, width);
            builder.for_each_row(set, vec![RowOperation::Gather { from: queries, to: chosen.all() }]);
            from = chosen.all();
        }
        let (soft_cap, window, scale) = (self.soft_cap, self.window, 1.0 / (self.head_dim as f32).sqrt());
        let to = attended.all();
        builder.attention(&AttentionOptions { layer, queries: from, to, scale, soft_cap, window, sinks });
        let results = match &self.projection {
            Some(projection) => project(loader, builder, attended, projection),
            None => attended,
        };
        if self.attends_from_selected { results } else { select(builder, results) }
    }
}

/// A product of these rows, as their only use.
fn project<L: Loader>(loader: &L, builder: &mut ProgramBuilder<L::Matrix>, rows: Rows, projection: &Tensor) -> Rows {
    let input = builder.quantized(rows.set(), rows.width(), ActivationBits::Sixteen);
    builder.for_each_row(rows.set(), vec![RowOperation::Quantize { from: rows.all(), to: input }]);
    let to = builder.rows(rows.set(), projection.n_rows);
    let matrix = builder.matrix(loader.matrix(projection));
    builder.product(input, &[ProductOutput { matrix, to: to.all(), add: false }]);
    to
}

/// The number of tokens of each sequence: one, a few, a prompt alongside single tokens, or any number.
fn sizes(random: &mut Random, n_sequences: usize) -> Vec<usize> {
    let kind = random.below(4);
    let longest = random.between(1, 70);
    let size = |index: usize| match kind {
        0 => 1,
        1 => random.between(1, 4),
        2 if index > 0 => 1,
        2 => longest,
        _ => random.below(20),
    };
    (0..n_sequences).map(size).collect()
}

fn check(twins: &mut Twins, sequences: &[Sequence<'_>], what: &str) {
    let is_prompt = sequences.iter().any(|sequence| sequence.tokens.len() > 4);
    twins.check(sequences, if is_prompt { PROMPT_TOLERANCE } else { TOLERANCE }, what);
}

/// Some steps, in which any of the sequences take part, in any order.
fn check_steps(random: &mut Random, shape: &Attention, n_steps: usize) {
    let mut twins = Twins::new(shape);
    let mut texts = texts(random, 3, n_steps * 70);
    for step in 0..n_steps {
        let n_sequences = random.between(1, texts.len());
        let sizes = sizes(random, n_sequences);
        let skipped = random.below(texts.len() - n_sequences + 1);
        let mut sequences: Vec<Sequence<'_>> = Vec::new();
        for (text, size) in texts.iter_mut().skip(skipped).zip(&sizes) {
            let sequence = text.advance(*size);
            sequences.push(if random.is_lucky() { sequence } else { select_some(random, sequence) });
        }
        if random.is_lucky() {
            sequences.reverse();
        }
        check(&mut twins, &sequences, &format!("step {step} of {sizes:?} with {}", shape.name()));
    }
}

#[test]
fn attention_of_random_shapes_is_that_of_the_processor_at_every_step() {
    let mut random = Random::new(1);
    for head_dim in [8, 32, 64, 80, 96, 112, 128, 192, 256, 512] {
        for format in [KvFormat::F16, KvFormat::Q8_0] {
            for n_steps in [3, 5] {
                let shape = Attention::random(&mut random, head_dim, format);
                check_steps(&mut random, &shape, n_steps);
            }
        }
    }
}

#[test]
#[ignore = "takes minutes: scripts/check.sh batches runs it"]
fn many_random_batches_of_attention_are_those_of_the_processor() {
    compare_many(|random| {
        let head_dim = random.pick(&[8, 32, 64, 80, 96, 112, 128, 192, 256, 512]);
        let format = random.pick(&[KvFormat::F16, KvFormat::Q8_0]);
        let n_steps = random.between(3, 8);
        let shape = Attention::random(random, head_dim, format);
        check_steps(random, &shape, n_steps);
    });
}

/// Attention writes its results in the form that a product reads, if nothing else is done with them: in one part or in
/// several, of heads that are whole groups of elements or not, and of more heads than a product of tensor cores has rows.
#[test]
fn results_are_multiplied_as_on_the_processor() {
    let mut random = Random::new(3);
    for head_dim in [8, 64, 80, 96, 128, 256] {
        for (group, tensor_type) in [(4, TensorType::Q8_0), (12, TensorType::F16), (19, TensorType::Q8_0)] {
            let shape = Attention::random(&mut random, head_dim, KvFormat::F16);
            let shape = Attention { n_kv_heads: 4, window: None, ..shape }.projected(&mut random, group, tensor_type);
            let mut twins = Twins::new(&shape);
            let mut texts = texts(&mut random, 3, 400);
            for (step, sizes) in [[200, 3, 1], [1, 1, 1], [1, 4, 2], [60, 1, 1], [1, 1, 1]].iter().enumerate() {
                let sequences = texts.iter_mut().zip(sizes).map(|(text, size)| text.advance(*size));
                let sequences: Vec<Sequence<'_>> = sequences.collect();
                twins.check(&sequences, PROJECTED_TOLERANCE, &format!("step {step} with {}", shape.name()));
            }
        }
    }
}

/// A step of single tokens is recorded once and replayed while the contexts grow: across the borders of blocks, and
/// across lengths at which contexts are cut into more parts.
#[test]
fn replayed_steps_are_those_of_the_processor_while_positions_grow() {
    let mut random = Random::new(2);
    let shape =
        Attention { window: None, attends_from_selected: false, ..Attention::random(&mut random, 64, KvFormat::F16) };
    let mut twins = Twins::new(&shape);
    let mut texts = texts(&mut random, 2, 400);
    let [first, second] = &mut texts[..] else { unreachable!("there are two") };
    check(&mut twins, &[first.advance(90), second.advance(5)], "the prompts");
    for step in 0..200 {
        // The other sequence is there only some of the time.
        let mut sequences = vec![first.advance(1)];
        if step / 25 % 2 == 0 {
            sequences.push(second.advance(1));
        }
        check(&mut twins, &sequences, &format!("token {step}"));
    }
    assert!(!twins.emulated.recordings.is_empty(), "steps were recorded");
}

/// Contexts of thousands of tokens are cut into many parts. Results that are not wanted are not computed.
#[test]
fn attention_to_long_contexts_is_that_of_the_processor() {
    let mut random = Random::new(13);
    for (head_dim, format) in [(64, KvFormat::Q8_0), (128, KvFormat::F16), (256, KvFormat::F16), (96, KvFormat::Q8_0)] {
        let window = random.pick(&[None, Some(Window::Sliding(900))]);
        let shape =
            Attention { window, attends_from_selected: true, ..Attention::random(&mut random, head_dim, format) };
        let mut twins = Twins::new(&shape);
        let mut texts = texts(&mut random, 2, 1600);
        let n_before = [random.between(1000, 1500), random.between(1, 300)];
        let silent = std::iter::zip(&mut texts, n_before);
        let silent: Vec<Sequence<'_>> = silent.map(|(text, n)| Sequence { n_selected: 0, ..text.advance(n) }).collect();
        check(&mut twins, &silent, "nothing is wanted");
        for n_tokens in [1, 4, 6] {
            let sequences: Vec<Sequence<'_>> = texts.iter_mut().map(|text| text.advance(n_tokens)).collect();
            check(&mut twins, &sequences, &format!("{n_tokens} tokens after {n_before:?} with {}", shape.name()));
            check(&mut twins, &[texts[0].advance(1)], &format!("alone after {n_before:?} with {}", shape.name()));
        }
    }
}
