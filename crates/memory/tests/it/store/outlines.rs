//! Answers without their texts, and a history for measuring a report.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use hone_memory::{Compared, Engram, MemoryOptions, MemoryStore, Whose};
use hone_protocol::{Grade, Judging, JudgingMethod, OwnerId, RespondentId, Timestamp};

use super::Home;
use crate::support::{MODEL, engram, grade, id, vector};

#[test]
fn every_answer_of_an_owner_is_outlined_in_order() {
    let home = Home::new();
    let store = home.open();
    for number in [3, 1, 2] {
        store.remember(Engram { grade: Some(grade(Some(4))), ..engram(number) }, None).unwrap();
    }
    let times = |whose| store.outlines(whose, false).unwrap().iter().map(|it| it.at.0).collect::<Vec<_>>();
    assert_eq!(times(Whose::Everyones), [1_000, 2_000, 3_000]);
    assert_eq!(times(Whose::Of(Some(OwnerId::from_bits(7)))), [1_000, 3_000]);
    let feedback = |wanted| store.outlines(Whose::Of(None), wanted).unwrap().remove(0).grade.unwrap().feedback;
    assert_eq!((feedback(true), feedback(false)), (grade(Some(4)).feedback, String::new()));
}

/// Not a test: writes a history of `HONE_TEST_ENGRAMS` answers (or 100 000) with grades, comparisons and vectors to
/// `HONE_TEST_FOLDER`, to measure operations that read all of it.
#[test]
#[ignore = "writes a large history to HONE_TEST_FOLDER, to measure with"]
fn writes_a_large_history() {
    let folder = PathBuf::from(env::var_os("HONE_TEST_FOLDER").expect("HONE_TEST_FOLDER names no folder"));
    let n_engrams = env::var("HONE_TEST_ENGRAMS").map_or(100_000, |number| number.parse().unwrap());
    fs::create_dir_all(&folder).unwrap();
    let store = MemoryStore::open(&folder, MemoryOptions::default()).unwrap();
    let mut lines = String::new();
    for number in 1..=n_engrams {
        let vector = serde_json::json!({ "model": MODEL, "values": vector(number, 384) });
        writeln!(lines, "{}", serde_json::json!({ "engram": past(number), "vector": vector })).unwrap();
        if number % 1_000 == 0 || number == n_engrams {
            store.import(lines.as_bytes()).unwrap();
            lines.clear();
        }
    }
}

/// An answer of typical size. Two consecutive ones are A's and B's to one question, and compared.
fn past(number: u64) -> Engram {
    let has_won = (number / 2).is_multiple_of(3) != number.is_multiple_of(2);
    let partner = if number.is_multiple_of(2) { number + 1 } else { number - 1 };
    let score = (!number.is_multiple_of(20)).then_some((number % 5) as u8 + 1);
    let judging = Judging { self_graded: number.is_multiple_of(7), ..grade(score).judging };
    let feedback = format!("The answer {}", "states what was asked for and gives a reason. ".repeat(5));
    let is_b = !number.is_multiple_of(2);
    Engram {
        at: Timestamp(1_700_000_000_000 + 300_000 * number),
        query: format!("What is {number}? {}", "Please explain it in a few words. ".repeat(3)),
        answer: "A number, and this is\nwhat \"it\" says. ".repeat(5 + (number % 17) as usize),
        model: format!("model-{}", if is_b { 4 + number % 3 } else { number % 4 }),
        grade: Some(Grade { feedback, judging, ..grade(score) }),
        respondent_id: if is_b { RespondentId::B } else { RespondentId::A },
        correlation_id: id(if is_b { partner } else { number }),
        pairwise_winner: (!number.is_multiple_of(11)).then_some(has_won),
        compared: Some(Compared {
            with: id(partner),
            log_odds: 0.5,
            consistent: !number.is_multiple_of(5),
            reason: "It says more about what was asked.".to_owned(),
            jury: Vec::new(),
            judge: "prometheus:7b".to_owned(),
            self_graded: false,
            method: JudgingMethod::Prompted,
            failure: None,
        }),
        owner: None,
        ..engram(number)
    }
}
