//! Flags of `hone critique`.

use std::path::PathBuf;

use clap::Args;
use hone_app::config::Override;
use hone_protocol::ContentType;

use super::{EngineFlags, JsonFlag, shared};

/// Help footer of `hone critique`.
pub(super) const CRITIQUE_HELP: &str = "\
The exit code is 3 if a text is blocked. A critic that has not passed its examination (`hone critic exam`) or that wrote
the text itself blocks nothing.
Each line of --batch is a JSON object with the string key content, and optionally context, type and by. It is printed
with the critique's keys added; verdicts of an earlier run come from the cache.";

/// Flags of `hone critique`.
#[derive(Debug, Args)]
pub(crate) struct CritiqueArguments {
    /// File with the text, or stdin (-)
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "batch")]
    pub(crate) file: PathBuf,
    /// The kind of text: general, intention, research or consolidation
    #[arg(long = "type", value_name = "TYPE", default_value_t, value_parser = str::parse::<ContentType>)]
    pub(crate) kind: ContentType,
    /// Background of the text, such as the question, the sources or the situation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) context: Option<String>,
    /// The model that wrote the text
    #[arg(long, value_name = "MODEL")]
    pub(crate) by: Option<String>,
    /// Criticize each text in FILE, or on stdin (-)
    #[arg(long, value_name = "FILE", conflicts_with = "context")]
    pub(crate) batch: Option<PathBuf>,
    /// Name of the critic's model, or the path of a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

impl CritiqueArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.engine.add_to(overrides);
        shared::add_judges(overrides, self.judge.as_slice());
    }
}
