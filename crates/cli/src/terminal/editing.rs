//! A text in the user's editor.

use std::io::Write;
use std::process::Command;

use anyhow::{Context, bail};

use super::keyboard;

/// The variables that name an editor; the first one that is set counts.
const VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];

/// The editor that every system has.
const DEFAULT: &str = if cfg!(windows) { "notepad" } else { "vi" };

/// Opens the user's editor with a text, waits until it exits, and returns the saved text.
///
/// # Errors
/// When the editor cannot be run, fails, or saves something that is not text.
pub(crate) fn edit(text: &str) -> anyhow::Result<String> {
    let mut file = tempfile::Builder::new().prefix("hone-").suffix(".md").tempfile().context("cannot make a file")?;
    file.write_all(text.as_bytes()).context("cannot write the file to edit")?;
    let path = file.into_temp_path();
    let named = VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.trim().is_empty());
    let editor = named.unwrap_or_else(|| DEFAULT.to_owned());
    // The variable may hold arguments, such as `code --wait`.
    let mut words = editor.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(DEFAULT));
    command.args(words).arg(&path);
    let ended = keyboard::lend(|| command.status());
    let status = ended.with_context(|| format!("cannot run the editor {editor:?}: EDITOR names another one"))?;
    if !status.success() {
        bail!("the editor {editor:?} failed ({status}): nothing is asked");
    }
    std::fs::read_to_string(&path).context("cannot read what was edited")
}
