//! The flags of `hone generate`, `hone tokenize` and `hone perplexity`, which work on a text without a conversation.

use std::path::PathBuf;

use clap::Args;

use super::shared::{ContextFlag, EngineFlags, JsonFlag, LineFlags, ModelFlag, SamplingFlags, SpeculationFlag};

/// Flags of `hone generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Continue the text as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Interpret the names of control tokens in the text as control tokens
    #[arg(long, requires = "raw")]
    pub(crate) parse_special: bool,
    /// Add no tokens that begin or end a text
    #[arg(long, requires = "raw")]
    pub(crate) no_bos: bool,
    /// Instead of the text, print each token and the K likeliest tokens, with their log-probabilities
    #[arg(long, value_name = "K")]
    pub(crate) logprobs: Option<usize>,
    /// Generate nothing, and print how likely each text is after its prefix. Each line of --input or stdin has the keys
    /// text and prefix; the output adds logprob (natural, summed over the text's tokens), tokens, and is_greedy
    /// (whether each token was the likeliest)
    #[arg(long, conflicts_with_all = [
        "raw", "logprobs", "constraint", "parse_special", "no_bos", "temperature", "max_tokens", "stop"
    ])]
    pub(crate) score: bool,
    /// Constrain the answer to the JSON schema in FILE
    #[arg(long, value_name = "FILE", group = "constraint")]
    pub(crate) schema: Option<PathBuf>,
    /// Constrain the answer to a regular expression
    #[arg(long, value_name = "REGEX", group = "constraint")]
    pub(crate) regex: Option<String>,
    /// Constrain the answer to one of these texts
    #[arg(long, value_name = "A,B", value_delimiter = ',', group = "constraint")]
    pub(crate) choice: Vec<String>,
    #[command(flatten)]
    pub(crate) lines: LineFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlag,
    #[command(flatten)]
    pub(crate) speculation: SpeculationFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

impl GenerateArguments {
    /// Whether the answer is constrained.
    pub(crate) fn is_constrained(&self) -> bool {
        self.schema.is_some() || self.regex.is_some() || !self.choice.is_empty()
    }
}

/// Flags of `hone tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArguments {
    /// Convert token ids on stdin to text
    #[arg(long, conflicts_with_all = ["parse_special", "no_bos"])]
    pub(crate) decode: bool,
    /// Interpret the names of control tokens in the text as control tokens
    #[arg(long)]
    pub(crate) parse_special: bool,
    /// Add no tokens that begin or end a text
    #[arg(long)]
    pub(crate) no_bos: bool,
    #[command(flatten)]
    pub(crate) model: ModelFlag,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone perplexity`.
#[derive(Debug, Args)]
pub(crate) struct PerplexityArguments {
    /// Text file to measure
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tokens per chunk; the second half of each chunk is scored
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) context: usize,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}
