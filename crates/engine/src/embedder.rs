//! Turns texts into vectors on the processor.
//!
//! The model is an encoder, like all-MiniLM-L6-v2 and its relatives or nomic-embed-text, or a decoder that was trained
//! for it, like Qwen3-Embedding, in a GGUF file. It is read when the first text arrives, so that a program that never
//! embeds pays nothing. A broken file causes an error then, and the next text tries again.

mod bert;
mod decoder;
mod encoder;
mod tokens;
mod vectors;

use std::path::Path;
use std::sync::Arc;

use hone_protocol::{Embed, EmbedError, ModelFile, TextLength, with_causes};

use self::bert::{Bert, BertFiles};
use self::decoder::Decoder;
use self::encoder::PooledEncoder;
use self::vectors::Vectors;
use crate::encoder::EncoderRow;
use crate::gguf::Gguf;
use crate::heads::{decision_type, has_head};
use crate::lazy::{Lazy, Verify};
use crate::model::ModelError;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// A model for vectors, loaded at its first use.
pub struct Embedder {
    name: String,
    files: Files,
    loaded: Lazy<dyn Vectors>,
    prefixes: Prefixes,
}

/// The location of a model.
enum Files {
    Bert(BertFiles),
    Gguf(ModelFile),
}

impl Files {
    fn all(&self) -> Vec<&ModelFile> {
        match self {
            Files::Bert(BertFiles { config, tokenizer, weights }) => vec![config, tokenizer, weights],
            Files::Gguf(file) => vec![file],
        }
    }

    fn load(&self) -> Result<Arc<dyn Vectors>, String> {
        Ok(match self {
            Files::Bert(files) => Arc::new(Bert::load(files)?),
            Files::Gguf(file) => load_gguf(file)?,
        })
    }
}

fn load_gguf(file: &ModelFile) -> Result<Arc<dyn Vectors>, String> {
    let gguf = Gguf::open_region(file).map_err(|error| with_causes(&error))?;
    if let Some(kind) = decision_type(&gguf) {
        return Err(ModelError::Decision { kind }.to_string());
    }
    if has_head(&gguf) {
        return Err("it ends in a head that scores texts, and gives no vectors: `hone rerank` runs it".to_owned());
    }
    let architecture = gguf.string("general.architecture").ok().flatten().unwrap_or_default();
    Ok(match EncoderRow::named(architecture) {
        Some(row) => Arc::new(PooledEncoder::load(gguf, row)?),
        None => Arc::new(Decoder::load(&gguf, file)?),
    })
}

/// The texts to put before others, as given in the model's card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Before a question that texts are searched with.
    pub query: String,
    /// Before a text that is searched.
    pub passage: String,
}

impl Embedder {
    /// Opens a model from these files, each with its name within the model; unneeded files are ignored.
    ///
    /// # Errors
    /// When a required file is missing.
    pub fn open(name: &str, files: impl IntoIterator<Item = (String, ModelFile)>) -> Result<Self, EmbedError> {
        let files: Vec<(String, ModelFile)> = files.into_iter().collect();
        let find = |wanted: &str| match files.iter().find(|(name, _)| name == wanted) {
            Some((_, file)) => Ok(file.clone()),
            None => {
                let reason = format!("its file {wanted} is missing: it needs {CONFIG}, {TOKENIZER} and {WEIGHTS}");
                Err(EmbedError { model: name.to_owned(), reason })
            }
        };
        let (config, tokenizer, weights) = (find(CONFIG)?, find(TOKENIZER)?, find(WEIGHTS)?);
        Ok(Embedder::new(name, Files::Bert(BertFiles { config, tokenizer, weights })))
    }

    /// Opens an encoder or a decoder in a GGUF file.
    #[must_use]
    pub fn of_gguf(name: &str, file: ModelFile) -> Self {
        Embedder::new(name, Files::Gguf(file))
    }

    fn new(name: &str, files: Files) -> Self {
        let (name, prefixes) = (name.to_owned(), Prefixes::default());
        Embedder { name, files, loaded: Lazy::verified_by(None), prefixes }
    }

    /// Adds a check of the model's files before they are used.
    #[must_use]
    pub fn verified_by(self, verify: Verify) -> Self {
        Embedder { loaded: Lazy::verified_by(Some(verify)), ..self }
    }

    /// Puts these texts before questions and passages.
    #[must_use]
    pub fn with_prefixes(self, prefixes: Prefixes) -> Self {
        Embedder { prefixes, ..self }
    }

    fn embed_after(&self, prefix: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.run_on(prefix, texts, |model, texts| model.embed(texts))
    }

    /// Runs the model on texts with this prefix before each.
    fn run_on<T>(
        &self,
        prefix: &str,
        texts: &[&str],
        run: impl FnOnce(&dyn Vectors, &[&str]) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, EmbedError> {
        let failed = |reason| EmbedError { model: self.name.clone(), reason };
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let prefixed: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let texts: Vec<&str> = prefixed.iter().map(String::as_str).collect();
        self.loaded().and_then(|model| run(&*model, &texts)).map_err(failed)
    }

    /// Opens the model in a folder.
    ///
    /// # Errors
    /// When a required file is missing.
    pub fn in_folder(name: &str, folder: &Path) -> Result<Self, EmbedError> {
        let file = |name: &str| {
            let path = folder.join(name);
            let length = path.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
            Some((name.to_owned(), ModelFile::new(path, 0, length)))
        };
        Self::open(name, [CONFIG, TOKENIZER, WEIGHTS].into_iter().filter_map(file))
    }

    fn loaded(&self) -> Result<Arc<dyn Vectors>, String> {
        self.loaded.get(self.files.all(), || self.files.load())
    }
}

impl Embed for Embedder {
    fn model(&self) -> &str {
        &self.name
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embed_after(&self.prefixes.passage, texts)
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        self.run_on(&self.prefixes.passage, texts, |model, texts| model.lengths(texts))
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        let vectors = self.embed_after(&self.prefixes.query, &[question])?;
        let none = || EmbedError { model: self.name.clone(), reason: "it gave no vector".to_owned() };
        vectors.into_iter().next().ok_or_else(none)
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("name", &self.name).finish_non_exhaustive()
    }
}
