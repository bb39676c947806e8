use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod experts;
mod states;

use super::*;
use crate::elementwise::tests::{numbers, sized};
use crate::{Activation, ActivationBits, KvFormat, TensorType};

const WIDTH: usize = sized(64, 16);
const N_KV_HEADS: usize = 2;
const HEAD_DIM: usize = sized(16, 8);
const KV_WIDTH: usize = N_KV_HEADS * HEAD_DIM;
const VOCAB_SIZE: usize = sized(50, 17);

fn matrix(seed: u32, n_rows: usize, n_columns: usize) -> Matrix {
    let weights = numbers(seed, n_rows * n_columns, 0.3);
    let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    Matrix::pack(TensorType::F32, n_rows, n_columns, &bytes).unwrap()
}

/// One layer of a decoder with a bias, a gate and tied embeddings.
fn program() -> Program {
    let mut builder = ProgramBuilder::new();
    let embeddings = builder.matrix(matrix(1, VOCAB_SIZE, WIDTH));
    let norm = builder.vector(numbers(2, WIDTH, 1.0));
    let bias = builder.vector(numbers(3, WIDTH, 0.2));
    let rope = builder.rope(RowSet::Tokens, RopePairs::Neighbours, vec![1.0, 0.1, 0.01], 1.0);
    let layer = builder.kv_layer(KvFormat::F16, N_KV_HEADS, HEAD_DIM);
    let hidden = builder.rows(RowSet::Tokens, WIDTH);
    let normed = builder.rows(RowSet::Tokens, WIDTH);
    let input = builder.quantized(RowSet::Tokens, WIDTH, ActivationBits::Eight);
    builder.for_each_row(
        RowSet::Tokens,
        vec![
            RowOperation::Embed { table: embeddings, scale: 2.0, to: hidden },
            RowOperation::Angles(rope),
            RowOperation::Copy { from: hidden.all(), to: normed.all() },
            RowOperation::Norm { values: normed.all(), weight: norm, epsilon: 1e-5 },
            RowOperation::Quantize { from: normed.all(), to: input },
        ],
    );
    let projected = builder.rows(RowSet::Tokens, WIDTH + 2 * KV_WIDTH);
    let queries = projected.part(0, WIDTH);
    let (keys, values) = (projected.part(WIDTH, KV_WIDTH), projected.part(WIDTH + KV_WIDTH, KV_WIDTH));
    let outputs = [(4, queries), (5, keys), (6, values)].map(|(seed, to)| ProductOutput {
        matrix: builder.matrix(matrix(seed, to.width, WIDTH)),
        to,
        add: false,
    });
    builder.product(input, &outputs);
    builder.for_each_row(
        RowSet::Tokens,
        vec![
            RowOperation::AddBias { bias, to: queries },
            RowOperation::Rotate { heads: queries, head_dim: HEAD_DIM, rope },
            RowOperation::Rotate { heads: keys, head_dim: HEAD_DIM, rope },
            RowOperation::WriteKv { layer, keys, values },
        ],
    );
    let attended = builder.rows(RowSet::Tokens, WIDTH);
    let (to, scale) = (attended.all(), 0.25);
    builder.attention(&AttentionOptions { layer, queries, to, scale, soft_cap: None, window: None, sinks: None });
    builder.for_each_row(
        RowSet::Tokens,
        vec![
            RowOperation::Gate { activation: Activation::Silu, gate: attended.all(), up: normed.all() },
            RowOperation::Add { from: attended.all(), to: hidden.all() },
        ],
    );
    let selected = builder.rows(RowSet::Selected, WIDTH);
    let last = builder.quantized(RowSet::Selected, WIDTH, ActivationBits::Eight);
    builder.for_each_row(
        RowSet::Selected,
        vec![
            RowOperation::Gather { from: hidden.all(), to: selected.all() },
            RowOperation::Quantize { from: selected.all(), to: last },
        ],
    );
    let logits = builder.rows(RowSet::Selected, VOCAB_SIZE);
    builder.product(last, &[ProductOutput { matrix: embeddings, to: logits.all(), add: false }]);
    builder.for_each_row(RowSet::Selected, vec![RowOperation::SoftCap { values: logits.all(), cap: 20.0 }]);
    builder.finish(logits)
}

fn pool(n_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(n_threads).unwrap())
}

fn tokens(n_tokens: usize) -> Vec<u32> {
    (0..n_tokens as u32).map(|index| index * 31 % VOCAB_SIZE as u32).collect()
}

fn whole<'a>(tokens: &'a [u32], blocks: &'a [u32]) -> Sequence<'a> {
    Sequence { tokens, position: 0, blocks, first_selected: 0, n_selected: tokens.len(), states: None }
}

#[track_caller]
fn assert_close(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference < 1e-4, "they differ by {difference}");
}

#[test]
fn threads_and_chunks_change_nothing() {
    let chunks = [1, sized(40, 3), 1, sized(48, 2)];
    let tokens = tokens(chunks.iter().sum());
    let blocks = [7, 3, 0];
    let expected = program().run(&mut pool(1), [whole(&tokens, &blocks)]).unwrap().to_vec();
    assert_eq!(expected.len(), tokens.len() * VOCAB_SIZE);
    assert!(expected.iter().any(|logit| logit.abs() > 0.1));
    for n_threads in 1..=sized(4, 2) {
        let (mut program, mut pool) = (program(), pool(n_threads));
        assert_close(program.run(&mut pool, [whole(&tokens, &blocks)]).unwrap(), &expected);
        let mut position = 0;
        let mut logits = Vec::new();
        for n_tokens in chunks {
            let sequence = Sequence { position, ..whole(&tokens[position..position + n_tokens], &blocks) };
            logits.extend_from_slice(program.run(&mut pool, [sequence]).unwrap());
            position += n_tokens;
        }
        assert_close(&logits, &expected);
    }
}

#[test]
fn sequences_run_together_as_alone() {
    let tokens = tokens(sized(50, 8));
    let (mut program, mut pool) = (program(), pool(2));
    let alone = program.run(&mut pool, [whole(&tokens, &[0, 1])]).unwrap().to_vec();
    let other = program.run(&mut pool, [whole(&tokens[7..sized(12, 8)], &[0])]).unwrap().to_vec();
    let some = Sequence { first_selected: sized(30, 5), n_selected: 2, ..whole(&tokens, &[2, 5]) };
    let together = program.run(&mut pool, [some, whole(&tokens[7..sized(12, 8)], &[4])]).unwrap();
    assert_close(&together[..2 * VOCAB_SIZE], &alone[sized(30, 5) * VOCAB_SIZE..sized(32, 7) * VOCAB_SIZE]);
    assert_close(&together[2 * VOCAB_SIZE..], &other);
}

#[test]
fn a_copied_block_goes_on_as_the_original() {
    let tokens = tokens(sized(20, 3));
    let before = tokens.len() - 1;
    let (mut program, mut pool) = (program(), pool(2));
    let expected = program.run(&mut pool, [whole(&tokens, &[0])]).unwrap()[before * VOCAB_SIZE..].to_vec();
    program.copy_block(0, 500);
    let last = Sequence { position: before, ..whole(&tokens[before..], &[500]) };
    assert_close(program.run(&mut pool, [last]).unwrap(), &expected);
}

#[test]
fn a_step_in_parts_is_the_same_step_and_may_be_given_up() {
    let tokens = tokens(sized(40, 3));
    let (mut program, mut pool, mut other) = (program(), pool(2), self::program());
    let expected = program.run(&mut pool, [whole(&tokens, &[0, 1])]).unwrap().to_vec();
    program.begin(&pool, [whole(&tokens[..sized(5, 2)], &[2])]).unwrap();
    assert!(!program.resume(&mut pool, 3));
    program.begin(&pool, [whole(&tokens, &[2, 3])]).unwrap();
    let n_parts = (1..).find(|_| {
        // Steps of other programs run in between.
        other.run(&mut pool, [whole(&tokens, &[0, 1])]).unwrap();
        program.resume(&mut pool, 2)
    });
    assert_eq!(n_parts, Some(program.n_phases().div_ceil(2)));
    assert_close(program.output(), &expected);
    assert!(program.resume(&mut pool, 1), "nothing is left");
    program.begin(&pool, [whole(&[1000], &[0])]).unwrap_err();
    assert!(program.output().is_empty());
}

/// A program whose result is the token's embedding plus values passed in after a step, not within it.
#[test]
fn phases_after_a_step_read_what_is_passed_in() {
    let mut builder = ProgramBuilder::new();
    let table = builder.matrix(matrix(1, VOCAB_SIZE, WIDTH));
    let [hidden, input] = [(); 2].map(|()| builder.rows(RowSet::Tokens, WIDTH));
    let output = builder.rows(RowSet::Selected, WIDTH);
    let gather = |builder: &mut ProgramBuilder| {
        let (from, to) = (hidden.all(), output.all());
        builder.for_each_row(RowSet::Selected, vec![RowOperation::Gather { from, to }]);
    };
    let embed = RowOperation::Embed { table, scale: 1.0, to: hidden };
    builder.for_each_row(RowSet::Tokens, vec![embed.clone()]);
    gather(&mut builder);
    builder.end_step();
    let add = RowOperation::Add { from: input.all(), to: hidden.all() };
    builder.for_each_row(RowSet::Tokens, vec![embed, add]);
    gather(&mut builder);
    let (mut program, mut pool) = (builder.finish(output), pool(2));
    assert_eq!(program.n_phases(), 2);
    let embedded = program.run(&mut pool, [whole(&[3, 5], &[0])]).unwrap().to_vec();
    program.begin(&pool, [whole(&[1], &[1])]).unwrap();
    let values = numbers(9, 2 * WIDTH, 1.0);
    let expected: Vec<f32> = std::iter::zip(&embedded, &values).map(|(a, b)| a + b).collect();
    assert_eq!(program.run_after_step(&mut pool, [whole(&[3, 5], &[0])], input, &values).unwrap(), expected);
    assert!(program.resume(&mut pool, 1), "the step before was given up");
    assert_eq!(program.output(), expected);
    assert_eq!(program.run(&mut pool, [whole(&[3, 5], &[0])]).unwrap(), embedded);
    let unknown = program.run_after_step(&mut pool, [whole(&[1000], &[0])], input, &values[..WIDTH]);
    assert!(unknown.is_err());
}

#[test]
fn steps_may_want_nothing() {
    let tokens = tokens(sized(20, 2));
    let (mut program, mut pool) = (program(), pool(2));
    assert!(program.run(&mut pool, []).unwrap().is_empty());
    let silent = Sequence { n_selected: 0, ..whole(&tokens, &[0]) };
    assert!(program.run(&mut pool, [silent]).unwrap().is_empty());
}

#[test]
fn unsound_batches_are_refused() {
    let tokens = tokens(40);
    let (mut program, mut pool) = (program(), pool(2));
    let mut check = |sequences: &[Sequence<'_>], expected: StepError| {
        assert_eq!(program.run(&mut pool, sequences.iter().copied()).unwrap_err(), expected);
    };
    let vocab_size = VOCAB_SIZE;
    check(&[whole(&[3, 50], &[0])], StepError::Token { token: 50, vocab_size });
    check(&[whole(&tokens, &[0])], StepError::Blocks { n_blocks: 1, n_positions: 40 });
    let far = Sequence { position: usize::MAX, ..whole(&tokens, &[0]) };
    check(&[far], StepError::Blocks { n_blocks: 1, n_positions: usize::MAX });
    check(&[whole(&tokens, &[0, 0])], StepError::SharedBlock { block: 0 });
    check(&[whole(&tokens, &[0, 1]), whole(&tokens[..1], &[1])], StepError::SharedBlock { block: 1 });
    let late = Sequence { first_selected: 39, n_selected: 2, ..whole(&tokens, &[0, 1]) };
    check(&[late], StepError::Selection { end: 41, n_tokens: 40 });
}

#[track_caller]
fn check_refused(describe: impl FnOnce(&mut ProgramBuilder)) {
    let mut builder = ProgramBuilder::new();
    assert!(catch_unwind(AssertUnwindSafe(|| describe(&mut builder))).is_err());
}

#[test]
fn misfits_are_refused_when_a_program_is_made() {
    use RowSet::{Selected, Tokens};
    check_refused(|builder| {
        builder.rows(Tokens, 4).part(3, 2);
    });
    check_refused(|builder| {
        let (a, b) = (builder.rows(Tokens, 4), builder.rows(Selected, 4));
        builder.for_each_row(Tokens, vec![RowOperation::Add { from: a.all(), to: b.all() }]);
    });
    check_refused(|builder| {
        let a = builder.rows(Tokens, 4);
        builder.for_each_row(Tokens, vec![RowOperation::Copy { from: a.part(0, 3), to: a.part(1, 3) }]);
    });
    check_refused(|builder| {
        let (input, out) = (builder.quantized(Tokens, 32, ActivationBits::Eight), builder.rows(Tokens, 16));
        let matrix = builder.matrix(matrix(1, 17, 32));
        builder.product(input, &[ProductOutput { matrix, to: out.all(), add: false }]);
    });
    check_refused(|builder| {
        let (input, out) = (builder.quantized(Tokens, 32, ActivationBits::Eight), builder.rows(Tokens, 16));
        let matrix = builder.matrix(matrix(1, 16, 32));
        builder.product(input, &[ProductOutput { matrix, to: out.all(), add: false }; 2]);
    });
    check_refused(|builder| {
        let (layer, rows) = (builder.kv_layer(KvFormat::F16, 2, 8), builder.rows(Tokens, 16));
        builder.for_each_row(Tokens, vec![RowOperation::WriteKv { layer, keys: rows.all(), values: rows.part(0, 8) }]);
    });
    check_refused(|builder| {
        let (layer, queries, to) =
            (builder.kv_layer(KvFormat::F16, 2, 8), builder.rows(Tokens, 24), builder.rows(Tokens, 24));
        let (queries, to, scale) = (queries.all(), to.all(), 1.0);
        builder.attention(&AttentionOptions { layer, queries, to, scale, soft_cap: None, window: None, sinks: None });
    });
    check_refused(|builder| {
        let foreign = <ProgramBuilder>::new().rows(Tokens, 8);
        builder.rows(Tokens, 4);
        builder.for_each_row(Tokens, vec![RowOperation::SoftCap { values: foreign.all(), cap: 1.0 }]);
    });
}
