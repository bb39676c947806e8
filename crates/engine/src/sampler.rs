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
        let is_choice = self.adjusted.get(likeliest as usize).is_some_and(|logit| logit.is_finite());
        if !is_choice || logits.iter().any(|logit| logit.is_nan()) {
            return None;
        }
        Some(if self.options.temperature == 0.0 { likeliest } else { self.sample_by_chance() })
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

    fn sample_by_chance(&mut self) -> u32 {
        self.collect_candidates();
        softmax(&mut self.candidates, 1.0);
        let kept = self.n_kept_by_probability();
        self.candidates.truncate(kept);
        softmax(&mut self.candidates, self.options.temperature);
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

    /// The likeliest `top_k` tokens (or all), likeliest first.
    fn collect_candidates(&mut self) {
        self.candidates.clear();
        let logits = self.adjusted.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        self.candidates.extend(logits.map(|(id, logit)| Candidate { id: id as u32, logit: *logit, probability: 0.0 }));
        let order = |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
        let top_k = self.options.top_k;
        if top_k > 0 && top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, order);
            self.candidates.truncate(top_k);
        }
        self.candidates.sort_unstable_by(order);
    }

    /// How many of the sorted candidates top-p and min-p keep; at least one.
    fn n_kept_by_probability(&self) -> usize {
        let likeliest = self.candidates.first().map_or(0.0, |candidate| candidate.probability);
        let mut sum = 0.0;
        let mut kept = 0;
        for candidate in &self.candidates {
            if kept > 0 && (sum >= self.options.top_p || candidate.probability < self.options.min_p * likeliest) {
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

fn softmax(candidates: &mut [Candidate], temperature: f32) {
    let largest = candidates.first().map_or(0.0, |candidate| candidate.logit);
    let mut sum = 0.0;
    for candidate in &mut *candidates {
        candidate.probability = ((candidate.logit - largest) / temperature).exp();
        sum += candidate.probability;
    }
    candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
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
