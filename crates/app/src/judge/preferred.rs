//! Which judge grades if nobody has chosen one.

use std::path::Path;

use hone_judging::{Marks, Rubric};
use hone_models::{Role, Store};

use super::marks::{JudgeSetup, MarksStore};
use super::{profile, rubric, settings};
use crate::config::{Config, Source};

/// Replaces the default judge where it is not installed or has failed its examination, and no other one was chosen: by
/// the installed model with the best marks of those that have passed, or else by one that is made for judging and has
/// yet to be examined. The model that answers is never preferred, since it would grade itself. A configuration whose
/// rubric or profile does not exist stays as it is: the error comes with the first grade.
///
/// # Errors
/// When the configuration does not take the judge's name.
pub fn prefer_installed_judge(config: &mut Config, store: &Store, data_folder: &Path) -> anyhow::Result<()> {
    let is_chosen = |key| config.source_of(key) != Some(&Source::Default);
    if ["judge.model", "judge.models", "judge.stronger"].into_iter().any(is_chosen) {
        return Ok(());
    }
    let Ok(rubric) = rubric(config) else { return Ok(()) };
    let marks = |model: &str| marks_of(config, store, data_folder, &rubric, model).ok().flatten();
    let passes = |marks: &Marks| marks.passes(config.judge.least_auc);
    let default = &config.judge.model;
    if store.show(default).is_ok() && marks(default).is_none_or(|marks| passes(&marks)) {
        return Ok(());
    }
    let mut best: Option<(String, f64)> = None;
    let mut unexamined = None;
    for model in store.list().unwrap_or_default().models {
        let name = model.name;
        if name == config.engine.model || name == *default {
            continue;
        }
        match marks(&name) {
            Some(marks) if passes(&marks) && best.as_ref().is_none_or(|(_, auc)| marks.auc.value > *auc) => {
                best = Some((name, marks.auc.value));
            }
            None if store.catalog().about(&name).is_some_and(|known| known.role == Role::Judge) => {
                unexamined.get_or_insert(name);
            }
            _ => {}
        }
    }
    match best.map(|(name, _)| name).or(unexamined) {
        Some(name) => config.set_text("judge.model", &name, Source::Installed),
        None => Ok(()),
    }
}

/// The marks of a model as a judge by this rubric; `None` if it has not taken the examination.
///
/// # Errors
/// When the profile that the configuration names does not exist.
pub fn marks_of(
    config: &Config,
    store: &Store,
    data_folder: &Path,
    rubric: &Rubric,
    model: &str,
) -> anyhow::Result<Option<Marks>> {
    let profile = profile(config, store.catalog(), model)?;
    let setup = JudgeSetup { model, settings: &settings(config, profile), profile, rubric };
    Ok(MarksStore::new(data_folder).find(store, &setup).map(|examined| examined.marks))
}
