//! Chooses the next token from the logits.
//!
//! The steps, in this order: penalties, bias, constraint, then top-k, top-p and min-p over the remaining probabilities,
//! and the temperature last, as in llama.cpp. Temperature 0 takes the likeliest token left by the first three, with the
//! lowest id among equals.

use hone_protocol::{InvalidSampling, SamplingOptions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How far below the largest logit candidates are looked for, in turn until there are enough.
const MARGINS: [f32; 4] = [8.0, 16.0, 32.0, f32::INFINITY];

/// Chooses tokens for one request. Keeps the random state and the last tokens; its buffers are reused.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    random: ChaCha8Rng,
    /// The tokens that penalties consider, oldest first, and how often each occurs.
    recent: VecDeque<u32>,
    counts: HashMap<u32, usize>,
    adjusted: Vec<f32>,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    probability: f32,
}

impl Sampler {
    /// A sampler for a vocabulary of `vocab_size` tokens.
    ///
    /// # Errors
    /// When an option is out of its range.
    pub fn new(options: SamplingOptions, vocab_size: usize) -> Result<Self, InvalidSampling> {
        check(&options, vocab_size)?;
        let seed = options.seed.unwrap_or_else(fresh_seed);
        Ok(Sampler {
            random: ChaCha8Rng::seed_from_u64(seed),
            recent: VecDeque::new(),
            counts: HashMap::new(),
            adjusted: Vec::with_capacity(vocab_size),
            candidates: Vec::new(),
            options,
        })
    }

    /// After how many tokens of repetition the answer ends; 0 stands for never.
    pub fn repetition_limit(&self) -> usize {
        self.options.repetition_limit
    }

    /// Tells the penalties about a token of the prompt or the answer.
    pub fn observe(&mut self, token: u32) {
        if self.options.penalty_window == 0 || !self.has_penalties() {
            return;
        }
        if self.recent.len() == self.options.penalty_window {
            self.forget_oldest();
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    /// Chooses a token from the model's logits; `constrain` sets those of forbidden tokens to negative infinity.
    /// Returns `None` if there is nothing to choose from: every token is forbidden, or a logit is NaN.
    pub fn sample(&mut self, logits: &[f32], constrain: impl FnOnce(&mut [f32])) -> Option<u32> {
        self.adjusted.clear();
        self.adjusted.extend_from_slice(logits);
        self.penalize();
        for (token, bias) in &self.options.logit_bias {
            self.adjusted[*token as usize] += bias;
        }
        constrain(&mut self.adjusted);
        let likeliest = argmax(&self.adjusted);
        let largest = self.adjusted.get(likeliest as usize).copied().filter(|logit| logit.is_finite())?;
        if logits.iter().any(|logit| logit.is_nan()) {
            return None;
        }
        Some(if self.options.temperature == 0.0 { likeliest } else { self.sample_by_chance(largest) })
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.recent.pop_front() else { return };
        if let Some(count) = self.counts.get_mut(&oldest) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }

    fn has_penalties(&self) -> bool {
        let options = &self.options;
        (options.repetition_penalty, options.frequency_penalty, options.presence_penalty) != (1.0, 0.0, 0.0)
    }

    fn penalize(&mut self) {
        let options = &self.options;
        for (token, count) in &self.counts {
            let Some(logit) = self.adjusted.get_mut(*token as usize) else { continue };
            let penalty = options.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= options.presence_penalty + options.frequency_penalty * *count as f32;
        }
    }

    fn sample_by_chance(&mut self, largest: f32) -> u32 {
        self.collect_candidates(largest);
        let kept = self.n_kept_by_probability();
        self.candidates.truncate(kept);
        softmax(&mut self.candidates, largest, self.options.temperature);
        let mut left = self.random_fraction();
        for candidate in &self.candidates {
            left -= candidate.probability;
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding may leave a remainder, which goes to the last candidate.
        self.candidates.last().map_or(0, |candidate| candidate.id)
    }

    /// The tokens among which top-p and min-p choose, likeliest first, with their probabilities: the likeliest `top_k`,
    /// or of all tokens as many as those two may keep. Sorting a whole vocabulary takes longer than a step of a small
    /// model, and nearly all of it is too unlikely to matter.
    fn collect_candidates(&mut self, largest: f32) {
        let SamplingOptions { top_k, top_p, min_p, .. } = self.options;
        let sum_of_all = (top_k == 0).then(|| sum_of_exponentials(&self.adjusted, largest));
        for margin in MARGINS {
            self.collect_within(margin, largest);
            let is_enough = match sum_of_all {
                None => self.candidates.len() >= top_k,
                Some(sum) => min_p > (-margin).exp() || (top_p < 1.0 && self.sum_of_candidates() >= top_p * sum),
            };
            if is_enough {
                break;
            }
        }
        let order = |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
        if top_k > 0 && top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, order);
            self.candidates.truncate(top_k);
        }
        // If nothing is cut off, the order does not matter.
        if top_k > 0 || top_p < 1.0 || min_p > 0.0 {
            self.candidates.sort_unstable_by(order);
        }
        let sum = sum_of_all.unwrap_or_else(|| self.sum_of_candidates());
        self.candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
    }

    /// Collects the tokens whose logits are at most `margin` below the largest. Their probabilities are not divided by
    /// their sum yet.
    fn collect_within(&mut self, margin: f32, largest: f32) {
        self.candidates.clear();
        let least = (largest - margin).max(f32::MIN);
        let found = self.adjusted.iter().enumerate().filter(|(_, logit)| **logit >= least);
        self.candidates.extend(found.map(|(id, logit)| Candidate {
            id: id as u32,
            logit: *logit,
            probability: (logit - largest).exp(),
        }));
    }

    fn sum_of_candidates(&self) -> f32 {
        self.candidates.iter().map(|candidate| candidate.probability).sum()
    }

    /// How many of the sorted candidates top-p and min-p keep; at least one.
    fn n_kept_by_probability(&self) -> usize {
        let likeliest = self.candidates.first().map_or(0.0, |candidate| candidate.probability);
        let mut sum = 0.0;
        let mut kept = 0;
        for candidate in &self.candidates {
            let is_reached = self.options.top_p < 1.0 && sum >= self.options.top_p;
            if kept > 0 && (is_reached || candidate.probability < self.options.min_p * likeliest) {
                break;
            }
            sum += candidate.probability;
            kept += 1;
        }
        kept
    }

    /// A number from 0 (included) to 1 (not included).
    fn random_fraction(&mut self) -> f32 {
        (self.random.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }
}

/// Index of the largest value, the first of equals; NaN counts as smallest.
pub fn argmax(values: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        if *value > best.1 {
            best = (index, *value);
        }
    }
    best.0 as u32
}

fn softmax(candidates: &mut [Candidate], largest: f32, temperature: f32) {
    let mut sum = 0.0;
    for candidate in &mut *candidates {
        candidate.probability = ((candidate.logit - largest) / temperature).exp();
        sum += candidate.probability;
    }
    candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
}

/// The sum of `exp(logit - largest)` over all logits, several at a time.
pub(crate) fn sum_of_exponentials(logits: &[f32], largest: f32) -> f32 {
    let mut sums = [0.0; 16];
    let chunks = logits.chunks_exact(sums.len());
    let rest: f32 = chunks.remainder().iter().map(|logit| exponential(logit - largest)).sum();
    for chunk in chunks {
        for (sum, logit) in sums.iter_mut().zip(chunk) {
            *sum += exponential(logit - largest);
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// `exp(x)` for `x` at most 0, in arithmetic that compilers turn into vector instructions: a power of two and a
/// polynomial for the rest, with the coefficients of Cephes' `expf` (<https://www.netlib.org/cephes/>). The relative
/// error is below 1e-6; what is smaller than the least normal number becomes about that.
fn exponential(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.max(-87.0);
    let power = (x * std::f32::consts::LOG2_E - 0.5) as i32;
    let rest = x - power as f32 * LN_2_HIGH - power as f32 * LN_2_LOW;
    let mut polynomial = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        polynomial = polynomial * rest + coefficient;
    }
    (polynomial * rest * rest + rest + 1.0) * f32::from_bits(((power + 127) as u32) << 23)
}

/// A seed that differs from run to run, taken from the random keys of the standard library's hash tables.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn check(options: &SamplingOptions, vocab_size: usize) -> Result<(), InvalidSampling> {
    options.check()?;
    let unknown = options.logit_bias.iter().find(|(token, _)| *token as usize >= vocab_size);
    unknown.map_or(Ok(()), |(token, _)| {
        let option = "a token id of logit_bias".to_owned();
        Err(InvalidSampling { option, value: token.to_string(), expected: "in the vocabulary" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits whose probabilities are 0.5, 0.25, 0.125, 0.0625, 0.0625.
    const LOGITS: [f32; 5] =
        [3.0 * std::f32::consts::LN_2, 2.0 * std::f32::consts::LN_2, std::f32::consts::LN_2, 0.0, 0.0];

    /// How often each token is chosen in 4000 draws.
    fn draw(options: SamplingOptions) -> [usize; 5] {
        let mut sampler = Sampler::new(SamplingOptions { seed: Some(7), ..options }, 5).unwrap();
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

    /// What is not sorted is not drawn: the candidates are those of sorting the whole vocabulary.
    #[test]
    fn the_candidates_are_those_of_a_whole_vocabulary_in_order() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for spread in [0.5, 3.0, 30.0] {
            let logits: Vec<f32> = (0..5000).map(|_| (random.next_u32() as f32 / u32::MAX as f32) * spread).collect();
            let largest = logits[argmax(&logits) as usize];
            let mut sorted: Vec<u32> = (0..5000).collect();
            sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
            let total: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
            for (top_k, top_p, min_p) in [(0, 0.9, 0.0), (0, 0.3, 0.0), (40, 1.0, 0.0), (0, 1.0, 0.05), (0, 0.999, 0.1)]
            {
                let options = SamplingOptions { top_k, top_p, min_p, ..warm() };
                let mut sampler = Sampler::new(options, 5000).unwrap();
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
            let mut sampler = Sampler::new(SamplingOptions { seed, ..warm() }, 5).unwrap();
            (0..64).map(|_| sampler.sample(&LOGITS, |_| ())).collect::<Vec<_>>()
        };
        assert_eq!(draws(Some(1)), draws(Some(1)));
        assert_ne!(draws(Some(1)), draws(Some(2)));
        assert_ne!(draws(None), draws(None));
    }

    #[track_caller]
    fn check_penalty(options: SamplingOptions, observed: &[u32], expected: u32) {
        let mut sampler = Sampler::new(options, 5).unwrap();
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
        let mut sampler = Sampler::new(SamplingOptions { seed: Some(3), ..warm() }, 5).unwrap();
        let drawn = (0..200).map(|_| sampler.sample(&LOGITS, |logits| logits[..4].fill(f32::NEG_INFINITY)));
        assert!(drawn.into_iter().all(|token| token == Some(4)));
        assert_eq!(sampler.sample(&LOGITS, |logits| logits.fill(f32::NEG_INFINITY)), None);
        assert_eq!(sampler.sample(&[0.0, f32::NAN, 0.0, 0.0, 0.0], |_| ()), None);
    }

    #[track_caller]
    fn check_refused(options: SamplingOptions, expected: &str) {
        let error = Sampler::new(options, 5).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        check_refused(SamplingOptions { temperature: -1.0, ..warm() }, "temperature is -1: it must be 0 or more");
        check_refused(
            SamplingOptions { logit_bias: vec![(5, 1.0)], ..warm() },
            "a token id of logit_bias is 5: it must be in the vocabulary",
        );
    }
}
