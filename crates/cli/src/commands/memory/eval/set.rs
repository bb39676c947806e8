//! A set of conversations, and of probes that ask about their statements.

use std::collections::BTreeSet;

use crate::arguments::Split;

/// A set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecallSet {
    pub(super) name: String,
    pub(super) persons: Vec<Person>,
}

/// A person with a memory of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Person {
    pub(super) name: String,
    /// The half of the set; `None` if the set is not divided.
    pub(super) split: Option<Split>,
    /// In the order in which they were said.
    pub(super) turns: Vec<Turn>,
    pub(super) probes: Vec<Probe>,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) session: u64,
    pub(super) user: String,
    pub(super) assistant: String,
    pub(super) outcome: AnswerOutcome,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerOutcome {
    Answered,
    /// The person marked it good.
    Good,
    /// It reached the limit of its length.
    Cut,
    /// The person stopped it.
    Stopped,
    /// The person marked it bad.
    Bad,
}

/// A question that an earlier statement answers, or none does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    pub(super) text: String,
    pub(super) kind: String,
    pub(super) evidence: Evidence,
    /// Indices of the turns that state the answer; after a change, the last one counts.
    pub(super) sources: Vec<usize>,
}

/// The sign that the right item was recalled.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Evidence {
    /// The item holds one of `expects`; an item that holds only one of `rejects` misleads.
    Texts { expects: Vec<String>, rejects: Vec<String> },
    /// It was said in one of these turns.
    Turns(BTreeSet<usize>),
    /// Nothing should be recalled.
    Nothing,
}

impl RecallSet {
    /// The persons of one half.
    pub(super) fn only(mut self, split: Option<Split>) -> RecallSet {
        self.persons.retain(|person| split.is_none() || person.split == split);
        self
    }

    pub(super) fn n_probes(&self) -> usize {
        self.persons.iter().map(|person| person.probes.len()).sum()
    }

    pub(super) fn n_turns(&self) -> usize {
        self.persons.iter().map(|person| person.turns.len()).sum()
    }
}
