//! Search: the engrams most relevant to a question, best first.

use hone_protocol::{Judging, QueryId, RecalledEngram};

use super::opened::Opened;
use crate::engram::{Engram, EngramKind};
use crate::error::MemoryError;
use crate::filters::Filters;
use crate::index::Neighbour;
use crate::options::Ranking;
use crate::records::{Numbered, StoredVector, id_of, keys_of_all};
use crate::request::Vector;

/// Initial candidates from the index per wanted engram.
const CANDIDATES_PER_RESULT: usize = 4;

/// Engrams per read.
const READ_AT_ONCE: usize = 256;

/// The fewest candidates to request from the index.
const FEWEST_CANDIDATES: usize = 32;

impl Opened {
    /// The `n` most relevant engrams that pass the filters, most relevant first; see [`Ranking`].
    ///
    /// The index returns the most similar engrams, which need not be the most relevant. So the number of requested
    /// engrams grows until even the best grade could not lift the next one above the last result.
    pub(super) fn search(
        &self,
        vector: &Vector,
        n: usize,
        filters: &Filters,
        ranking: &Ranking,
    ) -> Result<Vec<RecalledEngram>, MemoryError> {
        let found = self.candidates(vector, n, filters, ranking)?;
        Ok(found.into_iter().map(Candidate::into_recalled).collect())
    }

    /// Like [`Opened::search`], with the vectors and scores of the engrams.
    pub(super) fn candidates(
        &self,
        vector: &Vector,
        n: usize,
        filters: &Filters,
        ranking: &Ranking,
    ) -> Result<Vec<Candidate>, MemoryError> {
        let mut found = Found { n, ranking, best: Vec::new() };
        if n == 0 {
            return Ok(found.best);
        }
        if self.dimensions(&vector.model)?.is_some_and(|known| known != vector.values.len()) {
            self.write(|draft| draft.settle_dimensions(vector))?;
        }
        if vector.model != self.indexed_model() {
            self.search_storage(vector, filters, &mut found)?;
            return Ok(found.best);
        }
        let mut n_candidates = n.saturating_mul(CANDIDATES_PER_RESULT).max(FEWEST_CANDIDATES);
        let mut n_seen = 0;
        loop {
            let candidates = self.nearest(vector, n_candidates)?;
            self.consider(candidates.get(n_seen..).unwrap_or_default(), vector, filters, &mut found)?;
            n_seen = candidates.len();
            let is_all = n_seen < n_candidates;
            let rest = candidates.last().map_or(f32::NEG_INFINITY, |candidate| candidate.similarity);
            if is_all || !found.could_be_improved(rest) || filters.min_similarity.is_some_and(|least| rest < least) {
                return Ok(found.best);
            }
            n_candidates *= 2;
        }
    }

    /// The `n` nearest vectors of the indexed model, nearest first.
    fn nearest(&self, vector: &Vector, n: usize) -> Result<Vec<Neighbour>, MemoryError> {
        if let Some(database) = self.storage.database()
            && let Some(nearest) = database.nearest(vector, n)?
        {
            return Ok(nearest);
        }
        self.with_index(None, |index| index.nearest(&vector.values, n))
    }

    fn consider(
        &self,
        candidates: &[Neighbour],
        vector: &Vector,
        filters: &Filters,
        found: &mut Found,
    ) -> Result<(), MemoryError> {
        let sequences: Vec<u64> = candidates.iter().map(|candidate| candidate.sequence).collect();
        // Engrams removed in the meantime are left out.
        let ids: Vec<QueryId> = self.ids_of(&sequences)?.into_iter().flatten().collect();
        let stored = self.vectors(&ids, &vector.model, Some(vector.values.len()))?;
        let near = ids.into_iter().zip(stored).filter_map(|(id, stored)| Near::of(id, stored?, vector, filters));
        self.consider_near(near.collect(), filters, found)
    }

    /// The ids of engrams by their sequence numbers; `None` for missing ones.
    pub(super) fn ids_of(&self, sequences: &[u64]) -> Result<Vec<Option<QueryId>>, MemoryError> {
        let keys: Vec<Vec<u8>> = sequences.iter().map(|sequence| Numbered::Engram.key(*sequence)).collect();
        self.storage.get_all(&keys)?.into_iter().map(|id| id.map(|id| id_of(&id)).transpose()).collect()
    }

    /// Compares with every vector of a model that is not indexed.
    fn search_storage(&self, vector: &Vector, filters: &Filters, found: &mut Found) -> Result<(), MemoryError> {
        let mut near = Vec::new();
        for record in self.storage.range(keys_of_all(b'v')) {
            let (key, bytes) = record?;
            let stored = StoredVector::from_bytes(&bytes)?;
            if stored.is_of(&vector.model, Some(vector.values.len())) {
                near.extend(Near::of(id_of(&key[1..])?, stored, vector, filters));
            }
            if near.len() == READ_AT_ONCE {
                self.consider_near(std::mem::take(&mut near), filters, found)?;
            }
        }
        self.consider_near(near, filters, found)
    }

    fn consider_near(&self, near: Vec<Near>, filters: &Filters, found: &mut Found) -> Result<(), MemoryError> {
        let ids: Vec<QueryId> = near.iter().map(|near| near.id).collect();
        for (near, engram) in near.into_iter().zip(self.get_all(&ids)?) {
            if let Some(engram) = engram.filter(|engram| filters.accept(engram)) {
                found.add(engram, near);
            }
        }
        Ok(())
    }
}

/// A vector that is near enough.
struct Near {
    id: QueryId,
    similarity: f32,
    vector: Vec<f32>,
}

impl Near {
    fn of(id: QueryId, stored: StoredVector, vector: &Vector, filters: &Filters) -> Option<Near> {
        let similarity = cosine(&stored.values, &vector.values);
        let is_near = filters.min_similarity.is_none_or(|least| similarity >= least);
        is_near.then_some(Near { id, similarity, vector: stored.values })
    }
}

/// An engram that was found by its vector.
pub(super) struct Candidate {
    pub(super) engram: Engram,
    pub(super) similarity: f32,
    pub(super) relevance: f32,
    /// Its vector of the question's model; empty without one.
    pub(super) vector: Vec<f32>,
}

impl Candidate {
    fn into_recalled(self) -> RecalledEngram {
        let Candidate { engram, similarity, relevance, .. } = self;
        recalled(engram, similarity, relevance, 0.0)
    }
}

/// An engram in the form of a recall result; `words` is the share of the question's words that it has.
pub(super) fn recalled(engram: Engram, similarity: f32, relevance: f32, words: f32) -> RecalledEngram {
    let (score, is_fact) = (engram.score(), engram.kind == EngramKind::Fact);
    let is_unreviewed = !engram.is_reviewed();
    let Engram { query_id, query, answer, grade, .. } = engram;
    let Judging { self_graded, method, .. } = grade.map(|grade| grade.judging).unwrap_or_default();
    RecalledEngram {
        query_id,
        query,
        answer,
        score,
        similarity,
        relevance,
        self_graded,
        judging_method: method,
        words,
        is_fact,
        is_unreviewed,
    }
}

/// The best results so far.
struct Found<'a> {
    n: usize,
    ranking: &'a Ranking,
    best: Vec<Candidate>,
}

impl Found<'_> {
    fn add(&mut self, engram: Engram, Near { similarity, vector, .. }: Near) {
        let relevance = self.ranking.relevance(similarity, &engram);
        // Among equals, the first one found stays first.
        let place = self.best.partition_point(|other| other.relevance >= relevance);
        self.best.insert(place, Candidate { engram, similarity, relevance, vector });
        self.best.truncate(self.n);
    }

    /// Whether an engram with at most this similarity could be among the best.
    fn could_be_improved(&self, similarity: f32) -> bool {
        let last = self.best.get(self.n - 1);
        last.is_none_or(|last| self.ranking.highest_relevance(similarity) > last.relevance)
    }
}

/// The cosine of the angle between two vectors of length 1; 0 if their dimensions differ.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    let product: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    product.clamp(-1.0, 1.0)
}
