//! The head of a file that predicts further tokens, against its definition.

use crate::backend::native::{ComputeThreads, NativeBackend, NativeOptions};
use crate::backend::{ActivationBits, Backend, BatchEntry, LoadProgress, SequenceStates};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType, dequantize};
use crate::kv_cache::StateAt;
use crate::support;
use crate::synth::{self, Quantization, Shape};

/// The block of a head in single precision, one position after the other.
struct Reference<'a> {
    gguf: &'a Gguf,
    shape: &'a Shape,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Reference<'_> {
    fn weights(&self, name: &str) -> Vec<f32> {
        let tensor = self.gguf.tensor(name).unwrap();
        let mut weights = vec![0.0; tensor.n_elements()];
        dequantize(tensor.tensor_type, self.gguf.tensor_bytes(tensor), &mut weights);
        weights
    }

    fn of_block(&self, part: &str) -> Vec<f32> {
        self.weights(&format!("blk.{}.{part}.weight", self.shape.n_layers))
    }

    fn product(&self, part: &str, input: &[f32]) -> Vec<f32> {
        product(&self.of_block(part), input)
    }

    fn norm(&self, part: &str, values: &[f32]) -> Vec<f32> {
        let weight = self.of_block(part);
        let normed = |head: &[f32]| {
            let mean = head.iter().map(|value| value * value).sum::<f32>() / head.len() as f32;
            let scale = (mean + self.shape.norm_epsilon).sqrt().recip();
            std::iter::zip(head, &weight).map(|(value, weight)| value * scale * weight).collect::<Vec<f32>>()
        };
        values.chunks_exact(weight.len()).flat_map(normed).collect()
    }

    fn rotate(&self, heads: &mut [f32], position: usize) {
        let n_pairs = self.shape.rotated_dim.unwrap() / 2;
        for head in heads.chunks_exact_mut(self.shape.head_dim) {
            for pair in 0..n_pairs {
                let turn = position as f32 * self.shape.rope_base.powf(-(pair as f32) / n_pairs as f32);
                let (a, b) = (head[pair], head[pair + n_pairs]);
                head[pair] = a * turn.cos() - b * turn.sin();
                head[pair + n_pairs] = a * turn.sin() + b * turn.cos();
            }
        }
    }

    /// The result of the head's attention, head by head.
    fn attend(&mut self, input: &[f32]) -> Vec<f32> {
        let (head_dim, position) = (self.shape.head_dim, self.keys.len());
        let zipped = self.product("attn_q", input);
        let of = |skipped: usize| zipped.chunks_exact(head_dim).skip(skipped).step_by(2).flatten().copied();
        let (queries, gates): (Vec<f32>, Vec<f32>) = (of(0).collect(), of(1).collect());
        let mut queries = self.norm("attn_q_norm", &queries);
        let mut keys = self.norm("attn_k_norm", &self.product("attn_k", input));
        self.rotate(&mut queries, position);
        self.rotate(&mut keys, position);
        self.keys.push(keys);
        self.values.push(self.product("attn_v", input));
        let n_sharing = self.shape.n_heads / self.shape.n_kv_heads;
        let mut attended = Vec::new();
        for (index, query) in queries.chunks_exact(head_dim).enumerate() {
            let columns = index / n_sharing * head_dim..(index / n_sharing + 1) * head_dim;
            let scores = self.keys.iter().map(|keys| dot(query, &keys[columns.clone()]) / (head_dim as f32).sqrt());
            let weights: Vec<f32> = scores.map(f32::exp).collect();
            let total: f32 = weights.iter().sum();
            let column = |column| {
                std::iter::zip(&weights, &self.values).map(|(weight, values)| weight / total * values[column]).sum()
            };
            attended.extend(columns.map(column).collect::<Vec<f32>>());
        }
        std::iter::zip(attended, gates).map(|(value, gate)| value / (1.0 + (-gate).exp())).collect()
    }

    /// The head's output for a token and the output for the token before.
    fn push(&mut self, token: u32, before: &[f32]) -> Vec<f32> {
        let width = self.shape.hidden_size;
        let embeddings = self.weights("token_embd.weight");
        let mut joined = self.norm("nextn.enorm", &embeddings[token as usize * width..][..width]);
        joined.extend(self.norm("nextn.hnorm", before));
        let mut stream = self.product("nextn.eh_proj", &joined);
        let attended = self.attend(&self.norm("attn_norm", &stream));
        add(&mut stream, &self.product("attn_output", &attended));
        let input = self.norm("post_attention_norm", &stream);
        let gates = self.product("ffn_gate", &input).into_iter().map(|gate| gate / (1.0 + (-gate).exp()));
        let gated: Vec<f32> = std::iter::zip(gates, self.product("ffn_up", &input)).map(|(a, b)| a * b).collect();
        add(&mut stream, &self.product("ffn_down", &gated));
        self.norm("nextn.shared_head_norm", &stream)
    }

    fn logits(&self, given: &[f32]) -> Vec<f32> {
        product(&self.weights("token_embd.weight"), given)
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

fn product(weights: &[f32], input: &[f32]) -> Vec<f32> {
    weights.chunks_exact(input.len()).map(|row| dot(row, input)).collect()
}

fn add(to: &mut [f32], values: &[f32]) {
    std::iter::zip(to, values).for_each(|(to, value)| *to += value);
}

#[track_caller]
fn assert_near(ours: &[f32], expected: &[f32]) {
    let largest = std::iter::zip(ours, expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(ours.len() == expected.len() && largest < 2e-2, "{largest}");
}

/// A prompt in two steps, whose second begins with the first's output for its last token, and two predictions after it,
/// the second of which reads the head's output for the first.
#[test]
fn a_head_predicts_what_its_definition_says() {
    const N_TOKENS: usize = 40;
    const N_FIRST: usize = 23;
    let shape = Shape { norm_epsilon: 0.05, ..Shape::named("tiny-qwen35").unwrap() };
    let mut bytes = Vec::new();
    let quantization = Quantization::Uniform(TensorType::F32);
    synth::write_to(&shape, quantization, &support::few_tokens(), 1, &mut bytes, &mut |_| ()).unwrap();
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let spec = DecoderSpec::from_gguf(&gguf, None).unwrap();
    let options = NativeOptions { activation_bits: ActivationBits::Sixteen, ..NativeOptions::default() };
    let threads = ComputeThreads::new(Some(2));
    let mut backend = NativeBackend::load(&gguf, &spec, options, threads, &LoadProgress::default()).unwrap();
    let tokens = support::of_few_tokens(3, N_TOKENS + 2);
    let mut reference = Reference { gguf: &gguf, shape: &shape, keys: Vec::new(), values: Vec::new() };

    let mut given = vec![vec![0.0; shape.hidden_size]];
    for (before, range) in [(None, 0..N_FIRST), (Some(0), N_FIRST..N_TOKENS)] {
        let written = [StateAt { position: range.end, state: range.start as u32 }];
        let states = Some(SequenceStates { before, written: &written });
        let (position, logits) = (range.start, 0..range.len());
        let entry = BatchEntry { tokens: &tokens[range], position, blocks: &[0, 1], logits, states };
        for row in backend.forward(&[entry]).unwrap().rows_with_states() {
            assert_near(row.logits, &reference.logits(row.hidden));
            given.push(row.hidden.to_vec());
        }
    }
    for (token, before) in std::iter::zip(&tokens[..N_TOKENS], &given) {
        reference.push(*token, before);
    }
    let mut ours = given.pop().unwrap();
    let mut expected = ours.clone();
    for position in N_TOKENS..N_TOKENS + 2 {
        let tokens = &tokens[position..=position];
        let entry = BatchEntry { tokens, position, blocks: &[0, 1], logits: 0..1, states: None };
        let logits = backend.predict(&entry, &ours).unwrap().unwrap();
        let row = logits.rows_with_states().next().unwrap();
        expected = reference.push(tokens[0], &expected);
        assert_near(row.hidden, &expected);
        assert_near(row.logits, &reference.logits(&expected));
        ours = row.hidden.to_vec();
    }
}
