//! Models as clients see them: descriptions, the models in memory, and operations on them.
//!
//! Names of models come from clients. They are taken as names of installed models and never as paths; only the default
//! model, which the operator chose, may be a file outside of the store.

mod facts;
mod offered;
mod served;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hone_protocol::{Embed, Rerank};
use serde_json::{Map, Value};
use thiserror::Error;

pub use facts::GgufFacts;
pub(crate) use offered::offered;
pub use served::ServedModels;
pub use text::ModelText;

/// The models. Methods may read files and take long, unless their documentation says otherwise.
pub trait Models: Send + Sync {
    /// The name of the model that answers if a request names none. Returns immediately.
    fn default_name(&self) -> String;

    /// The use of the model of this name; `None` if it is not installed. Takes as long as one look at a folder.
    fn kind(&self, name: &str) -> Option<ModelKind>;

    /// The model of this name.
    ///
    /// # Errors
    /// When it is not installed, or its files are damaged.
    fn find(&self, name: &str) -> Result<ModelInfo, ModelError>;

    /// All installed models, and the default one.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list(&self) -> Result<Vec<ModelInfo>, ModelError>;

    /// Describes the model of this name from its files.
    ///
    /// # Errors
    /// When it is not installed, or its files are damaged.
    fn describe(&self, name: &str) -> Result<ModelDescription, ModelError>;

    /// The tokenizer and the chat template of the model of this name. The most recently used are kept.
    ///
    /// # Errors
    /// When it is not installed, or its file has no tokenizer that is supported.
    fn text(&self, name: &str) -> Result<Arc<ModelText>, ModelError>;

    /// The models in memory.
    ///
    /// # Errors
    /// When the engine has stopped.
    fn loaded(&self) -> Result<Vec<LoadedModel>, ModelError>;

    /// Loads a model and waits until it is in memory.
    ///
    /// # Errors
    /// When it is not installed, or cannot be loaded.
    fn load(&self, name: &str) -> Result<(), ModelError>;

    /// Unloads a model as soon as it is not in use.
    ///
    /// # Errors
    /// When it is pinned.
    fn unload(&self, name: &str) -> Result<(), ModelError>;

    /// Checks that a client may pull this reference: a name of the catalog, or a file on the hub.
    ///
    /// # Errors
    /// When it may not.
    fn check_reference(&self, reference: &str) -> Result<(), ModelError>;

    /// Pulls a model until it is installed, or `is_cancelled` is set.
    ///
    /// # Errors
    /// When it cannot be downloaded, or was cancelled.
    fn pull(
        &self,
        reference: &str,
        is_cancelled: Arc<AtomicBool>,
        report: &mut dyn FnMut(PullStep),
    ) -> Result<(), ModelError>;

    /// Makes an installed model available under a second name; a model that has that name is replaced.
    ///
    /// # Errors
    /// When it is not installed, the name is not valid or taken, or the model to be replaced is in use.
    fn copy(&self, source: &str, name: &str) -> Result<(), ModelError>;

    /// Removes an installed model.
    ///
    /// # Errors
    /// When it is not installed, or in use.
    fn remove(&self, name: &str) -> Result<(), ModelError>;

    /// The embedding model. It is loaded on first use.
    ///
    /// # Errors
    /// When it is not installed; the reason says how to install it.
    fn embedder(&self) -> Result<Arc<dyn Embed>, ModelError>;

    /// The reranker of this name, or the installed one if the name is empty. It is loaded on first use, and stays in
    /// memory until another one is requested.
    ///
    /// # Errors
    /// When it is not installed, or the name is empty and the choice is ambiguous.
    fn reranker(&self, name: &str) -> Result<Arc<dyn Rerank>, ModelError>;
}

/// The error of a request that concerns a model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// It does not exist.
    #[error("{0}")]
    Missing(String),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// It is in use.
    #[error("{0}")]
    InUse(String),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// The use of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// It continues texts and answers questions.
    Generator,
    /// It turns texts into vectors.
    Embedder,
    /// It scores texts.
    Reranker,
}

/// An installed model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub name: String,
    /// The bytes of its files.
    pub bytes: u64,
    /// When it was installed, in seconds since 1970.
    pub installed: u64,
    /// The SHA-256 of its file in hexadecimal, if known.
    pub digest: Option<String>,
    /// Its form and size.
    pub details: ModelDetails,
    /// The maximum tokens of a prompt and its answer together, if known.
    pub context: Option<usize>,
    /// Whether it is on a worker's machine rather than on this one.
    pub is_elsewhere: bool,
}

/// The form and the size of a model; texts are empty where they are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDetails {
    /// The format of its files, such as `gguf`.
    pub format: String,
    /// Its architecture, such as `llama`.
    pub family: String,
    /// The number of its parameters, such as `135M`.
    pub parameters: String,
    /// How its weights are quantized, such as `Q4_1`.
    pub quantization: String,
}

/// A model as its files describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescription {
    /// Its name, form and size.
    pub info: ModelInfo,
    /// Its chat template; empty if it has none.
    pub template: String,
    /// The licence of its weights; empty if it is unknown.
    pub licence: String,
    /// The metadata of its file. Arrays are left out (null).
    pub metadata: Map<String, Value>,
    /// Its abilities: `completion`, `tools`, `thinking`, `embedding`.
    pub capabilities: Vec<&'static str>,
}

/// A model in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedModel {
    /// Its name, form and size on disk.
    pub info: ModelInfo,
    /// The bytes that it takes in memory.
    pub bytes: u64,
    /// How many of them are on a graphics processor.
    pub device_bytes: u64,
    /// Seconds until it leaves memory, if it is not used; `None` if it stays.
    pub expires_in: Option<u64>,
}

/// A step of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullStep {
    /// Another step, described by the text.
    Remark(String),
    /// The bytes of a file arrive.
    Bytes {
        /// The file, within the model.
        file: String,
        /// Its SHA-256 in hexadecimal, if known.
        digest: Option<String>,
        /// Bytes done, including those of an earlier pull.
        done: u64,
        /// All bytes, if known.
        total: Option<u64>,
    },
}
