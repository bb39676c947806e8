//! The sections of the configuration as the rest of the program sees them: read, checked, in the right types.

use hone_protocol::SamplingOptions;
use serde::{Deserialize, Deserializer};

/// The most threads that can be asked for: far more than help, and few enough to be started.
const MOST_THREADS: i64 = 1024;

/// All sections.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sections {
    pub(super) engine: EngineConfig,
    pub(super) sampling: SamplingConfig,
    pub(super) chat: ChatConfig,
}

impl Sections {
    /// Reads and checks every value.
    ///
    /// # Errors
    /// What is wrong with the first value that does not fit.
    pub(super) fn read(tables: toml::Table) -> Result<Sections, String> {
        let sections: Sections = tables.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        sections.sampling.check()?;
        Ok(sections)
    }
}

/// The model that answers, and what it runs on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EngineConfig {
    /// Name or path of the model.
    pub(crate) model: String,
    /// `auto`, `cpu`, `cuda`, `cuda:N` or `metal`.
    pub(crate) device: String,
    /// `auto`, `candle` or `native`.
    pub(crate) backend: String,
    /// `auto` or `off`.
    pub(crate) speculation: String,
    /// `f16` or `q8_0`.
    pub(crate) kv_cache: String,
    /// Threads that compute; `None` takes one for each physical core.
    #[serde(deserialize_with = "threads")]
    pub(crate) threads: Option<usize>,
    /// Tokens of context to make room for; `None` takes all that the model was trained for.
    #[serde(deserialize_with = "positive_or_none")]
    pub(crate) context: Option<usize>,
}

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SamplingConfig {
    /// As in [`SamplingOptions`], and so are those that follow.
    pub(crate) temperature: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    pub(crate) repetition_penalty: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(crate) penalty_window: usize,
    #[serde(deserialize_with = "seed")]
    pub(crate) seed: Option<u64>,
    #[serde(deserialize_with = "biases")]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// The most tokens of an answer; `None` leaves the end to the model and its context.
    #[serde(deserialize_with = "positive_or_none")]
    pub(crate) max_tokens: Option<usize>,
    /// An answer ends before the first of these texts.
    pub(crate) stop: Vec<String>,
}

impl SamplingConfig {
    /// The part of it that is about the choice of a token.
    pub(crate) fn options(&self) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed,
        }
    }

    fn check(&self) -> Result<(), String> {
        self.options().check().map_err(|invalid| invalid.to_string())?;
        match self.stop.iter().any(String::is_empty) {
            true => Err("a stop text is empty, and would end every answer before its first word".to_string()),
            false => Ok(()),
        }
    }
}

/// The terminal chat.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatConfig {
    /// Instructions before every conversation; empty leaves them to the model's own template.
    pub(crate) system: String,
    /// How many lines of input the history keeps.
    #[serde(deserialize_with = "not_negative")]
    pub(crate) history_lines: usize,
    /// Whether conversations are saved as they go on.
    pub(crate) save: bool,
}

fn not_negative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let value = i64::deserialize(deserializer)?;
    usize::try_from(value).map_err(|_| serde::de::Error::custom(format!("{value} is negative, expected 0 or more")))
}

fn positive_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    not_negative(deserializer).map(|value| (value > 0).then_some(value))
}

fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match i64::deserialize(deserializer)? {
        value @ 0..=MOST_THREADS => Ok(usize::try_from(value).ok().filter(|threads| *threads > 0)),
        value => Err(serde::de::Error::custom(format!("threads is {value}: it must be 0 to {MOST_THREADS}"))),
    }
}

fn seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match i64::deserialize(deserializer)? {
        -1 => Ok(None),
        value => u64::try_from(value).map(Some).map_err(|_| {
            serde::de::Error::custom(format!("{value} is no seed, expected 0 or more, or -1 for a fresh one"))
        }),
    }
}

fn biases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, f32)>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| bias(text).map_err(serde::de::Error::custom)).collect()
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    text.split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)))
        .ok_or_else(|| format!("{text:?} is no bias: write ID=BIAS, such as 42=-1.5"))
}
