//! Remarks on answers, by the installed models that have passed for them.

use std::sync::Arc;

use hone_judging::Purpose;
use hone_protocol::{AnswerTrait, Generate, GenerateError, Lane, OwnerId, Remark};

use super::decider_for;
use crate::app::App;

/// Remarks on an answer of the model `author` to a question; those for which no other model has passed are missing.
///
/// # Errors
/// When the texts are too long, the model cannot be asked, or nobody waits (`is_over`).
pub fn remarks(
    app: &App,
    generator: &Arc<dyn Generate>,
    [question, answer]: [&str; 2],
    author: &str,
    owner: Option<OwnerId>,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Remark>, GenerateError> {
    let mut remarks = Vec::new();
    for about in AnswerTrait::ALL {
        let may = |model: &str| model != author;
        let Some(decider) = decider_for(app, generator, Purpose::of(about), Lane::Interactive, may) else { continue };
        let decider = decider.of_owner(owner);
        let probability = decider.probability(question, answer, is_over)?;
        let holds = probability >= decider.threshold;
        remarks.push(Remark { about, holds, probability, model: decider.model });
    }
    Ok(remarks)
}
