//! Turns texts into vectors with a sentence encoder on the processor.
//!
//! The model is a BERT with mean pooling, like all-MiniLM-L6-v2 and its relatives: three files, whose names the store
//! knows. They are read when the first text arrives, so that a program that never embeds pays nothing; a file that
//! turns out to be broken is an error then, and the next text tries again.
//!
//! Texts with the same number of tokens are computed together, which for short texts is up to twice as fast as one by
//! one; padding would cost longer texts what it gains the short ones.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use hone_protocol::{Embed, EmbedError, ModelFile, TextLength, with_causes};
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

use crate::gguf::Mapping;

/// The most tokens of a text that are used, including the two at its ends; the model was not trained on more.
const MAX_TOKENS: usize = 256;

/// The most texts that are computed together; more gain nothing.
const MAX_BATCH: usize = 16;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// A sentence encoder, loaded at its first use.
pub struct Embedder {
    name: String,
    config: ModelFile,
    tokenizer: ModelFile,
    weights: ModelFile,
    encoder: Mutex<Option<Arc<Encoder>>>,
    verify: Box<Verify>,
    prefixes: Prefixes,
}

/// What stands before a text, as the model's card says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Before a question that texts are searched with.
    pub query: String,
    /// Before a text that is searched.
    pub passage: String,
}

/// Checks a file's bytes against those that were installed; the error says what is wrong.
type Verify = dyn Fn(&ModelFile) -> Result<(), String> + Send + Sync;

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
        Ok(Embedder {
            name: name.to_owned(),
            config: find(CONFIG)?,
            tokenizer: find(TOKENIZER)?,
            weights: find(WEIGHTS)?,
            encoder: Mutex::new(None),
            verify: Box::new(|_| Ok(())),
            prefixes: Prefixes::default(),
        })
    }

    /// The same, with a check of its files before they are used.
    #[must_use]
    pub fn verified_by(self, verify: impl Fn(&ModelFile) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Embedder { verify: Box::new(verify), ..self }
    }

    /// The same, with these texts before questions and passages.
    #[must_use]
    pub fn with_prefixes(self, prefixes: Prefixes) -> Self {
        Embedder { prefixes, ..self }
    }

    fn embed_after(&self, prefix: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.run_on(prefix, texts, Encoder::embed)
    }

    /// Runs the encoder on texts with this prefix before each.
    fn run_on<T>(
        &self,
        prefix: &str,
        texts: &[&str],
        run: impl FnOnce(&Encoder, &[&str]) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, EmbedError> {
        let failed = |reason| EmbedError { model: self.name.clone(), reason };
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let prefixed: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let texts: Vec<&str> = prefixed.iter().map(String::as_str).collect();
        self.encoder().and_then(|encoder| run(&encoder, &texts)).map_err(failed)
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

    fn encoder(&self) -> Result<Arc<Encoder>, String> {
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        match &*encoder {
            Some(loaded) => Ok(loaded.clone()),
            None => Ok(encoder.insert(Arc::new(Encoder::load(self)?)).clone()),
        }
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
        self.run_on(&self.prefixes.passage, texts, Encoder::lengths)
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

/// The loaded model.
struct Encoder {
    tokenizer: Tokenizer,
    model: BertModel,
}

impl Encoder {
    fn load(files: &Embedder) -> Result<Self, String> {
        [&files.config, &files.tokenizer, &files.weights].into_iter().try_for_each(|file| (files.verify)(file))?;
        let config = read(&files.config, |bytes| serde_json::from_slice(bytes).map_err(|error| with_causes(&error)))?;
        check_config(&config).map_err(|reason| cannot_use(&files.config, &reason))?;
        let max_tokens = config.max_position_embeddings.min(MAX_TOKENS);
        let tokenizer = read(&files.tokenizer, |bytes| tokenizer(bytes, max_tokens))?;
        let model = read(&files.weights, |bytes| {
            let weights = VarBuilder::from_slice_safetensors(bytes, DType::F32, &Device::Cpu);
            weights.and_then(|weights| BertModel::load(weights, &config)).map_err(|error| error.to_string())
        })?;
        Ok(Encoder { tokenizer, model })
    }

    /// How many tokens of each text are used.
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String> {
        let length = |text: &&str| {
            let encoding = self.tokenizer.encode_fast(*text, true).map_err(|error| error.to_string())?;
            Ok(TextLength { tokens: encoding.len(), is_cut: !encoding.get_overflowing().is_empty() })
        };
        texts.iter().map(length).collect()
    }

    /// The vectors of texts, each of length 1.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let encode = |text: &&str| Ok(self.tokenizer.encode_fast(*text, true)?.get_ids().to_vec());
        let ids: Vec<Vec<u32>> =
            texts.iter().map(encode).collect::<tokenizers::Result<_>>().map_err(|error| error.to_string())?;
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|index| ids[*index].len());
        let mut vectors = vec![Vec::new(); texts.len()];
        for same_length in order.chunk_by(|a, b| ids[*a].len() == ids[*b].len()) {
            for batch in same_length.chunks(MAX_BATCH) {
                let rows: Vec<&[u32]> = batch.iter().map(|index| ids[*index].as_slice()).collect();
                let means = self.mean_states(&rows).map_err(|error| error.to_string())?;
                for (index, mean) in batch.iter().zip(means) {
                    vectors[*index] = normalized(mean)?;
                }
            }
        }
        Ok(vectors)
    }

    /// The mean of the last layer over all tokens, for texts with the same number of tokens.
    fn mean_states(&self, rows: &[&[u32]]) -> candle_core::Result<Vec<Vec<f32>>> {
        let ids = Tensor::from_vec(rows.concat(), (rows.len(), rows[0].len()), &Device::Cpu)?;
        let states = self.model.forward(&ids, &ids.zeros_like()?, None)?;
        states.mean(1)?.to_vec2()
    }
}

fn normalized(vector: Vec<f32>) -> Result<Vec<f32>, String> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return Err(format!("the vector of a text has the length {length}: the weights are damaged"));
    }
    Ok(vector.into_iter().map(|value| value / length).collect())
}

fn tokenizer(bytes: &[u8], max_tokens: usize) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    let n_added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
    if n_added >= max_tokens {
        return Err(format!("it adds {n_added} tokens to every text, and the model takes {max_tokens}"));
    }
    let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
    tokenizer.with_truncation(Some(truncation)).map_err(|error| error.to_string())?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// Refuses shapes by which candle would divide without checking.
fn check_config(config: &Config) -> Result<(), String> {
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    if heads == 0 || hidden == 0 || !hidden.is_multiple_of(heads) {
        return Err(format!("{hidden} dimensions cannot be divided among {heads} heads"));
    }
    if config.max_position_embeddings < 3 {
        return Err(format!("it has room for {} tokens", config.max_position_embeddings));
    }
    Ok(())
}

/// Reads a file and parses it.
fn read<T>(file: &ModelFile, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let mapping = Mapping::region(file).map_err(|error| with_causes(&error))?;
    parse(mapping.bytes()).map_err(|reason| cannot_use(file, &reason))
}

fn cannot_use(file: &ModelFile, reason: &str) -> String {
    format!("{} cannot be used: {reason}", file.path.display())
}
