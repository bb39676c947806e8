//! Building the memories of a set, and asking its probes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use hone_agents::{MemorySettings, Recaller, Rememberer};
use hone_memory::{Engram, EngramKind, Filters, MemoryOptions, MemoryStore};
use hone_protocol::{
    Embed, EmbedError, FinishReason, Query, QueryId, Rating, RecalledEngram, Response, SessionId, TextLength, Timestamp,
};
use tempfile::TempDir;

use super::set::{AnswerOutcome, Evidence, Person, Probe, RecallSet, Turn};
use crate::arguments::Split;
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// Phrases of answers that only say that nothing is known.
const UNKNOWING: [&str; 5] = ["don't know", "don't have", "do not know", "do not have", "can't say"];

/// The number of leading characters of an answer that are searched for them.
const FIRST_WORDS: usize = 60;

/// Milliseconds between two turns.
const BETWEEN_TURNS: u64 = 60_000;

/// The memories of a set's persons.
pub(super) struct Memories {
    pub(super) embedder: Arc<dyn Embed>,
    /// In the order of the persons.
    memories: Vec<Memory>,
}

/// One person's memory.
pub(super) struct Memory {
    pub(super) store: MemoryStore,
    /// The turn of each exchange.
    pub(super) turns: HashMap<QueryId, usize>,
    /// The facts that were taken from each turn.
    facts: BTreeMap<usize, Vec<String>>,
    /// Removed once the store is closed.
    _folder: TempDir,
}

/// The result of a probe.
pub(super) struct ProbeResult<'a> {
    pub(super) split: Option<Split>,
    pub(super) person: &'a str,
    pub(super) probe: &'a Probe,
    pub(super) recalled: Vec<RecalledEngram>,
    /// The classification of each of them.
    pub(super) items: Vec<Item>,
}

/// The classification of a recalled engram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) is_hit: bool,
    pub(super) is_junk: bool,
    pub(super) is_misleading: bool,
}

impl Memories {
    /// Remembers everything that is said in a set.
    ///
    /// # Errors
    /// When there is no embedder, or memory cannot be written.
    pub(super) fn build(app: &Invocation, set: &RecallSet, databases: Option<&str>) -> anyhow::Result<Memories> {
        let embedder: Arc<dyn Embed> = Arc::new(Cached::new(app.embedder()?));
        let steps = Steps::new(app.output, "turns");
        let (mut memories, mut n_done) = (Vec::new(), 0);
        for (number, person) in set.persons.iter().enumerate() {
            let folder = tempfile::tempdir().context("there is no room for a temporary memory")?;
            let url = databases.map(|databases| databases.replace("{}", &number.to_string()));
            let store = MemoryStore::open(folder.path(), MemoryOptions { url, ..app.memory_options() })?;
            let (takes_facts, rememberer_store) = (app.config.memory.settings.facts, store.clone());
            let rememberer = Rememberer { store: rememberer_store, embedder: Some(embedder.clone()), takes_facts };
            let mut turns = HashMap::new();
            let sessions: HashMap<u64, SessionId> =
                person.turns.iter().map(|turn| (turn.session, SessionId::fresh())).collect();
            for (place, turn) in person.turns.iter().enumerate() {
                steps.show(n_done, set.n_turns(), "");
                turns.insert(remember(&rememberer, turn, place, sessions[&turn.session])?, place);
                n_done += 1;
            }
            let facts = facts_in(&store, &turns)?;
            memories.push(Memory { store, turns, facts, _folder: folder });
        }
        steps.clear();
        Ok(Memories { embedder, memories })
    }

    /// Asks every probe.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub(super) fn ask<'a>(
        &self,
        set: &'a RecallSet,
        settings: &MemorySettings,
    ) -> anyhow::Result<Vec<ProbeResult<'a>>> {
        let mut asked = Vec::new();
        for (person, memory) in set.persons.iter().zip(&self.memories) {
            let (store, embedder) = (memory.store.clone(), self.embedder.clone());
            let recaller = Recaller { store, embedder, settings: Arc::new(settings.clone()) };
            for probe in &person.probes {
                let recalled = recaller.search(&probe.text, &Query::new("", ""), None);
                let items = recalled.iter().map(|recalled| memory.judged(person, probe, recalled));
                let items = items.collect::<anyhow::Result<Vec<Item>>>()?;
                asked.push(ProbeResult { split: person.split, person: &person.name, probe, recalled, items });
            }
        }
        Ok(asked)
    }

    /// The memory of each person, in the order of the persons.
    pub(super) fn of_persons(&self) -> &[Memory] {
        &self.memories
    }

    /// The number of facts that were taken from all turns.
    pub(super) fn n_facts(&self) -> usize {
        self.memories.iter().flat_map(|memory| memory.facts.values()).map(Vec::len).sum()
    }

    /// The number of turns that state a probe's answer, and the number of those with a fact that holds it.
    pub(super) fn extraction(&self, set: &RecallSet) -> (usize, usize) {
        let mut stated: BTreeMap<(usize, usize), bool> = BTreeMap::new();
        for (index, (person, memory)) in set.persons.iter().zip(&self.memories).enumerate() {
            for probe in &person.probes {
                let (Evidence::Texts { expects, .. }, Some(source)) = (&probe.evidence, probe.sources.last()) else {
                    continue;
                };
                if holds_any(&person.turns[*source].user, expects) {
                    let facts = memory.facts.get(source).map_or(&[][..], Vec::as_slice);
                    let is_found = facts.iter().any(|fact| holds_any(fact, expects));
                    *stated.entry((index, *source)).or_default() |= is_found;
                }
            }
        }
        (stated.len(), stated.values().filter(|is_found| **is_found).count())
    }
}

impl Item {
    /// The classification, in words.
    pub(super) fn verdict(self) -> &'static str {
        match self {
            Item { is_junk: true, .. } => "junk",
            Item { is_hit: true, .. } => "hit",
            Item { is_misleading: true, .. } => "misleading",
            _ => "beside the point",
        }
    }
}

impl Memory {
    fn judged(&self, person: &Person, probe: &Probe, recalled: &RecalledEngram) -> anyhow::Result<Item> {
        let engram = self.store.get(recalled.query_id)?.context("what was recalled is not in memory")?;
        let exchange = engram.source.unwrap_or(engram.query_id);
        let place = *self.turns.get(&exchange).context("what was recalled was never said")?;
        let text = engram.text();
        let (is_hit, is_misleading) = match &probe.evidence {
            Evidence::Texts { expects, rejects } => {
                let is_hit = holds_any(&text, expects);
                (is_hit, !is_hit && holds_any(&text, rejects))
            }
            Evidence::Turns(places) => (places.contains(&place), false),
            Evidence::Nothing => (false, false),
        };
        let is_unusable = !matches!(person.turns[place].outcome, AnswerOutcome::Answered | AnswerOutcome::Good)
            || (!recalled.is_fact && knows_nothing(&recalled.answer));
        Ok(Item { is_hit, is_junk: is_unusable || probe.evidence == Evidence::Nothing, is_misleading })
    }
}

/// Remembers a turn as a chat does.
fn remember(rememberer: &Rememberer, turn: &Turn, place: usize, session: SessionId) -> anyhow::Result<QueryId> {
    let finish_reason = match turn.outcome {
        AnswerOutcome::Answered | AnswerOutcome::Good | AnswerOutcome::Bad => Some(FinishReason::Stop),
        AnswerOutcome::Cut => Some(FinishReason::Length),
        AnswerOutcome::Stopped => None,
    };
    let response = Response { finish_reason, ..Response::new(turn.user.clone(), turn.assistant.clone(), "eval") };
    let id = QueryId::fresh();
    let at = Timestamp(BETWEEN_TURNS * u64::try_from(place)?);
    rememberer.remember(Engram { at, ..Engram::new(id, session, &response) }, None)?;
    let rating = match turn.outcome {
        AnswerOutcome::Good => Some(Rating::Good),
        AnswerOutcome::Bad => Some(Rating::Bad),
        AnswerOutcome::Answered | AnswerOutcome::Cut | AnswerOutcome::Stopped => None,
    };
    if rating.is_some() {
        rememberer.store.annotate_feedback(id, rating)?;
    }
    Ok(id)
}

fn facts_in(store: &MemoryStore, turns: &HashMap<QueryId, usize>) -> anyhow::Result<BTreeMap<usize, Vec<String>>> {
    let mut facts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for engram in store.list(&Filters { facts: true, ..Filters::default() }, usize::MAX)? {
        let place = engram.source.and_then(|source| turns.get(&source));
        if let (EngramKind::Fact, Some(place)) = (engram.kind, place) {
            facts.entry(*place).or_default().push(engram.query);
        }
    }
    Ok(facts)
}

fn knows_nothing(answer: &str) -> bool {
    let beginning: String = answer.to_lowercase().replace('’', "'").chars().take(FIRST_WORDS).collect();
    UNKNOWING.iter().any(|phrase| beginning.contains(phrase))
}

/// Whether a text holds one of these as whole words, ignoring case.
fn holds_any(text: &str, wanted: &[String]) -> bool {
    let text = text.to_lowercase();
    wanted.iter().any(|wanted| holds(&text, &wanted.to_lowercase()))
}

fn holds(text: &str, wanted: &str) -> bool {
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(wanted).any(|(at, found)| {
        !is_word(text[..at].chars().next_back()) && !is_word(text[at + found.len()..].chars().next())
    })
}

/// An embedder that computes the vector of a question once, for sets that are asked under many settings.
struct Cached {
    embedder: Arc<dyn Embed>,
    questions: Mutex<HashMap<String, Vec<f32>>>,
}

impl Cached {
    fn new(embedder: Arc<dyn Embed>) -> Cached {
        Cached { embedder, questions: Mutex::default() }
    }
}

impl Embed for Cached {
    fn model(&self) -> &str {
        self.embedder.model()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embedder.embed(texts)
    }

    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
        self.embedder.lengths(texts)
    }

    fn embed_query(&self, question: &str) -> Result<Vec<f32>, EmbedError> {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vector) = questions.get(question) {
            return Ok(vector.clone());
        }
        let vector = self.embedder.embed_query(question)?;
        questions.insert(question.to_owned(), vector.clone());
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_on_word_boundaries() {
        let check = |text: &str, wanted: &str, expected: bool| {
            assert_eq!(holds_any(text, &[wanted.to_owned()]), expected, "{text:?} {wanted:?}");
        };
        check("My dog is Rex.", "rex", true);
        check("The rexine is red.", "rex", false);
        check("rexine, Rex", "Rex", true);
        check("port 54327", "5432", false);
        check("+2.25 each", "2.25", true);
        check("Inês!", "inês", true);
    }

    #[test]
    fn answers_that_know_nothing_are_told() {
        assert!(knows_nothing("I’m afraid I don’t have any record of that."));
        assert!(!knows_nothing("Her name is Mia."));
    }
}
