//! Remembering an exchange: the engram of the answer, and those of the facts that the user stated in the question.
//!
//! A fact is embedded as what it says. Question and answer together are about what was asked, and a fact that was
//! mentioned beside it would hardly be found.

use std::iter;
use std::sync::Arc;

use hone_memory::{Engram, Fact, MemoryError, MemoryStore, Update};
use hone_protocol::{Embed, HolderId, RespondentId, with_causes};

use crate::settings::SCOPE_OF_CLIENTS;
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

    /// Remembers an exchange without the vectors, which [`Rememberer::complete`] computes later: nobody who waits for an
    /// answer waits for them. Until then it is found by its words. In a chat, facts may be asked for at once, and an exchange
    /// with some is remembered as [`Rememberer::remember`] does. Returns also whether it is complete.
    ///
    /// # Errors
    /// When it can be neither written nor kept.
    pub(crate) fn remember_first(&self, engram: Engram, holder: Option<HolderId>) -> Result<(u64, bool), MemoryError> {
        let statements = statements_of(&engram);
        let is_of_client = engram.scope.as_deref() == Some(SCOPE_OF_CLIENTS);
        if self.embedder.is_none() || (!is_of_client && !statements.is_empty()) {
            return Ok((self.remember(engram, holder)?, true));
        }
        let facts = self.takes_facts.then(|| facts(statements, iter::repeat(None)));
        Ok((self.store.remember_exchange(engram, None, facts, holder)?, false))
    }

    /// Gives an exchange that was remembered first, and its facts, their vectors.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn complete(&self, engram: &Engram) -> Result<(), MemoryError> {
        let mut statements = if self.takes_facts { statements_of(engram) } else { Vec::new() };
        statements.truncate(Engram::MOST_FACTS);
        let text = engram.text();
        let texts: Vec<&str> = statements.iter().map(|it| it.text.as_str()).chain([text.as_str()]).collect();
        let ids = (0..statements.len()).map(|number| Engram::fact_id(engram.query_id, number)).chain([engram.query_id]);
        for (id, vector) in ids.zip(self.vectors(&texts)) {
            vector.map(|vector| self.store.set_vector(id, vector)).transpose()?;
        }
        Ok(())
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

fn facts(statements: Vec<Statement>, vectors: impl IntoIterator<Item = Option<Vec<f32>>>) -> Vec<Fact> {
    let fact = |(Statement { text, is_update }, vector)| Fact { text, is_update, vector };
    statements.into_iter().zip(vectors).map(fact).collect()
}
