//! The stories of `tests/stories`, played by the real binary on the built-in model: generator and judge in one.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Home, embedder, smollm2};

/// Plays one story of the folder.
#[track_caller]
fn check(name: &str) {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    let file = format!("{}/tests/stories/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let run = home.run(&["story", "--model", &smollm2(), "run", &file]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
}

#[test]
fn s6_an_answer_is_graded() {
    check("s6_critic_absolute");
}

#[test]
fn s7_two_answers_are_compared() {
    check("s7_pairwise");
}

#[test]
fn a_missing_judge_leaves_answers_unscored() {
    check("judge_missing");
}

#[test]
fn a_judge_that_takes_too_long_holds_nobody_up() {
    check("judge_timeout");
}

#[test]
fn without_a_second_respondent_nothing_is_compared() {
    check("respondent_b_absent");
}

#[test]
fn what_was_said_in_one_session_is_recalled_in_the_next() {
    check("memory_across_sessions");
}
