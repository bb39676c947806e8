//! Flags of `hone rerank`.

use std::path::PathBuf;

use clap::Args;

/// Flags of `hone rerank`.
#[derive(Debug, Args)]
pub(crate) struct RerankArguments {
    /// Texts to rank; --documents reads them from a file instead
    #[arg(value_name = "TEXT", required_unless_present = "documents", conflicts_with = "documents")]
    pub(crate) texts: Vec<String>,
    /// Question or search query to rank the texts by
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) query: String,
    /// Read the texts from FILE, or from stdin (-): each line is a JSON string, or an object with the key text, whose
    /// other keys --json copies
    #[arg(short, long, value_name = "FILE")]
    pub(crate) documents: Option<PathBuf>,
    /// Name of a reranker or a reward model, or the path of its file
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Print only the N most relevant texts
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: Option<u32>,
    /// Print one JSON object per line for each text: its position in the input (index), its score, all outputs of the
    /// head
    #[arg(long)]
    pub(crate) json: bool,
}
