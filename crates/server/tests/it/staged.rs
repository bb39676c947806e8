//! Models that a test writes: a generator, an embedder that counts letters, and a reranker that counts words.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hone_app::models::{
    LoadedModel, ModelDescription, ModelDetails, ModelError, ModelInfo, ModelKind, ModelText, Models, PullStep,
};
use hone_protocol::{Embed, EmbedError, Relevance, Rerank, RerankError, TextLength};
use serde_json::{Map, json};

/// The name of the generator.
pub(crate) const GENERATOR: &str = "scripted";
/// The name of the embedder.
pub(crate) const EMBEDDER: &str = "letters:1";
/// The name of the reranker, which is not listed.
pub(crate) const RERANKER: &str = "words:1";
/// A reference whose download lasts until no client waits for it.
pub(crate) const ENDLESS: &str = "hf:o/r/endless.gguf";
/// A reference whose download succeeds.
pub(crate) const QUICK: &str = "hf:o/r/quick.gguf";
/// The maximum number of words that the embedder reads.
const MOST_WORDS: usize = 100;

/// Models that record their requests.
#[derive(Default)]
pub(crate) struct StagedModels {
    pub(crate) has_no_embedder: AtomicBool,
    pub(crate) removed: Mutex<Vec<String>>,
    /// Names, with the names of their copies.
    pub(crate) copied: Mutex<Vec<(String, String)>>,
    pub(crate) loads: Mutex<Vec<String>>,
    pub(crate) unloads: Mutex<Vec<String>>,
    /// Downloads that have begun.
    pub(crate) begun: AtomicUsize,
    /// Downloads that have ended because no client waited for them.
    pub(crate) cancelled: AtomicUsize,
}

impl StagedModels {
    fn names(&self) -> BTreeSet<&'static str> {
        let has_embedder = !self.has_no_embedder.load(Ordering::Relaxed);
        [(GENERATOR, true), (EMBEDDER, has_embedder)]
            .into_iter()
            .filter(|(_, has)| *has)
            .map(|(name, _)| name)
            .collect()
    }
}

fn info(name: &str) -> ModelInfo {
    let details = ModelDetails {
        format: "gguf".to_owned(),
        family: "llama".to_owned(),
        parameters: "135M".to_owned(),
        quantization: "Q4_1".to_owned(),
    };
    ModelInfo {
        name: name.to_owned(),
        bytes: 7,
        installed: 0,
        digest: Some("ab".repeat(32)),
        details,
        context: Some(512),
        is_elsewhere: false,
    }
}

fn missing(name: &str) -> ModelError {
    ModelError::Missing(format!("the model {name:?} is not installed"))
}

impl Models for StagedModels {
    fn default_name(&self) -> String {
        GENERATOR.to_owned()
    }

    fn kind(&self, name: &str) -> Option<ModelKind> {
        let kind = match name {
            RERANKER => return Some(ModelKind::Reranker),
            EMBEDDER => ModelKind::Embedder,
            _ => ModelKind::Generator,
        };
        self.names().contains(name).then_some(kind)
    }

    fn find(&self, name: &str) -> Result<ModelInfo, ModelError> {
        self.kind(name).map(|_| info(name)).ok_or_else(|| missing(name))
    }

    fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        Ok(self.names().into_iter().map(info).collect())
    }

    fn describe(&self, name: &str) -> Result<ModelDescription, ModelError> {
        let metadata = Map::from_iter([("general.architecture".to_owned(), json!("llama"))]);
        let (template, licence) = ("{{ messages }}".to_owned(), "MIT".to_owned());
        Ok(ModelDescription { info: self.find(name)?, template, licence, metadata, capabilities: vec!["completion"] })
    }

    fn text(&self, name: &str) -> Result<Arc<ModelText>, ModelError> {
        self.find(name)?;
        Err(ModelError::Failed(format!("the model {name:?} has no file")))
    }

    fn loaded(&self) -> Result<Vec<LoadedModel>, ModelError> {
        Ok(vec![LoadedModel { info: info(GENERATOR), bytes: 9, device_bytes: 0, expires_in: Some(60) }])
    }

    fn load(&self, name: &str) -> Result<(), ModelError> {
        self.loads.lock().unwrap().push(name.to_owned());
        Ok(())
    }

    fn unload(&self, name: &str) -> Result<(), ModelError> {
        self.unloads.lock().unwrap().push(name.to_owned());
        match self.unloads.lock().unwrap().len() {
            1 => Ok(()),
            _ => Err(ModelError::InUse("it is pinned".to_owned())),
        }
    }

    fn check_reference(&self, reference: &str) -> Result<(), ModelError> {
        match [ENDLESS, QUICK].contains(&reference) {
            true => Ok(()),
            false => Err(ModelError::Invalid(format!("`{reference}` is no reference"))),
        }
    }

    fn pull(
        &self,
        reference: &str,
        is_cancelled: Arc<AtomicBool>,
        report: &mut dyn FnMut(PullStep),
    ) -> Result<(), ModelError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut done = 0;
        while reference == ENDLESS && !is_cancelled.load(Ordering::Relaxed) {
            done += 1;
            let digest = Some("ab".repeat(32));
            report(PullStep::Bytes { file: "model.gguf".to_owned(), digest, done, total: Some(1 << 40) });
            // The rate of the download.
            std::thread::sleep(Duration::from_millis(2));
        }
        match reference {
            ENDLESS => {
                self.cancelled.fetch_add(1, Ordering::Relaxed);
                Err(ModelError::Failed("cancelled".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn copy(&self, source: &str, name: &str) -> Result<(), ModelError> {
        self.find(source)?;
        if name.contains('/') {
            return Err(ModelError::Invalid(format!("{name:?} is no name")));
        }
        self.copied.lock().unwrap().push((source.to_owned(), name.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), ModelError> {
        self.find(name)?;
        if name == GENERATOR {
            return Err(ModelError::InUse("it is the default model".to_owned()));
        }
        self.removed.lock().unwrap().push(name.to_owned());
        Ok(())
    }

    fn embedder(&self) -> Result<Arc<dyn Embed>, ModelError> {
        match self.has_no_embedder.load(Ordering::Relaxed) {
            true => Err(ModelError::Missing("not installed: run `hone pull letters:1`".to_owned())),
            false => Ok(Arc::new(Letters)),
        }
    }

    fn reranker(&self, name: &str) -> Result<Arc<dyn Rerank>, ModelError> {
        match name {
            "" | RERANKER => Ok(Arc::new(Words)),
            other => Err(missing(other)),
        }
    }
}

/// Counts the words of the query in a text.
struct Words;

impl Rerank for Words {
    fn model(&self) -> &str {
        RERANKER
    }

    fn labels(&self) -> Result<Vec<String>, RerankError> {
        Ok(Vec::new())
    }

    fn rerank(&self, query: &str, texts: &[&str], _: &dyn Fn() -> bool) -> Result<Vec<Relevance>, RerankError> {
        let relevance = |text: &&str| {
            let score = query.split(' ').filter(|word| text.split(' ').any(|other| other == *word)).count() as f32;
            let tokens = query.split(' ').count() + text.split(' ').count();
            Relevance { score, outputs: vec![score], tokens, is_cut: text.len() > 40 }
        };
        Ok(texts.iter().map(relevance).collect())
    }
}

/// Counts the letters a, b and c, as a vector of length 1; a word is a token.
struct Letters;

impl Embed for Letters {
    fn model(&self) -> &str {
        EMBEDDER
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| letters(text)).collect())
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        let length = |text: &&str| {
            let words = text.split_whitespace().count();
            TextLength { tokens: words.min(MOST_WORDS), is_cut: words > MOST_WORDS }
        };
        Ok(texts.iter().map(length).collect())
    }
}

fn letters(text: &str) -> Vec<f32> {
    let counts: Vec<f32> =
        ['a', 'b', 'c'].iter().map(|letter| text.chars().filter(|found| found == letter).count() as f32).collect();
    let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt().max(1.0);
    counts.into_iter().map(|count| count / length).collect()
}
