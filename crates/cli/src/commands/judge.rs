//! `hone judge`: which judges tell good answers from bad ones.

mod calibrate;
mod eval;

use std::io::{BufRead, BufReader};

use anyhow::Context;
use hone_judging::examination::Marks;
use hone_judging::{Auc, Features, LIKELIHOOD, Likelihood, Rubric, features_of};
use hone_models::Role;
use hone_protocol::Message;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::arguments::{JudgeArguments, JudgeCommand, JudgeExamArguments, JudgeFeaturesArguments, JudgeListArguments};
use crate::failure::{Outcome, usage};
use crate::judging::JudgeSession;
use crate::terminal::interrupt::Interrupt;

/// Runs the subcommand.
///
/// # Errors
/// When it fails.
pub(crate) fn run(app: &App, arguments: &JudgeArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        JudgeCommand::List(arguments) => list(app, arguments),
        JudgeCommand::Exam(arguments) => exam(app, arguments),
        JudgeCommand::Eval(arguments) => eval::run(app, arguments),
        JudgeCommand::Calibrate(arguments) => calibrate::run(app, arguments),
        JudgeCommand::Features(arguments) => features(app, arguments),
    }
}

/// A judge and what is known about it.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    judge: String,
    /// Whose answers the marks are about; empty for everybody's.
    #[serde(skip_serializing_if = "str::is_empty")]
    answers: String,
    installed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    auc: Option<Auc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    marks: Option<Marks>,
    /// `None` if it has not been examined.
    passed: Option<bool>,
}

fn list(app: &App, arguments: &JudgeListArguments) -> anyhow::Result<Outcome> {
    let rows = rows(app)?;
    if arguments.json.json {
        app.output.print_json(&rows)?;
        return Ok(Outcome::Done);
    }
    let columns = ["JUDGE", "AUC", "PAIRS", "ORDER BIAS", "MANIPULATED", "S/GRADE", "EXAMINATION"];
    let mut table = vec![columns.map(str::to_string).to_vec()];
    table.extend(rows.iter().map(Row::cells));
    app.output.print_table(&table)?;
    Ok(Outcome::Done)
}

/// The judges that are configured, in the catalog or examined.
///
/// # Errors
/// When the models cannot be listed, or the rubric or a profile does not exist.
pub(super) fn rows(app: &App) -> anyhow::Result<Vec<Row>> {
    let catalog = app.store.catalog();
    let judges = catalog.models.iter().filter(|model| model.role == Role::Judge).map(|model| model.name.clone());
    let mut names: Vec<String> = configured(app).cloned().chain(judges).collect();
    names.extend(app.store.list()?.models.into_iter().map(|model| model.name));
    names.retain(|name| name != LIKELIHOOD);
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let rubric = app.rubric()?;
    let mut rows: Vec<Row> =
        names.into_iter().map(|name| prompted(app, &rubric, name)).collect::<anyhow::Result<_>>()?;
    let is_shown = |row: &Row| row.passed.is_some() || is_judge(app, &row.judge);
    rows.retain(is_shown);
    rows.extend(likelihood(app));
    Ok(rows)
}

/// The names of the configured judge, or of the jury and the stronger judge.
fn configured(app: &App) -> impl Iterator<Item = &String> {
    let critic = &app.config.critic;
    critic.jurors().iter().chain(Some(&critic.stronger).filter(|name| !name.is_empty()))
}

/// Whether a model is meant to judge.
fn is_judge(app: &App, name: &str) -> bool {
    configured(app).any(|judge| judge == name)
        || app.store.catalog().about(name).is_some_and(|model| model.role == Role::Judge)
}

fn prompted(app: &App, rubric: &Rubric, name: String) -> anyhow::Result<Row> {
    let marks = app.marks(&name, rubric)?;
    Ok(Row {
        installed: app.store.show(&name).is_ok(),
        answers: String::new(),
        auc: marks.as_ref().map(|marks| marks.auc),
        passed: marks.as_ref().map(|marks| marks.passes(app.config.critic.least_auc)),
        judge: name,
        marks,
    })
}

/// The likelihood judge, for its own model's answers and for those of others.
fn likelihood(app: &App) -> Vec<Row> {
    let critic = &app.config.critic;
    let Some(Likelihood { name, own, foreign }) = Likelihood::of_model(&critic.likelihood_model) else {
        return Vec::new();
    };
    let row = |answers: String, auc: Auc| Row {
        judge: LIKELIHOOD.to_owned(),
        answers,
        installed: app.store.show(&name).is_ok(),
        auc: Some(auc),
        marks: None,
        passed: Some(auc.low > critic.least_auc),
    };
    vec![row(format!("of {name}"), own.auc), row("of others".to_owned(), foreign.auc)]
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let judge = match self.answers.as_str() {
            "" => self.judge.clone(),
            answers => format!("{}, answers {answers}", self.judge),
        };
        let marks = self.marks.as_ref();
        vec![
            judge,
            self.auc.map_or("-".to_owned(), |auc| auc.to_string()),
            percent(marks.map(|marks| marks.pairwise_accuracy)),
            percent(marks.and_then(|marks| marks.position_bias)),
            percent(marks.and_then(|marks| marks.manipulation_rate)),
            marks.map_or("-".to_owned(), |marks| format!("{:.1}", marks.seconds_per_grade)),
            match (self.passed, self.installed) {
                (Some(true), _) => "passed",
                (Some(false), _) => "not passed: no grades",
                (None, true) => "not taken",
                (None, false) => "not installed",
            }
            .to_owned(),
        ]
    }
}

fn exam(app: &App, arguments: &JudgeExamArguments) -> anyhow::Result<Outcome> {
    let session = JudgeSession::open_for_examination(app, Interrupt::install()?)?;
    let Some(marks) = session.examine()? else {
        app.output.note("stopped: the same command continues from here");
        return Ok(Outcome::Interrupted);
    };
    let critic = &app.config.critic;
    let passed = marks.passes(critic.least_auc);
    // The marks of the likelihood judge come with its coefficients, since they depend on who answered.
    if critic.model != LIKELIHOOD {
        session.keep_marks(app, &marks)?;
    }
    if arguments.json.json {
        app.output.print_json(&marks)?;
    } else {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut rows = vec![
            vec!["questions".to_owned(), marks.n_questions.to_string()],
            vec!["AUC".to_owned(), format!("{}; the lower end must be above {}", marks.auc, critic.least_auc)],
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

fn features(app: &App, arguments: &JudgeFeaturesArguments) -> anyhow::Result<Outcome> {
    let failure = || format!("cannot read {}", arguments.file.display());
    let model = &app.config.engine.model;
    app.installed(model)?;
    let generator = app.generator()?;
    let file = std::fs::File::open(&arguments.file).with_context(failure)?;
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let wrong = |what: &str| usage(format!("line {number} of {} {what}", arguments.file.display()));
        let mut object: Map<String, Value> =
            serde_json::from_str(&line.with_context(failure)?).map_err(|_| wrong("is not a JSON object"))?;
        let text =
            |name: &str| object.get(name).and_then(Value::as_str).ok_or_else(|| wrong(&format!("has no {name:?}")));
        let history = object.get("history").cloned().unwrap_or_else(|| json!([]));
        let history: Vec<Message> =
            serde_json::from_value(history).map_err(|_| wrong("has a \"history\" that is no list of messages"))?;
        let (query, answer) = (text("query")?, text("answer")?);
        let Features { named: features, state } = features_of(&*generator, model, &history, query, answer)?;
        let features: Map<String, Value> =
            features.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        object.insert("features".to_owned(), features.into());
        object.insert("state".to_owned(), state.into());
        app.output.print_json(&object)?;
    }
    Ok(Outcome::Done)
}
