//! The stories of `tests/stories`, played by the real binary on the built-in model: generator and judge in one.

use std::path::PathBuf;

use crate::support::{Home, embedder, root, smollm2};

fn file(name: &str) -> PathBuf {
    root().join(format!("tests/stories/{name}.toml"))
}

/// A fresh installation: the built-in model is installed under its name, and everything is as hone ships it.
fn home() -> Home {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    assert_eq!(home.run(&["pull", &smollm2(), "--name", "smollm2:135m"]).code, 0);
    home
}

/// Plays one story of the folder.
#[track_caller]
fn check(name: &str) {
    let run = home().run(&["story", "run", file(name).to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
}

/// Plays a story of the folder with some lines changed, and checks that it fails with these complaints.
#[track_caller]
fn check_broken(name: &str, changes: &[(&str, &str)], complaints: &[&str]) {
    let home = home();
    let mut story = std::fs::read_to_string(file(name)).unwrap();
    for (from, to) in changes {
        assert!(story.contains(from), "{from:?} is in no line of {name}");
        story = story.replacen(from, to, 1);
    }
    let file = home.write("story.toml", story.as_bytes());
    let run = home.run(&["story", "run", file.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
    for complaint in complaints {
        assert!(run.stdout.contains(complaint), "{complaint:?} is not in {}", run.stdout);
    }
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
fn s7_does_not_hold_where_something_is_otherwise() {
    check_broken(
        "s7_pairwise",
        &[
            ("{ temperature = 0.7 }", "{ temperature = 0.6 }"),
            ("\"query_id\" = { not = \"$query_id\" }", "\"query_id\" = \"$query_id\""),
            ("after = [\"answer_a\"]", "after = [\"comparison\"]"),
            ("\"pairwise_winner\" = { whether_equal", "\"pairwise_winner\" = { is = \"text\", whether_equal"),
            ("\"respondent_id\" = \"B\"", "\"respondent_id\" = \"A\""),
            ("\"compared.with\" = \"$query_id\"", "\"compared.nobody\" = { is = \"null\" }"),
        ],
        &[
            "response.generation of B: payload.sampling.temperature is 0.6",
            "response.generation of B: query_id is",
            "critique.result of A: has come before comparison",
            "engram of A: pairwise_winner is",
            "engram of B: respondent_id is \"B\", expected \"A\"",
            "engram of B: compared.nobody does not exist, expected null",
        ],
    );
}

#[test]
fn a_story_may_choose_the_second_model() {
    check_broken(
        "s7_pairwise",
        &[("{ temperature = 0.7 }", &format!("{{ model = {:?} }}", smollm2())), ("= 0.7", "= 0.4")],
        &["response.generation of B: payload.sampling.temperature is 0.5, expected 0.4"],
    );
    let home = Home::new();
    let story = "id = 'S'\ntitle = 't'\nrespondent_b = { model = 'no-model/' }\n[[turns]]\nquery = 'q'\n";
    let file = home.write("story.toml", story.as_bytes());
    let run = home.run(&["story", "--model", &smollm2(), "run", file.to_str().unwrap()]);
    assert!(run.code != 0 && run.stderr.contains("no-model/"), "{}", run.stderr);
}

/// The comparison comes long after the only event that the story waits for.
#[test]
fn what_is_absent_is_absent_until_the_end() {
    check_broken(
        "respondent_b_absent",
        &[
            ("[config]", "respondent_b = {}\n[config]"),
            ("subject = \"critique.result\"", "subject = \"query.received\""),
        ],
        &["response.generation of B: has come", "pairwise.result: has come"],
    );
}

#[test]
fn a_judge_that_grades_is_not_missing() {
    check_broken("judge_missing", &[("no-judge/", "likelihood")], &["payload.failure does not exist"]);
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
