//! The sections of the configuration as the rest of the program sees them: validated and typed.

use hone_agents::research::ResearchSettings;
use hone_agents::{MemoryMode, MemorySettings, NoteSettings};
use hone_engine::EngineOptions;
use hone_fleet::BusSettings;
use hone_judging::{CritiqueSettings, JudgeProfiles, JudgeSettings};
use hone_protocol::configured::{not_negative, positive_or_none};
use hone_protocol::{
    DryOptions, DynamicTemperature, Effort, Message, MirostatOptions, Role, SamplingOptions, ThinkingOptions,
    XtcOptions,
};
use hone_work::{GateConfig, ReviewSettings};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::server::ServerSettings;

/// All sections.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sections {
    pub(super) engine: EngineConfig,
    pub(super) sampling: SamplingConfig,
    pub(super) chat: ChatConfig,
    pub(super) memory: MemoryConfig,
    pub(super) judge: JudgeSettings,
    pub(super) judges: JudgeProfiles,
    pub(super) server: ServerSettings,
    pub(super) gate: GateConfig,
    pub(super) review: ReviewSettings,
    pub(super) critique: CritiqueSettings,
    pub(super) notes: NoteSettings,
    pub(super) research: ResearchSettings,
    pub(super) bus: BusSettings,
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
        sections.gate.check()?;
        sections.review.check()?;
        sections.critique.check()?;
        sections.notes.check()?;
        sections.research.check()?;
        sections.bus.check()?;
        Ok(sections)
    }
}

/// The model that answers, and how it runs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EngineConfig {
    /// Name or path of the model.
    pub model: String,
    /// The engine's options.
    #[serde(flatten)]
    pub options: EngineOptions,
    /// Whether the engine of a running server is used instead of one of this process.
    pub shared: bool,
}

/// Token sampling.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingConfig {
    /// As in [`SamplingOptions`], like the fields that follow.
    pub(super) temperature: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(super) top_k: usize,
    pub(super) top_p: f32,
    pub(super) min_p: f32,
    pub(super) repetition_penalty: f32,
    pub(super) frequency_penalty: f32,
    pub(super) presence_penalty: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(super) penalty_window: usize,
    pub(super) dry_multiplier: f32,
    pub(super) dry_base: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(super) dry_allowed_length: usize,
    #[serde(deserialize_with = "not_negative")]
    pub(super) dry_window: usize,
    pub(super) xtc_probability: f32,
    pub(super) xtc_threshold: f32,
    pub(super) top_n_sigma: f32,
    pub(super) dynatemp_range: f32,
    pub(super) dynatemp_exponent: f32,
    pub(super) mirostat_tau: f32,
    pub(super) mirostat_eta: f32,
    #[serde(deserialize_with = "not_negative")]
    pub(super) repetition_limit: usize,
    #[serde(deserialize_with = "seed")]
    /// The random seed; `None` for a new one each time.
    pub seed: Option<u64>,
    #[serde(deserialize_with = "biases")]
    logit_bias: Vec<(u32, f32)>,
    /// The maximum tokens of an answer; `None` means no limit other than the model and its context.
    #[serde(deserialize_with = "positive_or_none")]
    pub max_tokens: Option<usize>,
    /// An answer ends before the first of these texts.
    pub stop: Vec<String>,
    /// Whether and how thoroughly the model reasons, without the budget.
    #[serde(deserialize_with = "thinking")]
    pub thinking: ThinkingOptions,
    /// The maximum tokens of reasoning.
    #[serde(deserialize_with = "positive_or_none")]
    pub thinking_budget: Option<usize>,
}

impl SamplingConfig {
    /// The sampling options.
    pub fn options(&self) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            dry: DryOptions {
                multiplier: self.dry_multiplier,
                base: self.dry_base,
                allowed_length: self.dry_allowed_length,
                window: self.dry_window,
            },
            xtc: XtcOptions { probability: self.xtc_probability, threshold: self.xtc_threshold },
            top_n_sigma: self.top_n_sigma,
            dynamic_temperature: DynamicTemperature { range: self.dynatemp_range, exponent: self.dynatemp_exponent },
            mirostat: MirostatOptions { tau: self.mirostat_tau, eta: self.mirostat_eta },
            logit_bias: self.logit_bias.clone(),
            repetition_limit: self.repetition_limit,
            seed: self.seed,
        }
    }

    /// Whether, how thoroughly and how long the model reasons.
    pub fn thinking(&self) -> ThinkingOptions {
        ThinkingOptions { budget: self.thinking_budget, ..self.thinking }
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// Instructions before every conversation; empty leaves them to the model's own template.
    pub system: String,
    /// Messages between the instructions and the conversation.
    #[serde(deserialize_with = "messages")]
    pub messages: Vec<Message>,
    /// The number of input lines in the history.
    #[serde(deserialize_with = "not_negative")]
    pub history_lines: usize,
    /// Whether conversations are saved as they proceed.
    pub save: bool,
    /// Whether the answers of a conversation are graded.
    pub grade: bool,
    /// Whether a conversation grades due answers from earlier in idle time.
    pub grade_due: bool,
    /// Whether the Markdown of answers is rendered on a terminal, and reasoning is folded.
    pub markdown: bool,
    /// The maximum rounds of tool calls for one answer.
    #[serde(deserialize_with = "not_negative")]
    pub tool_rounds: usize,
}

/// Remembering and recalling.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MemoryConfig {
    /// Whether answers are remembered at all.
    pub remember: bool,
    /// The address of the database that memory is kept in; empty for the data folder.
    pub url: String,
    /// The embedding model: its name, or the path of its folder.
    pub embedder: String,
    /// The prefix of a question for the embedder, from its model card.
    pub query_prefix: String,
    /// The prefix of a text.
    pub passage_prefix: String,
    /// The weight of a person's rating in ranking what is recalled.
    pub person_weight: f32,
    /// The weight of a comparison.
    pub comparison_weight: f32,
    /// The weight of a judge's grade.
    pub score_weight: f32,
    /// The weight of the generator's own grade.
    pub self_score_weight: f32,
    /// The number of daily backups to keep.
    #[serde(deserialize_with = "not_negative")]
    pub backups: usize,
    /// How the agents use memory.
    #[serde(flatten)]
    pub settings: MemorySettings,
}

impl MemoryConfig {
    /// Whether models are given recalled memories.
    pub fn recalls(&self) -> bool {
        self.settings.mode != MemoryMode::Off
    }

    /// Checks the address of memory's database. A password in it would be visible to anyone who sees the command line
    /// or the configuration.
    ///
    /// # Errors
    /// The problem with it, without the address.
    pub fn check_address(url: &str) -> Result<(), String> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or("url does not begin with postgres://, as in postgres://USER@HOST/NAME")?;
        let user = rest.split(['/', '?']).next().and_then(|host| host.rsplit_once('@')).map_or("", |(user, _)| user);
        if user.contains(':') || rest.contains("password=") {
            return Err("url holds a password, which others could read: keep it in ~/.pgpass or PGPASSWORD".to_owned());
        }
        Ok(())
    }

    /// The database of memory, if it is kept in one.
    pub fn database(&self) -> Option<String> {
        Some(self.url.clone()).filter(|url| !url.is_empty())
    }

    fn check(&self) -> Result<(), String> {
        if !self.url.is_empty() {
            MemoryConfig::check_address(&self.url)?;
        }
        for (name, weight) in [
            ("person_weight", self.person_weight),
            ("comparison_weight", self.comparison_weight),
            ("score_weight", self.score_weight),
            ("self_score_weight", self.self_score_weight),
        ] {
            if !(0.0..1.0).contains(&weight) {
                return Err(format!("{name} is {weight}: it must be 0 or more and below 1"));
            }
        }
        self.settings.check().map_err(|invalid| invalid.to_string())
    }
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

fn messages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Message>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| message(text).map_err(D::Error::custom)).collect()
}

fn message(text: &str) -> Result<Message, String> {
    let wrong = || format!("{text:?} is not a message: write \"ROLE: TEXT\" with the role user, assistant or system");
    let (role, content) = text.split_once(':').ok_or_else(wrong)?;
    let role = match role.trim() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => return Err(wrong()),
    };
    Ok(Message::new(role, content.trim()))
}

fn thinking<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ThinkingOptions, D::Error> {
    let (is_on, effort) = match String::deserialize(deserializer)?.as_str() {
        "auto" => (None, None),
        "off" => (Some(false), None),
        "on" => (Some(true), None),
        "low" => (Some(true), Some(Effort::Low)),
        "medium" => (Some(true), Some(Effort::Medium)),
        "high" => (Some(true), Some(Effort::High)),
        other => {
            return Err(D::Error::custom(format!(
                "unknown mode {other:?}, expected auto, off, on, low, medium or high"
            )));
        }
    };
    Ok(ThinkingOptions { is_on, effort, budget: None })
}
