//! Layers that keep a state: the results are bit-identical however the tokens are cut into steps.

use super::{matrix, numbers, pool};
use crate::ActivationBits;
use crate::elementwise::tests::sized;
use crate::step::*;

const VOCAB_SIZE: usize = sized(40, 12);
const N_HEADS: usize = 4;
const N_KEYS: usize = 2;
const KEY_DIM: usize = sized(16, 4);
const VALUE_DIM: usize = sized(24, 4);
const N_TAPS: usize = 4;
const KEYS: usize = N_KEYS * KEY_DIM;
const VALUES: usize = N_HEADS * VALUE_DIM;
const CHANNELS: usize = 2 * KEYS + VALUES;

/// Embeds tokens, convolves them over time, and lets the heads of a delta net read the result.
fn program() -> Program {
    let mut builder = ProgramBuilder::new();
    let table = builder.matrix(matrix(1, VOCAB_SIZE, CHANNELS));
    let embedded = builder.rows(RowSet::Tokens, CHANNELS);
    builder.for_each_row(RowSet::Tokens, vec![RowOperation::Embed { table, scale: 1.0, to: embedded }]);
    let shape =
        StateShape { n_channels: CHANNELS, n_taps: N_TAPS, n_heads: N_HEADS, key_dim: KEY_DIM, value_dim: VALUE_DIM };
    let layer = builder.state_layer(shape);
    let convolved = builder.rows(RowSet::Tokens, CHANNELS);
    let taps = builder.vector(numbers(2, N_TAPS * CHANNELS, 1.0));
    let (from, to) = (embedded.all(), convolved.all());
    builder.convolution(&ConvolutionOptions { layer, from, to, taps, bias: None, has_silu: true });
    let paces = builder.rows(RowSet::Tokens, 2 * N_HEADS);
    let (steps, decays) = (paces.part(0, N_HEADS), paces.part(N_HEADS, N_HEADS));
    let bias = builder.vector(numbers(3, N_HEADS, 1.0));
    let rates = builder.vector(numbers(4, N_HEADS, 0.5).iter().map(|rate| rate - 0.6).collect());
    builder.for_each_row(
        RowSet::Tokens,
        vec![
            RowOperation::Copy { from: convolved.part(0, N_HEADS), to: steps },
            RowOperation::Decay { steps, decays, bias, rates },
        ],
    );
    let mixed = builder.rows(RowSet::Tokens, VALUES);
    builder.recur(&RecurOptions {
        layer,
        queries: convolved.part(0, KEYS),
        keys: convolved.part(KEYS, KEYS),
        values: convolved.part(2 * KEYS, VALUES),
        decays,
        strengths: steps,
        is_delta: true,
        sharing: KeySharing::Interleaved,
        to: mixed.all(),
    });
    let selected = builder.rows(RowSet::Selected, VALUES);
    // Products are not under test here; the program has one to read its rows.
    let input = builder.quantized(RowSet::Selected, VALUES, ActivationBits::Eight);
    builder.for_each_row(
        RowSet::Selected,
        vec![
            RowOperation::Gather { from: mixed.all(), to: selected.all() },
            RowOperation::Quantize { from: selected.all(), to: input },
        ],
    );
    builder.finish(selected)
}

fn tokens(seed: u32, n_tokens: usize) -> Vec<u32> {
    (0..n_tokens as u32).map(|index| (index * 31 + seed * 7) % VOCAB_SIZE as u32).collect()
}

const BLOCKS: [u32; 4] = [0, 1, 2, 3];

fn part<'a>(tokens: &'a [u32], position: usize, before: Option<u32>, written: &'a [StateAt]) -> Sequence<'a> {
    let states = Some(SequenceStates { before, written });
    Sequence { tokens, position, blocks: &BLOCKS, first_selected: 0, n_selected: tokens.len(), states }
}

fn at(position: usize, state: u32) -> StateAt {
    StateAt { position, state }
}

#[test]
fn steps_and_checkpoints_change_no_bit() {
    let n_tokens = sized(90, 6);
    let tokens = tokens(1, n_tokens);
    let expected = program().run(&mut pool(1), [part(&tokens, 0, None, &[at(n_tokens, 0)])]).unwrap().to_vec();
    assert!(expected.iter().any(|value| value.abs() > 1e-4));
    for n_threads in 1..=sized(3, 2) {
        let (mut program, mut pool) = (program(), pool(n_threads));
        let middle = n_tokens / 2;
        let written = [at(2, 5), at(middle, 7), at(n_tokens, 1)];
        assert_eq!(program.run(&mut pool, [part(&tokens, 0, None, &written)]).unwrap(), expected);
        for (start, state) in [(2, 5), (middle, 7)] {
            let written = [at(n_tokens, 9)];
            let rest = part(&tokens[start..], start, Some(state), &written);
            assert_eq!(program.run(&mut pool, [rest]).unwrap(), &expected[start * VALUES..], "from {start} on");
        }
        let mut before = None;
        for position in 0..n_tokens {
            let after = [at(position + 1, 20 + position as u32 % 2)];
            let row = program.run(&mut pool, [part(&tokens[position..=position], position, before, &after)]).unwrap();
            assert_eq!(row, &expected[position * VALUES..(position + 1) * VALUES], "token {position}");
            before = Some(after[0].state);
        }
    }
}

#[test]
fn sequences_share_a_state_and_a_step_may_be_given_up() {
    let (mut program, mut pool) = (program(), pool(2));
    let [common, first, second] = [1, 2, 3].map(|seed| tokens(seed, sized(20, 3)));
    let alone = |rest: &[u32]| {
        let all = [common.as_slice(), rest].concat();
        let written = [at(all.len(), 0)];
        let rows = self::program().run(&mut super::pool(1), [part(&all, 0, None, &written)]).unwrap().to_vec();
        rows[common.len() * VALUES..].to_vec()
    };
    let (position, end) = (common.len(), common.len() + first.len());
    program.run(&mut pool, [part(&common, 0, None, &[at(position, 4)])]).unwrap();
    program.begin(&pool, [part(&first, position, Some(4), &[at(end, 8)])]).unwrap();
    program.resume(&mut pool, 4);
    let states = [[at(end, 5)], [at(end, 6)]];
    let mut other = part(&second, position, Some(4), &states[1]);
    other.blocks = &[4, 5, 6, 7];
    let together = program.run(&mut pool, [part(&first, position, Some(4), &states[0]), other]).unwrap();
    assert_eq!(together, [alone(&first), alone(&second)].concat());
}

#[test]
fn states_that_do_not_fit_are_refused() {
    let tokens = tokens(1, 4);
    let (mut program, mut pool) = (program(), pool(1));
    let mut check = |sequence: Sequence<'_>| {
        assert_eq!(program.run(&mut pool, [sequence]).unwrap_err(), StepError::States);
    };
    check(Sequence { states: None, ..part(&tokens, 0, None, &[]) });
    check(part(&tokens, 0, None, &[]));
    check(part(&tokens, 0, None, &[at(3, 0)]));
    check(part(&tokens, 0, None, &[at(3, 0), at(2, 1), at(4, 2)]));
    check(part(&tokens, 0, None, &[at(2, 1), at(4, 1)]));
    check(part(&tokens, 4, None, &[at(8, 0)]));
    check(part(&tokens, 4, Some(17), &[at(8, 0)]));
}
