//! The sections of the configuration as the rest of the program sees them: validated and typed.

use std::time::Duration;

use hone_agents::MemorySettings;
use hone_protocol::SamplingOptions;
use hone_quality::{CriticSettings, JudgeProfiles};
use serde::{Deserialize, Deserializer};

/// The most threads allowed: far more than useful, but few enough to start.
const MOST_THREADS: i64 = 1024;

/// All sections.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sections {
    pub(super) engine: EngineConfig,
    pub(super) sampling: SamplingConfig,
    pub(super) chat: ChatConfig,
    pub(super) memory: MemoryConfig,
    pub(super) critic: CriticSettings,
    pub(super) judges: JudgeProfiles,
}

impl Sections {
    /// Reads and validates every value.
    ///
    /// # Errors
    /// The problem with the first invalid value.
    pub(super) fn read(tables: toml::Table) -> Result<Sections, String> {
        let sections: Sections = tables.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        sections.sampling.check()?;
        sections.memory.check()?;
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
    /// Name or path of a draft model for `model`; empty for none.
    pub(crate) draft: String,
    /// `auto` or `off`.
    pub(crate) speculation: String,
    /// `f16` or `q8_0`.
    pub(crate) kv_cache: String,
    /// 8 or 16.
    pub(crate) activation_bits: u32,
    /// Compute threads; `None` means one per physical core.
    #[serde(deserialize_with = "threads")]
    pub(crate) threads: Option<usize>,
    /// Bytes that all models together may take; `None` means the free memory.
    #[serde(deserialize_with = "size")]
    pub(crate) memory_limit: Option<u64>,
    /// How long an idle model stays loaded; `None` means indefinitely.
    #[serde(deserialize_with = "seconds_or_none")]
    pub(crate) keep_alive: Option<Duration>,
    /// Names or paths of models that are never unloaded once loaded.
    pub(crate) pinned: Vec<String>,
    /// Context length in tokens; `None` means the length that the model was trained for.
    #[serde(deserialize_with = "positive_or_none")]
    pub(crate) context: Option<usize>,
}

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SamplingConfig {
    /// As in [`SamplingOptions`], like the fields that follow.
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
    /// The most tokens of an answer; `None` means no limit other than the model and its context.
    #[serde(deserialize_with = "positive_or_none")]
    pub(crate) max_tokens: Option<usize>,
    /// An answer ends before the first of these texts.
    pub(crate) stop: Vec<String>,
}

impl SamplingConfig {
    /// The sampling options among them.
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
    /// How many lines of input the history holds.
    #[serde(deserialize_with = "not_negative")]
    pub(crate) history_lines: usize,
    /// Whether conversations are saved as they proceed.
    pub(crate) save: bool,
    /// Whether the answers of a conversation are graded.
    pub(crate) grade: bool,
}

/// What is remembered, and how it is recalled.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct MemoryConfig {
    /// Whether answers are remembered at all.
    pub(crate) remember: bool,
    /// The model that turns texts into vectors: its name, or the path of its folder.
    pub(crate) embedder: String,
    /// The weight of a grade in the ranking of recollections.
    pub(crate) score_weight: f32,
    /// How many daily backups are kept.
    #[serde(deserialize_with = "not_negative")]
    pub(crate) backups: usize,
    /// How the agents use memory.
    #[serde(flatten)]
    pub(crate) settings: MemorySettings,
}

impl MemoryConfig {
    fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.score_weight) {
            return Err(format!("score_weight is {}: it must be 0 or more and below 1", self.score_weight));
        }
        self.settings.check().map_err(|invalid| invalid.to_string())
    }
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

fn seconds_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let duration = Duration::try_from_secs_f64(seconds);
    let duration = duration.map_err(|_| serde::de::Error::custom(format!("{seconds} is not a number of seconds")))?;
    Ok((!duration.is_zero()).then_some(duration))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim() {
        "" => Ok(None),
        text => n_bytes(text).map(Some).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "{text:?} is not a size: write a number and its unit, such as 8GiB or 500MB"
            ))
        }),
    }
}

fn n_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "kib" | "k" => 1 << 10,
        "mb" => 1_000_000,
        "mib" | "m" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" | "g" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" | "t" => 1 << 40,
        _ => return None,
    };
    let n_bytes = number.trim().parse::<f64>().ok()? * unit as f64;
    (n_bytes >= 1.0 && n_bytes < u64::MAX as f64).then_some(n_bytes as u64)
}

fn seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match i64::deserialize(deserializer)? {
        -1 => Ok(None),
        value => u64::try_from(value).map(Some).map_err(|_| {
            serde::de::Error::custom(format!("{value} is not a seed, expected 0 or more, or -1 for a fresh one"))
        }),
    }
}

fn biases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, f32)>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| bias(text).map_err(serde::de::Error::custom)).collect()
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    text.split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)))
        .ok_or_else(|| format!("{text:?} is not a bias: write ID=BIAS, such as 42=-1.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let check = |text, expected| assert_eq!(n_bytes(text), expected, "{text}");
        check("8GiB", Some(8 << 30));
        check("1.5 GB", Some(1_500_000_000));
        check("500m", Some(500 << 20));
        check("4096", Some(4096));
        check("0", None);
        check("-1GiB", None);
        check("GiB", None);
        check("8 parsecs", None);
        check("1e30", None);
    }
}
