//! The models that can be installed by name, and how well each would run on this machine.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hone_app::estimates::Offers;

use super::shapes::HoneCatalog;
use super::status::reported;
use crate::Shared;
use crate::error::ApiError;

/// The models of the catalog, whether each is installed, and how well each would run on this machine.
#[utoipa::path(get, path = "/hone/v1/catalog", tag = "hone", responses((status = OK, body = HoneCatalog)))]
pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Result<Json<Offers>, ApiError> {
    reported(shared, |shared| Offers::here(&shared.parts.app).map_err(|error| error.to_string())).await
}
