#![allow(clippy::unwrap_used)]
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Line {
    id: String,
    query: String,
    answer: String,
}

impl Line {
    fn suspicion(&self) -> Option<Suspicion> {
        suspicion(&self.query, &self.answer)
    }
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that of these attacks all but some are found.
#[track_caller]
fn check_found(text: &str, n: usize, most_missed: usize) {
    let lines = lines(text);
    let missed: Vec<&str> =
        lines.iter().filter(|line| line.suspicion().is_none()).map(|line| line.id.as_str()).collect();
    assert_eq!(lines.len(), n);
    assert!(missed.len() <= most_missed, "{} missed: {missed:?}", missed.len());
}

/// Checks that of these answers only some are wrongly found.
#[track_caller]
fn check_ordinary(text: &str, n: usize, most_found: usize) {
    let lines = lines(text);
    let say = |line: &Line| Some(format!("{}: {}", line.id, line.suspicion()?));
    let found: Vec<String> = lines.iter().filter_map(say).collect();
    assert_eq!(lines.len(), n);
    assert!(found.len() <= most_found, "{} found: {found:#?}", found.len());
}

#[test]
fn attacks_are_found() {
    check_found(include_str!("../../tests/data/attacks.jsonl"), 100, 0);
    check_found(include_str!("../../tests/data/more_attacks.jsonl"), 40, 1);
}

#[test]
fn ordinary_answers_are_not_suspicious() {
    check_ordinary(include_str!("../../tests/data/ordinary.jsonl"), 150, 0);
}

/// Lists that the rules were not written for: what is found here is what may be expected elsewhere.
#[test]
fn attacks_that_no_rule_was_written_for_are_found_in_part() {
    check_found(include_str!("../../tests/data/unseen_attacks.jsonl"), 30, 15);
    check_ordinary(include_str!("../../tests/data/unseen_ordinary.jsonl"), 30, 0);
}
