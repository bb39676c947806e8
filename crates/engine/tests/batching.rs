//! Sequences that run together, are forked, truncated, chunked or sliced, or begin with kept parts of others, give the
//! same results as each does alone.

#![allow(clippy::unwrap_used)]

mod support;

use hone_engine::backend::Logits;
use hone_engine::kv_cache::CachedSequence;
use hone_engine::model::{Advance, BackendChoice, Model, ModelOptions};
use hone_engine::sampler::argmax;
use support::tokens;

const SHAPES: [&str; 6] = ["tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma2", "tiny-gemma3", "tiny-phi3"];

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Candle, BackendChoice::Native];

/// Logits of every position, the prompt cut into chunks of these lengths.
fn in_chunks(model: &mut Model, prompt: &[u32], lengths: &[usize]) -> Vec<Vec<f32>> {
    let mut sequence = CachedSequence::default();
    let mut rows = Vec::new();
    let mut rest = prompt;
    for length in lengths {
        let (chunk, tail) = rest.split_at(*length);
        let entry = Advance { sequence: &mut sequence, tokens: chunk, logits: 0..chunk.len() };
        rows.extend(model.advance(&mut [entry]).unwrap().rows().map(<[f32]>::to_vec));
        rest = tail;
    }
    model.release(sequence);
    rows
}

#[track_caller]
fn check_same(ours: &[Vec<f32>], theirs: &[Vec<f32>], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (position, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-2, "{what}: logits at position {position} differ by {difference}");
        assert_eq!(argmax(ours), argmax(theirs), "{what}: position {position}");
    }
}

fn with_every_shape(check: impl Fn(&str, &mut Model)) {
    let folder = support::scratch();
    for shape in SHAPES {
        let path = folder.path().join(shape);
        support::synthesize(shape, "f32", &path);
        for backend in BACKENDS {
            let options = ModelOptions { backend, ..support::options() };
            let mut model = Model::load(&support::whole(&path), &options).unwrap();
            check(&format!("{shape} on {}", model.backend_name()), &mut model);
        }
    }
}

#[test]
fn chunks_of_a_prompt_add_up() {
    with_every_shape(|shape, model| {
        let prompt = tokens(1, 70);
        let whole = in_chunks(model, &prompt, &[70]);
        check_same(&in_chunks(model, &prompt, &[33, 1, 36]), &whole, shape);
        check_same(&in_chunks(model, &prompt, &[1; 70]), &whole, shape);
    });
}

/// On the native backend, not a bit of a token's logits depends on how its prompt was cut into steps, on what else a
/// step computed, or on the number of threads.
#[test]
fn the_native_backend_computes_the_same_bits_whatever_runs_beside() {
    let prompt = tokens(1, 700);
    let load = |n_threads| {
        let options = ModelOptions { backend: BackendChoice::Native, n_threads: Some(n_threads), ..support::options() };
        Model::load(&support::whole(&support::smollm2()), &options).unwrap()
    };
    let last_row = |rows: Vec<Vec<f32>>| rows.last().unwrap().iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>();
    let mut model = load(2);
    let alone = last_row(in_chunks(&mut model, &prompt, &[700]));
    for lengths in [&[1, 699][..], &[300, 17, 383], &[640, 59, 1]] {
        assert!(last_row(in_chunks(&mut model, &prompt, lengths)) == alone, "in chunks of {lengths:?}");
    }
    for n_threads in [1, 3] {
        assert!(last_row(in_chunks(&mut load(n_threads), &prompt, &[700])) == alone, "on {n_threads} threads");
    }
    let mut sequences = [CachedSequence::default(), CachedSequence::default(), CachedSequence::default()];
    let mates = [tokens(2, 45), prompt.clone(), tokens(3, 7)];
    let mut entries: Vec<Advance<'_>> = std::iter::zip(&mut sequences, &mates)
        .map(|(sequence, tokens)| Advance { sequence, tokens, logits: tokens.len() - 1..tokens.len() })
        .collect();
    let together: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
    assert!(last_row(together[..2].to_vec()) == alone, "beside others");
    sequences.into_iter().for_each(|sequence| model.release(sequence));
}

#[test]
fn ragged_sequences_run_together_as_they_run_alone() {
    with_every_shape(|shape, model| {
        let prompts = [tokens(1, 40), tokens(2, 3), tokens(3, 65)];
        let alone: Vec<Vec<f32>> =
            prompts.iter().flat_map(|prompt| in_chunks(model, prompt, &[prompt.len()])).collect();
        let mut sequences = [CachedSequence::default(), CachedSequence::default(), CachedSequence::default()];
        // Half of the first prompt has been computed already.
        let first = Advance { sequence: &mut sequences[0], tokens: &prompts[0][..20], logits: 0..20 };
        let mut together: Vec<Vec<f32>> = model.advance(&mut [first]).unwrap().rows().map(<[f32]>::to_vec).collect();
        let rests = [&prompts[0][20..], &prompts[1], &prompts[2]];
        let mut entries: Vec<Advance<'_>> = sequences
            .iter_mut()
            .zip(rests)
            .map(|(sequence, tokens)| Advance { sequence, tokens, logits: 0..tokens.len() })
            .collect();
        together.extend(model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec));
        check_same(&together, &alone, shape);
        sequences.into_iter().for_each(|sequence| model.release(sequence));
    });
}

#[test]
fn forks_go_their_own_ways() {
    with_every_shape(|shape, model| {
        let (common, left, right) = (tokens(1, 45), tokens(2, 4), tokens(3, 4));
        let mut trunk = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut trunk, tokens: &common, logits: 0..0 }]).unwrap();
        let mut branch = model.fork(&trunk);
        let mut entries = [
            Advance { sequence: &mut trunk, tokens: &left, logits: 0..4 },
            Advance { sequence: &mut branch, tokens: &right, logits: 0..4 },
        ];
        let forked: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
        let alone = |model: &mut Model, tail: &[u32]| in_chunks(model, &[&common, tail].concat(), &[49])[45..].to_vec();
        check_same(&forked, &[alone(model, &left), alone(model, &right)].concat(), shape);
        model.release(trunk);
        model.release(branch);
    });
}

#[test]
fn a_truncated_sequence_goes_on_from_where_it_was_cut() {
    with_every_shape(|shape, model| {
        let (prompt, tail) = (tokens(1, 60), tokens(2, 5));
        let mut sequence = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut sequence, tokens: &prompt, logits: 0..0 }]).unwrap();
        model.truncate(&mut sequence, 35);
        let entry = Advance { sequence: &mut sequence, tokens: &tail, logits: 0..5 };
        let cut: Vec<Vec<f32>> = model.advance(&mut [entry]).unwrap().rows().map(<[f32]>::to_vec).collect();
        let alone = in_chunks(model, &[&prompt[..35], &tail].concat(), &[40]);
        check_same(&cut, &alone[35..], shape);
        model.release(sequence);
    });
}

#[test]
fn a_kept_beginning_is_as_good_as_a_computed_one() {
    with_every_shape(|shape, model| {
        let (common, left, right) = (tokens(1, 75), tokens(2, 9), tokens(3, 5));
        let [first, second] = [[&common[..], &left].concat(), [&common[..], &right].concat()];
        let alone = in_chunks(model, &second, &[second.len()]);
        let mut sequence = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut sequence, tokens: &first, logits: 0..0 }]).unwrap();
        model.keep(&first, sequence);
        // Two whole blocks are shared, and the common part of the third is copied.
        let mut branches = [model.begin(&second).unwrap(), model.begin(&second).unwrap()];
        assert_eq!(branches.each_ref().map(CachedSequence::n_tokens), [75, 75]);
        let mut entries: Vec<Advance<'_>> =
            branches.iter_mut().map(|sequence| Advance { sequence, tokens: &second[75..], logits: 0..5 }).collect();
        let rows: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
        check_same(&rows[..5], &alone[75..], shape);
        check_same(&rows[5..], &alone[75..], shape);
        branches.into_iter().for_each(|sequence| model.release(sequence));
        let usage = model.cache_usage();
        assert_eq!(usage.free + usage.kept, usage.capacity, "{shape}");
    });
}

#[test]
fn a_step_in_slices_is_the_same_step_and_may_be_given_up() {
    with_every_shape(|shape, model| {
        let (prompt, other) = (tokens(1, 40), tokens(2, 20));
        let alone = in_chunks(model, &prompt, &[40]);
        let mut sequence = CachedSequence::default();
        let step = |model: &mut Model, sequence: &mut CachedSequence| {
            let entry = Advance { sequence, tokens: &prompt, logits: 0..40 };
            model.advance_in_slices(&mut [entry], &mut || true).unwrap().map(|logits| rows(&logits))
        };
        let whole = match step(model, &mut sequence) {
            // A backend that cannot be suspended finishes at once.
            Some(rows) => rows,
            None => {
                // Another step discards the suspended one; it is begun again, and continues slice by slice.
                in_chunks(model, &other, &[20]);
                model.truncate(&mut sequence, 0);
                assert!(model.resume(&mut || false).is_err(), "{shape}: nothing is suspended");
                assert_eq!(step(model, &mut sequence), None);
                let resume = |_| model.resume(&mut || true).unwrap().map(|logits| rows(&logits));
                (1..1000).find_map(resume).unwrap()
            }
        };
        check_same(&whole, &alone, shape);
        model.release(sequence);
    });
}

fn rows(logits: &Logits<'_>) -> Vec<Vec<f32>> {
    logits.rows().map(<[f32]>::to_vec).collect()
}

#[test]
fn every_tensor_type_runs() {
    let folder = support::scratch();
    for quantization in [
        "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl",
        "iq4_xs", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0", "mxfp4", "q4_k_m",
    ] {
        let path = folder.path().join(quantization);
        support::synthesize("tiny-llama", quantization, &path);
        for backend in BACKENDS {
            let options = ModelOptions { backend, ..support::options() };
            let mut model = Model::load(&support::whole(&path), &options).unwrap();
            let rows = in_chunks(&mut model, &tokens(1, 24), &[20, 1, 3]);
            assert!(rows.iter().flatten().all(|logit| logit.is_finite()), "{quantization} on {backend:?}");
        }
    }
}
