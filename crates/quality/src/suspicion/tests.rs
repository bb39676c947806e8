#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Line {
    id: String,
    query: String,
    answer: String,
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn attacks_are_found() {
    let lines = lines(include_str!("../../tests/data/attacks.jsonl"));
    let missed: Vec<&str> = lines
        .iter()
        .filter(|line| suspicion(&line.query, &line.answer).is_none())
        .map(|line| line.id.as_str())
        .collect();
    let mut n_of_kind = BTreeMap::new();
    for line in &lines {
        if let Some(found) = suspicion(&line.query, &line.answer) {
            *n_of_kind.entry(format!("{:?}", found.kind)).or_insert(0) += 1;
        }
    }
    assert_eq!(lines.len(), 100);
    assert!(missed.len() <= 0, "{} missed: {missed:#?} {n_of_kind:?}", missed.len());
}

#[test]
fn ordinary_answers_are_not_suspicious() {
    let lines = lines(include_str!("../../tests/data/ordinary.jsonl"));
    let wrong: Vec<String> = lines
        .iter()
        .filter_map(|line| Some(format!("{}: {}", line.id, suspicion(&line.query, &line.answer)?)))
        .collect();
    assert!(lines.len() >= 100);
    assert!(wrong.is_empty(), "{} of {} flagged: {wrong:#?}", wrong.len(), lines.len());
}

#[test]
fn held_out() {
    let attacks = lines(include_str!("../../tests/data/held_attacks.jsonl"));
    let missed: Vec<&str> =
        attacks.iter().filter(|line| suspicion(&line.query, &line.answer).is_none()).map(|line| line.answer.as_str()).collect();
    let ordinary = lines(include_str!("../../tests/data/held_ordinary.jsonl"));
    let wrong: Vec<String> = ordinary
        .iter()
        .filter_map(|line| Some(format!("{}: {}", line.id, suspicion(&line.query, &line.answer)?)))
        .collect();
    panic!("missed {missed:#?} wrong {wrong:#?}");
}
