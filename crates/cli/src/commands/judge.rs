//! `hone judge`: which judges tell good answers from bad ones.

mod calibrate;
mod eval;

use std::io::{BufRead, BufReader};

use anyhow::Context;
use hone_app::judging::{JudgeSession, KnownJudge, known_judges};
use hone_files::without_mark;
use hone_judging::{Features, LIKELIHOOD, features_of};
use serde_json::{Map, Value};

use crate::arguments::{JudgeArguments, JudgeCommand, JudgeExamArguments, JudgeFeaturesArguments, JudgeListArguments};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// Runs the subcommand.
///
/// # Errors
/// When it fails.
pub(crate) fn run(app: &Invocation, arguments: &JudgeArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        JudgeCommand::List(arguments) => list(app, arguments),
        JudgeCommand::Exam(arguments) => exam(app, arguments),
        JudgeCommand::Eval(arguments) => eval::run(app, arguments),
        JudgeCommand::Calibrate(arguments) => calibrate::run(app, arguments),
        JudgeCommand::Features(arguments) => features(app, arguments),
    }
}

fn list(app: &Invocation, arguments: &JudgeListArguments) -> anyhow::Result<Outcome> {
    let judges = known_judges(app)?;
    if arguments.json.json {
        app.output.print_json(&judges)?;
        return Ok(Outcome::Done);
    }
    let titles = ["judge", "AUC", "pairs", "order bias", "manipulated", "s/grade", "examination"];
    app.output.print_titled(&titles, judges.iter().map(cells))?;
    Ok(Outcome::Done)
}

/// A row of the table of judges.
fn cells(row: &KnownJudge) -> Vec<String> {
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    let judge = match row.answers.as_str() {
        "" => row.judge.clone(),
        answers => format!("{}, answers {answers}", row.judge),
    };
    let marks = row.marks.as_ref();
    vec![
        judge,
        row.auc.map_or("-".to_owned(), |auc| auc.to_string()),
        percent(marks.map(|marks| marks.pairwise_accuracy)),
        percent(marks.and_then(|marks| marks.position_bias)),
        percent(marks.and_then(|marks| marks.manipulation_rate)),
        marks.map_or("-".to_owned(), |marks| format!("{:.1}", marks.seconds_per_grade)),
        match (row.passed, row.installed) {
            (Some(true), _) => "passed",
            (Some(false), _) => "not passed: no grades",
            (None, true) => "not taken",
            (None, false) => "not installed",
        }
        .to_owned(),
    ]
}

fn exam(app: &Invocation, arguments: &JudgeExamArguments) -> anyhow::Result<Outcome> {
    let session = JudgeSession::open_for_examination(app, interrupt::install()?)?;
    let steps = Steps::new(app.output, "gradings");
    let marks = session.examine(&steps);
    steps.clear();
    let Some(marks) = marks? else {
        app.output.note("stopped: the same command continues from here");
        return Ok(Outcome::Interrupted);
    };
    let judge = &app.config.judge;
    let passed = marks.passes(judge.least_auc);
    // The marks of the likelihood judge come with its coefficients, since they depend on who answered.
    if judge.model != LIKELIHOOD {
        session.keep_marks(app, &marks)?;
    }
    if arguments.json.json {
        app.output.print_json(&marks)?;
    } else {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut rows = vec![
            vec!["questions".to_owned(), marks.n_questions.to_string()],
            vec!["AUC".to_owned(), format!("{}; the lower end must be above {}", marks.auc, judge.least_auc)],
            vec!["pairs in order".to_owned(), percent(marks.pairwise_accuracy)],
        ];
        rows.extend(marks.position_bias.map(|bias| vec!["order bias".to_owned(), percent(bias)]));
        rows.extend(marks.manipulation_rate.map(|rate| vec!["manipulated".to_owned(), percent(rate)]));
        rows.push(vec!["seconds per grade".to_owned(), format!("{:.2}", marks.seconds_per_grade)]);
        let verdict = if passed { "passed" } else { "not passed: its grades are not shown" };
        rows.push(vec!["examination".to_owned(), verdict.to_owned()]);
        app.output.print_table(&rows)?;
    }
    Ok(if passed { Outcome::Done } else { Outcome::BelowThreshold })
}

fn features(app: &Invocation, arguments: &JudgeFeaturesArguments) -> anyhow::Result<Outcome> {
    let failure = || format!("cannot read {}", arguments.file.display());
    let model = &app.config.engine.model;
    app.installed(model)?;
    let generator = app.generator()?;
    let file = std::fs::File::open(&arguments.file).with_context(failure)?;
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let wrong = |what: &str| usage(format!("line {number} of {} {what}", arguments.file.display()));
        let line = line.with_context(failure)?;
        let mut object: Map<String, Value> =
            serde_json::from_slice(without_mark(line.as_bytes())).map_err(|_| wrong("is not a JSON object"))?;
        let text =
            |name: &str| object.get(name).and_then(Value::as_str).ok_or_else(|| wrong(&format!("has no {name:?}")));
        let (query, answer) = (text("query")?, text("answer")?);
        let Features { named: features, state } = features_of(&*generator, model, query, answer)?;
        let features: Map<String, Value> =
            features.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        object.insert("features".to_owned(), features.into());
        object.insert("state".to_owned(), state.into());
        app.output.print_json(&object)?;
    }
    Ok(Outcome::Done)
}
