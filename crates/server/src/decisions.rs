//! Decisions: questions about a text, answered with probabilities, for the APIs that have them. They are not chat
//! questions, so they are neither graded nor remembered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hone_app::App;
use hone_app::decisions::{ExaminedDecisions, identity_of};
use hone_judging::Decider;
use hone_protocol::{DecisionQuestion, DecisionRequest, DecisionType, Decisions, Generate, SessionId};
use serde_json::{Value, json};

use crate::clients::Client;
use crate::error::ApiError;
use crate::shapes::{flag, list, object, one_of};
use crate::threads::apart;
use crate::{Shared, Waiting};

/// Answers, and the examination of the model that gave them.
pub(crate) struct Decided {
    pub(crate) decisions: Decisions,
    examined: Option<ExaminedDecisions>,
}

/// Answers questions about a text with an installed model. A request takes one place among the questions in progress
/// for each question that it asks concurrently.
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
    let n_places = questions.len().clamp(1, Decider::MOST_AT_ONCE);
    let request = DecisionRequest {
        owner: client.owner(),
        // Other requests take turns with this one, not with each of its questions.
        session: Some(SessionId::fresh()),
        ..DecisionRequest::new(model, state, questions)
    };
    let of_server = Arc::clone(shared);
    let work = move |generator: &dyn Generate, is_over: &dyn Fn() -> bool| {
        Decided::of(&of_server.parts.app, &of_server.decider, generator, request, is_over)
    };
    shared.generated(n_places, work).await
}

/// The terminal user's decider.
pub(crate) struct TerminalDecider {
    app: App,
    generator: Arc<dyn Generate>,
    decider: Decider,
}

impl TerminalDecider {
    pub(crate) fn new(app: App, generator: Arc<dyn Generate>) -> TerminalDecider {
        TerminalDecider { app, generator, decider: Decider::default() }
    }

    /// The model for requests that name none.
    pub(crate) fn default_model(&self) -> &str {
        &self.app.config.engine.model
    }

    /// Answers questions about a text; stops once the caller is gone.
    ///
    /// # Errors
    /// When the model cannot be run, or a question is not valid.
    pub(crate) async fn decide(self: &Arc<Self>, request: DecisionRequest) -> Result<Decided, ApiError> {
        let (this, waiting) = (Arc::clone(self), Waiting::default());
        let is_gone = Arc::clone(&waiting.0);
        let is_over = move || is_gone.load(Ordering::Relaxed);
        let work = move || Decided::of(&this.app, &this.decider, &*this.generator, request, &is_over);
        let done = apart(work).await?;
        drop(waiting);
        done
    }
}

impl Decided {
    fn of(
        app: &App,
        decider: &Decider,
        generator: &dyn Generate,
        request: DecisionRequest,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Decided, ApiError> {
        let examined = ExaminedDecisions::find(app, &request.model);
        let tunings = examined.as_ref().map(ExaminedDecisions::tunings).unwrap_or_default();
        let identity = identity_of(app, &request.model).unwrap_or_default();
        let request = DecisionRequest { tunings, identity, ..request };
        let decisions = decider.decide(generator, &request, is_over)?;
        Ok(Decided { decisions, examined })
    }

    /// Whether the model has been examined, and for which kinds of questions it is no better than chance.
    pub(crate) fn standing(&self) -> Value {
        let Some(examined) = &self.examined else { return json!({"examined": false, "no_better_than_chance": []}) };
        let poor: Vec<DecisionType> =
            DecisionType::ALL.into_iter().filter(|kind| !examined.is_above_chance(*kind)).collect();
        json!({"examined": true, "no_better_than_chance": poor})
    }
}

/// The shape of a [standing](Decided::standing).
pub(crate) fn standing_shape() -> Value {
    object([("examined", flag()), ("no_better_than_chance", list(one_of(&["yes_no", "choice", "score"])))], [])
}
