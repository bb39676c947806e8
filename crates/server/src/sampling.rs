//! Sampling options, token limits and stop strings, as clients of the APIs write them.

use hone_protocol::{DryOptions, DynamicTemperature, MirostatOptions, SamplingOptions, XtcOptions};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;

/// The penalty window for the whole context.
const WHOLE_CONTEXT: usize = 1_000_000;
/// Mirostat's default target surprise, as in llama.cpp and Ollama.
const MIROSTAT_TAU: f32 = 5.0;

/// The options of all samplers, under the names that clients of OpenAI, Anthropic, Ollama, llama.cpp and vLLM use.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Samplers {
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    /// 0 or less keeps all tokens.
    #[serde(default)]
    top_k: Option<i64>,
    #[serde(default)]
    min_p: Option<f32>,
    #[serde(default)]
    presence_penalty: Option<f32>,
    #[serde(default)]
    frequency_penalty: Option<f32>,
    #[serde(default)]
    repetition_penalty: Option<f32>,
    #[serde(default)]
    repeat_penalty: Option<f32>,
    /// A negative number stands for the whole context.
    #[serde(default)]
    repeat_last_n: Option<i64>,
    #[serde(default)]
    dry_multiplier: Option<f32>,
    #[serde(default)]
    dry_base: Option<f32>,
    #[serde(default)]
    dry_allowed_length: Option<usize>,
    /// A negative number stands for the whole context; 0 turns the sampler off.
    #[serde(default)]
    dry_penalty_last_n: Option<i64>,
    #[serde(default)]
    xtc_probability: Option<f32>,
    #[serde(default)]
    xtc_threshold: Option<f32>,
    /// A negative number turns the sampler off.
    #[serde(default)]
    top_n_sigma: Option<f32>,
    #[serde(default)]
    dynatemp_range: Option<f32>,
    #[serde(default)]
    dynatemp_exponent: Option<f32>,
    /// 0, or 2 for the second version.
    #[serde(default)]
    mirostat: Option<i64>,
    #[serde(default)]
    mirostat_tau: Option<f32>,
    #[serde(default)]
    mirostat_eta: Option<f32>,
    /// Only 1, which turns the sampler off.
    #[serde(default)]
    typical_p: Option<f32>,
    /// Only 1, which turns the sampler off.
    #[serde(default)]
    tfs_z: Option<f32>,
    /// A negative number stands for a random seed.
    #[serde(default)]
    seed: Option<i64>,
}

impl Samplers {
    /// The options, with `defaults` for omitted ones.
    ///
    /// # Errors
    /// When an option is out of range, or of a sampler that hone does not have.
    pub(crate) fn options(&self, defaults: &SamplingOptions) -> Result<SamplingOptions, ApiError> {
        self.refuse_unknown()?;
        let repetition = self.repetition_penalty.or(self.repeat_penalty);
        let window = self.repeat_last_n.map(|n| usize::try_from(n).unwrap_or(WHOLE_CONTEXT));
        let options = SamplingOptions {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.map_or(defaults.top_k, |n| usize::try_from(n).unwrap_or(0)),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: repetition.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            penalty_window: window.unwrap_or(defaults.penalty_window),
            dry: self.dry(defaults.dry),
            xtc: XtcOptions {
                probability: self.xtc_probability.unwrap_or(defaults.xtc.probability),
                threshold: self.xtc_threshold.unwrap_or(defaults.xtc.threshold),
            },
            top_n_sigma: self.top_n_sigma.map_or(defaults.top_n_sigma, |sigma| sigma.max(0.0)),
            dynamic_temperature: DynamicTemperature {
                range: self.dynatemp_range.unwrap_or(defaults.dynamic_temperature.range),
                exponent: self.dynatemp_exponent.unwrap_or(defaults.dynamic_temperature.exponent),
            },
            mirostat: self.mirostat(defaults.mirostat),
            seed: self.seed.map_or(defaults.seed, |seed| u64::try_from(seed).ok()),
            ..defaults.clone()
        };
        options.check()?;
        Ok(options)
    }

    fn refuse_unknown(&self) -> Result<(), ApiError> {
        let off = [("typical_p", self.typical_p), ("tfs_z", self.tfs_z)];
        if let Some((name, _)) = off.iter().find(|(_, value)| value.is_some_and(|value| value != 1.0)) {
            return Err(ApiError::bad_request(format!("{name} is not supported: it may only be 1")).about(*name));
        }
        match self.mirostat {
            None | Some(0 | 2) => Ok(()),
            Some(version) => {
                let reason = format!("mirostat is {version}: it must be 0, or 2 for the second version");
                Err(ApiError::bad_request(reason).about("mirostat"))
            }
        }
    }

    fn dry(&self, defaults: DryOptions) -> DryOptions {
        let multiplier = if self.dry_penalty_last_n == Some(0) { Some(0.0) } else { self.dry_multiplier };
        let window = self.dry_penalty_last_n.map(|n| usize::try_from(n).unwrap_or(0));
        DryOptions {
            multiplier: multiplier.unwrap_or(defaults.multiplier),
            base: self.dry_base.unwrap_or(defaults.base),
            allowed_length: self.dry_allowed_length.unwrap_or(defaults.allowed_length),
            window: window.unwrap_or(defaults.window),
        }
    }

    fn mirostat(&self, defaults: MirostatOptions) -> MirostatOptions {
        match self.mirostat {
            None => defaults,
            Some(0) => MirostatOptions::default(),
            Some(_) => MirostatOptions {
                tau: self.mirostat_tau.unwrap_or(MIROSTAT_TAU),
                eta: self.mirostat_eta.unwrap_or(MirostatOptions::default().eta),
            },
        }
    }
}

/// The token limit of an answer. A negative number stands for no limit, as in llama.cpp and Ollama.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct TokenLimit(i64);

impl TokenLimit {
    /// The limit, if there is one.
    pub(crate) fn tokens(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

/// Stop strings: one, or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Stop {
    One(String),
    Several(Vec<String>),
}

impl Stop {
    /// The stop strings.
    pub(crate) fn texts(self) -> Vec<String> {
        match self {
            Stop::One(text) => vec![text],
            Stop::Several(texts) => texts,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn options(fields: Value) -> Result<SamplingOptions, String> {
        let samplers: Samplers = from_value(fields).unwrap();
        let defaults = SamplingOptions { seed: Some(7), ..SamplingOptions::default() };
        samplers.options(&defaults).map_err(|error| error.message)
    }

    #[test]
    fn every_clients_names_are_used() {
        let fields = json!({
            "top_k": -1, "top_p": 0, "min_p": 0.1, "repeat_penalty": 1.5, "repeat_last_n": -1, "seed": -1,
            "dry_multiplier": 0.8, "dry_penalty_last_n": -1, "xtc_probability": 0.5, "mirostat": 2, "typical_p": 1.0,
        });
        let read = options(fields).unwrap();
        assert_eq!((read.top_k, read.top_p, read.min_p, read.repetition_penalty), (0, 0.0, 0.1, 1.5));
        assert_eq!((read.penalty_window, read.seed), (WHOLE_CONTEXT, None));
        assert_eq!((read.dry.multiplier, read.dry.window, read.xtc.probability), (0.8, 0, 0.5));
        assert_eq!(read.mirostat, MirostatOptions { tau: 5.0, eta: 0.1 });
        assert_eq!(options(json!({"dry_multiplier": 1, "dry_penalty_last_n": 0})).unwrap().dry.multiplier, 0.0);
        assert_eq!(options(json!({"mirostat": 0, "mirostat_tau": 3})).unwrap().mirostat.tau, 0.0);
        assert_eq!(options(json!({"seed": null})).unwrap().seed, Some(7));
    }

    #[test]
    fn samplers_that_do_not_exist_are_refused_by_name() {
        let check = |fields, expected: &str| assert_eq!(options(fields).unwrap_err(), expected);
        check(json!({"typical_p": 0.5}), "typical_p is not supported: it may only be 1");
        check(json!({"tfs_z": 2}), "tfs_z is not supported: it may only be 1");
        check(json!({"mirostat": 1}), "mirostat is 1: it must be 0, or 2 for the second version");
        check(json!({"min_p": 2}), "min_p is 2: it must be 0 to 1");
    }

    #[test]
    fn a_negative_limit_is_none() {
        let limit = |number: i64| TokenLimit(number).tokens();
        assert_eq!((limit(-1), limit(0), limit(9)), (None, Some(0), Some(9)));
    }
}
