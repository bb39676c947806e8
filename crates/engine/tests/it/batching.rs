//! Sequences that run together, are forked, truncated, chunked or sliced, or begin with kept parts of others, give the
//! same results as each does alone.

use hone_engine::{Advance, BackendChoice, CachedSequence, Logits, Model, ModelOptions};

use crate::support::{self, of_few_tokens as few, tokens};

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

/// A model that computes the same in several ways.
struct Subject {
    name: String,
    /// Whether results must be equal to the bit.
    is_exact: bool,
    /// Whether layers keep a state, so that sequences cannot be cut anywhere.
    has_states: bool,
}

impl Subject {
    #[track_caller]
    fn check_same(&self, ours: &[Vec<f32>], theirs: &[Vec<f32>]) {
        let name = &self.name;
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (position, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert!(ours.iter().all(|logit| logit.is_finite()), "{name}: position {position}");
            let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-2, "{name}: logits at position {position} differ by {difference}");
            assert!(!self.is_exact || ours == theirs, "{name}: bits differ at position {position} by {difference}");
        }
    }
}

/// Exactly computed weights on every backend, and on the native one also the formats of real files.
fn with_every_shape(check: impl Fn(&Subject, &mut Model)) {
    let folder = support::scratch();
    for shape in support::tiny_shapes() {
        let (f32, mixture) = (folder.path().join("f32"), folder.path().join("mixture"));
        support::synthesize_few_tokens(shape.name, "f32", &f32);
        support::synthesize_few_tokens(shape.name, "q4_k_m", &mixture);
        let cases = [(BackendChoice::Candle, &f32), (BackendChoice::Native, &f32), (BackendChoice::Native, &mixture)];
        let runs = |backend| backend != BackendChoice::Candle || support::runs_on_candle(shape);
        for (backend, path) in cases.into_iter().filter(|(backend, _)| runs(*backend)) {
            let options = ModelOptions { backend, ..support::options() };
            let mut model = Model::load(&support::whole(path), &options).unwrap();
            let file = path.file_name().unwrap().display();
            let subject = Subject {
                name: format!("{} in {file} on {}", shape.name, model.backend_name()),
                is_exact: backend == BackendChoice::Native,
                has_states: model.spec().is_recurrent(),
            };
            check(&subject, &mut model);
        }
    }
}

#[test]
fn chunks_of_a_prompt_add_up() {
    with_every_shape(|subject, model| {
        let prompt = few(1, 70);
        let whole = in_chunks(model, &prompt, &[70]);
        subject.check_same(&in_chunks(model, &prompt, &[33, 1, 36]), &whole);
        subject.check_same(&in_chunks(model, &prompt, &[1; 70]), &whole);
    });
}

/// On the native backend, a token's logits are bit-identical regardless of how its prompt was cut into steps, of other
/// work in a step, and of the number of threads.
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
    with_every_shape(|subject, model| {
        let prompts = [few(1, 40), few(2, 3), few(3, 65)];
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
        subject.check_same(&together, &alone);
        sequences.into_iter().for_each(|sequence| model.release(sequence));
    });
}

#[test]
fn forks_go_their_own_ways() {
    with_every_shape(|subject, model| {
        let (common, left, right) = (few(1, 45), few(2, 4), few(3, 4));
        let mut trunk = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut trunk, tokens: &common, logits: 0..0 }]).unwrap();
        let mut branch = model.fork(&trunk);
        let mut entries = [
            Advance { sequence: &mut trunk, tokens: &left, logits: 0..4 },
            Advance { sequence: &mut branch, tokens: &right, logits: 0..4 },
        ];
        let forked: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
        let alone = |model: &mut Model, tail: &[u32]| in_chunks(model, &[&common, tail].concat(), &[49])[45..].to_vec();
        subject.check_same(&forked, &[alone(model, &left), alone(model, &right)].concat());
        model.release(trunk);
        model.release(branch);
    });
}

#[test]
fn a_truncated_sequence_goes_on_from_where_it_was_cut() {
    with_every_shape(|subject, model| {
        let (prompt, tail) = (few(1, 60), few(2, 5));
        let mut sequence = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut sequence, tokens: &prompt, logits: 59..60 }]).unwrap();
        model.truncate(&mut sequence, 35);
        // A model that keeps states goes back to the last one that it has.
        let n_left = sequence.n_tokens();
        assert!(n_left == 35 || subject.has_states && n_left < 35, "{}: {n_left} tokens are left", subject.name);
        let again = [&prompt[n_left..35], &tail].concat();
        let n_again = again.len();
        let entry = Advance { sequence: &mut sequence, tokens: &again, logits: n_again - 5..n_again };
        let cut: Vec<Vec<f32>> = model.advance(&mut [entry]).unwrap().rows().map(<[f32]>::to_vec).collect();
        let alone = in_chunks(model, &[&prompt[..35], &tail].concat(), &[40]);
        subject.check_same(&cut, &alone[35..]);
        model.release(sequence);
    });
}

#[test]
fn a_kept_beginning_is_as_good_as_a_computed_one() {
    with_every_shape(|subject, model| {
        let (common, left, right) = (few(1, 75), few(2, 9), few(3, 5));
        let [first, second] = [[&common[..], &left].concat(), [&common[..], &right].concat()];
        let alone = in_chunks(model, &second, &[second.len()]);
        let mut sequence = CachedSequence::default();
        model.advance(&mut [Advance { sequence: &mut sequence, tokens: &first, logits: 83..84 }]).unwrap();
        model.keep(&first, sequence);
        // Two whole blocks are shared, and the common part of the third is copied. A state is kept at the end of the
        // last whole block before the prompt's end at the latest.
        let mut branches = [model.begin(&second).unwrap(), model.begin(&second).unwrap()];
        let n_kept = branches[0].n_tokens();
        assert_eq!(branches[1].n_tokens(), n_kept);
        assert!(n_kept == 75 || subject.has_states && n_kept > 0, "{}: {n_kept} tokens are kept", subject.name);
        let rest = &second[n_kept..];
        let logits = 75 - n_kept..rest.len();
        let mut entries: Vec<Advance<'_>> =
            branches.iter_mut().map(|sequence| Advance { sequence, tokens: rest, logits: logits.clone() }).collect();
        let rows: Vec<Vec<f32>> = model.advance(&mut entries).unwrap().rows().map(<[f32]>::to_vec).collect();
        subject.check_same(&rows[..5], &alone[75..]);
        subject.check_same(&rows[5..], &alone[75..]);
        branches.into_iter().for_each(|sequence| model.release(sequence));
        let usage = model.cache_usage();
        assert_eq!(usage.free + usage.kept, usage.capacity, "{}", subject.name);
    });
}

#[test]
fn a_step_in_slices_is_the_same_step_and_may_be_given_up() {
    with_every_shape(|subject, model| {
        let (prompt, other) = (few(1, 40), few(2, 20));
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
                assert!(model.resume(&mut || false).is_err(), "{}: nothing is suspended", subject.name);
                assert_eq!(step(model, &mut sequence), None);
                let resume = |_| model.resume(&mut || true).unwrap().map(|logits| rows(&logits));
                (1..1000).find_map(resume).unwrap()
            }
        };
        subject.check_same(&whole, &alone);
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
