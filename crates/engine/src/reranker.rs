//! Scores texts by how well they fit a query, with a model that ends in a head: a cross-encoder such as bge-reranker, a
//! reward model such as Skywork-Reward, or Qwen3-Reranker, which says yes or no.
//!
//! It runs on the processor. The file is read when the first texts arrive.

mod pairs;

use std::sync::Arc;

use hone_protocol::{ModelFile, Relevance, Rerank, RerankError, with_causes};

use self::pairs::{PairForm, Pairs};
use crate::encoder::{Encoder, EncoderRow, HeadActivation};
use crate::gguf::Gguf;
use crate::heads::{Head, decision_type, has_head};
use crate::lazy::{Lazy, Verify};
use crate::model::ModelError;
use crate::pooled_decoder::PooledDecoder;
use crate::pooling::Pooling;
use crate::template::TemplateHost;

/// Maximum number of tokens of a query and a text. Some models take more, but attention grows with the square.
const MAX_TOKENS: usize = 8192;

/// Texts that are scored together.
const BATCH: usize = 16;

/// A shared beginning shorter than this is not worth a sequence of its own.
const LEAST_SHARED: usize = 16;

/// A model with a head, loaded at its first use.
pub struct Reranker {
    name: String,
    file: ModelFile,
    templates: TemplateHost,
    loaded: Lazy<Scorer>,
}

impl Reranker {
    /// The model in a GGUF file, whose chat template runs where `templates` says. `verify` checks the file's bytes
    /// against the installed ones before they are used; the error gives the reason.
    #[must_use]
    pub fn new(name: &str, file: ModelFile, templates: TemplateHost, verify: impl Into<Option<Verify>>) -> Self {
        let loaded = Lazy::verified_by(verify.into());
        Reranker { name: name.to_owned(), file, templates, loaded }
    }

    fn scorer(&self) -> Result<Arc<Scorer>, RerankError> {
        let load = || Ok(Arc::new(Scorer::load(&self.file, &self.templates)?));
        let model = || self.name.clone();
        self.loaded.get([&self.file], load).map_err(|reason| RerankError::Model { model: model(), reason })
    }
}

impl Rerank for Reranker {
    fn model(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> Result<Vec<String>, RerankError> {
        Ok(self.scorer()?.head.labels().to_vec())
    }

    fn rerank(&self, query: &str, texts: &[&str], is_over: &dyn Fn() -> bool) -> Result<Vec<Relevance>, RerankError> {
        let scorer = self.scorer()?;
        let mut found = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            found.extend(scorer.scored(query, batch, is_over).map_err(|failure| match failure {
                Failure::Pair(reason) => RerankError::Request { model: self.name.clone(), reason },
                Failure::Model(reason) => RerankError::Model { model: self.name.clone(), reason },
                Failure::Over => RerankError::Stopped,
            })?);
        }
        Ok(found)
    }
}

impl std::fmt::Debug for Reranker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reranker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why texts have no scores.
enum Failure {
    /// A query and a text cannot become a prompt.
    Pair(String),
    /// The model cannot be run.
    Model(String),
    /// The scores are no longer wanted.
    Over,
}

/// A query and a text as tokens, and whether the text was cut.
type Pair = (Vec<u32>, bool);

/// The loaded model.
struct Scorer {
    network: Network,
    form: PairForm,
    head: Head,
    pooling: Pooling,
}

enum Network {
    Encoder(Box<Encoder>),
    Decoder(Box<PooledDecoder>),
}

impl Scorer {
    fn load(file: &ModelFile, templates: &TemplateHost) -> Result<Scorer, String> {
        let gguf = Gguf::open_region(file).map_err(|error| with_causes(&error))?;
        if let Some(kind) = decision_type(&gguf) {
            return Err(ModelError::Decision { kind }.to_string());
        }
        if !has_head(&gguf) {
            return Err("it has no head (cls.output.weight) that scores texts".to_owned());
        }
        let architecture = gguf.string("general.architecture").ok().flatten().unwrap_or_default();
        match EncoderRow::named(architecture) {
            Some(row) => Scorer::of_encoder(gguf, row),
            None => Scorer::of_decoder(&gguf, file, templates),
        }
    }

    fn of_encoder(gguf: Gguf, row: &'static EncoderRow) -> Result<Scorer, String> {
        let form = PairForm::of(&gguf, false)?;
        let pooling = pooling(&gguf, row)?;
        let encoder = Encoder::load(gguf, row)?;
        let head = Head::read(encoder.gguf(), encoder.width(), encoder.epsilon(), row.head_activation)?;
        Ok(Scorer { network: Network::Encoder(Box::new(encoder)), form, head, pooling })
    }

    fn of_decoder(gguf: &Gguf, file: &ModelFile, templates: &TemplateHost) -> Result<Scorer, String> {
        let decoder = PooledDecoder::load(file, MAX_TOKENS, templates)?;
        let head = Head::read(gguf, decoder.width(), decoder.norm_epsilon(), HeadActivation::Tanh)?;
        let form = PairForm::of(gguf, head.yes().is_none())?;
        // The last token alone has seen all others.
        Ok(Scorer { network: Network::Decoder(Box::new(decoder)), form, head, pooling: Pooling::Last })
    }

    fn scored(&self, query: &str, texts: &[&str], is_over: &dyn Fn() -> bool) -> Result<Vec<Relevance>, Failure> {
        if is_over() {
            return Err(Failure::Over);
        }
        let (pairs, states) = match &self.network {
            Network::Encoder(encoder) => {
                let most = encoder.n_positions().min(MAX_TOKENS);
                let pairs = Pairs { form: &self.form, tokenizer: encoder.tokenizer(), chat: None, most };
                let pairs = fitted(&pairs, query, texts)?;
                let states = self.states_of_encoder(encoder, &pairs, is_over)?;
                (pairs, states)
            }
            Network::Decoder(decoder) => self.states_of_decoder(decoder, query, texts, is_over)?,
        };
        let outputs = self.head.outputs(&states).map_err(Failure::Model)?;
        let relevance = |((tokens, is_cut), outputs): (Pair, Vec<f32>)| Relevance {
            score: self.head.score(&outputs),
            outputs,
            tokens: tokens.len(),
            is_cut,
        };
        Ok(pairs.into_iter().zip(outputs).map(relevance).collect())
    }

    fn states_of_encoder(
        &self,
        encoder: &Encoder,
        pairs: &[Pair],
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<f32>>, Failure> {
        let tokens: Vec<Vec<u32>> = pairs.iter().map(|(tokens, _)| tokens.clone()).collect();
        let states = encoder.pooled_unless(&tokens, self.pooling, is_over).map_err(Failure::Model)?;
        states.ok_or(Failure::Over)
    }

    /// The pairs and their states. The beginning that they have in common is computed once.
    fn states_of_decoder(
        &self,
        decoder: &PooledDecoder,
        query: &str,
        texts: &[&str],
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Vec<Pair>, Vec<Vec<f32>>), Failure> {
        let mut model = decoder.model();
        let text = Arc::clone(model.text());
        let chat = match self.form {
            PairForm::Conversation => Some(text.template().map_err(|error| Failure::Model(with_causes(error)))?),
            PairForm::Template(_) | PairForm::Joined => None,
        };
        let pairs = Pairs { form: &self.form, tokenizer: text.tokenizer(), chat, most: model.context_length() };
        let pairs = fitted(&pairs, query, texts)?;
        let n_shared = n_shared(&pairs);
        let begun = (n_shared >= LEAST_SHARED).then(|| decoder.begun(&mut model, &pairs[0].0[..n_shared]));
        let begun = begun.transpose().map_err(Failure::Model)?;
        let n_begun = if begun.is_some() { n_shared } else { 0 };
        let states = pairs.iter().map(|(tokens, _)| match is_over() {
            true => Err(Failure::Over),
            false => {
                decoder.pooled(&mut model, begun.as_ref(), &tokens[n_begun..], self.pooling).map_err(Failure::Model)
            }
        });
        let states = states.collect::<Result<Vec<_>, Failure>>();
        if let Some(begun) = begun {
            model.release(begun);
        }
        Ok((pairs, states?))
    }
}

fn fitted(pairs: &Pairs<'_>, query: &str, texts: &[&str]) -> Result<Vec<Pair>, Failure> {
    texts.iter().map(|text| pairs.fitted(query, text).map_err(Failure::Pair)).collect()
}

/// Number of leading tokens that several pairs share, not counting their last.
fn n_shared(pairs: &[Pair]) -> usize {
    let [(first, _), others @ ..] = pairs else { return 0 };
    let common = |other: &Vec<u32>| first.iter().zip(other).take_while(|(one, other)| one == other).count();
    let shared = others.iter().map(|(other, _)| common(other).min(other.len() - 1)).min();
    shared.map_or(0, |shared| shared.min(first.len() - 1))
}

/// The pooling of the states that a head on an encoder reads.
fn pooling(gguf: &Gguf, row: &EncoderRow) -> Result<Pooling, String> {
    let key = format!("{}.classifier.pooling_type", row.name);
    match gguf.unsigned(&key).map_err(|error| with_causes(&error))? {
        None => Ok(row.pooled_by_head),
        Some(number) => Pooling::numbered(number).ok_or_else(|| {
            format!(
                "its head's pooling ({number}) is not supported: the mean (1), the first token (2) and the last (3) are"
            )
        }),
    }
}
