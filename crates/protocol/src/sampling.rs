//! How the next token is chosen.

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

/// How the next token is chosen. The defaults choose greedily and change no logit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the `top_k` likeliest tokens are kept; 0 keeps all.
    pub top_k: usize,
    /// Only the likeliest tokens whose probabilities sum to `top_p` are kept; 1 keeps all, 0 the likeliest one.
    pub top_p: f32,
    /// Only tokens at least `min_p` times as likely as the likeliest are kept; 0 keeps all.
    pub min_p: f32,
    /// Logits of tokens among the last `penalty_window` are divided (if positive) or multiplied (if negative) by this;
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted once for every occurrence among the last `penalty_window` tokens.
    pub frequency_penalty: f32,
    /// Subtracted if the token occurs at all among the last `penalty_window` tokens.
    pub presence_penalty: f32,
    /// The number of last tokens (prompt and answer) that the penalties consider.
    pub penalty_window: usize,
    /// Penalizes tokens that would continue a repetition.
    #[serde(skip_serializing_if = "is_default")]
    pub dry: DryOptions,
    /// Occasionally leaves out the likeliest tokens.
    #[serde(skip_serializing_if = "is_default")]
    pub xtc: XtcOptions,
    /// Only tokens whose logits are at most this many standard deviations of all logits below the largest are kept; 0
    /// keeps all.
    #[serde(skip_serializing_if = "is_default")]
    pub top_n_sigma: f32,
    /// Makes the temperature depend on the model's certainty.
    #[serde(skip_serializing_if = "is_default")]
    pub dynamic_temperature: DynamicTemperature,
    /// Chooses tokens with about the same surprise, in place of every option that leaves tokens out.
    #[serde(skip_serializing_if = "is_default")]
    pub mirostat: MirostatOptions,
    /// Added to the logits of these token ids; negative infinity, `null` in JSON, forbids the token.
    #[serde(deserialize_with = "biases")]
    pub logit_bias: Vec<(u32, f32)>,
    /// An answer without a constraint ends once it has repeated itself, at least four times, for this many tokens; 0
    /// disables the limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub repetition_limit: usize,
    /// Seed of the random choice; equal seeds give the same text. Without it, a fresh one is drawn.
    pub seed: Option<u64>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            dry: DryOptions::default(),
            xtc: XtcOptions::default(),
            top_n_sigma: 0.0,
            dynamic_temperature: DynamicTemperature::default(),
            mirostat: MirostatOptions::default(),
            logit_bias: Vec::new(),
            repetition_limit: 0,
            seed: None,
        }
    }
}

/// The DRY sampler: continuing a repetition of `n` tokens is penalized by `multiplier * base^(n - allowed_length)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DryOptions {
    /// The penalty of the shortest repetition that is not allowed; 0 allows all.
    pub multiplier: f32,
    /// The factor by which the penalty grows with each further token.
    pub base: f32,
    /// Repetitions shorter than this, in tokens, are allowed.
    pub allowed_length: usize,
    /// The number of last tokens examined; 0 examines all.
    pub window: usize,
}

impl Default for DryOptions {
    fn default() -> Self {
        DryOptions { multiplier: 0.0, base: 1.75, allowed_length: 2, window: 0 }
    }
}

/// The XTC sampler ("exclude top choices"): of the tokens that are likely enough, only the least likely is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct XtcOptions {
    /// The probability of applying it; 0 disables it.
    pub probability: f32,
    /// Tokens of at least this probability are likely enough.
    pub threshold: f32,
}

impl Default for XtcOptions {
    fn default() -> Self {
        XtcOptions { probability: 0.0, threshold: 0.1 }
    }
}

/// A temperature between `temperature - range` and `temperature + range`, the higher the less sure the model is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicTemperature {
    /// The largest deviation from the temperature; 0 keeps the temperature.
    pub range: f32,
    /// The exponent applied to the entropy as a share of the largest possible one.
    pub exponent: f32,
}

impl Default for DynamicTemperature {
    fn default() -> Self {
        DynamicTemperature { range: 0.0, exponent: 1.0 }
    }
}

/// Mirostat 2: tokens whose surprise exceeds a bound are left out, and the bound follows the surprise of the chosen
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirostatOptions {
    /// The target surprise, in bits; 0 disables Mirostat.
    pub tau: f32,
    /// How quickly the bound adapts.
    pub eta: f32,
}

impl Default for MirostatOptions {
    fn default() -> Self {
        MirostatOptions { tau: 0.0, eta: 0.1 }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Reads biases. JSON has no number for negative infinity: `null` is written in its place.
fn biases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, f32)>, D::Error> {
    let biases: Vec<(u32, Option<f32>)> = Deserialize::deserialize(deserializer)?;
    Ok(biases.into_iter().map(|(token, bias)| (token, bias.unwrap_or(f32::NEG_INFINITY))).collect())
}

/// The highest temperature: far below it, every token of a vocabulary is about as likely as any other.
const HOTTEST: f32 = 100.0;

/// The longest `penalty_window`: more tokens than any context holds.
const LONGEST_PENALTY_WINDOW: usize = 1_000_000;

impl SamplingOptions {
    /// Checks that every option is in its range. Whether the tokens of `logit_bias` exist is up to the model.
    ///
    /// # Errors
    /// For the first option out of its range.
    pub fn check(&self) -> Result<(), InvalidSampling> {
        let check = |option: &str, value: f32, is_sound: bool, expected| match is_sound {
            true => Ok(()),
            false => Err(InvalidSampling { option: option.to_owned(), value: value.to_string(), expected }),
        };
        // The comparisons are written so that NaN, for which they are all false, is rejected.
        let is_finite_and = |value: f32, is_in_range: bool| value.is_finite() && is_in_range;
        check("temperature", self.temperature, (0.0..=HOTTEST).contains(&self.temperature), "0 to 100")?;
        check("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "0 to 1")?;
        check("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1")?;
        let repetition = self.repetition_penalty;
        check("repetition_penalty", repetition, repetition > 0.0 && repetition <= 100.0, "above 0, and at most 100")?;
        let in_logits =
            |option: &str, value: f32| check(option, value, (-100.0..=100.0).contains(&value), "-100 to 100");
        in_logits("frequency_penalty", self.frequency_penalty)?;
        in_logits("presence_penalty", self.presence_penalty)?;
        let zero_or_more =
            |option: &str, value: f32| check(option, value, is_finite_and(value, value >= 0.0), "0 or more");
        zero_or_more("dry_multiplier", self.dry.multiplier)?;
        check("dry_base", self.dry.base, is_finite_and(self.dry.base, self.dry.base >= 1.0), "1 or more")?;
        check("xtc_probability", self.xtc.probability, (0.0..=1.0).contains(&self.xtc.probability), "0 to 1")?;
        check("xtc_threshold", self.xtc.threshold, (0.0..=1.0).contains(&self.xtc.threshold), "0 to 1")?;
        zero_or_more("top_n_sigma", self.top_n_sigma)?;
        zero_or_more("dynatemp_range", self.dynamic_temperature.range)?;
        zero_or_more("dynatemp_exponent", self.dynamic_temperature.exponent)?;
        zero_or_more("mirostat_tau", self.mirostat.tau)?;
        check("mirostat_eta", self.mirostat.eta, (0.0..=1.0).contains(&self.mirostat.eta), "0 to 1")?;
        for (token, bias) in &self.logit_bias {
            let option = format!("the logit_bias of token {token}");
            check(&option, *bias, *bias < f32::INFINITY, "a number, or -inf to forbid the token")?;
        }
        if self.penalty_window > LONGEST_PENALTY_WINDOW {
            let (option, value) = ("penalty_window".to_owned(), self.penalty_window.to_string());
            return Err(InvalidSampling { option, value, expected: "0 to 1000000" });
        }
        Ok(())
    }
}

/// A sampling option out of its range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{option} is {value}: it must be {expected}")]
pub struct InvalidSampling {
    /// The option.
    pub option: String,
    /// Its value.
    pub value: String,
    /// The allowed values.
    pub expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for the default options with one of them changed; empty if they are valid.
    #[track_caller]
    fn check(change: impl FnOnce(&mut SamplingOptions), expected: &str) {
        let mut options = SamplingOptions::default();
        change(&mut options);
        assert_eq!(options.check().err().map_or(String::new(), |error| error.to_string()), expected);
    }

    #[test]
    fn a_forbidden_token_is_read_as_it_was_written() -> serde_json::Result<()> {
        let logit_bias = vec![(7, f32::NEG_INFINITY), (8, -0.5)];
        let options = SamplingOptions { logit_bias, ..SamplingOptions::default() };
        let text = serde_json::to_string(&options)?;
        assert_eq!(serde_json::from_str::<SamplingOptions>(&text)?, options, "{text}");
        Ok(())
    }

    #[test]
    fn options_out_of_range_are_refused() {
        check(|_| (), "");
        check(|options| options.temperature = -1.0, "temperature is -1: it must be 0 to 100");
        check(|options| options.temperature = 5000.0, "temperature is 5000: it must be 0 to 100");
        check(|options| options.temperature = f32::NAN, "temperature is NaN: it must be 0 to 100");
        check(|options| options.temperature = f32::INFINITY, "temperature is inf: it must be 0 to 100");
        check(|options| options.top_p = 0.0, "");
        check(|options| options.top_p = -0.1, "top_p is -0.1: it must be 0 to 1");
        check(|options| options.top_p = f32::NAN, "top_p is NaN: it must be 0 to 1");
        check(|options| options.min_p = 1.5, "min_p is 1.5: it must be 0 to 1");
        let positive = "it must be above 0, and at most 100";
        check(|options| options.repetition_penalty = 0.0, &format!("repetition_penalty is 0: {positive}"));
        check(|options| options.repetition_penalty = f32::INFINITY, &format!("repetition_penalty is inf: {positive}"));
        check(|options| options.frequency_penalty = f32::NAN, "frequency_penalty is NaN: it must be -100 to 100");
        check(|options| options.presence_penalty = 101.0, "presence_penalty is 101: it must be -100 to 100");
        check(|options| options.penalty_window = 1_000_001, "penalty_window is 1000001: it must be 0 to 1000000");
        check(|options| options.penalty_window = 1_000_000, "");
    }

    #[test]
    fn a_bias_may_forbid_a_token_but_not_force_it() {
        let bias = |bias| move |options: &mut SamplingOptions| options.logit_bias = vec![(7, bias)];
        check(bias(f32::NEG_INFINITY), "");
        let expected = "it must be a number, or -inf to forbid the token";
        check(bias(f32::INFINITY), &format!("the logit_bias of token 7 is inf: {expected}"));
        check(bias(f32::NAN), &format!("the logit_bias of token 7 is NaN: {expected}"));
    }

    #[test]
    fn samplers_that_are_off_are_not_written() -> serde_json::Result<()> {
        let text = serde_json::to_string(&SamplingOptions::default())?;
        assert!(["dry", "xtc", "mirostat", "sigma", "dynamic"].iter().all(|name| !text.contains(name)), "{text}");
        let dry = DryOptions { multiplier: 0.8, ..DryOptions::default() };
        let options = SamplingOptions { dry, top_n_sigma: 1.5, ..SamplingOptions::default() };
        let text = serde_json::to_string(&options)?;
        assert_eq!(serde_json::from_str::<SamplingOptions>(&text)?, options, "{text}");
        check(|options| options.dry.base = 0.5, "dry_base is 0.5: it must be 1 or more");
        check(|options| options.xtc.probability = 2.0, "xtc_probability is 2: it must be 0 to 1");
        check(|options| options.mirostat.tau = f32::NAN, "mirostat_tau is NaN: it must be 0 or more");
        Ok(())
    }
}
