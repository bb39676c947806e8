//! Where the results of examinations are kept: named after everything that they depend on, the model's file and how it
//! was examined.

use std::path::PathBuf;

use anyhow::Context;
use hone_protocol::hexadecimal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::judge::identity;
use crate::kept;

/// The folder within the data folder.
const FOLDER: &str = "decisions";

/// The identity of a model's file, which differs between files of the same name; `None` if it is not installed.
pub fn identity_of(app: &App, model: &str) -> Option<String> {
    Some(identity::identity(&app.store.show(model).ok()?).to_string())
}

/// The marks of a model in the examination with these digests; `None` if it has not taken it, or its marks are damaged.
pub(super) fn find<T: DeserializeOwned>(
    app: &App,
    model: &str,
    digests: &[&str],
    is_usable: impl FnOnce(&T) -> bool,
) -> Option<T> {
    let path = path_of(app, model, digests)?;
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
pub(super) fn keep(app: &App, model: &str, digests: &[&str], marks: &impl Serialize) -> anyhow::Result<()> {
    let path = path_of(app, model, digests).with_context(|| format!("{model} is not installed"))?;
    kept::write(&app.data_folder().join(FOLDER), &path, marks)
}

fn path_of(app: &App, model: &str, digests: &[&str]) -> Option<PathBuf> {
    let identity = identity_of(app, model)?;
    let key = json!([&[identity.as_str()], digests].concat()).to_string();
    Some(app.data_folder().join(FOLDER).join(format!("{}.json", hexadecimal(Sha256::digest(key)))))
}
