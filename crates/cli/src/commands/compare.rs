//! `hone compare`: the judge's choice between two answers, or between the pairs in a file.

use hone_app::describe::on_one_line;
use hone_judging::CompareTask;
use hone_protocol::Preference;

use super::grade::{counts, judge_file, open, tell_failure, tell_summary};
use crate::arguments::CompareArguments;
use crate::badge::{grounds_of_preference, juror_name, juror_preference};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Spinner;

/// Compares.
///
/// # Errors
/// When a file is not valid, or no judge is available.
pub(crate) fn run(app: &Invocation, arguments: &CompareArguments) -> anyhow::Result<Outcome> {
    let session = open(app, &arguments.batch, None)?;
    if let Some((input, output)) = arguments.batch.files() {
        let summary = judge_file::<CompareTask>(app, &session, input, output)?;
        tell_failure(app, &summary);
        tell_summary(app, &summary, &arguments.batch, arguments.json.json, &counts(&summary, "compared"))?;
        return Ok(match summary.interrupted {
            true => Outcome::Interrupted,
            false if summary.is_fruitless() => Outcome::Failed,
            false => Outcome::Done,
        });
    }
    let (Some(query), Some(answer_a), Some(answer_b)) =
        (arguments.query.clone(), arguments.a.clone(), arguments.b.clone())
    else {
        return Err(usage("there is nothing to compare: give --query, --a and --b, or --input"));
    };
    let task = CompareTask { query, answer_a, answer_b };
    let Some(preference) = session.judge_one(task, &Spinner::new(app.output, "judging"))? else {
        return Ok(Outcome::Interrupted);
    };
    if arguments.json.json {
        app.output.print_json(&preference)?;
    } else if preference.judging.failure.is_none() {
        print_preference(app, &preference)?;
    }
    match &preference.judging.failure {
        None => Ok(Outcome::Done),
        Some(failure) => {
            app.output.error(&format!("no verdict: {failure}"));
            Ok(Outcome::Failed)
        }
    }
}

fn print_preference(app: &Invocation, preference: &Preference) -> anyhow::Result<()> {
    let Preference { winner, log_odds, consistent, reason, jury, judging } = preference;
    let headline = match winner {
        Some(winner) => format!("{winner} is better"),
        None => "neither is better".to_owned(),
    };
    app.output.print_line(&headline)?;
    if !reason.is_empty() {
        app.output.print_line(reason)?;
    }
    for juror in jury {
        app.output.print_line(&on_one_line(&format!("{}: {}", juror_name(juror), juror_preference(juror))))?;
    }
    let how = grounds_of_preference(judging, *log_odds, *consistent).join(" · ");
    app.output.print_line(&format!("{how} · {:.1} s", judging.seconds))
}
