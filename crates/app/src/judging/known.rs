//! The known judges and their examination results.

use hone_judging::{Auc, LIKELIHOOD, Likelihood, Marks, Rubric};
use hone_models::Role;
use serde::Serialize;

use crate::app::App;

/// A judge and what is known about it.
#[derive(Debug, Serialize)]
pub struct KnownJudge {
    /// Its name.
    pub judge: String,
    /// The answers that the marks are about; empty for all.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub answers: String,
    /// Whether it is installed.
    pub installed: bool,
    /// How well it tells good answers from bad ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auc: Option<Auc>,
    /// The marks of its examination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<Marks>,
    /// Whether it may grade; `None` if it has not been examined.
    pub passed: Option<bool>,
}

/// The judges that are configured, in the catalog or examined.
///
/// # Errors
/// When the models cannot be listed, or the rubric or a profile does not exist.
pub fn known_judges(app: &App) -> anyhow::Result<Vec<KnownJudge>> {
    let catalog = app.store.catalog();
    let judges = catalog.models.iter().filter(|model| model.role == Role::Judge).map(|model| model.name.clone());
    let mut names: Vec<String> = configured(app).cloned().chain(judges).collect();
    names.extend(app.store.list()?.models.into_iter().map(|model| model.name));
    names.retain(|name| name != LIKELIHOOD);
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let rubric = app.rubric()?;
    let mut rows: Vec<KnownJudge> =
        names.into_iter().map(|name| prompted(app, &rubric, name)).collect::<anyhow::Result<_>>()?;
    let is_shown = |row: &KnownJudge| row.passed.is_some() || is_judge(app, &row.judge);
    rows.retain(is_shown);
    rows.extend(likelihood(app));
    Ok(rows)
}

/// The names of the configured judge, or of the jury and the stronger judge.
fn configured(app: &App) -> impl Iterator<Item = &String> {
    let judge = &app.config.judge;
    judge.jurors().iter().chain(Some(&judge.stronger).filter(|name| !name.is_empty()))
}

/// Whether a model is meant to judge.
fn is_judge(app: &App, name: &str) -> bool {
    configured(app).any(|judge| judge == name)
        || app.store.catalog().about(name).is_some_and(|model| model.role == Role::Judge)
}

fn prompted(app: &App, rubric: &Rubric, name: String) -> anyhow::Result<KnownJudge> {
    let marks = app.marks(&name, rubric)?;
    Ok(KnownJudge {
        installed: app.store.show(&name).is_ok(),
        answers: String::new(),
        auc: marks.as_ref().map(|marks| marks.auc),
        passed: marks.as_ref().map(|marks| marks.passes(app.config.judge.least_auc)),
        judge: name,
        marks,
    })
}

/// The likelihood judge, for its own model's answers and for others'.
fn likelihood(app: &App) -> Vec<KnownJudge> {
    let judge = &app.config.judge;
    let Some(Likelihood { name, own, foreign }) = Likelihood::of_model(&judge.likelihood_model) else {
        return Vec::new();
    };
    let row = |answers: String, auc: Auc| KnownJudge {
        judge: LIKELIHOOD.to_owned(),
        answers,
        installed: app.store.show(&name).is_ok(),
        auc: Some(auc),
        marks: None,
        passed: Some(auc.low > judge.least_auc),
    };
    vec![row(format!("of {name}"), own.auc), row("of others".to_owned(), foreign.auc)]
}
