//! A model's view of a text: its tokens, and the prompt of its chat template; as in llama.cpp's server and vLLM.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query as Parameters, State};
use hone_app::models::{ModelDescription, ModelText, Models};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::counting;
use crate::error::ApiError;
use crate::openai::{ChatRequest, chat_query};
use crate::requests::{or_default, parsed};
use crate::shapes::{anything, documented, list, map, nullable, object, text, whole};

documented! {
    /// The tokens of a text.
    Tokens = object([("tokens", list(anything())), ("count", whole()), ("max_model_len", nullable(whole()))], []);
    /// The text of tokens, under llama.cpp's and vLLM's names.
    TextOfTokens = object([("content", text()), ("prompt", text())], []);
    /// The properties of a tokenizer.
    TokenizerProperties = object(
        [("bos_token", nullable(text())), ("eos_token", nullable(text())), ("chat_template", text())],
        [],
    );
    /// A prompt.
    RenderedPrompt = object([("prompt", text())], []);
    /// The properties of a model.
    ModelProperties = object(
        [
            ("default_generation_settings", map(anything())),
            ("total_slots", whole()),
            ("model_alias", text()),
            ("chat_template", text()),
            ("bos_token", text()),
            ("eos_token", text()),
            ("modalities", map(anything())),
            ("build_info", text()),
        ],
        [],
    );
}

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(tokenize))
        .routes(routes!(detokenize))
        .routes(routes!(tokenizer))
        .routes(routes!(apply_template))
        .routes(routes!(properties))
}

/// A text to tokenize, under llama.cpp's name (`content`) or vLLM's (`prompt`).
#[derive(Debug, Deserialize, ToSchema)]
struct TokenizeRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    prompt: Option<String>,
    /// Whether the model's special tokens are added around a text; true by default for `prompt`.
    #[serde(default, alias = "add_special_tokens")]
    add_special: Option<bool>,
    /// Whether names of control tokens stand for those tokens; true by default.
    #[serde(default)]
    parse_special: Option<bool>,
    /// Whether each token comes with its text.
    #[serde(default, deserialize_with = "or_default", alias = "return_token_strs")]
    #[schema(nullable)]
    with_pieces: bool,
}

/// The tokens of a text.
#[utoipa::path(
    post,
    path = "/tokenize",
    tag = "Text",
    request_body = TokenizeRequest,
    responses((status = OK, body = Tokens), (status = NOT_FOUND))
)]
async fn tokenize(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request: TokenizeRequest = parsed(body).await?;
    let adds_special = request.add_special.unwrap_or(request.content.is_none());
    let Some(text) = request.content.or(request.prompt) else {
        return Err(ApiError::bad_request("content is missing: the text to be tokenized").about("content"));
    };
    let name = shared.named_or_default(request.model);
    let parses_special = request.parse_special.unwrap_or(true);
    let tokenized = move |models: &dyn Models| {
        let of_model = models.text(&name)?;
        let tokens = of_model.tokens(&text, parses_special, adds_special)?;
        Ok((tokens, of_model, models.describe(&name)?.info.context))
    };
    let (tokens, of_model, context) = shared.on_models(tokenized).await?;
    let count = tokens.len();
    let tokens = if request.with_pieces { pieces(&of_model, &tokens) } else { json!(tokens) };
    Ok(Json(json!({"tokens": tokens, "count": count, "max_model_len": context})))
}

/// Tokens with their texts, or their bytes if these are a part of a character.
fn pieces(text: &ModelText, tokens: &[u32]) -> Value {
    let piece = |id: &u32| {
        let bytes = text.piece(*id);
        let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
        json!({"id": id, "piece": piece})
    };
    tokens.iter().map(piece).collect()
}

#[derive(Debug, Deserialize, ToSchema)]
struct DetokenizeRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    tokens: Vec<u32>,
}

/// The text of tokens.
#[utoipa::path(
    post,
    path = "/detokenize",
    tag = "Text",
    request_body = DetokenizeRequest,
    responses((status = OK, body = TextOfTokens), (status = NOT_FOUND))
)]
async fn detokenize(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request: DetokenizeRequest = parsed(body).await?;
    let name = shared.named_or_default(request.model);
    let text = shared.on_models(move |models| models.text(&name)?.text(&request.tokens)).await?;
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// The properties of a model's tokenizer, as in vLLM.
#[utoipa::path(
    get,
    path = "/tokenizer_info",
    tag = "Text",
    params(OfModel),
    responses((status = OK, body = TokenizerProperties), (status = NOT_FOUND))
)]
async fn tokenizer(
    State(shared): State<Arc<Shared>>,
    Parameters(of): Parameters<OfModel>,
) -> Result<Json<Value>, ApiError> {
    let (description, text) = of.described(&shared).await?;
    let named = |name: String| Some(name).filter(|name| !name.is_empty());
    Ok(Json(json!({
        "bos_token": named(text.bos()),
        "eos_token": named(text.eos()),
        "chat_template": description.template,
    })))
}

/// The prompt for a chat, as shown to the model.
#[utoipa::path(
    post,
    path = "/apply-template",
    tag = "Text",
    request_body = ChatRequest,
    responses((status = OK, body = RenderedPrompt), (status = NOT_FOUND))
)]
async fn apply_template(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let query = chat_query(&shared, parsed(body).await?)?;
    shared.check_model(&query.model)?;
    let request = counting::request(query);
    let name = request.model.clone();
    let text = shared.on_models(move |models| models.text(&name)).await?;
    let prompt = shared.generated(1, move |_, is_over| Ok(text.prompt(&request, is_over)?)).await?;
    Ok(Json(json!({"prompt": prompt})))
}

#[derive(Debug, Deserialize, IntoParams)]
struct OfModel {
    /// The model; the default one if omitted.
    #[serde(default)]
    model: String,
}

impl OfModel {
    async fn described(self, shared: &Shared) -> Result<(ModelDescription, Arc<ModelText>), ApiError> {
        let name = shared.named_or_default(self.model);
        shared.on_models(move |models| Ok((models.describe(&name)?, models.text(&name)?))).await
    }
}

/// The properties of a model, with its defaults and its template.
#[utoipa::path(
    get,
    path = "/props",
    tag = "Text",
    params(OfModel),
    responses((status = OK, body = ModelProperties), (status = NOT_FOUND))
)]
async fn properties(
    State(shared): State<Arc<Shared>>,
    Parameters(of): Parameters<OfModel>,
) -> Result<Json<Value>, ApiError> {
    let (description, text) = of.described(&shared).await?;
    let sampling = &shared.parts.sampling;
    let params = json!({
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "n_predict": shared.parts.max_tokens,
    });
    Ok(Json(json!({
        "default_generation_settings": {"n_ctx": description.info.context, "params": params},
        "total_slots": shared.settings.most_questions,
        "model_alias": description.info.name,
        "chat_template": description.template,
        "bos_token": text.bos(),
        "eos_token": text.eos(),
        "modalities": {"vision": false, "audio": false},
        "build_info": format!("hone {}", shared.parts.version),
    })))
}
