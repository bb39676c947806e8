//! What an examination has found out about a model's decisions, kept for that file of the model and that way of asking.

use std::path::PathBuf;

use anyhow::Context;
use hone_judging::{Decider, DecisionMarks, LabelledDecision};
use hone_protocol::{
    Decision, DecisionForm, DecisionRequest, DecisionTunings, DecisionType, Generate, GenerateError, Lane, hexadecimal,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::judge::identity;
use crate::kept;
use crate::progress::Activity;

/// The folder within the data folder.
const FOLDER: &str = "decisions";

/// The marks of a model for each kind of question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExaminedDecisions {
    /// The model's name.
    pub model: String,
    /// The marks.
    pub marks: Vec<(DecisionType, DecisionMarks)>,
}

impl ExaminedDecisions {
    /// Those of a model; `None` if it has not been examined as it is asked now.
    pub fn find(app: &App, model: &str) -> Option<ExaminedDecisions> {
        let text = std::fs::read(path_of(app, model)?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps them.
    ///
    /// # Errors
    /// When they cannot be written, or the model is not installed.
    pub fn keep(&self, app: &App) -> anyhow::Result<()> {
        let path = path_of(app, &self.model).with_context(|| format!("{} is not installed", self.model))?;
        kept::write(&app.data_folder().join(FOLDER), &path, self)
    }

    /// Examines a model with the cases that hone ships with, in every form, and keeps the better one of each kind.
    ///
    /// # Errors
    /// When the model cannot be asked, or nobody waits any longer (`is_over`).
    pub fn of(
        generator: &dyn Generate,
        model: &str,
        activity: &dyn Activity,
        is_over: &dyn Fn() -> bool,
    ) -> Result<ExaminedDecisions, GenerateError> {
        let decider = Decider::default();
        let sets = DecisionType::ALL.map(|kind| (kind, LabelledDecision::shipped(kind)));
        let total = sets.iter().map(|(kind, cases)| cases.len() * forms(*kind).len()).sum();
        let mut done = 0;
        let mut marks = Vec::new();
        for (kind, cases) in sets {
            let mut of_forms: Vec<DecisionMarks> = Vec::new();
            for form in forms(kind) {
                let mut decisions: Vec<Decision> = Vec::with_capacity(cases.len());
                for case in &cases {
                    activity.advance(done, total, kind.name());
                    let mut tunings = DecisionTunings::default();
                    tunings.of_mut(kind).form = *form;
                    let request = DecisionRequest {
                        tunings,
                        lane: Lane::Batch,
                        ..DecisionRequest::new(model, case.state.clone(), vec![case.question.clone()])
                    };
                    decisions.extend(decider.decide(generator, &request, is_over)?.answers);
                    done += 1;
                }
                of_forms.extend(DecisionMarks::of(*form, &cases, &decisions));
            }
            let best = of_forms.into_iter().min_by(|one, other| one.fitted_loss.total_cmp(&other.fitted_loss));
            marks.extend(best.map(|best| (kind, best)));
        }
        Ok(ExaminedDecisions { model: model.to_owned(), marks })
    }

    /// How the model is to be asked.
    pub fn tunings(&self) -> DecisionTunings {
        let mut tunings = DecisionTunings::default();
        for (kind, marks) in &self.marks {
            *tunings.of_mut(*kind) = marks.tuning();
        }
        tunings
    }

    /// Whether the model is better than chance at questions of a kind.
    pub fn is_above_chance(&self, kind: DecisionType) -> bool {
        self.marks.iter().any(|(other, marks)| *other == kind && marks.is_above_chance())
    }
}

/// The forms in which a kind can be asked: for yes or no, the label is the text.
fn forms(kind: DecisionType) -> &'static [DecisionForm] {
    match kind {
        DecisionType::YesNo => &[DecisionForm::Labels],
        DecisionType::Choice | DecisionType::Score => &[DecisionForm::Labels, DecisionForm::Texts],
    }
}

/// The file is named after everything that the marks depend on.
fn path_of(app: &App, model: &str) -> Option<PathBuf> {
    let installed = app.store.show(model).ok()?;
    let cases = DecisionType::ALL.map(|kind| LabelledDecision::shipped(kind).len());
    let key = json!([model, identity::identity(&installed), Decider::digest(), cases]).to_string();
    Some(app.data_folder().join(FOLDER).join(format!("{}.json", hexadecimal(Sha256::digest(key)))))
}
