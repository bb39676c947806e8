//! Tests of the sampler: chances are compared with formulas, and choices with sorting the whole vocabulary.

use hone_protocol::{DryOptions, MirostatOptions};

use super::*;

/// Logits whose probabilities are 0.5, 0.25, 0.125, 0.0625, 0.0625.
const LOGITS: [f32; 5] = [3.0 * std::f32::consts::LN_2, 2.0 * std::f32::consts::LN_2, std::f32::consts::LN_2, 0.0, 0.0];

/// How often each token is chosen in 4000 draws.
fn draw(options: SamplingOptions) -> [usize; 5] {
    let mut sampler = Sampler::new(SamplingOptions { seed: Some(7), ..options }, 5, Breakers::default).unwrap();
    let mut counts = [0; 5];
    for _ in 0..4000 {
        counts[sampler.sample(&LOGITS, |_| ()).unwrap() as usize] += 1;
    }
    counts
}

fn warm() -> SamplingOptions {
    SamplingOptions { temperature: 1.0, ..SamplingOptions::default() }
}

#[track_caller]
fn check_support(options: SamplingOptions, expected: &[usize]) {
    let counts = draw(options);
    let drawn: Vec<usize> = (0..5).filter(|token| counts[*token] > 0).collect();
    assert_eq!(drawn, expected, "{counts:?}");
}

#[test]
fn options_keep_the_tokens_that_they_should() {
    check_support(warm(), &[0, 1, 2, 3, 4]);
    check_support(SamplingOptions { top_k: 2, ..warm() }, &[0, 1]);
    check_support(SamplingOptions { top_k: 1, ..warm() }, &[0]);
    check_support(SamplingOptions { top_p: 0.5, ..warm() }, &[0]);
    check_support(SamplingOptions { top_p: 0.0, ..warm() }, &[0]);
    check_support(SamplingOptions { top_p: 0.6, ..warm() }, &[0, 1]);
    check_support(SamplingOptions { min_p: 0.25, ..warm() }, &[0, 1, 2]);
    check_support(SamplingOptions { min_p: 1.0, ..warm() }, &[0]);
    check_support(SamplingOptions::default(), &[0]);
    check_support(SamplingOptions { logit_bias: vec![(4, 9.0)], ..SamplingOptions::default() }, &[4]);
    check_support(SamplingOptions { logit_bias: vec![(1, f32::NEG_INFINITY)], ..warm() }, &[0, 2, 3, 4]);
}

#[test]
fn chances_follow_the_probabilities() {
    let counts = draw(warm());
    for (count, expected) in counts.iter().zip([2000, 1000, 500, 250, 250]) {
        assert!(count.abs_diff(expected) < 120, "{counts:?}");
    }
    let hot = draw(SamplingOptions { temperature: 100.0, ..warm() });
    assert!(hot.iter().all(|count| count.abs_diff(800) < 120), "{hot:?}");
}

#[test]
fn exponentials_are_those_of_the_standard_library() {
    for step in 0..8_600 {
        let x = -0.01 * step as f32;
        assert!((exponential(x) / x.exp() - 1.0).abs() < 1e-6, "{x}");
    }
    assert!(exponential(f32::NEG_INFINITY) < 1e-37);
}

/// Unsorted tokens are not drawn: the candidates are those of sorting the whole vocabulary.
#[test]
fn the_candidates_are_those_of_a_whole_vocabulary_in_order() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for spread in [0.5, 3.0, 30.0] {
        let logits: Vec<f32> = (0..5000).map(|_| (random.next_u32() as f32 / u32::MAX as f32) * spread).collect();
        let largest = logits[argmax(&logits) as usize];
        let mut sorted: Vec<u32> = (0..5000).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        let total: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        for (top_k, top_p, min_p) in [(0, 0.9, 0.0), (0, 0.3, 0.0), (40, 1.0, 0.0), (0, 1.0, 0.05), (0, 0.999, 0.1)] {
            let options = SamplingOptions { top_k, top_p, min_p, ..warm() };
            let mut sampler = Sampler::new(options, 5000, Breakers::default).unwrap();
            sampler.adjusted.clone_from(&logits);
            sampler.collect_candidates(largest);
            let kept = sampler.n_kept_by_probability();
            let ids: Vec<u32> = sampler.candidates[..kept].iter().map(|candidate| candidate.id).collect();
            assert_eq!(ids, sorted[..kept], "{spread} {top_k} {top_p} {min_p}");
            let mass: f64 = ids.iter().map(|id| f64::from(logits[*id as usize] - largest).exp()).sum();
            match (top_k, min_p) {
                (0, 0.0) => assert!((mass / total - f64::from(top_p)).abs() < 0.01, "{} {top_p}", mass / total),
                (0, _) => assert!(ids.iter().all(|id| logits[*id as usize] >= largest + min_p.ln() - 1e-3)),
                (top_k, _) => assert_eq!(kept, top_k),
            }
        }
    }
}

#[test]
fn the_same_seed_draws_the_same_tokens() {
    let draws = |seed| {
        let mut sampler = Sampler::new(SamplingOptions { seed, ..warm() }, 5, Breakers::default).unwrap();
        (0..64).map(|_| sampler.sample(&LOGITS, |_| ())).collect::<Vec<_>>()
    };
    assert_eq!(draws(Some(1)), draws(Some(1)));
    assert_ne!(draws(Some(1)), draws(Some(2)));
    assert_ne!(draws(None), draws(None));
}

#[track_caller]
fn check_penalty(options: SamplingOptions, observed: &[u32], expected: u32) {
    let mut sampler = Sampler::new(options, 5, Breakers::default).unwrap();
    observed.iter().for_each(|token| sampler.observe(*token));
    assert_eq!(sampler.sample(&LOGITS, |_| ()), Some(expected));
}

#[test]
fn penalties_look_at_the_last_tokens() {
    let options = SamplingOptions::default;
    check_penalty(SamplingOptions { repetition_penalty: 2.0, ..options() }, &[0], 1);
    check_penalty(SamplingOptions { presence_penalty: 0.5, ..options() }, &[0, 0, 0], 0);
    check_penalty(SamplingOptions { presence_penalty: 0.8, ..options() }, &[0], 1);
    check_penalty(SamplingOptions { frequency_penalty: 0.5, ..options() }, &[0], 0);
    check_penalty(SamplingOptions { frequency_penalty: 0.5, ..options() }, &[0, 0], 1);
    check_penalty(SamplingOptions { repetition_penalty: 2.0, penalty_window: 1, ..options() }, &[0, 1], 0);
    check_penalty(SamplingOptions { repetition_penalty: 2.0, penalty_window: 0, ..options() }, &[0], 0);
}

#[test]
fn forbidden_tokens_are_never_chosen() {
    let mut sampler = Sampler::new(SamplingOptions { seed: Some(3), ..warm() }, 5, Breakers::default).unwrap();
    let drawn = (0..200).map(|_| sampler.sample(&LOGITS, |logits| logits[..4].fill(f32::NEG_INFINITY)));
    assert!(drawn.into_iter().all(|token| token == Some(4)));
    assert_eq!(sampler.sample(&LOGITS, |logits| logits.fill(f32::NEG_INFINITY)), None);
    assert_eq!(sampler.sample(&[0.0, f32::NAN, 0.0, 0.0, 0.0], |_| ()), None);
}

#[track_caller]
fn check_refused(options: SamplingOptions, expected: &str) {
    let error = Sampler::new(options, 5, Breakers::default).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn options_out_of_range_are_refused() {
    check_refused(SamplingOptions { temperature: -1.0, ..warm() }, "temperature is -1: it must be 0 to 100");
    check_refused(
        SamplingOptions { logit_bias: vec![(5, 1.0)], ..warm() },
        "a token id of logit_bias is 5: it must be in the vocabulary",
    );
}

/// How often each token is chosen, as shares.
fn shares(options: SamplingOptions) -> [f32; 5] {
    draw(options).map(|count| count as f32 / 4000.0)
}

#[track_caller]
fn check_shares(options: SamplingOptions, expected: [f32; 5]) {
    let found = shares(options);
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.03), "{found:?}");
}

#[test]
fn xtc_leaves_the_least_likely_of_the_likely_tokens() {
    let xtc = |probability, threshold| SamplingOptions { xtc: XtcOptions { probability, threshold }, ..warm() };
    // Of 0.5, 0.25 and 0.125, which are likely enough, 0.125 stays alongside the two of 0.0625.
    check_shares(xtc(1.0, 0.1), [0.0, 0.0, 0.5, 0.25, 0.25]);
    check_shares(xtc(0.5, 0.1), [0.25, 0.125, 0.3125, 0.15625, 0.15625]);
    check_shares(xtc(1.0, 0.3), [0.5, 0.25, 0.125, 0.0625, 0.0625]);
    check_shares(xtc(1.0, 0.6), [0.5, 0.25, 0.125, 0.0625, 0.0625]);
    // The probabilities are those of the tokens that are left: 0.571, 0.286 and 0.143.
    check_support(SamplingOptions { top_k: 3, ..xtc(1.0, 0.2) }, &[1, 2]);
}

#[test]
fn top_n_sigma_keeps_what_is_near_the_largest_logit() {
    // The logits are 3, 2, 1, 0 and 0 times ln 2: their mean is 1.2, their deviation 1.166 times ln 2.
    let top = |top_n_sigma| SamplingOptions { top_n_sigma, ..warm() };
    check_support(top(0.5), &[0]);
    check_support(top(1.0), &[0, 1]);
    check_support(top(2.0), &[0, 1, 2]);
    check_support(top(3.0), &[0, 1, 2, 3, 4]);
    check_support(SamplingOptions { logit_bias: vec![(0, f32::NEG_INFINITY)], ..top(1.0) }, &[1]);
}

#[test]
fn a_dynamic_temperature_follows_the_entropy() {
    let dynamic =
        |range, exponent| SamplingOptions { dynamic_temperature: DynamicTemperature { range, exponent }, ..warm() };
    // The entropy is 1.875 bits of at most log2(5), so the temperature is 2 * 0.8075 = 1.615.
    let temperature = 2.0 * 1.875 / 5.0_f32.log2();
    let weights = LOGITS.map(|logit| (logit / temperature).exp());
    check_shares(dynamic(1.0, 1.0), weights.map(|weight| weight / weights.iter().sum::<f32>()));
    check_shares(dynamic(0.0, 1.0), [0.5, 0.25, 0.125, 0.0625, 0.0625]);
    let hot = shares(dynamic(1.0, 0.0));
    let weights = LOGITS.map(|logit| (logit / 2.0).exp());
    let expected = weights.map(|weight| weight / weights.iter().sum::<f32>());
    assert!(hot.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.03), "{hot:?}");
}

#[test]
fn mirostat_keeps_the_surprise_that_is_aimed_at() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let logits: Vec<f32> = (0..2000).map(|_| 8.0 * (random.next_u32() as f32 / u32::MAX as f32).powi(3)).collect();
    let largest = logits[argmax(&logits) as usize];
    for tau in [3.0, 5.0] {
        let mirostat = MirostatOptions { tau, eta: 0.1 };
        let options = SamplingOptions { mirostat, seed: Some(1), ..warm() };
        let mut sampler = Sampler::new(options, logits.len(), Breakers::default).unwrap();
        let mut surprises = Vec::new();
        for _ in 0..600 {
            let token = sampler.sample(&logits, |_| ()).unwrap();
            let kept: f32 = sampler.candidates.iter().map(|candidate| (candidate.logit - largest).exp()).sum();
            surprises.push(-((logits[token as usize] - largest).exp() / kept).log2());
        }
        let mean = surprises[200..].iter().sum::<f32>() / 400.0;
        assert!((mean - tau).abs() < 0.2, "{mean} {tau}");
    }
}

#[test]
fn a_repetition_is_not_continued() {
    let dry = DryOptions { multiplier: 0.8, ..DryOptions::default() };
    check_penalty(SamplingOptions { dry, ..SamplingOptions::default() }, &[1, 2, 0, 3, 1, 2], 1);
    check_penalty(SamplingOptions { dry, ..SamplingOptions::default() }, &[1, 2, 0, 3, 4, 2], 0);
    let breakers = || Breakers::among([b"a".as_slice(), b"b", b"\n", b"c", b"d"].into_iter());
    let mut sampler = Sampler::new(SamplingOptions { dry, ..SamplingOptions::default() }, 5, breakers).unwrap();
    [1, 2, 0, 3, 1, 2].iter().for_each(|token| sampler.observe(*token));
    assert_eq!(sampler.sample(&LOGITS, |_| ()), Some(0), "no match extends over a line break");
}
