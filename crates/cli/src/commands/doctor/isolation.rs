//! `hone doctor --isolation`: whether answers that are computed together leak into each other.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use hone_app::isolation::{ServedReport, check_isolation, check_served};
use serde::Serialize;

use crate::arguments::DoctorArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Number of requests answered at the same time.
const REQUESTS: usize = 8;
/// Number of rounds.
const ROUNDS: usize = 3;
/// Maximum size of a file of keys, in bytes.
const LONGEST: u64 = 1 << 20;

/// Runs the check over HTTP, or on the engine of a running server or of this process, and reports the result.
///
/// # Errors
/// When the model cannot be loaded or does not answer, the server cannot be reached, or stdout cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &DoctorArguments) -> anyhow::Result<Outcome> {
    if let Some((server, keys)) = arguments.server.as_ref().zip(arguments.keys.as_ref()) {
        let report = check_served(server, &keys_in(keys)?)?;
        return tell(app, arguments, &report, &report.failures, &of_a_server(&report));
    }
    let model = &app.config.engine.model;
    app.installed(model).with_context(|| format!("cannot use {model}"))?;
    let report = check_isolation(&*app.generator()?, model, REQUESTS, ROUNDS)?;
    let told = format!(
        "{} requests with secrets, each alone and {} times beside the others and {} that were cancelled; {} tokens and \
         their log-probabilities compared with those of the requests alone",
        report.requests, report.rounds, report.cancelled, report.tokens,
    );
    tell(app, arguments, &report, &report.failures, &told)
}

fn of_a_server(report: &ServedReport) -> String {
    let unsearched = match report.unsearched.is_empty() {
        true => String::new(),
        false => format!("; not searched: {}", report.unsearched.join("; ")),
    };
    format!(
        "{} requests with secrets and {} keys, each alone and {} times beside the others and {} whose clients left; {} \
         answers about memory, conversations, events and figures searched for the secrets of others; {} prompts of another \
         key timed against as many that nobody had asked",
        report.requests, report.keys, report.rounds, report.cancelled, report.searched, report.timed,
    ) + &unsearched
}

fn tell(
    app: &Invocation,
    arguments: &DoctorArguments,
    report: &impl Serialize,
    failures: &[String],
    told: &str,
) -> anyhow::Result<Outcome> {
    if arguments.json.json {
        app.output.print_json(report)?;
    } else {
        failures.iter().for_each(|failure| app.output.error(failure));
        let verdict = if failures.is_empty() { "isolated" } else { "NOT isolated" };
        app.output.print_line(&format!("{verdict}: {told}"))?;
    }
    Ok(if failures.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// The keys in a file, a line each.
fn keys_in(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(LONGEST).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read the keys in {}", path.display()))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
