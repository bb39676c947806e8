//! Files of JSON objects that are answered line by line.

use std::path::Path;

use hone_app::judging::AnsweredLines;
use hone_app::judging::lines::is_pipe;

use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Reports the number of answered lines, unless they were printed.
///
/// # Errors
/// When stdout cannot be written.
pub(super) fn conclude(
    app: &Invocation,
    answered: AnsweredLines,
    output: &Path,
    as_json: bool,
) -> anyhow::Result<Outcome> {
    let AnsweredLines { lines, answered: done, resumed, interrupted } = answered;
    if !is_pipe(output) {
        if as_json {
            app.output.print_json(&answered)?;
        } else {
            let before = if resumed > 0 { format!(", {resumed} of them before") } else { String::new() };
            app.output.print_line(&format!("{done} of {lines} lines are answered in {}{before}", output.display()))?;
        }
    }
    Ok(if interrupted { Outcome::Interrupted } else { Outcome::Done })
}
