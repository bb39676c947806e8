//! A list in the terminal from which a person chooses one entry, with the arrow keys or by typing a part of it.

use std::fmt;

use anyhow::Context;
use inquire::ui::RenderConfig;
use inquire::{InquireError, Select};

use super::{Output, visible};

/// Maximum number of entries shown at once.
const PAGE: usize = 12;

/// Columns that the list itself takes.
const MARGIN: usize = 3;

/// Asks for one of `entries`, and returns its index; `None` after Esc or Ctrl-C. The first one is marked initially.
///
/// # Errors
/// When the terminal cannot be used.
pub(crate) fn choose(question: &str, entries: &[Vec<String>], output: Output) -> anyhow::Result<Option<usize>> {
    let lines = output.table(entries, MARGIN);
    let options = lines.iter().enumerate().map(|(place, line)| Choice { place, line: visible(line).into_owned() });
    let config = if output.colors_stderr() { RenderConfig::default_colored() } else { RenderConfig::empty() };
    let select = Select::new(question, options.collect())
        .with_page_size(PAGE)
        .with_help_message("arrow keys or a part of the name, Enter chooses, Esc leaves")
        .with_formatter(&|_| String::new())
        .with_render_config(config);
    match select.prompt() {
        Ok(choice) => Ok(Some(choice.place)),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(None),
        Err(error) => Err(error).context("cannot read from the terminal"),
    }
}

struct Choice {
    place: usize,
    line: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}
