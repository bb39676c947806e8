//! `hone grade`: the judge's grade for one answer, for those in a file, or for those in memory that are due.

mod due;

use std::path::Path;

use hone_app::describe::on_one_line;
use hone_app::judging::lines::is_pipe;
use hone_app::judging::{BatchTask, JudgeSession, Summary};
use hone_judging::GradeTask;
use hone_protocol::{Grade, Lane, remarks_in_words};

use crate::arguments::{BatchFlags, GradeArguments};
use crate::badge::{badge, cannot_tell, judge_name, juror_grade, juror_name};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::{Spinner, Steps};

/// Grades.
///
/// # Errors
/// When a file is not valid, or no judge is available.
pub(crate) fn run(app: &Invocation, arguments: &GradeArguments) -> anyhow::Result<Outcome> {
    if let Some(bound) = arguments.at_least.filter(|bound| !(1.0..=5.0).contains(bound)) {
        return Err(usage(format!("--at-least is {bound}: it must be 1 to 5")));
    }
    if arguments.due {
        return due::run(app, arguments);
    }
    let author = arguments.answered_by.as_deref().map(|name| app.store.installed_name(name));
    let session = open(app, &arguments.batch, author.as_deref())?;
    match (arguments.batch.files(), &arguments.query, &arguments.answer) {
        (Some((input, output)), _, _) => grade_file(app, &session, arguments, input, output),
        (None, Some(query), Some(answer)) => {
            let reference = arguments.reference.clone();
            let task = GradeTask { query: query.clone(), answer: answer.clone(), reference };
            grade_one(app, &session, arguments, task)
        }
        _ => Err(usage("there is nothing to grade: give --query and --answer, --input, or --due")),
    }
}

/// Opens the judge for one task, or for a file; `author` is the model that answered, if it is known.
///
/// # Errors
/// See [`JudgeSession::open`].
pub(super) fn open(app: &Invocation, flags: &BatchFlags, author: Option<&str>) -> anyhow::Result<JudgeSession> {
    let lane = if flags.files().is_some() { Lane::Batch } else { Lane::Interactive };
    let session = JudgeSession::open(app, lane, author, interrupt::install()?)?;
    Ok(if flags.no_cache { session.without_cache() } else { session })
}

/// Judges a file into another one, or prints its lines with their verdicts.
///
/// # Errors
/// See [`JudgeSession::judge_file`] and [`JudgeSession::judge_lines`].
pub(super) fn judge_file<T: BatchTask>(
    app: &Invocation,
    session: &JudgeSession,
    input: &Path,
    output: &Path,
) -> anyhow::Result<Summary> {
    let steps = Steps::new(app.output, T::UNIT);
    let summary = match is_pipe(output) {
        true => session.judge_lines::<T>(input, &steps, |line| app.output.print_line(&serde_json::to_string(line)?)),
        false => session.judge_file::<T>(input, output, &steps),
    };
    steps.clear();
    summary
}

fn grade_one(
    app: &Invocation,
    session: &JudgeSession,
    arguments: &GradeArguments,
    task: GradeTask,
) -> anyhow::Result<Outcome> {
    let Some(mut grade) = session.judge_one(task.clone(), &Spinner::new(app.output, "judging"))? else {
        return Ok(Outcome::Interrupted);
    };
    let mut missing = None;
    if arguments.why && grade.lacks_reasons() {
        match session.with_reasons(task.clone(), grade.clone(), &Spinner::new(app.output, "writing reasons")) {
            Ok(Some(explained)) => grade = explained,
            Ok(None) => missing = Some(Outcome::Interrupted),
            Err(reason) => {
                app.output.error(&format!("{reason:#}"));
                missing = Some(Outcome::Failed);
            }
        }
    }
    if arguments.why && grade.is_verdict() && !matches!(missing, Some(Outcome::Interrupted)) {
        match session.remarks(app, &task) {
            Ok(remarks) => grade.remarks = remarks,
            Err(reason) => app.output.note(&format!("no remarks: {reason:#}")),
        }
    }
    if arguments.json.json {
        app.output.print_json(&grade)?;
    } else {
        print_grade(app, &grade)?;
    }
    if let Some(failure) = &grade.judging.failure {
        app.output.error(&format!("no score: {failure}"));
    }
    if arguments.at_least.is_some() && grade.score.is_none() && grade.is_verdict() {
        app.output.error(NO_SCORE);
    }
    if let Some(outcome) = missing {
        return Ok(outcome);
    }
    Ok(match arguments.at_least {
        None if grade.is_verdict() => Outcome::Done,
        at_least => outcome(grade.score.map(f64::from), at_least),
    })
}

/// The error if a bound for the score is given and no judge gives scores.
const NO_SCORE: &str = "--at-least needs a score, and this judge gives none: `hone doctor` names one that does";

fn grade_file(
    app: &Invocation,
    session: &JudgeSession,
    arguments: &GradeArguments,
    input: &Path,
    output: &Path,
) -> anyhow::Result<Outcome> {
    let summary = judge_file::<GradeTask>(app, session, input, output)?;
    tell_failure(app, &summary);
    let mean = summary.mean_score.map(|mean| format!(", mean {mean:.2}")).unwrap_or_default();
    tell_summary(
        app,
        &summary,
        &arguments.batch,
        arguments.json.json,
        &format!("{}{mean}", counts(&summary, "graded")),
    )?;
    Ok(match (summary.interrupted, arguments.at_least) {
        (true, _) => Outcome::Interrupted,
        (false, None) if summary.is_fruitless() => Outcome::Failed,
        (false, None) => Outcome::Done,
        (false, Some(_)) => outcome(summary.mean_score, arguments.at_least),
    })
}

/// Says why lines have no verdict.
pub(super) fn tell_failure(app: &Invocation, summary: &Summary) {
    if let Some(failure) = &summary.failure {
        let Summary { lines, unscored, .. } = summary;
        app.output.error(&format!(
            "{unscored} of {lines} without a verdict, the last one: {failure}; the same command judges them again"
        ));
    }
}

/// Prints the summary of a file, as a note if the verdicts are on stdout.
pub(super) fn tell_summary(
    app: &Invocation,
    summary: &Summary,
    files: &BatchFlags,
    json: bool,
    text: &str,
) -> anyhow::Result<()> {
    match (files.prints_verdicts(), json) {
        (true, _) => app.output.note(text),
        (false, true) => app.output.print_json(summary)?,
        (false, false) => app.output.print_line(text)?,
    }
    Ok(())
}

/// A summary of a file's lines.
pub(super) fn counts(summary: &Summary, verb: &str) -> String {
    let Summary { lines, judged, unscored, resumed, cached, interrupted, .. } = summary;
    let mut text = format!("{judged} of {lines} {verb}");
    let mut add = |count: usize, what: &str| {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    };
    add(*unscored, "without a verdict");
    add(*resumed, "from an earlier run");
    add(*cached, "from the cache");
    if *interrupted {
        text.push_str(", stopped: the same command continues from here");
    }
    text
}

/// Without a score, the result neither passes a threshold nor counts as a result.
fn outcome(score: Option<f64>, at_least: Option<f64>) -> Outcome {
    match (score, at_least) {
        (None, _) => Outcome::Failed,
        (Some(score), Some(bound)) if score < bound => Outcome::BelowThreshold,
        (Some(_), _) => Outcome::Done,
    }
}

fn print_grade(app: &Invocation, grade: &Grade) -> anyhow::Result<()> {
    match badge(grade, app.agreement(grade)?) {
        Some(badge) => app.output.print_marked_line(&badge)?,
        None if grade.is_verdict() => app.output.print_line(&format!("no grade: {}", cannot_tell(&grade.judging)))?,
        None => {}
    }
    if let Some(suspicion) = &grade.suspicious {
        app.output.print_line(&format!("suspicious: {suspicion}"))?;
    }
    if !grade.feedback.is_empty() {
        app.output.print_line(&grade.feedback)?;
    }
    if !grade.remarks.is_empty() {
        app.output.print_line(&format!("remarks: {}", remarks_in_words(&grade.remarks)))?;
    }
    for juror in &grade.jury {
        app.output.print_line(&on_one_line(&format!("{}: {}", juror_name(juror), juror_grade(juror))))?;
    }
    let judging = &grade.judging;
    if judging.failure.is_some() {
        return Ok(());
    }
    let mut details = Vec::new();
    details.extend(grade.raw_score_of_its_own().map(|raw| format!("{raw} on the judge's scale")));
    details.extend(grade.expected_score.map(|expected| match grade.spread {
        Some(spread) => format!("mean {expected:.2} · spread {spread}"),
        None => format!("expected score {expected:.2}"),
    }));
    details.push(format!("rubric {}", grade.rubric));
    details.push(format!("judge {}", judge_name(judging)));
    details.push(format!("{:.1} s", judging.seconds));
    app.output.print_line(&details.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_that_was_asked_for_decides_the_outcome() {
        assert_eq!(outcome(Some(4.0), None), Outcome::Done);
        assert_eq!(outcome(Some(4.0), Some(4.0)), Outcome::Done);
        assert_eq!(outcome(Some(3.9), Some(4.0)), Outcome::BelowThreshold);
        assert_eq!(outcome(None, Some(1.0)), Outcome::Failed);
        assert_eq!(outcome(None, None), Outcome::Failed);
    }
}
