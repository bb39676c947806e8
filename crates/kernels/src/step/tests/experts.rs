//! Mixtures of experts, against a sum that is computed row by row and expert by expert.

use super::{matrix, numbers, pool, whole};
use crate::elementwise::tests::sized;
use crate::step::*;
use crate::{Activation, ActivationBits, Activations, Matrix, matmul, platform};

const VOCAB_SIZE: usize = sized(40, 12);
const WIDTH: usize = sized(64, 32);
const EXPERT_WIDTH: usize = sized(48, 16);
const N_EXPERTS: usize = 6;
const N_USED: usize = 3;
const OPTIONS: RoutingOptions = RoutingOptions { gating: Gating::Softmax, is_normalized: true, scale: 1.5 };

fn experts(seed: u32, n_rows: usize, n_columns: usize) -> Vec<Matrix> {
    (0..N_EXPERTS as u32).map(|expert| matrix(seed + expert, n_rows, n_columns)).collect()
}

/// Packs the same matrices when they are needed.
struct OnDemand {
    seed: u32,
    shape: ExpertShape,
}

impl ExpertSource for OnDemand {
    fn pack(&self, expert: usize) -> Matrix {
        matrix(self.seed + expert as u32, self.shape.n_rows, self.shape.n_columns)
    }

    fn prefetch(&self, expert: usize) {
        assert!(expert < self.shape.n_experts);
    }
}

/// Embeds tokens and passes them through one mixture with biases.
fn program() -> Program {
    program_of(|builder, seed, n_rows, n_columns| builder.experts(experts(seed, n_rows, n_columns)))
}

/// Like `program`, with at most `n_bytes` of experts in memory.
fn program_within(n_bytes: usize) -> Program {
    program_of(|builder, seed, n_rows, n_columns| {
        builder.keep_experts(n_bytes);
        let shape = ExpertShape { n_experts: N_EXPERTS, n_rows, n_columns, tensor_type: crate::TensorType::F32 };
        builder.experts_on_demand(shape, Box::new(OnDemand { seed, shape }))
    })
}

fn program_of(experts: impl Fn(&mut ProgramBuilder, u32, usize, usize) -> ExpertsId) -> Program {
    let mut builder = ProgramBuilder::new();
    let bits = ActivationBits::Sixteen;
    let table = builder.matrix(matrix(1, VOCAB_SIZE, WIDTH));
    let hidden = builder.rows(RowSet::Selected, WIDTH);
    let all = builder.rows(RowSet::Tokens, WIDTH);
    builder.for_each_row(RowSet::Tokens, vec![RowOperation::Embed { table, scale: 1.0, to: all }]);
    let input = builder.quantized(RowSet::Selected, WIDTH, bits);
    let gather = RowOperation::Gather { from: all.all(), to: hidden.all() };
    builder.for_each_row(RowSet::Selected, vec![gather, RowOperation::Quantize { from: hidden.all(), to: input }]);

    let router = builder.router(RowSet::Selected, N_EXPERTS, N_USED);
    let logits = builder.rows(RowSet::Selected, N_EXPERTS);
    let routing = builder.matrix(matrix(2, N_EXPERTS, WIDTH));
    builder.product(input, &[ProductOutput { matrix: routing, to: logits.all(), add: false }]);
    let (selection_bias, output_scales) = (None, None);
    let route = RowOperation::Route { router, logits: logits.all(), options: OPTIONS, selection_bias, output_scales };
    builder.for_each_row(RowSet::Selected, vec![route]);

    let routed = RowSet::Routed(router);
    let gated = builder.rows(routed, 2 * EXPERT_WIDTH);
    let [gate, up] = [0, EXPERT_WIDTH].map(|first| gated.part(first, EXPERT_WIDTH));
    let spread = builder.quantized(routed, WIDTH, bits);
    let outputs = [(10, gate), (20, up)]
        .map(|(seed, to)| ExpertOutput { experts: experts(&mut builder, seed, EXPERT_WIDTH, WIDTH), to });
    builder.expert_product(router, ExpertInput::Chosen(input, spread), &outputs);
    let gated_input = builder.quantized(routed, EXPERT_WIDTH, bits);
    builder.for_each_row(
        routed,
        vec![
            RowOperation::Gate { activation: Activation::Silu, gate, up },
            RowOperation::Quantize { from: gate, to: gated_input },
        ],
    );
    let output = builder.rows(routed, WIDTH);
    let down = experts(&mut builder, 30, WIDTH, EXPERT_WIDTH);
    let to = output.all();
    builder.expert_product(router, ExpertInput::Routed(gated_input), &[ExpertOutput { experts: down, to }]);
    let biases = builder.vector(numbers(40, N_EXPERTS * WIDTH, 0.5));
    builder.for_each_row(routed, vec![RowOperation::AddExpertBias { biases, to }]);
    let sum = builder.rows(RowSet::Selected, WIDTH);
    let combine = RowOperation::Combine { router, from: output, is_weighted: true, to: sum.all() };
    builder.for_each_row(RowSet::Selected, vec![combine]);
    builder.finish(sum)
}

/// weight · input, in single precision.
fn times(weights: &Matrix, input: &[f32]) -> Vec<f32> {
    let mut activations = Activations::new(input.len(), 1, &[weights.tensor_type()], ActivationBits::Sixteen);
    activations.set_n_tokens(1);
    activations.quantize_row(platform::kernels(), 0, input);
    let mut out = vec![0.0; weights.n_rows()];
    matmul(platform::kernels(), weights, &activations, &mut out);
    out
}

fn expected(token: u32) -> Vec<f32> {
    let mut hidden = vec![0.0; WIDTH];
    matrix(1, VOCAB_SIZE, WIDTH).dequantize_row(token as usize, &mut hidden);
    let mut logits = times(&matrix(2, N_EXPERTS, WIDTH), &hidden);
    let mut choices = [0.0; 2 * N_USED];
    OPTIONS.choose(&mut logits, None, None, &mut choices);
    let biases = numbers(40, N_EXPERTS * WIDTH, 0.5);
    let mut sum = vec![0.0; WIDTH];
    for slot in 0..N_USED {
        let expert = choices[slot] as usize;
        let of = |seed: u32, n_rows, n_columns| matrix(seed + expert as u32, n_rows, n_columns);
        let up = times(&of(20, EXPERT_WIDTH, WIDTH), &hidden);
        let gate = times(&of(10, EXPERT_WIDTH, WIDTH), &hidden);
        let gated: Vec<f32> = gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        let fed = times(&of(30, WIDTH, EXPERT_WIDTH), &gated);
        let bias = &biases[expert * WIDTH..(expert + 1) * WIDTH];
        for (sum, (fed, bias)) in sum.iter_mut().zip(fed.iter().zip(bias)) {
            *sum += choices[N_USED + slot] * (fed + bias);
        }
    }
    sum
}

#[test]
fn tokens_get_the_weighted_sum_of_their_experts() {
    let tokens: Vec<u32> = (0..sized(150, 5) as u32).map(|index| index * 7 % VOCAB_SIZE as u32).collect();
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(32) as u32).collect();
    let expected: Vec<f32> = tokens.iter().flat_map(|token| expected(*token)).collect();
    for n_threads in 1..=sized(3, 2) {
        let (mut program, mut pool) = (program(), pool(n_threads));
        let ours = program.run(&mut pool, [whole(&tokens, &blocks)]).unwrap().to_vec();
        super::assert_close(&ours, &expected);
        for (token, together) in tokens.iter().zip(ours.chunks_exact(WIDTH)).take(sized(20, 3)) {
            let alone = program.run(&mut pool, [whole(&[*token], &blocks)]).unwrap();
            assert_eq!(alone, together, "a token alone, bit for bit");
        }
        assert!(program.run(&mut pool, []).unwrap().is_empty());
    }
}

#[test]
fn experts_that_are_packed_on_demand_give_the_same_within_their_budget() {
    let tokens: Vec<u32> = (0..sized(30, 4) as u32).map(|index| index * 7 % VOCAB_SIZE as u32).collect();
    let steps = || tokens.chunks(3).map(|tokens| Sequence { position: 0, ..whole(tokens, &[0]) });
    let (mut packed, mut pool) = (program(), pool(2));
    let expected: Vec<Vec<f32>> = steps().map(|step| packed.run(&mut pool, [step]).unwrap().to_vec()).collect();
    let matrix_bytes = matrix(10, EXPERT_WIDTH, WIDTH).n_bytes();
    // From less than one product needs to more than all experts take.
    for budget in [0, 4, 9, 100].map(|n_matrices| n_matrices * matrix_bytes) {
        let mut program = program_within(budget);
        for (step, expected) in steps().zip(&expected) {
            assert!(program.run(&mut pool, [step]).unwrap() == expected, "{budget} bytes change something");
            let kept = program.kept_expert_bytes();
            let of_a_product = 2 * N_EXPERTS * matrix_bytes;
            assert!(kept <= budget.max(of_a_product), "{kept} bytes are kept of {budget}");
        }
    }
}

#[test]
fn experts_stay_while_there_is_room() {
    let mut program = program_within(usize::MAX);
    let mut pool = pool(1);
    program.run(&mut pool, [whole(&[1, 2, 3], &[0])]).unwrap();
    let kept = program.kept_expert_bytes();
    program.run(&mut pool, [whole(&[1, 2, 3], &[0])]).unwrap();
    assert!(kept > 0 && program.kept_expert_bytes() == kept);
}
