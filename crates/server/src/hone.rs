//! hone's own API: functions for the page and for scripts that the compatible APIs lack.

mod abilities;
mod answer_log;
mod badge;
mod catalog;
mod chat;
mod conversations;
mod critic;
mod critique;
mod events;
mod graph;
mod judging;
mod memory;
mod presets;
mod report;
mod sessions;
mod shapes;
mod status;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::error::ApiError;
use crate::threads::apart;

pub(crate) use self::abilities::Abilities;
pub(crate) use self::judging::{CompareRequest, GradeRequest};
pub(crate) use self::memory::Search;
pub(crate) use self::sessions::Sessions;

/// The API's routes.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(catalog::show))
        .routes(routes!(chat::ask))
        .routes(routes!(conversations::list))
        .routes(routes!(conversations::show, conversations::rename, conversations::remove))
        .routes(routes!(conversations::switch))
        .routes(routes!(conversations::export))
        .routes(routes!(chat::stop))
        .routes(routes!(chat::follow))
        .routes(routes!(critic::show))
        .routes(routes!(critic::review))
        .routes(routes!(critique::show))
        .routes(routes!(critique::explain))
        .routes(routes!(events::follow))
        .routes(routes!(critique::rate))
        .routes(routes!(judging::grade))
        .routes(routes!(judging::compare))
        .routes(routes!(status::judges))
        .routes(routes!(memory::search))
        .routes(routes!(memory::show, memory::forget))
        .routes(routes!(status::models))
        .routes(routes!(presets::list, presets::save))
        .routes(routes!(presets::remove))
        .routes(routes!(status::processes))
        .routes(routes!(status::render))
        .routes(routes!(status::text))
        .routes(routes!(report::show))
}

/// Runs work that may wait for the disk, without blocking other requests.
///
/// # Errors
/// When the work fails.
async fn blocking<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    apart(work).await?.map_err(Into::into)
}
