//! The models that check the claims of an answer against the passages that they cite.

use std::sync::Arc;

use hone_judging::{Purpose, PurposeDecider, Review, ReviewTask};
use hone_protocol::{Generate, Lane};

use super::lender::{Lender, named_or_judge};
use crate::app::App;
use crate::decisions::decider_for;
use crate::judge::is_named_by_hand;

/// Checks the claims of one author. One that has not passed its examination decides nothing.
pub struct ClaimJudge {
    /// The model that decides without a written verdict, if one has passed for that and no judge was named.
    pub decider: Option<PurposeDecider>,
    lender: Lender,
    /// Whether the author is the judge.
    is_author: bool,
}

impl ClaimJudge {
    /// The judge of the claims of the model `author`, on this engine.
    pub fn new(app: &App, author: &str, generator: &Arc<dyn Generate>) -> ClaimJudge {
        let is_named = is_named_by_hand(&app.config);
        let configured = if is_named { "" } else { &app.config.research.judge };
        let model = named_or_judge(&app.config, configured);
        let lender = Lender::of_model(app, model, Some(generator)).in_lane(Lane::Interactive);
        let is_author = author == lender.model();
        let decides = !is_named && configured.is_empty();
        let may = |model: &str| decides && model != author;
        let decider = decider_for(app, generator, Purpose::Citation, Lane::Interactive, may);
        ClaimJudge { decider, lender, is_author }
    }

    /// Its verdict. Failures are part of the result.
    pub fn review(&self, task: &ReviewTask) -> Review {
        match self.is_author {
            true => Review::failed(format!(
                "{} wrote the answer and does not judge it itself; name another model with --judge",
                self.lender.model()
            )),
            false => self.lender.review(task),
        }
    }
}
