//! A repository of the hub.

use super::{file_name, is_plain};
use crate::quantization;

/// A repository, and the requested quantization, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubRepository {
    pub(crate) repository: String,
    pub(crate) revision: String,
    pub(crate) quantization: Option<String>,
}

impl HubRepository {
    /// Parses `OWNER/REPO`, with `@REVISION` and `:QUANTIZATION` if they are given; the error says what is expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` is not of the form OWNER/REPO or OWNER/REPO:QUANTIZATION");
        let (rest, quantization) = match text.split_once(':') {
            Some((rest, quantization)) => (rest, Some(quantization)),
            None => (text, None),
        };
        let (owner, repo) = rest.split_once('/').ok_or_else(malformed)?;
        let (repo, revision) = repo.split_once('@').unwrap_or((repo, "main"));
        if !is_plain(owner) || !is_plain(repo) || !is_plain(revision) || !quantization.is_none_or(is_plain) {
            return Err(malformed());
        }
        // Other programs write `:latest` for the usual one.
        let quantization = quantization.filter(|name| !name.eq_ignore_ascii_case("latest")).map(str::to_owned);
        Ok(Self { repository: format!("{owner}/{repo}"), revision: revision.to_owned(), quantization })
    }

    /// The reference as users type it, without the quantization.
    pub(crate) fn label(&self) -> String {
        let revision = if self.revision == "main" { String::new() } else { format!("@{}", self.revision) };
        format!("hf:{}{revision}", self.repository)
    }

    /// Whether a model whose source is `source` came from here, in the requested quantization.
    pub(crate) fn is_origin_of(&self, source: &str) -> bool {
        let Some(path) = source.strip_prefix(&self.label()).and_then(|rest| rest.strip_prefix('/')) else {
            return false;
        };
        let has = quantization::of_file(file_name(path)).unwrap_or_default();
        self.quantization.as_deref().is_none_or(|asked| quantization::is(&has, asked))
    }
}
