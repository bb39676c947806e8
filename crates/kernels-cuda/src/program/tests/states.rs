//! Layers with states: steps begin from any earlier state, alone or together, and leave several.

use hone_kernels::BLOCK_TOKENS;
use hone_kernels::step::{
    ConvolutionOptions, KeySharing, Part, ProgramBuilder, RecurOptions, RowOperation, RowSet, Rows, Sequence,
    SequenceStates, StateAt, StateShape, WeightMatrix,
};

use super::{Loader, Random, Recipe, Tensor, Twins, VOCAB_SIZE, compare_many, embed, select, whole};

/// Only single-precision sums are rounded: the largest error was 1e-6.
const TOLERANCE: f32 = 1e-5;

/// Two layers, the second of which has only a convolution.
struct Layers {
    shape: StateShape,
    n_keys: usize,
    is_delta: bool,
    sharing: KeySharing,
    has_silu: bool,
    taps: Vec<f32>,
    bias: Option<Vec<f32>>,
    other: StateShape,
    other_taps: Vec<f32>,
    table: Tensor,
}

/// Keys, queries, the convolution's channels, decays and strengths are columns of a token's row.
fn widths(shape: &StateShape, n_keys: usize) -> [usize; 5] {
    let keys = n_keys * shape.key_dim;
    [keys, keys, shape.n_channels, shape.n_heads, shape.n_heads]
}

impl Layers {
    fn random(random: &mut Random, key_dim: usize, value_dim: usize, is_delta: bool) -> Self {
        let n_keys = random.between(1, 3);
        let n_heads = n_keys * random.between(1, 3);
        // The values are the output of the convolution.
        let (n_channels, n_taps) = (n_heads * value_dim, random.between(1, 16));
        let shape = StateShape { n_channels, n_taps, n_heads, key_dim, value_dim };
        let other = StateShape { n_taps: random.between(2, 5), n_heads: 0, ..shape };
        let width = widths(&shape, n_keys).iter().sum();
        Layers {
            n_keys,
            is_delta,
            sharing: random.pick(&[KeySharing::Grouped, KeySharing::Interleaved]),
            has_silu: random.is_lucky(),
            taps: random.floats(n_taps * n_channels, 0.5),
            bias: random.is_lucky().then(|| random.floats(n_channels, 0.5)),
            other_taps: random.floats(other.n_taps * n_channels, 0.5),
            table: Tensor::of_floats(width, &random.floats(VOCAB_SIZE * width, 1.0)),
            other,
            shape,
        }
    }

    fn parts(&self, rows: Rows) -> [Part; 5] {
        let mut first = 0;
        widths(&self.shape, self.n_keys).map(|width| {
            first += width;
            rows.part(first - width, width)
        })
    }

    /// Keys have length one, and paces are between zero and one, so that matrices do not grow.
    fn prepare<M: WeightMatrix>(&self, builder: &mut ProgramBuilder<M>, rows: Rows) -> Part {
        let [keys, _, _, steps, strengths] = self.parts(rows);
        let StateShape { n_heads, key_dim, .. } = self.shape;
        let decays = builder.rows(RowSet::Tokens, n_heads).all();
        let weight = builder.vector(vec![1.0 / (key_dim as f32).sqrt(); key_dim]);
        let bias = builder.vector((0..n_heads).map(|head| head as f32 * 0.3 - 1.0).collect());
        let rates = builder.vector((0..n_heads).map(|head| -0.1 - 0.2 * head as f32).collect());
        builder.for_each_row(
            RowSet::Tokens,
            vec![
                RowOperation::Norm { values: keys, weight, epsilon: 1e-6 },
                RowOperation::Decay { steps, decays, bias, rates },
                RowOperation::Sigmoid { values: strengths },
            ],
        );
        decays
    }
}

impl Recipe for Layers {
    fn describe<L: Loader>(&self, loader: &L, builder: &mut ProgramBuilder<L::Matrix>) -> Rows {
        let embedded = embed(loader, builder, &self.table);
        let [keys, queries, from, _, strengths] = self.parts(embedded);
        let decays = self.prepare(builder, embedded);
        let width = self.shape.n_channels;
        let results = builder.rows(RowSet::Tokens, 3 * width);
        let [values, to, last] = [0, 1, 2].map(|index| results.part(index * width, width));
        let layer = builder.state_layer(self.shape);
        let taps = builder.vector(self.taps.clone());
        let bias = self.bias.clone().map(|bias| builder.vector(bias));
        let has_silu = self.has_silu;
        builder.convolution(&ConvolutionOptions { layer, from, to: values, taps, bias, has_silu });
        let (is_delta, sharing) = (self.is_delta, self.sharing);
        builder.recur(&RecurOptions { layer, keys, queries, values, decays, strengths, is_delta, sharing, to });
        let layer = builder.state_layer(self.other);
        let taps = builder.vector(self.other_taps.clone());
        builder.convolution(&ConvolutionOptions { layer, from: to, to: last, taps, bias: None, has_silu: false });
        select(builder, results)
    }
}

/// A sequence's part of a step.
struct Piece {
    tokens: Vec<u32>,
    before: Option<StateAt>,
    written: Vec<StateAt>,
    blocks: Vec<u32>,
}

impl Piece {
    /// Resumes from any existing state, or from the beginning, and writes some new ones, numbered from `first_state`.
    fn random(random: &mut Random, known: &[StateAt], number: usize, first_state: u32, n_tokens: usize) -> Self {
        let before = if known.is_empty() || random.below(4) == 0 { None } else { Some(random.pick(known)) };
        let position = before.map_or(0, |before| before.position);
        let mut ends: Vec<usize> = (0..random.below(4)).map(|_| position + random.between(1, n_tokens)).collect();
        ends.push(position + n_tokens);
        ends.sort_unstable();
        ends.dedup();
        let written = (first_state..).zip(ends).map(|(state, position)| StateAt { position, state }).collect();
        let n_blocks = (position + n_tokens).div_ceil(BLOCK_TOKENS);
        let blocks = (0..n_blocks).map(|block| (block * 4 + number) as u32).collect();
        Piece { tokens: random.tokens(n_tokens), before, written, blocks }
    }

    fn sequence(&self) -> Sequence<'_> {
        let states = SequenceStates { before: self.before.map(|before| before.state), written: &self.written };
        let position = self.before.map_or(0, |before| before.position);
        Sequence { position, states: Some(states), ..whole(&self.tokens, &self.blocks) }
    }
}

fn check_steps(random: &mut Random, layers: &Layers) {
    let mut twins = Twins::new(layers);
    let mut known: Vec<StateAt> = Vec::new();
    for step in 0..8u32 {
        let is_decoding = random.is_lucky();
        let pieces: Vec<Piece> = (0..random.between(1, 4))
            .map(|number| {
                let n_tokens = if is_decoding { 1 } else { random.between(1, 30) };
                Piece::random(random, &known, number, 100 * step + 10 * number as u32, n_tokens)
            })
            .collect();
        let sequences: Vec<Sequence<'_>> = pieces.iter().map(Piece::sequence).collect();
        let Layers { shape, n_keys, is_delta, sharing, .. } = layers;
        let what = format!("step {step} of {shape:?}, {n_keys} keys, {sharing:?}, delta: {is_delta}");
        twins.check(&sequences, TOLERANCE, &what);
        known.extend(pieces.iter().flat_map(|piece| piece.written.iter().copied()));
        // No sequence resumes from this one.
        if known.len() > 3 {
            let freed = known.swap_remove(random.below(known.len())).state;
            twins.native.free_state(freed);
            twins.emulated.free_state(freed);
        }
    }
}

#[test]
fn states_that_are_left_and_taken_up_again_are_those_of_the_processor() {
    let mut random = Random::new(8);
    let sizes = [(1, 1), (7, 5), (16, 24), (64, 64), (65, 33), (128, 128), (100, 70), (130, 17), (256, 40)];
    for (key_dim, value_dim) in sizes {
        for is_delta in [false, true] {
            let layers = Layers::random(&mut random, key_dim, value_dim, is_delta);
            check_steps(&mut random, &layers);
        }
    }
}

#[test]
#[ignore = "takes minutes: scripts/check.sh batches runs it"]
fn many_random_batches_of_states_are_those_of_the_processor() {
    compare_many(|random| {
        let [key_dim, value_dim] = [(); 2].map(|()| random.between(1, 160));
        let is_delta = random.is_lucky();
        let layers = Layers::random(random, key_dim, value_dim, is_delta);
        check_steps(random, &layers);
    });
}
