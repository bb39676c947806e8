//! Which installed models have passed for which of hone's own decisions.

use std::sync::Arc;

use hone_judging::{Purpose, PurposeDecider, PurposeMarks};
use hone_protocol::{Decision, Generate, GenerateError, Lane};
use serde::{Deserialize, Serialize};

use super::marks;
use crate::app::App;
use crate::progress::Activity;

/// The marks of a model for each purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExaminedPurposes {
    /// The model's name.
    pub model: String,
    /// The marks.
    pub marks: Vec<(Purpose, PurposeMarks)>,
}

impl ExaminedPurposes {
    /// The marks of a model; `None` if it has not been examined with the present cases.
    pub fn find(app: &App, model: &str) -> Option<ExaminedPurposes> {
        let is_usable = |found: &ExaminedPurposes| found.marks.iter().all(|(_, marks)| marks.threshold.is_finite());
        marks::find(app, model, &[&Purpose::digest()], is_usable)
    }

    /// Saves the marks.
    ///
    /// # Errors
    /// When they cannot be written, or the model is not installed.
    pub fn keep(&self, app: &App) -> anyhow::Result<()> {
        marks::keep(app, &self.model, &[&Purpose::digest()], self)
    }

    /// Examines a model with the cases that hone ships with.
    ///
    /// # Errors
    /// When the model cannot be asked, or `is_over` says that the marks are no longer wanted.
    pub fn of(
        generator: &Arc<dyn Generate>,
        model: &str,
        activity: &dyn Activity,
        is_over: &dyn Fn() -> bool,
    ) -> Result<ExaminedPurposes, GenerateError> {
        let sets = Purpose::ALL.map(|purpose| (purpose, purpose.cases()));
        let total = sets.iter().map(|(_, cases)| cases.len()).sum();
        let mut done = 0;
        let mut marks = Vec::new();
        for (purpose, cases) in sets {
            let decider = PurposeDecider::unexamined(Arc::clone(generator), purpose, model);
            let mut decisions: Vec<Decision> = Vec::with_capacity(cases.len());
            for case in &cases {
                activity.advance(done, total, purpose.name());
                decisions.push(decider.examined(case, is_over)?);
                done += 1;
            }
            marks.extend(PurposeMarks::of(&cases, &decisions).map(|marks| (purpose, marks)));
        }
        Ok(ExaminedPurposes { model: model.to_owned(), marks })
    }

    /// The marks for a purpose, if the model has passed for it.
    fn passed(&self, purpose: Purpose) -> Option<&PurposeMarks> {
        self.marks.iter().find(|(other, marks)| *other == purpose && marks.passes()).map(|(_, marks)| marks)
    }
}

/// The installed model that decides for a purpose: of those that `may` decide and have passed, the one with the most
/// right answers.
pub fn decider_for(
    app: &App,
    generator: &Arc<dyn Generate>,
    purpose: Purpose,
    lane: Lane,
    may: impl Fn(&str) -> bool,
) -> Option<PurposeDecider> {
    let installed = app.store.list().ok()?.models;
    let examined = installed
        .iter()
        .filter(|model| may(&model.name))
        .filter_map(|model| Some((ExaminedPurposes::find(app, &model.name)?.passed(purpose)?.clone(), &model.name)));
    let rank = |marks: &PurposeMarks| (marks.right.share.unwrap_or_default(), marks.auc.value);
    let best = examined.max_by(|(one, _), (other, _)| {
        let [one, other] = [one, other].map(rank);
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let (marks, model) = best?;
    let decider = PurposeDecider::unexamined(Arc::clone(generator), purpose, model);
    Some(PurposeDecider { threshold: marks.threshold, lane, ..decider })
}
