//! The web page: the files of `crates/server/page`, which are part of the program.
//!
//! They hold no data, so they are served without a key; the page gets all its data through hone's own API. Its policy
//! lets the browser load from and connect to this server only, and run no script except these files.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hone_protocol::hexadecimal;
use sha2::{Digest, Sha256};

use crate::Shared;
use crate::error::ApiError;

/// The page's content security policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page itself.
const INDEX: &str = "index.html";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const MANIFEST: &str = "application/manifest+json";

/// A file of the page.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

macro_rules! files {
    ($($name:literal is $kind:ident,)*) => {
        [$(PageFile { name: $name, kind: $kind, content: include_str!(concat!("../page/", $name)) },)*]
    };
}

/// All files.
const FILES: [PageFile; 20] = files! {
    "index.html" is HTML,
    "style.css" is CSS,
    "icon.svg" is SVG,
    "hone.webmanifest" is MANIFEST,
    "app.js" is SCRIPT,
    "api.js" is SCRIPT,
    "appearance.js" is SCRIPT,
    "attachments.js" is SCRIPT,
    "badge.js" is SCRIPT,
    "chat.js" is SCRIPT,
    "compare.js" is SCRIPT,
    "decide.js" is SCRIPT,
    "drafts.js" is SCRIPT,
    "elements.js" is SCRIPT,
    "models.js" is SCRIPT,
    "monitor.js" is SCRIPT,
    "panels.js" is SCRIPT,
    "places.js" is SCRIPT,
    "settings.js" is SCRIPT,
    "sidebar.js" is SCRIPT,
};

/// The routes of the page.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| file(INDEX, &headers)))
        .route("/page/{name}", get(async |Path(name): Path<String>, headers: HeaderMap| file(&name, &headers)))
}

/// Whether a path is that of a file of the page, which holds no data.
pub(crate) fn is_file(path: &str) -> bool {
    path == "/" || path.strip_prefix("/page/").is_some_and(|name| find(name).is_some())
}

fn find(name: &str) -> Option<&'static PageFile> {
    const { &FILES }.iter().find(|file| file.name == name)
}

fn file(name: &str, asked: &HeaderMap) -> Result<Response, ApiError> {
    let missing = || ApiError::new(StatusCode::NOT_FOUND, format!("the page has no file {name:?}"));
    let PageFile { kind, content, .. } = find(name).ok_or_else(missing)?;
    let tag = format!("\"{}\"", hexadecimal(Sha256::digest(content)));
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &tag),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let is_known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    Ok(match is_known {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, *content).into_response(),
    })
}
