//! `/v1/systemone`: the System One API, as <https://docs.typesafe.ai> and the package `typesafe-sdk` describe it.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use hone_app::decisions::{Named, Question, content};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::clients::Client;
use crate::decisions::{decide, standing_shape};
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

/// Its paths.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default().routes(routes!(answer_questions))
}

/// The body of a request.
#[derive(Debug, Deserialize)]
struct Body {
    #[serde(default)]
    model: Option<String>,
    /// The text, or what is shown as JSON.
    state: Value,
    questions: Named<Question>,
    /// Images.
    #[serde(default)]
    assets: Value,
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
    let Body { model, state, questions, assets } = parsed(&body)?;
    let model = shared.named_or_default(model.unwrap_or_default());
    if !assets.is_null() {
        return Err(ApiError::bad_request("assets cannot be shown to this model: only text").about("assets"));
    }
    let state = content(&state).ok_or_else(|| ApiError::bad_request("state is missing").about("state"))?;
    let asked = |(name, question): &(String, Question)| {
        let wrong = |reason| ApiError::bad_request(format!("the question {name:?}: {reason}")).about("questions");
        question.asked().map_err(wrong)
    };
    let asked = questions.entries().iter().map(asked).collect::<Result<Vec<_>, _>>()?;
    let n_questions = asked.len();
    let decided = decide(&shared, client, model.clone(), state, asked).await?;
    let decisions = &decided.decisions;
    let answers: Map<String, Value> = std::iter::zip(questions.entries(), &decisions.answers)
        .map(|((name, question), decision)| (name.clone(), question.answer(decision)))
        .collect();
    let usage = json!({"input_tokens": decisions.prompt_tokens, "output_tokens": n_questions});
    Ok(Json(json!({"model": model, "answers": answers, "usage": usage, "hone": decided.standing()})))
}

/// A text, or what is shown as JSON.
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
