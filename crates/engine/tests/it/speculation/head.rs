//! The guesses of a head that predicts further tokens.

use std::path::Path;

use half::f16;
use hone_engine::gguf::{Gguf, TensorType};
use hone_engine::synth::{self, Quantization, Shape};

use super::*;

/// Writes a model whose branches add little to the residual stream, `share` of the usual amount, and whose head reads
/// the token only. So the next token depends mostly on the last one, in a way that the head computes, too: with a share
/// of 0 the head is always right.
fn synthesize_agreeing(shape: &str, share: f32, path: &Path) {
    let vocabulary = support::vocabulary(4096);
    let shape = Shape { tied_embeddings: false, ..Shape::named(shape).unwrap() };
    synth::write(&shape, Quantization::Uniform(TensorType::F16), &vocabulary, 1, path, &mut |_| ()).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let output_norm = gguf.tensor_bytes(gguf.tensor("output_norm.weight").unwrap());
    for tensor in gguf.tensors() {
        let content = &mut bytes[tensor.offset..tensor.offset + tensor.n_bytes];
        let part = tensor.name.rsplit('.').nth(1).unwrap();
        match part {
            "attn_output" | "ssm_out" | "ffn_down" | "ffn_down_exps" | "ffn_down_shexp" => {
                for weight in content.chunks_exact_mut(2) {
                    let scaled = f16::from_le_bytes([weight[0], weight[1]]).to_f32() * share;
                    weight.copy_from_slice(&f16::from_f32(scaled).to_le_bytes());
                }
            }
            "eh_proj" => {
                content.fill(0);
                for (row, weights) in content.chunks_exact_mut(2 * tensor.dimensions[0]).enumerate() {
                    weights[2 * row..2 * row + 2].copy_from_slice(&f16::ONE.to_le_bytes());
                }
            }
            "enorm" => content.chunks_exact_mut(4).for_each(|one| one.copy_from_slice(&1f32.to_le_bytes())),
            "shared_head_norm" => content.copy_from_slice(output_norm),
            _ => (),
        }
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_head_changes_no_answer_and_saves_steps() {
    let folder = support::scratch();
    let engines = Engines::start();
    let narrow = Engines::with(&ModelOptions { n_sequences: 1, context_length: Some(448), ..support::options() });
    let story = "A-ship-left-the-harbour-before-dawn,-loaded-with-salt-and-timber.";
    let long: String = (0..5).map(|day| format!("Day-{day}.{story}")).collect();
    for shape in ["qwen35", "qwen35moe"] {
        for share in [0.0, 0.03] {
            let path = folder.path().join(format!("{shape}-{share}"));
            synthesize_agreeing(&format!("tiny-{shape}"), share, &path);
            let ask = |text: &str| GenerateRequest { model: path.to_str().unwrap().into(), ..continued(text) };
            let mut guesses = (0, 0);
            let mut check = |request: &GenerateRequest| {
                let answer = engines.check(request);
                guesses = (guesses.0 + answer.timings.accepted_tokens, guesses.1 + answer.timings.guessed_tokens);
                answer
            };
            let answer = check(&ask(story));
            check(&ask(&format!("{story}{}-The-crew", &answer.text[..60])));
            check(&ask(&long));
            let sampling = SamplingOptions { temperature: 0.8, seed: Some(5), ..SamplingOptions::default() };
            check(&GenerateRequest { sampling, ..ask(&format!("{long}The-captain")) });
            let memory = |engine: &EngineHandle| {
                let models = engine.status().unwrap().models;
                let model = models.into_iter().find(|model| Path::new(&model.name) == path).unwrap();
                (model.weight_bytes, model.kv_cache_bytes)
            };
            let (with, without) = (memory(&engines.guessing), memory(&engines.plain));
            assert_eq!(with.0, std::fs::metadata(&path).unwrap().len());
            assert!(without.0 < with.0 && without.1 < with.1, "{without:?} without the head, {with:?} with it");
            let (accepted, guessed) = guesses;
            let is_as_expected = if share == 0.0 { accepted > 100 } else { accepted > 0 && 2 * accepted < 3 * guessed };
            assert!(is_as_expected, "{shape} {share}: {accepted} of {guessed} guesses were right");
            let requests = [ask("One"), ask("Two-ships"), ask(&format!("{long}The-mate")), ask(story)];
            check_together(&engines, &requests);
            // Their room in the cache goes to urgent ones meanwhile.
            let urgent = requests.clone();
            let [first, second, ..] = requests.map(|request| GenerateRequest { lane: Lane::Batch, ..request });
            check_together(&narrow, &[vec![first, second], urgent.to_vec()].concat());
        }
    }
}
