//! Remembering an exchange: the engram of the answer, and those of the facts that the user stated in the question.
//!
//! A fact is embedded as what it says. Question and answer together are about what was asked, and a fact that was
//! mentioned beside it would hardly be found.

use std::sync::Arc;

use hone_memory::{Engram, Fact, MemoryError, MemoryStore, Update};
use hone_protocol::{Embed, HolderId, RespondentId, with_causes};

use crate::statements::{Statement, statements_in};

/// Remembers exchanges as a chat does.
#[derive(Clone)]
pub struct Rememberer {
    /// Where they are kept.
    pub store: MemoryStore,
    /// What makes vectors of texts; what is remembered without one gets its vector later.
    pub embedder: Option<Arc<dyn Embed>>,
    /// Whether facts are looked for in questions.
    pub takes_facts: bool,
}

impl Rememberer {
    /// Remembers an exchange, whose due grade `holder` works on; it is durable when this returns. Returns its sequence
    /// number, or 0 if it is kept for later.
    ///
    /// # Errors
    /// When it can be neither written nor kept.
    pub fn remember(&self, engram: Engram, holder: Option<HolderId>) -> Result<u64, MemoryError> {
        if !self.takes_facts {
            let vector = self.vectors(&[&engram.text()]).pop().flatten();
            return self.store.remember_exchange(engram, vector, None, holder);
        }
        let statements = statements_of(&engram);
        let text = engram.text();
        let texts: Vec<&str> =
            statements.iter().map(|statement| statement.text.as_str()).chain([text.as_str()]).collect();
        let mut vectors = self.vectors(&texts);
        let vector = vectors.pop().flatten();
        self.store.remember_exchange(engram, vector, Some(facts(statements, vectors)), holder)
    }

    /// Remembers an exchange whose question states no fact without its vector, which [`Rememberer::complete`] computes
    /// later: whoever waits for an answer does not wait for that. Facts may be asked for at once, and an exchange with some
    /// is remembered as [`Rememberer::remember`] does. Returns also whether it is complete.
    ///
    /// # Errors
    /// When it can be neither written nor kept.
    pub(crate) fn remember_first(&self, engram: Engram, holder: Option<HolderId>) -> Result<(u64, bool), MemoryError> {
        if self.embedder.is_none() || !statements_of(&engram).is_empty() {
            return Ok((self.remember(engram, holder)?, true));
        }
        let facts = self.takes_facts.then(Vec::new);
        Ok((self.store.remember_exchange(engram, None, facts, holder)?, false))
    }

    /// Gives an engram that was remembered first its vector.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn complete(&self, engram: &Engram) -> Result<(), MemoryError> {
        match self.vector_of(engram) {
            Some(vector) => self.store.set_vector(engram.query_id, vector).map(drop),
            None => Ok(()),
        }
    }

    /// Remembers what was stated in an exchange that was remembered without looking for it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_facts(&self, engram: &Engram) -> Result<Update, MemoryError> {
        let statements = statements_of(engram);
        let texts: Vec<&str> = statements.iter().map(|statement| statement.text.as_str()).collect();
        let vectors = self.vectors(&texts);
        self.store.add_facts(engram.query_id, facts(statements, vectors))
    }

    /// The engram's vector; without one it is remembered all the same, and cannot be found by its meaning.
    pub(crate) fn vector_of(&self, engram: &Engram) -> Option<Vec<f32>> {
        self.vectors(&[&engram.text()]).pop().flatten()
    }

    /// A vector for each text, or none where the embedder fails.
    fn vectors(&self, texts: &[&str]) -> Vec<Option<Vec<f32>>> {
        let Some(embedder) = &self.embedder else { return vec![None; texts.len()] };
        match embedder.embed(texts) {
            Ok(vectors) => vectors.into_iter().map(Some).collect(),
            Err(error) => {
                tracing::error!("an engram has no vector and cannot be recalled: {}", with_causes(&error));
                vec![None; texts.len()]
            }
        }
    }
}

/// What was stated in an exchange. Both respondents are asked the same question; its facts belong to the first one's
/// engram.
fn statements_of(engram: &Engram) -> Vec<Statement> {
    match engram.respondent_id {
        RespondentId::A => statements_in(&engram.query),
        _ => Vec::new(),
    }
}

fn facts(statements: Vec<Statement>, vectors: Vec<Option<Vec<f32>>>) -> Vec<Fact> {
    let fact = |(Statement { text, is_update }, vector)| Fact { text, is_update, vector };
    statements.into_iter().zip(vectors).map(fact).collect()
}
