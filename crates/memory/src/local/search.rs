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

/// The fewest candidates to request from the index.
const FEWEST_CANDIDATES: usize = 32;

impl Opened {
    /// The `n` most relevant engrams that pass the filters, most relevant first; see [`Ranking`].
    ///
    /// The index returns the most similar engrams, which need not be the most relevant. So more and more of them are
    /// requested, until even the best grade could not lift the next one above the last result.
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

    /// The same with everything that is known about them.
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
            let candidates = self.with_index(None, |index| index.nearest(&vector.values, n_candidates))?;
            for candidate in candidates.iter().skip(n_seen) {
                self.consider(candidate, vector, filters, &mut found)?;
            }
            n_seen = candidates.len();
            let is_all = n_seen < n_candidates;
            let rest = candidates.last().map_or(f32::NEG_INFINITY, |candidate| candidate.similarity);
            if is_all || !found.could_be_improved(rest) || filters.min_similarity.is_some_and(|least| rest < least) {
                return Ok(found.best);
            }
            n_candidates *= 2;
        }
    }

    fn consider(
        &self,
        candidate: &Neighbour,
        vector: &Vector,
        filters: &Filters,
        found: &mut Found,
    ) -> Result<(), MemoryError> {
        // Engrams that are removed meanwhile are left out.
        let Some(id) = self.storage.get(&Numbered::Engram.key(candidate.sequence))? else { return Ok(()) };
        let id = id_of(&id)?;
        if let Some(stored) = self.vector(id)?.filter(|stored| stored.model == vector.model) {
            self.consider_vector(id, &stored, vector, filters, found)?;
        }
        Ok(())
    }

    /// Compares with every vector of a model that is not indexed.
    fn search_storage(&self, vector: &Vector, filters: &Filters, found: &mut Found) -> Result<(), MemoryError> {
        for record in self.storage.range(keys_of_all(b'v')) {
            let (key, bytes) = record?;
            let stored = StoredVector::from_bytes(&bytes)?;
            if stored.is_of(&vector.model, Some(vector.values.len())) {
                self.consider_vector(id_of(&key[1..])?, &stored, vector, filters, found)?;
            }
        }
        Ok(())
    }

    fn consider_vector(
        &self,
        id: QueryId,
        stored: &StoredVector,
        vector: &Vector,
        filters: &Filters,
        found: &mut Found,
    ) -> Result<(), MemoryError> {
        let similarity = cosine(&stored.values, &vector.values);
        if filters.min_similarity.is_some_and(|least| similarity < least) {
            return Ok(());
        }
        if let Some(engram) = self.get(id)?.filter(|engram| filters.accept(engram)) {
            found.add(engram, similarity);
        }
        Ok(())
    }
}

/// An engram that was found by its vector.
pub(super) struct Candidate {
    pub(super) engram: Engram,
    pub(super) similarity: f32,
    pub(super) relevance: f32,
}

impl Candidate {
    fn into_recalled(self) -> RecalledEngram {
        let Candidate { engram, similarity, relevance } = self;
        recalled(engram, similarity, relevance, 0.0)
    }
}

/// An engram as it is recalled, with the share of the question's words that it holds.
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
    fn add(&mut self, engram: Engram, similarity: f32) {
        let relevance = self.ranking.relevance(similarity, &engram);
        // Among equals, the first one found stays first.
        let place = self.best.partition_point(|other| other.relevance >= relevance);
        self.best.insert(place, Candidate { engram, similarity, relevance });
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
