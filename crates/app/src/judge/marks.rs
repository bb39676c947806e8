//! The marks of judges that have taken the examination, one file each in the data folder.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hone_judging::{JudgeProfile, JudgeSettings, Marks, QuestionSet, Rubric};
use hone_models::Store;
use hone_protocol::hexadecimal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::identity;
use crate::kept;

/// The folder within the data folder.
pub(super) const FOLDER: &str = "judges";

/// The marks of all judges that were examined on this machine.
pub struct MarksStore {
    folder: PathBuf,
}

/// A model, and how it is asked to judge.
#[derive(Clone, Copy)]
pub struct JudgeSetup<'a> {
    /// The model.
    pub model: &'a str,
    /// The settings.
    pub settings: &'a JudgeSettings,
    /// The prompts, and the form of its verdicts.
    pub profile: &'a JudgeProfile,
    /// The rubric.
    pub rubric: &'a Rubric,
}

/// The marks of a model for one way of asking and one rubric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examined {
    /// The model.
    pub model: String,
    /// The rubric.
    pub rubric: String,
    /// The results of the examination.
    pub marks: Marks,
}

impl MarksStore {
    /// The marks in this data folder.
    pub fn new(data_folder: &Path) -> MarksStore {
        MarksStore { folder: data_folder.join(FOLDER) }
    }

    /// The marks of a model with this setup; `None` if it has not been examined with it.
    pub fn find(&self, store: &Store, setup: &JudgeSetup<'_>) -> Option<Examined> {
        serde_json::from_slice(&std::fs::read(self.path_of(store, setup)?).ok()?).ok()
    }

    /// Saves the marks of a model with this setup.
    ///
    /// # Errors
    /// When they cannot be written, or the model is not installed.
    pub fn keep(&self, store: &Store, setup: &JudgeSetup<'_>, marks: &Marks) -> anyhow::Result<()> {
        let path = self.path_of(store, setup).with_context(|| format!("{} is not installed", setup.model))?;
        let rubric = setup.rubric.name.clone();
        let examined = Examined { model: setup.model.to_owned(), rubric, marks: marks.clone() };
        kept::write(&self.folder, &path, &examined)
    }

    /// The path of the marks, named after everything that the grades depend on, and after the questions.
    fn path_of(&self, store: &Store, setup: &JudgeSetup<'_>) -> Option<PathBuf> {
        let questions: Vec<_> =
            QuestionSet::shipped().questions.iter().map(|question| format!("{question:?}")).collect();
        Some(self.folder.join(setup.file_name(store, &json!(questions))?))
    }
}

impl JudgeSetup<'_> {
    /// The name of a file about these grades and `subject`; `None` if the model is not installed.
    pub(crate) fn file_name(&self, store: &Store, subject: &Value) -> Option<String> {
        let JudgeSetup { model, settings, profile, rubric } = *self;
        let installed = store.show(model).ok()?;
        let key =
            json!([model, identity::identity(&installed), identity::settings(settings, profile, rubric), subject])
                .to_string();
        Some(format!("{}.json", hexadecimal(Sha256::digest(key))))
    }
}
