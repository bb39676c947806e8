//! Remarks on answers, by the installed models that have passed for them.

use std::sync::Arc;

use hone_judging::{Purpose, PurposeDecider};
use hone_protocol::{AnswerTrait, Generate, GenerateError, Lane, OwnerId, Remark};

use super::decider_for;
use crate::app::App;

/// The models that remark on the answers of another one.
pub struct Remarkers(Vec<(AnswerTrait, PurposeDecider)>);

impl Remarkers {
    /// The models that have passed, except the model `author`.
    pub fn find(app: &App, generator: &Arc<dyn Generate>, author: &str) -> Remarkers {
        let may = |model: &str| model != author;
        let decider = |about| decider_for(app, generator, Purpose::of(about), Lane::Interactive, may);
        Remarkers(AnswerTrait::ALL.into_iter().filter_map(|about| Some((about, decider(about)?))).collect())
    }

    /// Without any model.
    pub fn none() -> Remarkers {
        Remarkers(Vec::new())
    }

    /// Whether no model has passed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the owner of the answers.
    pub fn of_owner(self, owner: Option<OwnerId>) -> Remarkers {
        Remarkers(self.0.into_iter().map(|(about, decider)| (about, decider.of_owner(owner))).collect())
    }

    /// Remarks on an answer to a question. One that cannot be made is left out if others can.
    ///
    /// # Errors
    /// When none can be made, since the texts are too long or the models cannot be asked, or nobody waits (`is_over`).
    pub fn remark(
        &self,
        question: &str,
        answer: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<Remark>, GenerateError> {
        let (mut remarks, mut failure) = (Vec::new(), None);
        for (about, decider) in &self.0 {
            match decider.probability(question, answer, is_over) {
                Ok(probability) => remarks.push(Remark {
                    about: *about,
                    holds: probability >= decider.threshold,
                    probability,
                    model: decider.model.clone(),
                }),
                Err(GenerateError::Stopped) => return Err(GenerateError::Stopped),
                Err(error) => {
                    tracing::info!("{} makes no remark: {error}", decider.model);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if remarks.is_empty() => Err(error),
            _ => Ok(remarks),
        }
    }
}
