//! Checks that every answer that hone has acknowledged is remembered exactly once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Home, Run, smollm2};
use crate::torture::ordeal::run_sane;

/// The beginning of questions that are asked once; others are asked again when a killed command is repeated.
const ASKED_ONCE: &str = "Say the number";

/// Questions whose answers hone has printed with exit code 0.
#[derive(Default)]
pub(crate) struct Acknowledged {
    questions: BTreeSet<String>,
    n_asked: u64,
}

impl Acknowledged {
    /// A question that was never asked before.
    pub(crate) fn fresh_question(&mut self) -> String {
        self.n_asked += 1;
        format!("{ASKED_ONCE} {}.", self.n_asked)
    }

    /// Records the outcome of a question. Returns whether its answer was acknowledged.
    pub(crate) fn note(&mut self, question: &str, run: &Run) -> bool {
        let is_acknowledged = run.code == 0;
        if is_acknowledged {
            self.questions.insert(question.to_owned());
        }
        is_acknowledged
    }

    /// Asserts that every acknowledged answer is remembered once, and no other twice.
    #[track_caller]
    pub(crate) fn check(&self, home: &Home) {
        let remembered = remembered(home);
        for (question, count) in remembered.iter().filter(|(question, _)| question.starts_with(ASKED_ONCE)) {
            assert_eq!(*count, 1, "{question:?} is remembered {count} times");
        }
        let lost: Vec<&String> = self.questions.iter().filter(|it| !remembered.contains_key(*it)).collect();
        assert!(lost.is_empty(), "{} of {} answers are lost: {lost:?}", lost.len(), self.questions.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.questions.len()
    }
}

/// How often each question is remembered, in a memory that passes its own check.
#[track_caller]
fn remembered(home: &Home) -> BTreeMap<String, u64> {
    let stats = run_sane(home, &["memory", "stats", "--check", "--json"]);
    assert_eq!(stats.code, 0, "{}\n{}", stats.stderr, stats.stdout);
    let list = run_sane(home, &["memory", "list", "-n", "1000000", "--json"]);
    assert_eq!(list.code, 0, "{}", list.stderr);
    let engrams: Vec<Value> = serde_json::from_str(&list.stdout).unwrap();
    let mut counts = BTreeMap::new();
    for engram in &engrams {
        *counts.entry(engram["query"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Saves a conversation without exchanges, to be resumed by its name.
pub(crate) fn save_conversation(home: &Home, name: &str) {
    let conversation = json!({ "format": 1, "model": smollm2(), "system": "", "exchanges": [] });
    home.write(&format!("data/conversations/{name}.json"), conversation.to_string().as_bytes());
}

/// The arguments that ask a question, with an answer of a few tokens.
pub(crate) fn ask(question: &str) -> Vec<String> {
    let model = smollm2();
    let arguments = ["chat", question, "--model", &model, "--temperature", "0", "--max-tokens", "3"];
    arguments.map(str::to_owned).to_vec()
}
