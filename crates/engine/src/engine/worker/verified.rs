//! Loading what was installed and nothing else: while a model's weights are packed, another thread compares its file with
//! what was recorded of it, and no request sees the model before both are done. A damaged file answers with an error that
//! names it, never with other words.

use std::panic::resume_unwind;
use std::thread;

use hone_protocol::{LocateModel, ModelFile, with_causes};

use crate::model::{LoadOptions, Model, ModelOptions};

/// How models are loaded, and who knows what their files must be.
pub(super) struct Verified<'a> {
    pub(super) locator: &'a dyn LocateModel,
    pub(super) options: &'a ModelOptions,
    pub(super) load: &'a LoadOptions,
}

impl Verified<'_> {
    /// Loads a model; the error says why it cannot be used.
    pub(super) fn load(&self, file: &ModelFile) -> Result<Model, String> {
        let (model, verified) = thread::scope(|scope| {
            let verifying = scope.spawn(|| self.locator.verify(file));
            let model = Model::load_beside(file, self.options, self.load);
            (model, verifying.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        // Where the file is damaged, what loading makes of it is of no interest.
        verified.map_err(|error| error.to_string())?;
        model.map_err(|error| with_causes(&error))
    }
}
