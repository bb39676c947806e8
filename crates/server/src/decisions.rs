//! Decisions: questions about a text that are answered with probabilities, for the APIs that have them. They are no
//! questions of a chat, so they are neither graded nor remembered.

use std::sync::Arc;

use hone_app::decisions::ExaminedDecisions;
use hone_protocol::{DecisionQuestion, DecisionRequest, DecisionType, Decisions, Generate};
use serde_json::{Value, json};

use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::shapes::{flag, list, object, one_of};

/// Answers, and what is known of the model that gave them.
pub(crate) struct Decided {
    pub(crate) decisions: Decisions,
    examined: Option<ExaminedDecisions>,
}

/// Answers questions about a text with an installed model; a request takes one place among the questions in progress.
///
/// # Errors
/// When the model is not installed, there is no room, or a question is not valid.
pub(crate) async fn decide(
    shared: &Arc<Shared>,
    client: Client,
    model: String,
    state: String,
    questions: Vec<DecisionQuestion>,
) -> Result<Decided, ApiError> {
    shared.check_model(&model)?;
    let request = DecisionRequest { owner: client.owner(), ..DecisionRequest::new(model, state, questions) };
    let of_server = Arc::clone(shared);
    let work = move |generator: &dyn Generate, is_over: &dyn Fn() -> bool| {
        let examined = ExaminedDecisions::find(&of_server.parts.app, &request.model);
        let tunings = examined.as_ref().map(ExaminedDecisions::tunings).unwrap_or_default();
        let request = DecisionRequest { tunings, ..request };
        let decisions = of_server.decider.decide(generator, &request, is_over)?;
        Ok(Decided { decisions, examined })
    };
    shared.generated(1, work).await
}

impl Decided {
    /// Whether the model has been examined, and for which kinds of questions it is no better than chance.
    pub(crate) fn standing(&self) -> Value {
        let Some(examined) = &self.examined else { return json!({"examined": false, "no_better_than_chance": []}) };
        let poor: Vec<DecisionType> =
            DecisionType::ALL.into_iter().filter(|kind| !examined.is_above_chance(*kind)).collect();
        json!({"examined": true, "no_better_than_chance": poor})
    }
}

/// The shape of a [standing](Decided::standing).
pub(crate) fn standing() -> Value {
    object([("examined", flag()), ("no_better_than_chance", list(one_of(&["yes_no", "choice", "score"])))], [])
}
