//! Generating allocates nothing per token once it is warmed up.

use std::process::Command;
use std::sync::atomic::Ordering;

use crate::kv_cache::{BLOCK_TOKENS, CachedSequence};
use crate::model::{Advance, BackendChoice, Model, ModelOptions};
use crate::sampler::{Breakers, Sampler};
use hone_protocol::SamplingOptions;

use crate::support;
use crate::support::counting::N_ALLOCATIONS;

/// One greedy and one random sequence, generated side by side.
struct Generation {
    sequences: [CachedSequence; 2],
    samplers: [Sampler; 2],
    tokens: [[u32; 1]; 2],
}

impl Generation {
    fn step(&mut self, model: &mut Model) {
        let [first, second] = &mut self.sequences;
        let mut entries = [
            Advance { sequence: first, tokens: &self.tokens[0], logits: 0..1 },
            Advance { sequence: second, tokens: &self.tokens[1], logits: 0..1 },
        ];
        let logits = model.advance(&mut entries).unwrap();
        for (row, (sampler, token)) in logits.rows().zip(self.samplers.iter_mut().zip(&mut self.tokens)) {
            token[0] = sampler.sample(row, |_| ()).unwrap();
            sampler.observe(token[0]);
        }
    }
}

/// In a process of its own: the allocations of every thread are counted, and here other tests run on some.
#[test]
fn a_token_allocates_nothing() {
    let arguments = ["--exact", "model::tests::child", "--ignored", "--nocapture"];
    let child = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "is the process of the test above"]
fn child() {
    let folder = support::scratch();
    let path = folder.path().join("tiny.gguf");
    support::synthesize("tiny-llama", "q4_k", &path);
    let options = ModelOptions { backend: BackendChoice::Native, n_threads: Some(2), ..support::options() };
    let mut model = Model::load(&support::whole(&path), &options).unwrap();
    let vocab_size = model.spec().vocab_size;
    let warm = SamplingOptions { temperature: 1.0, seed: Some(1), top_k: 40, ..SamplingOptions::default() };
    let samplers =
        [SamplingOptions::default(), warm].map(|options| Sampler::new(options, vocab_size, Breakers::default).unwrap());
    let mut generation = Generation { sequences: Default::default(), samplers, tokens: [[5], [7]] };
    // The cache grows by a block now and then; within a block nothing is allocated.
    for _ in 0..2 * BLOCK_TOKENS + 1 {
        generation.step(&mut model);
    }
    let before = N_ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..BLOCK_TOKENS - 1 {
        generation.step(&mut model);
    }
    assert_eq!(N_ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
