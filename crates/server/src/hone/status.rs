//! The program's state, and small services for the page.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use hone_app::config::ServerSettings;
use hone_app::conversations::attached;
use hone_app::judging::known_judges;
use hone_app::models::{ModelInfo, ModelKind};
use hone_memory::Whose;
use hone_protocol::with_causes;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::blocking;
use super::shapes::{HoneJudges, HoneModels, HoneProcesses, HoneRendered, HoneText};
use crate::Shared;
use crate::clients::Client;
use crate::error::ApiError;
use crate::markup::{LONGEST, html_of};
use crate::requests::parsed;
use crate::threads::{DOCUMENTS, DRAWING};

/// The installed models, and the one that answers by default.
#[utoipa::path(get, path = "/hone/v1/models", tag = "hone", responses((status = OK, body = HoneModels)))]
pub(super) async fn models(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    let listed = shared.on_models(|models| {
        let answers = |model: &ModelInfo| models.kind(&model.name) == Some(ModelKind::Generator);
        Ok(models.list()?.into_iter().map(|model| (answers(&model), model)).collect::<Vec<_>>())
    });
    let model = |(answers, model): (bool, ModelInfo)| {
        json!({
            "name": model.name,
            "bytes": model.bytes,
            "installed": model.installed,
            "answers": answers,
            "context": model.context,
            "elsewhere": model.is_elsewhere,
        })
    };
    let models: Vec<Value> = listed.await?.into_iter().map(model).collect();
    let ServerSettings { respondent_b, model_b, temperature_b, .. } = &shared.settings;
    Ok(Json(json!({
        "default": shared.parts.models.default_name(),
        "models": models,
        "respondent_b": {"is_on": respondent_b, "model": model_b, "temperature": temperature_b},
    })))
}

/// The running hone processes with their models and queues, the answers whose grades are due, and the workers on the bus.
#[utoipa::path(get, path = "/hone/v1/ps", tag = "hone", responses((status = OK, body = HoneProcesses)))]
pub(super) async fn processes(State(shared): State<Arc<Shared>>, client: Client) -> Result<Json<Value>, ApiError> {
    reported(shared, move |shared| {
        let processes = shared.parts.app.processes();
        let grades = shared.parts.expected.grades;
        let grades_due = grades_due(shared, client.whose())?;
        Ok(json!({
            "version": shared.parts.version,
            "grades": grades,
            "grades_due": grades_due,
            "processes": processes,
            "fleet": shared.parts.app.fleet_overview(),
        }))
    })
    .await
}

/// The number of answers in memory whose grades are due.
fn grades_due(shared: &Shared, whose: Whose) -> Result<usize, String> {
    let Some(memory) = &shared.parts.memory else { return Ok(0) };
    let backlog = memory.store.backlog().map_err(|error| with_causes(&error))?;
    Ok(backlog.iter().filter(|entry| entry.due.grade && whose.includes(entry.owner)).count())
}

/// The judges with their marks.
#[utoipa::path(get, path = "/hone/v1/judges", tag = "hone", responses((status = OK, body = HoneJudges)))]
pub(super) async fn judges(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    reported(shared, |shared| {
        let judges = known_judges(&shared.parts.app).map_err(|error| format!("{error:#}"))?;
        Ok(json!({"judges": judges}))
    })
    .await
}

pub(super) async fn reported<T: Send + 'static>(
    shared: Arc<Shared>,
    report: impl FnOnce(&Shared) -> Result<T, String> + Send + 'static,
) -> Result<Json<T>, ApiError> {
    let failed = |reason| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, reason);
    blocking(move || report(&shared).map(Json).map_err(failed)).await
}

/// The text to render.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoneRendering)]
struct Rendering {
    markdown: String,
}

/// Renders Markdown as HTML that a page may show.
#[utoipa::path(
    post,
    path = "/hone/v1/render",
    tag = "hone",
    request_body = Rendering,
    responses((status = OK, body = HoneRendered), (status = BAD_REQUEST))
)]
pub(super) async fn render(body: Bytes) -> Result<Json<Value>, ApiError> {
    let Rendering { markdown } = parsed(body).await?;
    if markdown.len() > LONGEST {
        let what = format!("the Markdown has {} bytes: at most {LONGEST} are rendered", markdown.len());
        return Err(ApiError::bad_request(what).about("markdown"));
    }
    let html = DRAWING.computed(move || html_of(&markdown)).await?;
    Ok(Json(json!({"html": html})))
}

/// The text of a file, to be attached to a question: of a PDF's pages, or the file itself if it is a text in UTF-8.
#[utoipa::path(
    post,
    path = "/hone/v1/text",
    tag = "hone",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = OK, body = HoneText), (status = BAD_REQUEST))
)]
pub(super) async fn text(body: Bytes) -> Result<Json<Value>, ApiError> {
    let read = DOCUMENTS.computed(move || attached::text_of(body.into())).await?;
    let text = read.map_err(|reason| ApiError::bad_request(format!("the file {reason:#}")))?;
    Ok(Json(json!({"text": text})))
}
