//! Guessing ahead changes nothing but the time: every answer is the same, bit for bit, with and without it.

mod head;

use std::path::Path;

use hone_engine::gguf::Gguf;
use hone_engine::synth::{self, Quantization, Shape};
use hone_engine::{
    Advance, BackendChoice, CachedSequence, EngineHandle, EngineOptions, Model, ModelOptions, Speculation,
};
use hone_protocol::{
    Completion, Constraint, Generate, GenerateRequest, Lane, LogprobOptions, Message, Prompt, Role, SamplingOptions,
};

use crate::support;

struct Engines {
    guessing: EngineHandle,
    plain: EngineHandle,
}

impl Engines {
    fn start() -> Self {
        Engines::with(&support::options())
    }

    fn with(options: &ModelOptions) -> Self {
        let engine = |speculation| support::engine(ModelOptions { speculation, ..options.clone() });
        Engines { guessing: engine(Speculation::Auto), plain: engine(Speculation::Off) }
    }

    /// The answer, which must be the same from both engines.
    #[track_caller]
    fn check(&self, request: &GenerateRequest) -> Completion {
        let complete = |engine: &EngineHandle| engine.generate(request.clone()).unwrap().complete().unwrap();
        let (ours, plain) = (complete(&self.guessing), complete(&self.plain));
        assert_same(&ours, &plain);
        assert_eq!(plain.timings.guessed_tokens, 0);
        ours
    }
}

#[track_caller]
fn assert_same(ours: &Completion, plain: &Completion) {
    assert_eq!((&ours.text, &ours.token_ids), (&plain.text, &plain.token_ids));
    assert_eq!((&ours.logprobs, ours.finish_reason), (&plain.logprobs, plain.finish_reason));
}

fn chat(question: &str) -> GenerateRequest {
    let prompt = Prompt::Chat(vec![Message::new(Role::User, question)]);
    GenerateRequest { max_tokens: Some(64), ..GenerateRequest::new(support::smollm2().to_str().unwrap(), prompt) }
}

fn continued(text: &str) -> GenerateRequest {
    let prompt = Prompt::Text { text: text.into(), parse_special: false, add_special: true };
    GenerateRequest { prompt, ..chat("") }
}

/// A text that the model keeps repeating.
fn repetitive() -> GenerateRequest {
    continued(&"The north wind blows cold. The south wind blows warm. The east wind blows dry.\n".repeat(4))
}

#[test]
fn greedy_answers_are_the_same() {
    let engines = Engines::start();
    let cases: Vec<serde_json::Value> = serde_json::from_str(include_str!("data/smollm2_greedy.json")).unwrap();
    for case in &cases {
        engines.check(&chat(case["question"].as_str().unwrap()));
    }
    assert_eq!(cases.len(), 8);
    let repeated = engines.check(&GenerateRequest { max_tokens: Some(200), ..repetitive() });
    let timings = repeated.timings;
    assert!(timings.accepted_tokens > 100, "{timings:?}");
    assert!(timings.accepted_tokens <= timings.guessed_tokens);
    engines.check(&continued("def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):"));
}

#[test]
fn answers_by_chance_are_the_same() {
    let engines = Engines::start();
    let (mut n_answers, mut n_accepted) = (0, 0);
    for seed in 0..4 {
        let sampling = |temperature, top_p, repetition_penalty, frequency_penalty| SamplingOptions {
            temperature,
            top_p,
            repetition_penalty,
            frequency_penalty,
            seed: Some(seed),
            ..SamplingOptions::default()
        };
        for sampling in [sampling(0.7, 1.0, 1.0, 0.0), sampling(1.0, 0.9, 1.0, 0.0), sampling(0.4, 1.0, 1.1, 0.2)] {
            let answer = engines.check(&GenerateRequest { sampling, ..repetitive() });
            n_answers += 1;
            n_accepted += answer.timings.accepted_tokens;
        }
    }
    // How many are right depends on the words, and these on the processor: 43 with AVX2.
    assert!(n_accepted > 2 * n_answers, "{n_accepted} in {n_answers} answers");
}

#[test]
fn log_probabilities_stops_and_limits_are_the_same() {
    let engines = Engines::start();
    let logprobs = LogprobOptions { top: Some(3), named: vec![" wind".into()], state: true, of_prompt: false };
    let answer = engines.check(&GenerateRequest { logprobs, ..repetitive() });
    assert_eq!(answer.logprobs.len(), answer.token_ids.len());
    engines.check(&GenerateRequest { stop: vec!["east wind bl".into()], ..repetitive() });
    for max_tokens in 1..12 {
        engines.check(&GenerateRequest { max_tokens: Some(max_tokens), ..repetitive() });
    }
    let n_prompt = engines.check(&repetitive()).prompt_token_ids.len();
    let full = GenerateRequest { context: Some(n_prompt + 9), max_tokens: None, ..repetitive() };
    assert_eq!(engines.check(&full).token_ids.len(), 9);
}

#[test]
fn constrained_answers_are_the_same() {
    let engines = Engines::start();
    let with = |constraint| GenerateRequest { constraint: Some(constraint), max_tokens: Some(120), ..repetitive() };
    engines.check(&with(Constraint::Regex("(The (north|south|east) wind blows (cold|warm|dry)\\. ?){8}".into())));
    let schema = serde_json::json!({"type": "array", "items": {"const": {"wind": "north", "cold": true}}, "minItems": 6, "maxItems": 6});
    let list = engines.check(&with(Constraint::JsonSchema(schema)));
    assert!(list.timings.accepted_tokens > 20, "{:?}", list.timings);
    let (marker, regex) = ("[RESULT]".to_owned(), " [1-5]".to_owned());
    engines.check(&with(Constraint::FreeThenRegex { free_tokens: 50, marker, regex }));
}

/// Runs the requests together on each engine; the answers must be the same.
fn check_together(engines: &Engines, requests: &[GenerateRequest]) {
    let start = |engine: &EngineHandle| {
        let running: Vec<_> = requests.iter().map(|request| engine.generate(request.clone()).unwrap()).collect();
        running.into_iter().map(|generation| generation.complete().unwrap()).collect::<Vec<Completion>>()
    };
    for (ours, plain) in start(&engines.guessing).iter().zip(&start(&engines.plain)) {
        assert_same(ours, plain);
    }
}

#[test]
fn requests_that_run_together_are_the_same() {
    let engines = Engines::start();
    let boiling = "What is the boiling point of water at sea level?";
    check_together(&engines, &[repetitive(), chat(boiling), repetitive(), chat("Say hi.")]);
}

#[test]
fn a_request_whose_guesses_are_wrong_stops_guessing() {
    let engines = Engines::start();
    // A pair of tokens that occurs often in the prompt, each time followed by something else.
    let text: String = (0..60).map(|index| format!("{} of the {index};", index * 37 % 101)).collect();
    let sampling = SamplingOptions { temperature: 2.0, seed: Some(3), ..SamplingOptions::default() };
    let answer = engines.check(&GenerateRequest { sampling, max_tokens: Some(200), ..continued(&text) });
    assert!(answer.timings.guessed_tokens < 60, "{:?}", answer.timings);
}

/// The answers of a model with and without a draft model, which must be the same; returns how many guesses were right
/// with it, and how many tokens were guessed.
#[track_caller]
fn check_draft(model: &Path, draft: Option<&Path>, sampling: &SamplingOptions) -> (usize, usize) {
    let plain = support::engine(ModelOptions { speculation: Speculation::Off, ..support::options() });
    let draft = draft.map(|draft| draft.to_str().unwrap().to_owned());
    let drafting = support::engine_with(EngineOptions { draft, ..support::options().into() });
    let mut guesses = (0, 0);
    for text in ["The sea is", "Once upon a time there was a small boat", "1 2 3"] {
        let (model, sampling) = (model.to_str().unwrap().into(), sampling.clone());
        let request = GenerateRequest { model, sampling, max_tokens: Some(24), ..continued(text) };
        let answer = |engine: &EngineHandle| engine.generate(request.clone()).unwrap().complete().unwrap();
        let ours = answer(&drafting);
        assert_same(&ours, &answer(&plain));
        guesses = (guesses.0 + ours.timings.accepted_tokens, guesses.1 + ours.timings.guessed_tokens);
    }
    guesses
}

/// A state cannot be cut: wrong guesses are rolled back to a checkpoint. Experts are chosen for every guess. Random
/// weights repeat nothing, so a form makes them repeat the prompt, with changes.
#[test]
fn answers_of_hybrids_and_mixtures_are_the_same() {
    let folder = support::scratch();
    let engines = Engines::start();
    let form = "(The (north|south|east) wind blows (cold|warm|dry)\\.\\n){8}";
    for shape in ["qwen35", "qwen35moe", "lfm2", "lfm2moe", "granitehybrid", "qwen3moe", "gemma4", "gpt-oss"] {
        let path = folder.path().join(shape);
        support::synthesize(&format!("tiny-{shape}"), "q4_k_m", &path);
        let mut guesses = (0, 0);
        for seed in 0..3 {
            let sampling = SamplingOptions { temperature: 1.0, seed: Some(seed), ..SamplingOptions::default() };
            let request = GenerateRequest {
                model: path.to_str().unwrap().into(),
                sampling,
                constraint: Some(Constraint::Regex(form.into())),
                max_tokens: Some(120),
                ..repetitive()
            };
            let timings = engines.check(&request).timings;
            guesses = (guesses.0 + timings.accepted_tokens, guesses.1 + timings.guessed_tokens);
            engines.check(&GenerateRequest { sampling: SamplingOptions::default(), ..request });
        }
        let (accepted, guessed) = guesses;
        assert!(accepted > 0 && accepted < guessed, "{shape}: {accepted} of {guessed} guesses were right");
    }
}

#[test]
fn a_draft_model_changes_no_answer() {
    let folder = support::scratch();
    let at = |name: &str| folder.path().join(name);
    support::synthesize("tiny-llama", "f16", &at("model"));
    std::fs::copy(at("model"), at("alike")).unwrap();
    support::synthesize("tiny-qwen3", "q8_0", &at("other"));
    let greedy = SamplingOptions::default();
    let (without, _) = check_draft(&at("model"), None, &greedy);
    let (accepted, guessed) = check_draft(&at("model"), Some(&at("alike")), &greedy);
    assert!(accepted > without + 20, "{accepted} of {guessed}, {without} without");
    let by_chance = SamplingOptions { temperature: 1.0, seed: Some(2), ..greedy };
    check_draft(&at("model"), Some(&at("alike")), &by_chance);
    let (accepted, guessed) = check_draft(&at("model"), Some(&at("other")), &by_chance);
    assert!(guessed > 0 && accepted * 5 < guessed, "{accepted} of {guessed}");
}

#[test]
fn a_draft_model_that_cannot_guess_leaves_the_model_as_it_is() {
    let folder = support::scratch();
    let at = |name: &str| folder.path().join(name);
    support::synthesize("tiny-llama", "q8_0", &at("model"));
    std::fs::write(at("broken"), "no model").unwrap();
    let vocabulary = Gguf::open(&support::test_model("vocab-llama-spm.gguf")).unwrap();
    let (shape, quantization) = (Shape::named("tiny-llama").unwrap(), Quantization::named("q8_0").unwrap());
    synth::write(&shape, quantization, &vocabulary, 1, &at("foreign"), &mut |_| ()).unwrap();
    let greedy = SamplingOptions::default();
    let without = check_draft(&at("model"), None, &greedy);
    for draft in [at("missing"), at("broken"), at("foreign"), at("model")] {
        assert_eq!(check_draft(&at("model"), Some(&draft), &greedy), without, "{}", draft.display());
    }
}

/// Rows of logits as bits, one token at a time or several in a step.
fn bits(model: &mut Model, prompt: &[u32], tokens: &[u32], n_together: usize) -> Vec<Vec<u32>> {
    let mut sequence = CachedSequence::default();
    model.advance(&mut [Advance { sequence: &mut sequence, tokens: prompt, logits: 0..0 }]).unwrap();
    let mut rows = Vec::new();
    for tokens in tokens.chunks(n_together) {
        let logits =
            model.advance(&mut [Advance { sequence: &mut sequence, tokens, logits: 0..tokens.len() }]).unwrap();
        rows.extend(logits.rows().map(|row| row.iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>()));
    }
    model.release(sequence);
    rows
}

#[test]
fn several_tokens_in_a_step_give_the_bits_that_each_gives_alone() {
    let folder = support::scratch();
    let mut models = vec![support::smollm2()];
    for (shape, quantization) in [
        ("tiny-llama", "q4_k_m"),
        ("tiny-gemma2", "q8_0"),
        ("tiny-gemma3", "q5_1"),
        ("tiny-qwen3", "f16"),
        ("tiny-qwen3moe", "q4_k_m"),
        ("tiny-qwen35", "q4_k_m"),
        ("tiny-qwen35moe", "q8_0"),
        ("tiny-gemma4", "q4_k_m"),
        ("tiny-gpt-oss", "mxfp4_moe"),
        ("tiny-lfm2moe", "q4_k_m"),
        ("tiny-granitehybrid", "q4_k_m"),
        ("tiny-llama4", "q8_0"),
    ] {
        let path = folder.path().join(shape);
        support::synthesize(shape, quantization, &path);
        models.push(path);
    }
    for path in models {
        let options = ModelOptions { backend: BackendChoice::Native, n_threads: Some(2), ..support::options() };
        let mut model = Model::load(&support::whole(&path), &options).unwrap();
        let token = |index: u32| (index * 7919 + 13) % 40_000;
        for n_prompt in [3, 250, 700] {
            let prompt: Vec<u32> = (0..n_prompt).map(token).collect();
            let tokens: Vec<u32> = (900..926).map(token).collect();
            let alone = bits(&mut model, &prompt, &tokens, 1);
            for n_together in [2, 5, 8, 9, 13] {
                let together = bits(&mut model, &prompt, &tokens, n_together);
                assert!(together == alone, "{} after {n_prompt}, {n_together} together", path.display());
            }
        }
    }
}
