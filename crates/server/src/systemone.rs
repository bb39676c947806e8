//! `/v1/systemone`: the System One API, as <https://docs.typesafe.ai> and the package `typesafe-sdk` describe it.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use hone_app::decisions::{Named, Question, content};
use hone_protocol::{DecisionQuestion, DecisionRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::clients::Client;
use crate::decisions::{Decided, TerminalDecider, decide, standing_shape};
use crate::error::ApiError;
use crate::requests::parsed;
use crate::shapes::{anything, documented, list, map, number, object, one_of, open, text, whole};

documented! {
    /// A text and questions about it.
    SystemOneRequest = request();
    /// The answers under the names of the questions.
    SystemOneAnswers = object(
        [
            ("model", text()),
            ("answers", map(answer())),
            ("usage", object([("input_tokens", whole()), ("output_tokens", whole())], [])),
            ("hone", standing_shape()),
        ],
        [],
    );
}

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(answer_questions))
}

/// The body of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct SystemOneBody {
    #[serde(default)]
    model: Option<String>,
    /// The text, or data shown as JSON.
    state: Value,
    questions: Named<Question>,
    /// Images.
    #[serde(default)]
    assets: Value,
}

/// A text and the questions about it.
struct Undecided {
    /// Empty for the default model.
    model: String,
    state: String,
    asked: Vec<DecisionQuestion>,
    questions: Named<Question>,
}

impl SystemOneBody {
    /// The questions for a model.
    ///
    /// # Errors
    /// When the model cannot be asked them.
    fn undecided(self) -> Result<Undecided, ApiError> {
        let SystemOneBody { model, state, questions, assets } = self;
        if !assets.is_null() {
            return Err(ApiError::bad_request("assets cannot be shown to this model: only text").about("assets"));
        }
        let state = content(&state).ok_or_else(|| ApiError::bad_request("state is missing").about("state"))?;
        let asked = |(name, question): &(String, Question)| {
            let wrong = |reason| ApiError::bad_request(format!("the question {name:?}: {reason}")).about("questions");
            question.asked().map_err(wrong)
        };
        let asked = questions.entries().iter().map(asked).collect::<Result<Vec<_>, _>>()?;
        Ok(Undecided { model: model.unwrap_or_default(), state, asked, questions })
    }
}

/// The answers under the names of their questions.
fn answers(model: &str, questions: &Named<Question>, decided: &Decided) -> Value {
    let decisions = &decided.decisions;
    let answers: Map<String, Value> = std::iter::zip(questions.entries(), &decisions.answers)
        .map(|((name, question), decision)| (name.clone(), question.answer(decision)))
        .collect();
    let usage = json!({"input_tokens": decisions.prompt_tokens, "output_tokens": decisions.answers.len()});
    json!({"model": model, "answers": answers, "usage": usage, "hone": decided.standing()})
}

/// Decides for a client of the server.
///
/// # Errors
/// When the model is not installed, there is no room, or a question is not valid.
pub(crate) async fn decided(shared: &Arc<Shared>, client: Client, body: SystemOneBody) -> Result<Value, ApiError> {
    let Undecided { model, state, asked, questions } = body.undecided()?;
    let model = shared.named_or_default(model);
    let decided = decide(shared, client, model.clone(), state, asked).await?;
    Ok(answers(&model, &questions, &decided))
}

/// Decides for the terminal user.
///
/// # Errors
/// When the model cannot be run, or a question is not valid.
pub(crate) async fn decided_at_terminal(
    decider: &Arc<TerminalDecider>,
    body: SystemOneBody,
) -> Result<Value, ApiError> {
    let Undecided { model, state, asked, questions } = body.undecided()?;
    let model = if model.is_empty() { decider.default_model().to_owned() } else { model };
    let decided = decider.decide(DecisionRequest::new(model.clone(), state, asked)).await?;
    Ok(answers(&model, &questions, &decided))
}

/// Answers questions about a text with probabilities.
#[utoipa::path(
    post,
    path = "/v1/systemone",
    tag = "Decisions",
    request_body = SystemOneRequest,
    responses(
        (status = OK, body = SystemOneAnswers),
        (status = NOT_FOUND),
        (status = UNPROCESSABLE_ENTITY)
    )
)]
async fn answer_questions(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    decided(&shared, client, parsed(body).await?).await.map(Json)
}

/// A text, or data shown as JSON.
fn any_content() -> Value {
    json!({"oneOf": [text(), map(anything()), list(anything())]})
}

fn request() -> Value {
    let nullable = || json!({"oneOf": [{"type": "null"}, text(), map(anything()), list(anything())]});
    let kind = |name: &str| ("type", one_of(&[name]));
    let instructions = || ("instructions", nullable());
    let criteria = object([], [("true", nullable()), ("false", nullable())]);
    let noul = object([kind("noul")], [instructions(), ("criteria", json!({"oneOf": [{"type": "null"}, criteria]}))]);
    let choice = object([kind("choice"), ("criteria", map(nullable()))], [instructions()]);
    let score = object([kind("score"), ("criteria", list(any_content()))], [instructions()]);
    let questions = map(json!({"oneOf": [noul, choice, score]}));
    let mut request = open([("state", any_content()), ("questions", questions)]);
    request["properties"]["model"] = json!({"oneOf": [{"type": "null"}, text()]});
    request
}

fn answer() -> Value {
    let kind = |name: &str| ("type", one_of(&[name]));
    let noul = object([kind("noul"), ("noul", number())], []);
    let choice = [kind("choice"), ("choice", text()), ("confidence", number()), ("probabilities", map(number()))];
    let score = [
        kind("score"),
        ("score", number()),
        ("confidence", number()),
        ("legend", map(anything())),
        ("probabilities", map(number())),
    ];
    json!({"oneOf": [noul, object(choice, []), object(score, [])]})
}
