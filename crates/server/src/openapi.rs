//! The OpenAPI document, made from the code: the paths from the handlers, the requests from the types that read them,
//! and the responses from the shapes near the handlers, which tests check against actual responses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, Info, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::Dialect;
use crate::shapes::{anything, documented, list, map, nullable, object, one_of, open, template, text, whole};
use crate::{Shared, anthropic, hone, mcp, ollama, openai, operators, rerank, systemone};

/// The errors that any request can get before its handler sees it.
const ANY: [&str; 6] = ["401", "403", "408", "413", "500", "503"];
/// The additional errors for a request with a body.
const WITH_BODY: [&str; 2] = ["400", "415"];

/// The routes of every port, without the page's files.
pub(crate) fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::default()
        .routes(routes!(show))
        .merge(operators::routes())
        .merge(openai::routes())
        .merge(anthropic::routes())
        .merge(ollama::routes())
        .merge(hone::routes())
        .merge(rerank::routes())
        .merge(systemone::routes())
        .merge(crate::text::routes())
        .merge(mcp::routes())
}

/// The OpenAPI document of a server of this version, for pages and tests without a server.
pub fn openapi_document(version: &str) -> Value {
    document(routes().into_openapi(), version)
}

documented! {
    /// This document.
    OpenApiDocument = open([("openapi", text()), ("paths", map(anything()))]);
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "Operation", responses((status = OK, body = OpenApiDocument)))]
async fn show(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(shared.document.clone())
}

/// The document of the paths and components that the handlers describe.
fn document(described: OpenApi, version: &str) -> Value {
    let components = described.components.unwrap_or_default();
    let components = ComponentsBuilder::from(components)
        .security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
        .security_scheme("x-api-key", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-api-key"))))
        .build();
    let no_scopes = || Vec::<String>::new();
    let security = [
        // If no keys are configured, none is required.
        SecurityRequirement::default(),
        SecurityRequirement::new("bearer", no_scopes()),
        SecurityRequirement::new("x-api-key", no_scopes()),
    ];
    let document = OpenApiBuilder::new()
        .info(Info::new("hone serve", version))
        .paths(described.paths)
        .components(Some(components))
        .security(Some(security))
        .build();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    let paths = document["paths"].as_object_mut().map(std::mem::take).unwrap_or_default();
    document["paths"] = paths.into_iter().map(|(path, item)| (template(&path), with_errors(&path, item))).collect();
    document
}

/// The operations of a path with their possible errors, in the format of the path's API.
fn with_errors(path: &str, mut item: Value) -> Value {
    let shape = error_shape(Dialect::of_path(path));
    for (method, operation) in item.as_object_mut().into_iter().flatten() {
        operation["operationId"] = json!(operation_id(method, path));
        let with_body = WITH_BODY.iter().filter(|_| operation.get("requestBody").is_some());
        let statuses: Vec<&str> = ANY.iter().chain(with_body).copied().collect();
        let Some(responses) = operation["responses"].as_object_mut() else { continue };
        for status in statuses {
            responses.entry(status).or_insert_with(|| json!({}));
        }
        for (status, response) in responses.iter_mut().filter(|(status, _)| is_error(status)) {
            let description = status.parse().ok().and_then(|status| axum::http::StatusCode::from_u16(status).ok());
            response["description"] =
                json!(description.and_then(|status| status.canonical_reason()).unwrap_or_default());
            response["content"] = json!({"application/json": {"schema": shape}});
        }
    }
    item
}

/// A unique name for an operation.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn error_shape(dialect: Dialect) -> Value {
    let kind = ("type", text());
    match dialect {
        Dialect::OpenAi => {
            let error = [("message", text()), kind, ("param", nullable(text())), ("code", nullable(text()))];
            object([("error", object(error, []))], [])
        }
        Dialect::Anthropic => {
            let error = object([kind, ("message", text())], []);
            object([("type", one_of(&["error"])), ("error", error), ("request_id", text())], [])
        }
        Dialect::Ollama => object([("error", text())], []),
        Dialect::Hone => object([("error", object([("message", text()), kind], [("code", text())]))], []),
        Dialect::SystemOne => {
            let place = ("loc", list(text()));
            let invalid = object([place, ("msg", text()), kind], []);
            object([("detail", json!({"oneOf": [text(), list(invalid)]}))], [])
        }
        Dialect::Mcp => {
            let error = open([("code", whole()), ("message", text())]);
            object([("jsonrpc", one_of(&["2.0"])), ("error", error)], [("id", anything())])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::Router;

    use super::*;

    /// The paths of a router, from its debug output.
    fn paths_of(router: &Router<Arc<Shared>>) -> BTreeSet<String> {
        let described = format!("{router:?}");
        let paths = described.split('"').filter(|text| text.starts_with('/'));
        // The fallback stands for all paths that do not exist.
        paths.filter(|path| *path != "/" && !path.contains("fallback")).map(template).collect()
    }

    #[test]
    fn every_path_stands_in_the_document_and_no_other() {
        let (router, document) = (Router::from(routes()), openapi_document("1.2.3"));
        let documented: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        assert!(documented.len() > 40, "{documented:?}");
        assert_eq!(documented, paths_of(&router));
        assert_eq!(document["info"]["version"], "1.2.3");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = openapi_document("1.2.3");
        let text = document.to_string();
        let references = text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
        for name in references {
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
