//! Loads only verified files: while a model's weights are packed, another thread compares its file with the record made
//! at installation, and no request sees the model before both are done. A damaged file leads to an error that names it,
//! never to corrupted answers.

use std::panic::resume_unwind;
use std::thread;

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::model::{LoadOptions, Model};

/// Loads models and verifies their files.
pub(super) struct Verified<'a> {
    pub(super) locator: &'a dyn LocateModel,
    pub(super) load: &'a LoadOptions,
}

impl Verified<'_> {
    /// Loads a model; the error says why it cannot be used.
    pub(super) fn load(&self, file: &ModelFile) -> Result<Model, String> {
        let (model, verified) = thread::scope(|scope| {
            let verifying = scope.spawn(|| self.locator.verify(file));
            let model = Model::load(file, self.load.clone());
            (model, verifying.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        // If the file is damaged, the result of loading it does not matter.
        verified.map_err(|error| error.to_string())?;
        model.map_err(|error| with_causes(&error))
    }
}
