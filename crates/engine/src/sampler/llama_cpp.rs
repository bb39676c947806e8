//! Compares the tokens that the samplers leave of fixed logits with llama.cpp's, as recorded by
//! `scripts/record.sh samplers`.

use std::collections::HashMap;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Recording {
    breaker: usize,
    logits: HashMap<String, Vec<f32>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    /// The name of the logits.
    logits: String,
    options: serde_json::Value,
    history: Vec<u32>,
    /// The probabilities of the tokens that are left, for samplers that learn nothing.
    #[serde(default)]
    left: Vec<(u32, f32)>,
    /// The choices in a row, for samplers that learn.
    #[serde(default)]
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    chosen: u32,
    left: Vec<(u32, f32)>,
}

impl Case {
    fn sampler(&self, vocab_size: usize, breaker: usize) -> Sampler {
        let mut options = serde_json::json!({"temperature": 1.0, "seed": 1});
        options.as_object_mut().unwrap().extend(self.options.as_object().unwrap().clone());
        let options = serde_json::from_value(options).unwrap();
        let texts = (0..vocab_size).map(|id| if id == breaker { b":".as_slice() } else { b"a" });
        let mut sampler = Sampler::new(options, vocab_size, || Breakers::among(texts)).unwrap();
        self.history.iter().for_each(|token| sampler.observe(*token));
        sampler
    }

    #[track_caller]
    fn check(&self, sampler: &Sampler, expected: &[(u32, f32)]) {
        let left = sampler.candidates.iter().map(|candidate| (candidate.id, candidate.probability));
        let (found, expected): (HashMap<u32, f32>, HashMap<u32, f32>) =
            (left.collect(), expected.iter().copied().collect());
        for token in found.keys().chain(expected.keys()) {
            // A token that is left out is as likely as one whose probability is too small for a number.
            let [found, expected] = [&found, &expected].map(|left| left.get(token).copied().unwrap_or(0.0));
            let is_close = (found - expected).abs() < 1e-5;
            assert!(is_close, "{} {:?}: token {token} has {found} and not {expected}", self.options, self.history);
        }
    }
}

#[test]
fn samplers_leave_what_those_of_llama_cpp_leave() {
    let recording: Recording = serde_json::from_str(include_str!("llama_cpp.json")).unwrap();
    for case in &recording.cases {
        let logits = &recording.logits[&case.logits];
        let mut sampler = case.sampler(logits.len(), recording.breaker);
        if case.steps.is_empty() {
            sampler.sample(logits, |_| ()).unwrap();
            case.check(&sampler, &case.left);
        }
        let largest = logits[argmax(logits) as usize];
        for step in &case.steps {
            sampler.adjusted.clone_from(logits);
            sampler.leave_out_surprising(largest);
            case.check(&sampler, &step.left);
            sampler.learn(step.chosen);
        }
    }
    assert!(recording.cases.len() > 60, "{}", recording.cases.len());
}
