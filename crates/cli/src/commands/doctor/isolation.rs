//! `hone doctor --isolation`: whether answers that are computed together leak into each other.

use anyhow::Context;
use hone_app::isolation::check_isolation;

use crate::arguments::DoctorArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// How many requests are answered at the same time.
const REQUESTS: usize = 8;
/// How often.
const ROUNDS: usize = 3;

/// Runs the check on the engine of a running server, or on this process's own, and says what came of it.
///
/// # Errors
/// When the model cannot be loaded or does not answer, or stdout cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &DoctorArguments) -> anyhow::Result<Outcome> {
    let model = &app.config.engine.model;
    app.installed(model).with_context(|| format!("cannot use {model}"))?;
    let report = check_isolation(&*app.generator()?, model, REQUESTS, ROUNDS)?;
    let is_isolated = report.failures.is_empty();
    if arguments.json.json {
        app.output.print_json(&report)?;
    } else {
        report.failures.iter().for_each(|failure| app.output.error(failure));
        let verdict = if is_isolated { "isolated" } else { "NOT isolated" };
        app.output.print_line(&format!(
            "{verdict}: {} requests with secrets, each alone and {} times beside the others and {} that were cancelled; {} \
             tokens and their log-probabilities compared with those of the requests alone",
            report.requests, report.rounds, report.cancelled, report.tokens,
        ))?;
    }
    Ok(if is_isolated { Outcome::Done } else { Outcome::Failed })
}
