//! The models that evaluate the work on a task, for `hone task`.

use std::sync::Arc;

use hone_judging::{GradeTask, ReviewTask};
use hone_protocol::Generate;
use hone_work::Reviewers;

use super::lender::{Lender, named_or_judge};
use crate::app::App;

/// The configured reviewers. They use this engine, or one that is started on first use.
pub fn reviewers(app: &App, generator: Option<&Arc<dyn Generate>>) -> Reviewers {
    let reviewer = Lender::of_model(app, named_or_judge(&app.config, &app.config.review.model), generator);
    let judge = Lender::new(app.with_config(app.config.clone()), generator);
    let review = move |task: &ReviewTask| reviewer.review(task);
    let grade = move |task: &GradeTask| judge.grade(task);
    Reviewers::new(app.config.review.clone(), app.config.gate.threshold, Arc::new(review), Arc::new(grade))
}
