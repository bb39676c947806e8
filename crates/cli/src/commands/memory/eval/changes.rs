//! Detected changes of mind: pairs of statements of which only the later one holds.

use std::collections::BTreeSet;

use hone_agents::{Contradiction, MemorySettings, StatedFact, contradiction};
use hone_memory::EngramKind;
use serde::Serialize;

use super::run::{Memories, Memory};
use super::set::{Evidence, Person, RecallSet};

/// How well changes are found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Changes {
    /// Probes whose answer was stated differently before, in statements that were taken as facts.
    changed: usize,
    /// The changed probes whose statements were found to contradict each other.
    found: usize,
    /// Pairs of statements that were wrongly found to contradict each other.
    wrong: usize,
    /// Pairs of statements that were compared.
    compared: usize,
    /// The missed pairs, and the wrong ones.
    #[serde(skip)]
    pub(super) details: Vec<String>,
}

/// A fact, and the turn in which it was stated.
type StatedFactAt = (usize, StatedFact);

impl Changes {
    pub(super) fn of(set: &RecallSet, memories: &Memories, settings: &MemorySettings) -> anyhow::Result<Changes> {
        let mut changes = Changes::default();
        for (person, memory) in set.persons.iter().zip(memories.of_persons()) {
            changes.add(person, &facts(memory)?, settings);
        }
        Ok(changes)
    }

    fn add(&mut self, person: &Person, facts: &[StatedFactAt], settings: &MemorySettings) {
        let changed: Vec<(usize, usize)> =
            person.probes.iter().filter_map(|probe| changed_turns(probe, facts)).collect();
        let mut found = BTreeSet::new();
        for (index, (first, earlier)) in facts.iter().enumerate() {
            for (second, later) in &facts[index + 1..] {
                self.compared += 1;
                let Some(Contradiction { earlier, later }) = contradiction(earlier, later, settings) else { continue };
                match changed.contains(&(*first, *second)) {
                    true => drop(found.insert((*first, *second))),
                    false => {
                        self.wrong += 1;
                        self.details.push(format!("wrong: {earlier:?} → {later:?}"));
                    }
                }
            }
        }
        self.changed += changed.len();
        self.found += found.len();
        for (first, second) in changed.iter().filter(|turns| !found.contains(turns)) {
            self.details.push(format!("missed: {:?} → {:?}", person.turns[*first].user, person.turns[*second].user));
        }
    }

    pub(super) fn line(&self) -> String {
        let Changes { changed, found, wrong, compared, .. } = self;
        format!("{found} of {changed} changed statements were found; {wrong} of {compared} pairs were found wrongly")
    }
}

/// The turns in which a probe's answer was stated before and after it changed, if both were taken as facts.
fn changed_turns(probe: &super::set::Probe, facts: &[StatedFactAt]) -> Option<(usize, usize)> {
    let Evidence::Texts { expects, rejects } = &probe.evidence else { return None };
    let [first, last] = probe.sources[..] else { return None };
    let holds = |turn: usize, texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
        let is_held = |fact: &str| texts.iter().any(|text| fact.to_lowercase().contains(text));
        facts.iter().any(|(of, fact)| *of == turn && is_held(&fact.text))
    };
    (probe.kind == "changed" && holds(first, rejects) && holds(last, expects)).then_some((first, last))
}

/// The facts of a memory in order of time.
fn facts(memory: &Memory) -> anyhow::Result<Vec<StatedFactAt>> {
    let (mut facts, mut after) = (Vec::new(), Some(0));
    while let Some(from) = after {
        let (engrams, next) = memory.store.walk(from, 64)?;
        facts.extend(engrams.into_iter().filter(|(engram, _)| engram.kind == EngramKind::Fact).filter_map(
            |(engram, vector)| {
                let turn = *memory.turns.get(&engram.source?)?;
                let vector = vector.unwrap_or_default();
                Some((turn, StatedFact { text: engram.query, at: engram.at, is_update: engram.is_update, vector }))
            },
        ));
        after = next;
    }
    facts.sort_by_key(|(_, fact)| fact.at);
    Ok(facts)
}
