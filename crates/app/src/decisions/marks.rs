//! Where the results of examinations are kept: named after everything that they depend on, the model's file and how it
//! was examined.

use std::path::PathBuf;

use anyhow::Context;
use hone_protocol::hexadecimal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::identity_of;
use crate::app::App;
use crate::kept;

/// The folder within the data folder.
const FOLDER: &str = "decisions";

/// The marks of a model in the examination with this digest; `None` if it has not taken it, or its marks are damaged.
pub(super) fn find<T: DeserializeOwned>(
    app: &App,
    model: &str,
    digest: &str,
    is_usable: impl FnOnce(&T) -> bool,
) -> Option<T> {
    let path = path_of(app, model, digest)?;
    let text = std::fs::read(&path).ok()?;
    let found = serde_json::from_slice(&text).ok().filter(is_usable);
    if found.is_none() {
        tracing::warn!("{} is damaged: `hone decide --exam` writes it anew", path.display());
    }
    found
}

/// Saves the marks of a model.
///
/// # Errors
/// When they cannot be written, or the model is not installed.
pub(super) fn keep(app: &App, model: &str, digest: &str, marks: &impl Serialize) -> anyhow::Result<()> {
    let path = path_of(app, model, digest).with_context(|| format!("{model} is not installed"))?;
    kept::write(&app.data_folder().join(FOLDER), &path, marks)
}

fn path_of(app: &App, model: &str, digest: &str) -> Option<PathBuf> {
    let key = json!([identity_of(app, model)?, digest]).to_string();
    Some(app.data_folder().join(FOLDER).join(format!("{}.json", hexadecimal(Sha256::digest(key)))))
}
