//! Flags of `hone pull` and `hone import`.

use clap::{Args, ValueEnum};
use hone_models::Program;

use super::JsonFlag;

/// Help footer of `hone pull`.
pub(super) const REFERENCES: &str = "MODEL is one of:
  qwen3:4b                     a name from `hone list --all`; if that model does not
                               fit this machine, its largest quantization that does
  qwen3:4b-q8_0                the same model in another quantization
  OWNER/REPO[:QUANTIZATION]    a repository on the hub: the usual quantization,
                               or the largest that fits
  hf:OWNER/REPO/FILE.gguf      a file on the hub
  https://HOST/PATH/FILE.gguf  a file at any address
  ./FILE.gguf                  a file on this machine, which is copied
For a model in several parts, name the first part.";

/// Flags of `hone pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    /// Model to download; see below
    #[arg(value_name = "MODEL", required_unless_present = "from_ollama")]
    pub(crate) reference: Option<String>,
    /// Use Ollama's model of this name, without copying it, instead of downloading one
    #[arg(long, value_name = "NAME", conflicts_with = "reference")]
    pub(crate) from_ollama: Option<String>,
    /// Name for a model that is not in the catalog; defaults to the file name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Name of the model in the other program; without it, list all models
    #[arg(value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Look only at this program's models
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) from: Option<ProgramName>,
    /// Name for the model in hone
    #[arg(long, value_name = "NAME", requires = "model")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// A program that keeps models.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProgramName {
    Ollama,
    LmStudio,
    #[value(name = "llama.cpp")]
    LlamaCpp,
    HuggingFace,
}

impl From<ProgramName> for Program {
    fn from(name: ProgramName) -> Program {
        match name {
            ProgramName::Ollama => Program::Ollama,
            ProgramName::LmStudio => Program::LmStudio,
            ProgramName::LlamaCpp => Program::LlamaCpp,
            ProgramName::HuggingFace => Program::HuggingFace,
        }
    }
}
