//! `hone config`: every key, its value in force, and where it comes from.

use crate::app::App;
use crate::arguments::ConfigArguments;
use crate::failure::Outcome;
use crate::output::table;

/// Longer values are cut in the table; `--json` has them whole.
const LONGEST_VALUE: usize = 80;

/// Prints the configuration.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(app: &App, arguments: &ConfigArguments) -> anyhow::Result<Outcome> {
    let entries = app.config.entries();
    if arguments.json.json {
        app.output.print_json(entries)?;
    } else {
        let row = |(key, entry): (&String, &crate::config::Entry)| {
            vec![key.clone(), on_one_line(&entry.value.to_string()), entry.source.to_string()]
        };
        app.output.print_line(&table(&entries.iter().map(row).collect::<Vec<_>>()))?;
    }
    Ok(Outcome::Done)
}

/// The first words of a text of many lines.
fn on_one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
