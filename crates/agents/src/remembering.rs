//! Remembering an exchange: the engram of the answer, and those of the facts that the user stated in the question.
//!
//! A fact's vector is that of its statement. Question and answer together are about the topic of the question, and a
//! fact mentioned in passing would hardly be found.

use std::iter;
use std::sync::Arc;

use hone_memory::{Engram, Fact, MemoryError, MemoryStore, Update, is_within_scope};
use hone_protocol::{Embed, HolderId, RespondentId, with_causes};

use crate::settings::SCOPE_OF_CLIENTS;
use crate::statements::{Statement, statements_in};

/// Remembers exchanges in the same way as a chat.
#[derive(Clone)]
pub struct Rememberer {
    /// The store of the exchanges.
    pub store: MemoryStore,
    /// The embedder; exchanges remembered without one get their vectors later.
    pub embedder: Option<Arc<dyn Embed>>,
    /// Whether questions are searched for facts.
    pub takes_facts: bool,
}

impl Rememberer {
    /// Remembers an exchange whose due grade `holder` works on; it is durable when this returns. Returns its sequence
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

    /// Remembers an exchange without the vectors, which [`Rememberer::complete`] computes later, so that no caller
    /// waits for them. Until then it is found by its words. In a chat, facts may be asked for at once, so an exchange
    /// that states some is remembered as by [`Rememberer::remember`]. Also returns whether it is complete.
    ///
    /// # Errors
    /// When it can be neither written nor kept.
    pub(crate) fn remember_first(&self, engram: Engram, holder: Option<HolderId>) -> Result<(u64, bool), MemoryError> {
        let statements = statements_of(&engram);
        let is_of_client = engram.scope.as_deref().is_some_and(|scope| is_within_scope(scope, SCOPE_OF_CLIENTS));
        if self.embedder.is_none() || (!is_of_client && !statements.is_empty()) {
            return Ok((self.remember(engram, holder)?, true));
        }
        let facts = self.takes_facts.then(|| facts(statements, iter::repeat(None)));
        Ok((self.store.remember_exchange(engram, None, facts, holder)?, false))
    }

    /// Adds the vectors of an exchange that was remembered without them, and of its facts.
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

    /// Remembers the facts stated in an exchange that was remembered without searching it for them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_facts(&self, engram: &Engram) -> Result<Update, MemoryError> {
        let statements = statements_of(engram);
        let texts: Vec<&str> = statements.iter().map(|statement| statement.text.as_str()).collect();
        let vectors = self.vectors(&texts);
        self.store.add_facts(engram.query_id, facts(statements, vectors))
    }

    /// The engram's vector; an engram without one is still remembered, but cannot be found by its meaning.
    pub(crate) fn vector_of(&self, engram: &Engram) -> Option<Vec<f32>> {
        self.vectors(&[&engram.text()]).pop().flatten()
    }

    /// A vector for each text, or `None` if the embedder fails.
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

/// The facts stated in an exchange. Both respondents are asked the same question; its facts belong to the first one's
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
