//! Recall: engrams that may help to answer a question, found by meaning and by words.
//!
//! The nearest vectors and the texts with the question's words are ranked separately and merged by reciprocal rank
//! fusion (Cormack, Clarke and Büttcher, *Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
//! Methods*, SIGIR 2009): a rank `r` of either list adds `weight / (60 + r)`. Engrams that are not similar enough by
//! either measure are left out. Every exchange appears once. The newest of the statements about one thing comes first,
//! and a reviewed summary comes before its sources.

use std::collections::{BTreeMap, HashSet};

use hone_protocol::{QueryId, RecalledEngram};

use super::engrams::all_sequences;
use super::opened::Opened;
use super::search::{Candidate, cosine, recalled};
use crate::engram::{Engram, EngramKind};
use crate::error::MemoryError;
use crate::filters::Filters;
use crate::lock::lock;
use crate::options::{Matching, Ranking};
use crate::records::{StoredVector, id_of};
use crate::request::{Question, Vector};
use crate::words::{WordIndex, WordMatch};

/// The fewest candidates by meaning that are merged, and the most by words.
const CANDIDATES: usize = 128;

/// Merged candidates per wanted engram that are compared with each other.
const POOL_PER_RESULT: usize = 4;

/// The similarity of an exchange, as a share of that of a fact stated in it, from which the exchange stands for both:
/// it also holds the statement, and the answer may be the one wanted.
const EXCHANGE_INSTEAD: f32 = 0.9;

/// The constant of reciprocal rank fusion, as its authors set it.
const FUSION: f32 = 60.0;

/// A candidate with its ranking data.
struct Match {
    engram: Engram,
    similarity: f32,
    relevance: f32,
    /// Its vector; empty if it was found by its words and has none.
    vector: Vec<f32>,
    words: Option<WordMatch>,
    fused: f32,
    /// The statement, if it is a fact or stands for one.
    stated: Option<Stated>,
}

/// A statement for comparison with others.
struct Stated {
    vector: Vec<f32>,
    is_update: bool,
}

impl Opened {
    /// At most `n` engrams that may help to answer a question, best first.
    pub(super) fn recall(
        &self,
        question: &Question,
        n: usize,
        filters: &Filters,
        ranking: &Ranking,
    ) -> Result<Vec<RecalledEngram>, MemoryError> {
        let mut matches = self.matches(question, n.max(CANDIDATES), filters, ranking)?;
        prefer_facts(&mut matches, question.matching.facts_weight);
        fuse(&mut matches, question.matching.words_weight);
        keep_similar(&mut matches, &question.matching);
        self.leave_out_known(&mut matches, &question.known)?;
        if !question.keeps_all {
            keep_one_of_each(&mut matches, question.matching.duplicate);
        }
        summaries_first(&mut matches);
        matches.truncate(n.saturating_mul(POOL_PER_RESULT));
        newest_first(&mut matches, &question.matching);
        matches.truncate(n);
        Ok(matches.into_iter().map(Match::into_recalled).collect())
    }

    /// All engrams that are near by meaning or have words of the question.
    fn matches(
        &self,
        question: &Question,
        n: usize,
        filters: &Filters,
        ranking: &Ranking,
    ) -> Result<Vec<Match>, MemoryError> {
        let near = self.candidates(&question.vector, n, filters, ranking)?;
        let mut matches: BTreeMap<u64, Match> =
            near.into_iter().map(|candidate| (candidate.engram.sequence, Match::new(candidate, None))).collect();
        let mut others = Vec::new();
        for words in self.words_of(&question.text)? {
            match matches.get_mut(&words.sequence) {
                Some(known) => known.words = Some(words),
                None => others.push(words),
            }
        }
        for (candidate, words) in self.found_by_words(others, &question.vector, filters, ranking)? {
            matches.insert(words.sequence, Match::new(candidate, Some(words)));
        }
        let is_near = |found: &Match| filters.min_similarity.is_none_or(|least| found.similarity >= least);
        Ok(matches.into_values().filter(is_near).collect())
    }

    /// The matches that pass the filters; a vector is empty if there is none of the question's model.
    fn found_by_words(
        &self,
        matches: Vec<WordMatch>,
        question: &Vector,
        filters: &Filters,
        ranking: &Ranking,
    ) -> Result<Vec<(Candidate, WordMatch)>, MemoryError> {
        let sequences: Vec<u64> = matches.iter().map(|words| words.sequence).collect();
        let ids = self.ids_of(&sequences)?;
        let (found, words): (Vec<QueryId>, Vec<WordMatch>) =
            ids.into_iter().zip(matches).filter_map(|(id, words)| Some((id?, words))).unzip();
        let vectors = self.vectors(&found, &question.model, self.dimensions(&question.model)?)?;
        let candidate = |((engram, vector), words): ((Option<Engram>, Option<StoredVector>), WordMatch)| {
            let engram = engram.filter(|engram| filters.accept(engram))?;
            let vector = vector.map_or_else(Vec::new, |vector| vector.values);
            let similarity = cosine(&vector, &question.values);
            let relevance = ranking.relevance(similarity, &engram);
            Some((Candidate { engram, similarity, relevance, vector }, words))
        };
        Ok(self.get_all(&found)?.into_iter().zip(vectors).zip(words).filter_map(candidate).collect())
    }

    fn words_of(&self, question: &str) -> Result<Vec<WordMatch>, MemoryError> {
        if let Some(database) = self.storage.database() {
            return database.best_by_words(question, CANDIDATES);
        }
        let mut words = lock(&self.words);
        if words.is_none() {
            *words = Some(self.index_words()?);
        }
        Ok(words.as_ref().map_or_else(Vec::new, |words| words.best(question, CANDIDATES)))
    }

    fn index_words(&self) -> Result<WordIndex, MemoryError> {
        let mut words = WordIndex::default();
        for record in self.storage.range(all_sequences()) {
            // Engrams removed in the meantime and unreadable ones are left out.
            match self.get(id_of(&record?.1)?) {
                Ok(Some(engram)) => words.set(engram.sequence, Some(&engram.text())),
                Ok(None) => {}
                Err(error @ MemoryError::Damaged { .. }) => tracing::warn!(%error, "an engram has no words"),
                Err(error) => return Err(error),
            }
        }
        Ok(words)
    }

    /// Removes known matches: exchanges with a question of the conversation, and facts that were stated in one.
    fn leave_out_known(&self, matches: &mut Vec<Match>, known: &[String]) -> Result<(), MemoryError> {
        if known.is_empty() {
            return Ok(());
        }
        let known: HashSet<&str> = known.iter().map(String::as_str).collect();
        let mut kept = Vec::new();
        for found in matches.drain(..) {
            let source = found.engram.source.map(|source| self.get(source)).transpose()?.flatten();
            let question = source.as_ref().map_or(&found.engram.query, |source| &source.query);
            if !known.contains(question.as_str()) {
                kept.push(found);
            }
        }
        *matches = kept;
        Ok(())
    }
}

impl Match {
    fn new(candidate: Candidate, words: Option<WordMatch>) -> Match {
        let Candidate { engram, similarity, relevance, vector } = candidate;
        let is_fact = engram.kind == EngramKind::Fact;
        let stated = is_fact.then(|| Stated { vector: vector.clone(), is_update: engram.is_update });
        Match { engram, similarity, relevance, vector, words, fused: 0.0, stated }
    }

    fn share(&self) -> f32 {
        self.words.map_or(0.0, |words| words.share)
    }

    fn is_fact(&self) -> bool {
        self.engram.kind == EngramKind::Fact
    }

    /// Whether it was stated after the other one, about the same thing.
    fn supersedes(&self, other: &Match, matching: &Matching) -> bool {
        let (Some(newer), Some(older)) = (&self.stated, &other.stated) else { return false };
        let least = if newer.is_update { matching.changed_statement } else { matching.same_statement };
        self.engram.sequence > other.engram.sequence && cosine(&newer.vector, &older.vector) >= least
    }

    fn into_recalled(self) -> RecalledEngram {
        let share = self.share();
        recalled(self.engram, self.similarity, self.relevance, share)
    }
}

/// Raises the relevance of facts; a negative one stays, because a factor would push it further down.
fn prefer_facts(matches: &mut [Match], weight: f32) {
    for found in matches.iter_mut().filter(|found| found.is_fact() && found.relevance > 0.0) {
        found.relevance *= 1.0 + weight;
    }
}

/// Merges the two rankings, and sorts by the result; the latest first among equals.
fn fuse(matches: &mut [Match], words_weight: f32) {
    matches.sort_by(|a, b| b.relevance.total_cmp(&a.relevance).then(b.engram.sequence.cmp(&a.engram.sequence)));
    for (rank, found) in (1_u16..).zip(matches.iter_mut()) {
        found.fused = 1.0 / (FUSION + f32::from(rank));
    }
    let score = |found: &Match| found.words.map_or(0.0, |words| words.score);
    let mut by_words: Vec<&mut Match> = matches.iter_mut().filter(|found| found.words.is_some()).collect();
    by_words.sort_by(|a, b| score(b).total_cmp(&score(a)));
    for (rank, found) in (1_u16..).zip(by_words) {
        found.fused += words_weight / (FUSION + f32::from(rank));
    }
    matches.sort_by(|a, b| b.fused.total_cmp(&a.fused));
}

/// Removes matches that are not similar enough, to the question or relative to the most similar, or have too few of its
/// words.
fn keep_similar(matches: &mut Vec<Match>, matching: &Matching) {
    let highest = matches.iter().map(|found| found.similarity).fold(0.0, f32::max);
    // Without a share there is no limit, even for matches opposite to the question.
    let nearest = if matching.nearness > 0.0 { matching.nearness * highest } else { matching.threshold };
    let least = matching.threshold.max(nearest);
    let is_near = |found: &Match| found.similarity >= least && found.share() >= matching.least_words;
    matches.retain(|found| is_near(found) || found.share() >= matching.words_threshold);
}

/// Keeps the best match of each exchange, or the exchange instead of a fact that is hardly more similar. Of engrams
/// that say nearly the same, keeps the newest, at the place of the best.
fn keep_one_of_each(matches: &mut Vec<Match>, duplicate: f32) {
    let mut kept: Vec<Match> = Vec::new();
    for found in matches.drain(..) {
        if let Some(other) = kept.iter_mut().find(|other| other.engram.exchange() == found.engram.exchange()) {
            let is_near = found.similarity >= EXCHANGE_INSTEAD * other.similarity;
            if other.is_fact() && !found.is_fact() && is_near {
                let stated = other.stated.take();
                *other = Match { stated, ..found };
            }
            continue;
        }
        let says_the_same = |other: &&mut Match| {
            other.is_fact() == found.is_fact()
                && (other.engram.query == found.engram.query || cosine(&other.vector, &found.vector) >= duplicate)
        };
        match kept.iter_mut().find(says_the_same) {
            Some(other) if other.engram.sequence < found.engram.sequence => *other = found,
            Some(_) => {}
            None => kept.push(found),
        }
    }
    *matches = kept;
}

/// Moves every reviewed summary before the first of its sources.
fn summaries_first(matches: &mut [Match]) {
    for index in 1..matches.len() {
        let summary = &matches[index].engram;
        if summary.kind == EngramKind::Consolidation && summary.is_reviewed() {
            let place = (0..index).find(|place| summary.sources.contains(&matches[*place].engram.query_id));
            if let Some(place) = place {
                matches[place..=index].rotate_right(1);
            }
        }
    }
}

/// Moves every statement before the first one that it supersedes.
fn newest_first(matches: &mut [Match], matching: &Matching) {
    for index in 1..matches.len() {
        let place = (0..index).find(|place| matches[index].supersedes(&matches[*place], matching));
        if let Some(place) = place {
            matches[place..=index].rotate_right(1);
        }
    }
}
