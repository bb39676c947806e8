//! Writes a conversation to a file: as JSON if its name ends in `.json`, otherwise as Markdown.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use hone_app::conversations::SavedConversation;

/// The conversation as Markdown or JSON.
pub(crate) fn text_of(name: &str, conversation: &SavedConversation, as_json: bool) -> String {
    if as_json { format!("{}\n", conversation.to_json(name)) } else { conversation.to_markdown(name) }
}

/// Whether a file of this name holds JSON.
pub(crate) fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// Writes a text to a new file.
///
/// # Errors
/// When the file exists, or cannot be written.
pub(crate) fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{} exists already: choose another name", path.display());
    }
    let failure = || format!("cannot write {}", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).with_context(failure)?;
    file.write_all(text.as_bytes()).with_context(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        write_new(&path, "one").unwrap();
        assert!(write_new(&path, "two").unwrap_err().to_string().contains("exists already"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert!(is_json(Path::new("a.JSON")) && !is_json(Path::new("a.md")));
    }
}
