//! Chooses the next token from the logits.
//!
//! The steps, in this order: penalties, DRY, bias, constraint, then top-n-sigma, top-k, top-p, min-p and XTC over the
//! remaining probabilities, and the temperature last, as in llama.cpp. Mirostat replaces the steps that leave tokens
//! out. Temperature 0 takes the likeliest token left by the first four, with the lowest id among equals.

mod dry;
#[cfg(test)]
mod llama_cpp;
mod mirostat;
#[cfg(test)]
mod tests;

pub(crate) use dry::Breakers;
use dry::Dry;
use hone_protocol::{DynamicTemperature, InvalidSampling, SamplingOptions, XtcOptions};
use mirostat::Mirostat;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Margins below the largest logit within which candidates are collected, tried in turn until there are enough.
const MARGINS: [f32; 4] = [8.0, 16.0, 32.0, f32::INFINITY];

/// Chooses tokens for one request. Keeps the random state and the last tokens; its buffers are reused.
#[derive(Debug)]
pub(crate) struct Sampler {
    options: SamplingOptions,
    random: ChaCha8Rng,
    /// The tokens that penalties consider, oldest first, and how often each occurs.
    recent: VecDeque<u32>,
    counts: HashMap<u32, usize>,
    dry: Option<Dry>,
    mirostat: Option<Mirostat>,
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
    /// A sampler for a vocabulary of `vocab_size` tokens. `breakers` gives the tokens that DRY's matches do not extend
    /// over, if they are needed.
    ///
    /// # Errors
    /// When an option is out of its range.
    pub(crate) fn new(
        options: SamplingOptions,
        vocab_size: usize,
        breakers: impl FnOnce() -> Breakers,
    ) -> Result<Self, InvalidSampling> {
        check(&options, vocab_size)?;
        let seed = options.seed.unwrap_or_else(fresh_seed);
        Ok(Sampler {
            random: ChaCha8Rng::seed_from_u64(seed),
            recent: VecDeque::new(),
            counts: HashMap::new(),
            dry: (options.dry.multiplier > 0.0).then(|| Dry::new(options.dry, breakers())),
            mirostat: (options.mirostat.tau > 0.0).then(|| Mirostat::new(options.mirostat)),
            adjusted: Vec::with_capacity(vocab_size),
            candidates: Vec::new(),
            options,
        })
    }

    /// Number of repeated tokens after which the answer ends; 0 means never.
    pub(crate) fn repetition_limit(&self) -> usize {
        self.options.repetition_limit
    }

    /// Tells the penalties about a token of the prompt or the answer.
    pub(crate) fn observe(&mut self, token: u32) {
        if let Some(dry) = &mut self.dry {
            dry.observe(token);
        }
        if self.options.penalty_window == 0 || !self.has_penalties() {
            return;
        }
        if self.recent.len() == self.options.penalty_window {
            self.forget_oldest();
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    /// Chooses a token from the model's logits; `constrain` sets the logits of forbidden tokens to negative infinity.
    /// Returns `None` if there is nothing to choose from: every token is forbidden, or a logit is NaN.
    pub(crate) fn sample(&mut self, logits: &[f32], constrain: impl FnOnce(&mut [f32])) -> Option<u32> {
        self.adjusted.clear();
        self.adjusted.extend_from_slice(logits);
        self.penalize();
        if let Some(dry) = &mut self.dry {
            dry.penalize(&mut self.adjusted);
        }
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
        if self.mirostat.is_some() {
            return self.sample_by_surprise(largest);
        }
        if self.options.top_n_sigma > 0.0 {
            leave_out_noise(&mut self.adjusted, largest, self.options.top_n_sigma);
        }
        self.collect_candidates(largest);
        let kept = self.n_kept_by_probability();
        self.candidates.truncate(kept);
        self.exclude_top_choices();
        let temperature = self.temperature();
        // XTC may have excluded the largest; it has sorted the others.
        let has_sorted = self.options.xtc.probability > 0.0;
        let largest = self.candidates.first().filter(|_| has_sorted).map_or(largest, |candidate| candidate.logit);
        softmax(&mut self.candidates, largest, temperature);
        self.draw()
    }

    fn sample_by_surprise(&mut self, largest: f32) -> u32 {
        self.leave_out_surprising(largest);
        let chosen = self.draw();
        self.learn(chosen);
        chosen
    }

    /// Mirostat leaves tokens out by their surprise.
    fn leave_out_surprising(&mut self, largest: f32) {
        self.collect_within(f32::INFINITY, largest);
        self.candidates.sort_unstable_by(in_order);
        softmax(&mut self.candidates, largest, self.options.temperature);
        let probabilities = self.candidates.iter().map(|candidate| candidate.probability);
        let Some(kept) = self.mirostat.as_ref().map(|mirostat| mirostat.n_kept(probabilities)) else { return };
        self.candidates.truncate(kept);
        let sum = self.sum_of_candidates();
        self.candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
    }

    /// Updates Mirostat with the chosen candidate.
    fn learn(&mut self, chosen: u32) {
        let chosen = self.candidates.iter().find(|candidate| candidate.id == chosen);
        if let (Some(mirostat), Some(chosen)) = (&mut self.mirostat, chosen) {
            mirostat.learn(chosen.probability);
        }
    }

    /// XTC: sometimes leaves out all candidates that are likely enough, except the least likely of them, as described
    /// by its author (p-e-w, <https://github.com/oobabooga/text-generation-webui/pull/6335>).
    fn exclude_top_choices(&mut self) {
        let XtcOptions { probability, threshold } = self.options.xtc;
        if probability == 0.0 || self.random_fraction() >= probability {
            return;
        }
        let least = threshold * self.sum_of_candidates();
        let n_likely = self.candidates.iter().take_while(|candidate| candidate.probability >= least).count();
        self.candidates.drain(..n_likely.saturating_sub(1));
    }

    /// The temperature, which may depend on the entropy of the candidates: dynamic temperature, as kalomaze describes
    /// it (<https://github.com/ggml-org/llama.cpp/pull/4972>).
    fn temperature(&self) -> f32 {
        let DynamicTemperature { range, exponent } = self.options.dynamic_temperature;
        let (temperature, n) = (self.options.temperature, self.candidates.len());
        if range == 0.0 || n < 2 {
            return temperature;
        }
        let sum = self.sum_of_candidates();
        let surprise = |candidate: &Candidate| {
            let probability = candidate.probability / sum;
            if probability > 0.0 { -probability * probability.ln() } else { 0.0 }
        };
        let share = self.candidates.iter().map(surprise).sum::<f32>() / (n as f32).ln();
        let least = (temperature - range).max(0.0);
        let chosen = least + (temperature + range - least) * share.clamp(0.0, 1.0).powf(exponent);
        // Temperature 0 would divide by zero; this is just as certain.
        chosen.max(1e-4)
    }

    /// Draws a candidate by the probabilities.
    fn draw(&mut self) -> u32 {
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

    /// Collects the tokens among which top-p and min-p choose, likeliest first, with their probabilities: the likeliest
    /// `top_k`, or as many of all tokens as those two may keep. Sorting a whole vocabulary takes longer than a step of
    /// a small model, and nearly all of it is too unlikely to matter.
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
        if top_k > 0 && top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, in_order);
            self.candidates.truncate(top_k);
        }
        // If nothing is cut off, the order does not matter.
        if top_k > 0 || top_p < 1.0 || min_p > 0.0 || self.options.xtc.probability > 0.0 {
            self.candidates.sort_unstable_by(in_order);
        }
        let sum = sum_of_all.unwrap_or_else(|| self.sum_of_candidates());
        self.candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
    }

    /// Collects the tokens whose logits are at most `margin` below the largest. Their probabilities are not normalized
    /// yet.
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

    /// Number of sorted candidates that top-p and min-p keep; at least one.
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
pub(crate) fn argmax(values: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        if *value > best.1 {
            best = (index, *value);
        }
    }
    best.0 as u32
}

/// Likeliest first; among equals, the lowest id first.
fn in_order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Top-n-sigma: leaves out the tokens whose logits are more than `n` standard deviations below the largest (Tang et al.
/// 2024, <https://arxiv.org/abs/2411.07641>). Forbidden tokens do not count.
fn leave_out_noise(logits: &mut [f32], largest: f32, n: f32) {
    let (mut sum, mut count) = (0.0, 0.0);
    logits.iter().filter(|logit| logit.is_finite()).for_each(|logit| {
        sum += f64::from(*logit);
        count += 1.0;
    });
    let mean = sum / count;
    let squares = logits.iter().filter(|logit| logit.is_finite()).map(|logit| (f64::from(*logit) - mean).powi(2));
    let least = largest - n * (squares.sum::<f64>() / count).sqrt() as f32;
    logits.iter_mut().filter(|logit| **logit < least).for_each(|logit| *logit = f32::NEG_INFINITY);
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
/// error is below 1e-6; results below the smallest normal number become approximately that number.
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
