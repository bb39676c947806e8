//! Flags that several commands share, and the configuration keys that they stand for.

use std::path::{Path, PathBuf};

use clap::Args;
use hone_app::config::Override;
use hone_app::judging::lines::{PIPE, is_pipe};
use toml::Value;

/// `--model`.
#[derive(Debug, Default, Args)]
pub(crate) struct ModelFlag {
    /// Name of a model, or the path of a GGUF file
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

impl ModelFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "engine.model", "--model", self.model.clone());
    }
}

/// Where a model runs.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct EngineFlags {
    #[command(flatten)]
    pub(crate) model: ModelFlag,
    /// Device to run on: auto, cpu, cuda, cuda:N or metal
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Backend to run on: auto, candle or native
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,
    /// Number of a model's layers that an NVIDIA GPU computes, or auto for as many as fit into its memory
    #[arg(long, value_name = "N")]
    pub(crate) gpu_layers: Option<String>,
    /// Precision of activations in bits: 8 or 16; 16 is nearly exact but slower
    #[arg(long, value_name = "N")]
    pub(crate) activation_bits: Option<u32>,
    /// Number of compute threads; 0 uses one per performance core
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Memory limit for all models together, such as 8GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    /// Keep this model in memory once it is loaded; may be repeated
    #[arg(long, value_name = "MODEL")]
    pub(crate) pin: Vec<String>,
    /// Load the model in this process, even if a running `hone serve` could answer
    #[arg(long)]
    pub(crate) own_engine: bool,
}

impl EngineFlags {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.model.add_to(overrides);
        add(overrides, "engine.device", "--device", self.device.clone());
        add(overrides, "engine.backend", "--backend", self.backend.clone());
        add(overrides, "engine.gpu_layers", "--gpu-layers", self.gpu_layers.clone());
        add(overrides, "engine.activation_bits", "--activation-bits", self.activation_bits);
        add(overrides, "engine.threads", "--threads", self.threads);
        add(overrides, "engine.memory_limit", "--memory-limit", self.memory_limit.clone());
        add(overrides, "engine.pinned", "--pin", non_empty(&self.pin));
        add(overrides, "engine.shared", "--own-engine", self.own_engine.then_some(false));
    }
}

/// `--judge`.
#[derive(Debug, Default, Args)]
pub(crate) struct JudgeFlag {
    /// Name of the judge's model, or the path of a GGUF file; repeat for a jury
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Vec<String>,
}

impl JudgeFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add_judges(overrides, &self.judge);
    }
}

/// A file of objects instead of a single text.
#[derive(Debug, Default, Args)]
pub(crate) struct LineFlags {
    /// Read the texts from FILE, or from stdin (-): one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Write each input object with its answer to FILE, and resume a stopped run there; without it, or with -, print
    /// them
    #[arg(long, value_name = "FILE", requires = "input")]
    pub(crate) output: Option<PathBuf>,
}

impl LineFlags {
    /// Input and output, if an input file is given.
    pub(crate) fn files(&self) -> Option<(&Path, &Path)> {
        Some((self.input.as_deref()?, self.output.as_deref().unwrap_or(Path::new(PIPE))))
    }
}

/// A file of tasks instead of a single one.
#[derive(Debug, Default, Args)]
pub(crate) struct BatchFlags {
    /// Read the texts from FILE, or from stdin (-): one JSON object per line, with the keys described below
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Write each input object with its verdict to FILE, skipping objects that already have one there; without it, or
    /// with -, print them
    #[arg(long, value_name = "FILE", requires = "input")]
    pub(crate) output: Option<PathBuf>,
    /// Do not use or update the cache of verdicts
    #[arg(long)]
    pub(crate) no_cache: bool,
}

impl BatchFlags {
    /// Input and output, if an input file is given.
    pub(crate) fn files(&self) -> Option<(&Path, &Path)> {
        Some((self.input.as_deref()?, self.output.as_deref().unwrap_or(Path::new(PIPE))))
    }

    /// Whether the verdicts of a file are printed.
    pub(crate) fn prints_verdicts(&self) -> bool {
        self.files().is_some_and(|(_, output)| is_pipe(output))
    }
}

/// `--context`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ContextFlag {
    /// Context length in tokens; 0 uses the length that the model was trained for
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<u32>,
}

impl ContextFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "engine.context", "--context", self.context);
    }
}

/// `--speculation` and `--draft`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct SpeculationFlag {
    /// Speculative decoding: auto or off; does not change the answers
    #[arg(long, value_name = "MODE")]
    pub(crate) speculation: Option<String>,
    /// Draft model for speculative decoding: a smaller model with the same vocabulary
    #[arg(long, value_name = "MODEL")]
    pub(crate) draft: Option<String>,
}

impl SpeculationFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "engine.speculation", "--speculation", self.speculation.clone());
        add(overrides, "engine.draft", "--draft", self.draft.clone());
    }
}

/// `--json`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct JsonFlag {
    /// Print JSON, one line for each result
    #[arg(long, help_heading = None::<&str>)]
    pub(crate) json: bool,
}

/// How the next token is chosen.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Sampling temperature; 0 always takes the likeliest token
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Keep only the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,
    /// Keep only the likeliest tokens whose probabilities sum to P; 1 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f64>,
    /// Keep only tokens at least P times as likely as the likeliest
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f64>,
    /// Make tokens that have already occurred less likely; 1 disables the penalty
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f64>,
    /// Subtract X from a token's logit for each time it has occurred
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f64>,
    /// Subtract X from a token's logit if it has occurred
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f64>,
    /// Number of recent tokens that the penalties consider
    #[arg(long, value_name = "N")]
    pub(crate) penalty_window: Option<u32>,
    /// DRY: penalty for the shortest repetition that is not allowed, such as 0.8; 0 allows all
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) dry_multiplier: Option<f64>,
    /// DRY: factor by which the penalty grows with each further repeated token
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) dry_base: Option<f64>,
    /// DRY: allow repetitions of fewer than N tokens
    #[arg(long, value_name = "N")]
    pub(crate) dry_allowed_length: Option<u32>,
    /// DRY: number of recent tokens to examine; 0 examines all
    #[arg(long, value_name = "N")]
    pub(crate) dry_window: Option<u32>,
    /// XTC: probability of keeping only the least likely of the likely tokens, 0 to 1
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) xtc_probability: Option<f64>,
    /// XTC: probability from which a token counts as likely
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) xtc_threshold: Option<f64>,
    /// Keep only tokens whose logits are at most N standard deviations below the largest; 0 keeps all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) top_n_sigma: Option<f64>,
    /// Lower the temperature by up to X where the model is sure, and raise it by up to X where it is not
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) dynatemp_range: Option<f64>,
    /// Exponent of the entropy that --dynatemp-range depends on
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) dynatemp_exponent: Option<f64>,
    /// Mirostat 2: target surprise in bits, such as 5; 0 disables it
    #[arg(long, value_name = "BITS", allow_negative_numbers = true)]
    pub(crate) mirostat_tau: Option<f64>,
    /// Mirostat 2: how quickly the bound on surprise adapts
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) mirostat_eta: Option<f64>,
    /// End an answer once it has repeated itself for N tokens; 0 disables the limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) repetition_limit: Option<u32>,
    /// Random seed; the same seed gives the same text, and -1 draws a new seed
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<i64>,
    /// Maximum number of tokens in an answer; 0 for no limit
    #[arg(short = 'N', long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<u32>,
    /// Stop generating before this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Reasoning before the answer, if the model supports it: auto, off, on, low, medium or high
    #[arg(long, value_name = "MODE")]
    pub(crate) thinking: Option<String>,
    /// End the reasoning after N tokens; 0 for no limit
    #[arg(long, value_name = "N")]
    pub(crate) thinking_budget: Option<u32>,
    /// Add BIAS to the logit of token ID; may be repeated
    #[arg(long, value_name = "ID=BIAS")]
    pub(crate) logit_bias: Vec<String>,
}

impl SamplingFlags {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "sampling.temperature", "--temperature", self.temperature);
        add(overrides, "sampling.top_k", "--top-k", self.top_k);
        add(overrides, "sampling.top_p", "--top-p", self.top_p);
        add(overrides, "sampling.min_p", "--min-p", self.min_p);
        add(overrides, "sampling.repetition_penalty", "--repetition-penalty", self.repetition_penalty);
        add(overrides, "sampling.frequency_penalty", "--frequency-penalty", self.frequency_penalty);
        add(overrides, "sampling.presence_penalty", "--presence-penalty", self.presence_penalty);
        add(overrides, "sampling.penalty_window", "--penalty-window", self.penalty_window);
        add(overrides, "sampling.dry_multiplier", "--dry-multiplier", self.dry_multiplier);
        add(overrides, "sampling.dry_base", "--dry-base", self.dry_base);
        add(overrides, "sampling.dry_allowed_length", "--dry-allowed-length", self.dry_allowed_length);
        add(overrides, "sampling.dry_window", "--dry-window", self.dry_window);
        add(overrides, "sampling.xtc_probability", "--xtc-probability", self.xtc_probability);
        add(overrides, "sampling.xtc_threshold", "--xtc-threshold", self.xtc_threshold);
        add(overrides, "sampling.top_n_sigma", "--top-n-sigma", self.top_n_sigma);
        add(overrides, "sampling.dynatemp_range", "--dynatemp-range", self.dynatemp_range);
        add(overrides, "sampling.dynatemp_exponent", "--dynatemp-exponent", self.dynatemp_exponent);
        add(overrides, "sampling.mirostat_tau", "--mirostat-tau", self.mirostat_tau);
        add(overrides, "sampling.mirostat_eta", "--mirostat-eta", self.mirostat_eta);
        add(overrides, "sampling.repetition_limit", "--repetition-limit", self.repetition_limit);
        add(overrides, "sampling.seed", "--seed", self.seed);
        add(overrides, "sampling.max_tokens", "--max-tokens", self.max_tokens);
        add(overrides, "sampling.stop", "--stop", non_empty(&self.stop));
        add(overrides, "sampling.thinking", "--thinking", self.thinking.clone());
        add(overrides, "sampling.thinking_budget", "--thinking-budget", self.thinking_budget);
        add(overrides, "sampling.logit_bias", "--logit-bias", non_empty(&self.logit_bias));
    }
}

/// Records that `flag` sets `key`, if it was given.
pub(super) fn add(
    overrides: &mut Vec<Override>,
    key: &'static str,
    flag: &'static str,
    value: Option<impl Into<Value>>,
) {
    overrides.extend(value.map(|value| Override { key, flag, value: value.into() }));
}

/// Records the named judge or jury.
pub(super) fn add_judges(overrides: &mut Vec<Override>, names: &[String]) {
    let (judge, jury) = match names {
        [] => (None, None),
        [name] => (Some(name.clone()), Some(Vec::new())),
        names => (None, Some(names.to_vec())),
    };
    add(overrides, "judge.model", "--judge", judge);
    add(overrides, "judge.models", "--judge", jury);
}

fn non_empty(texts: &[String]) -> Option<Vec<String>> {
    (!texts.is_empty()).then(|| texts.to_vec())
}
