//! Small JSON files that hone keeps in the data folder: readable only by their owner, and written atomically.

use std::path::Path;

use anyhow::Context;
use hone_files::{create_private_folder, replace};
use serde::Serialize;

/// Writes a file in `folder` atomically.
///
/// # Errors
/// When it cannot be written.
pub fn write(folder: &Path, path: &Path, content: &impl Serialize) -> anyhow::Result<()> {
    let failure = || format!("cannot write {}", path.display());
    create_private_folder(folder).with_context(failure)?;
    replace(path, "kept", |file| Ok(serde_json::to_writer(file, content)?)).with_context(failure)
}
