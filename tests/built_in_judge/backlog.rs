//! Answers whose grades are due, from a person's view: left by a question or a chat, graded by `hone grade --due` or by
//! the next chat, even if processes are killed meanwhile. `HONE_TORTURE=1` asks 300 questions instead of a few.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use crate::support::terminal::Terminal;
use crate::support::{Home, Run, smollm2, wait_until};
use hone_memory::{Due, Engram, MemoryOptions, MemoryStore};
use hone_protocol::prospect::NO_VERDICT;
use hone_protocol::{Grade, QueryId, Response, SessionId, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

/// A home in which a judge has enough time even on a busy machine.
fn unhurried() -> Home {
    Home::graded_by_the_generator().variable("HONE_JUDGE_GRADE_TIMEOUT", "3600")
}

/// The arguments that ask a question, with an answer of a few tokens.
fn asking(question: &str) -> Vec<String> {
    let model = smollm2();
    ["chat", question, "--model", &model, "--temperature", "0", "--max-tokens", "3"].map(str::to_owned).to_vec()
}

fn ask(home: &Home, question: &str, more: &[&str]) -> Run {
    let words = asking(question);
    let run = home.run(&words.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run
}

fn stats(home: &Home) -> Value {
    home.json(&["memory", "stats", "--check", "--json"])
}

fn engrams(home: &Home) -> Vec<Value> {
    serde_json::from_value(home.json(&["memory", "list", "-n", "1000000", "--json"])).unwrap()
}

/// Remembers `n` short answers of the built-in model whose grades are due.
fn remember_due(home: &Home, n: u64) {
    let store = MemoryStore::open(&home.path("data/memory"), MemoryOptions::default()).unwrap();
    for number in 0..n {
        let response =
            Response::new(format!("What is {number} and {number}?"), format!("It is {}.", 2 * number), smollm2());
        let engram = Engram::new(QueryId::fresh(), SessionId::from_bits(1), &response);
        let at = Timestamp(1_769_884_200_000 + 86_400_000 * number);
        store.remember(Engram { at, due: Some(Due::fresh(false)), ..engram }, None).unwrap();
    }
}

#[test]
fn a_question_without_grade_leaves_its_answer_due_and_the_backlog_is_worked_off() {
    let home = unhurried();
    ask(&home, "Is fire hot?", &[]);
    assert_eq!(stats(&home)["grades_due"], 1);
    let shown = home.run(&["memory", "stats"]);
    assert!(shown.stdout.contains("1 (`hone grade --due`)"), "{}", shown.stdout);
    assert!(home.run(&["ps"]).stderr.contains("due for a grade: 1; "));
    let graded = home.json(&["grade", "--due", "--json"]);
    assert_eq!(
        (&graded["due"], &graded["graded"], &graded["still_due"]),
        (&json!(1), &json!(1), &json!(0)),
        "{graded}"
    );
    let engram = &engrams(&home)[0];
    assert!(engram["critic_score"].is_u64() && engram["due"].is_null(), "{engram:#}");
    assert_eq!(engram["self_graded"], true);
    let again = home.run(&["grade", "--due"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, "nothing is due\n"), "{}", again.stderr);
    let events = home.run(&["events", "--json", "--type", "critique.result"]);
    assert_eq!(events.stdout.lines().count(), 1, "{}", events.stdout);
}

#[test]
fn nothing_is_due_where_grading_or_memory_is_off() {
    let home = unhurried();
    ask(&home, "Is fire hot?", &["--no-grade"]);
    assert_eq!(stats(&home)["grades_due"], 0);
    let home = home.variable("HONE_CHAT_GRADE", "false");
    ask(&home, "Is ice cold?", &[]);
    assert_eq!((&stats(&home)["grades_due"], engrams(&home).len()), (&json!(0), 2));
    let forgetful = unhurried().variable("HONE_MEMORY_REMEMBER", "false");
    ask(&forgetful, "Is fire hot?", &[]);
    assert!(!forgetful.path("data/memory").exists());
    assert_eq!(home.json(&["grade", "--due", "--json"])["due"], 0);
}

#[test]
fn two_answers_without_a_judge_are_said_to_be_uncompared_and_compared_later() {
    let home = unhurried();
    let run = ask(&home, "Is the sky blue?", &["--respondent-b"]);
    assert!(run.stderr.contains("not compared: --grade"), "{}", run.stderr);
    let due = stats(&home);
    assert_eq!((&due["grades_due"], &due["comparisons_due"]), (&json!(2), &json!(1)), "{due:#}");
    let graded = home.json(&["grade", "--due", "--json"]);
    assert_eq!((&graded["graded"], &graded["compared"], &graded["still_due"]), (&json!(2), &json!(1), &json!(0)));
    for engram in engrams(&home) {
        assert!(engram["compared"]["log_odds"].is_number(), "{engram:#}");
    }
}

#[test]
fn a_judge_that_is_missing_leaves_all_due_and_fails() {
    let home = unhurried().variable("HONE_JUDGE_FALLBACK", "none");
    remember_due(&home, 2);
    let run = home.run(&["grade", "--due"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("2 of 2 stay due, the last one: "), "{}", run.stderr);
    assert_eq!(stats(&home)["grades_due"], 2);
    let id = engrams(&home)[0]["query_id"].as_str().unwrap().to_owned();
    let shown = home.run(&["memory", "show", &id]).stdout;
    assert!(shown.lines().any(|line| line.starts_with("due") && line.contains("grade (")), "{shown}");
}

#[test]
fn part_of_the_backlog_is_graded_and_nulls_where_somebody_asks() {
    let home = unhurried();
    remember_due(&home, 3);
    // The answers date from 31 January 2026 and the days after.
    assert_eq!(home.json(&["grade", "--due", "--since", "2026-02-02", "--json"])["graded"], 1);
    let store = MemoryStore::open(&home.path("data/memory"), MemoryOptions::default()).unwrap();
    let left = store.backlog().unwrap();
    for entry in left.iter().chain(&left) {
        store.update_score(entry.query_id, &Grade::unscored(NO_VERDICT)).unwrap();
    }
    drop(store);
    assert_eq!(home.json(&["grade", "--due", "--json"])["due"], 0);
    assert_eq!(home.json(&["grade", "--due", "--regrade-null", "--json"])["graded"], 2);
    assert!(engrams(&home).iter().all(|engram| engram["critic_score"].is_u64()));
    for wrong in [&["grade", "--since", "7d", "--query", "a", "--answer", "b"][..], &["grade", "--due", "--query", "a"]]
    {
        assert_eq!(home.run(wrong).code, 2);
    }
}

/// Starts a command.
fn start(home: &Home, arguments: &[&str]) -> Child {
    home.command(Path::new(env!("CARGO_BIN_EXE_hone")), arguments).spawn().unwrap()
}

#[test]
fn ctrl_c_stops_the_work_and_what_is_graded_stays() {
    let home = unhurried();
    remember_due(&home, 40);
    let child = start(&home, &["grade", "--due", "--json"]);
    let process = child.id().to_string();
    let mut follower = start(&home, &["events", "--follow", "--json"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("critique.result"));
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (graded, left) = (summary["graded"].as_u64().unwrap(), summary["still_due"].as_u64().unwrap());
    assert!(graded > 0 && left > 0 && graded + left == 40, "{summary}");
    assert_eq!((&summary["interrupted"], &summary["held"]), (&json!(true), &json!(0)));
    assert_eq!(stats(&home)["grades_due"], left);
}

#[test]
fn two_processes_share_the_backlog_and_grade_nothing_twice() {
    let home = unhurried();
    remember_due(&home, 24);
    let children = [0, 1].map(|_| start(&home, &["grade", "--due", "--json"]));
    let graded = children.map(|child| {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["graded"].as_u64().unwrap()
    });
    assert_eq!(graded.iter().sum::<u64>(), 24, "{graded:?}");
    assert_eq!(stats(&home)["all"]["scored"], 24);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in home.run(&["events", "--json", "--type", "critique.result"]).stdout.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        *counts.entry(event["query_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(counts.len() == 24 && counts.values().all(|count| *count == 1), "{counts:?}");
}

#[test]
fn an_idle_chat_grades_what_is_due_and_one_that_is_left_says_what_is_not_graded() {
    let home = unhurried();
    remember_due(&home, 3);
    let mut chat = Terminal::chat(&home, &[]);
    chat.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    wait_until("nothing is due", || stats(&home)["grades_due"] == 0);
    chat.end_chat();
    let lines = chat.lines();
    assert!(!lines.iter().any(|line| line.contains("not graded yet")), "{lines:#?}");
    remember_due(&home, 60);
    let mut chat = Terminal::chat(&home, &[]);
    chat.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    chat.type_text("\u{4}");
    chat.wait_for("remark", |lines| lines.iter().any(|line| line.contains("answers are not graded yet")));
    assert!(chat.exit_status().success());
}

#[test]
fn a_chat_waits_for_its_grades_where_it_is_asked_to() {
    let home = unhurried();
    let mut chat = Terminal::chat(&home, &["--wait-grades", "--max-tokens", "8"]);
    chat.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    for question in ["Is fire hot?\r", "Is ice cold?\r"] {
        chat.type_text(question);
    }
    let n_answered = || home.run(&["events", "--json", "--type", "response.generation"]).stdout.lines().count();
    wait_until("both questions are answered", || n_answered() == 2);
    chat.end_chat();
    assert!(engrams(&home).iter().all(|engram| engram["critic_score"].is_u64()), "{:#?}", engrams(&home));
}

/// The number of questions asked while processes are killed.
fn n_questions() -> u64 {
    if std::env::var_os("HONE_TORTURE").is_some() { 300 } else { 12 }
}

/// Kills a process at a random moment. Returns whether it had already ended successfully.
fn kill_within(child: &mut Child, random: &mut ChaCha8Rng, milliseconds: u64) -> bool {
    drop(child.stdin.take());
    sleep(Duration::from_millis(random.next_u64() % milliseconds));
    let ended = child.try_wait().unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    ended.is_some_and(|status| status.success())
}

/// Asks a question in one of three ways; returns it if it was answered before a kill.
fn ask_or_kill(home: &Home, random: &mut ChaCha8Rng, number: u64) -> Option<String> {
    let question = format!("Say the number {number}.");
    let words = asking(&question);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if random.next_u32().is_multiple_of(3) {
        words.push("--grade");
    }
    let is_answered = match random.next_u32() % 4 {
        0 => {
            let run = home.run(&words);
            assert_eq!(run.code, 0, "{}", run.stderr);
            true
        }
        1 => {
            let mut chat = Terminal::chat(home, &["--max-tokens", "3"]);
            chat.type_text(&format!("{question}\r"));
            // The moment is random on purpose.
            sleep(Duration::from_millis(random.next_u64() % 4_000));
            chat.child.kill().unwrap();
            chat.child.wait().unwrap();
            false
        }
        _ => kill_within(&mut start(home, &words), random, 1_500),
    };
    is_answered.then_some(question)
}

#[test]
fn no_grade_is_lost_whatever_is_killed() {
    let seed = std::env::var("HONE_TORTURE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let home = unhurried();
    let (mut acknowledged, mut n_kills) = (BTreeSet::new(), 0);
    // The first to open memory owns it.
    let mut owner = start(&home, &["events", "--follow", "--json"]);
    for number in 0..n_questions() {
        match ask_or_kill(&home, &mut random, number) {
            Some(question) => drop(acknowledged.insert(question)),
            None => n_kills += 1,
        }
        match random.next_u32() % 6 {
            0 => {
                owner.kill().unwrap();
                owner.wait().unwrap();
                n_kills += 1;
                owner = start(&home, &["events", "--follow", "--json"]);
            }
            1 => n_kills += u64::from(!kill_within(&mut start(&home, &["grade", "--due"]), &mut random, 4_000)),
            _ => {}
        }
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    let graded = home.json(&["grade", "--due", "--json"]);
    println!("{} acknowledged, {n_kills} kills, {graded}", acknowledged.len());
    assert_eq!((&graded["still_due"], stats(&home)["grades_due"].as_u64()), (&json!(0), Some(0)), "{graded}");
    let engrams = engrams(&home);
    for engram in &engrams {
        let is_final = engram["critic_score"].is_u64() || engram["judging_failure"].is_string();
        assert!(is_final && engram["due"].is_null(), "{engram:#}");
    }
    let questions: Vec<&str> = engrams.iter().map(|engram| engram["query"].as_str().unwrap()).collect();
    let different: BTreeSet<&str> = questions.iter().copied().collect();
    assert_eq!(different.len(), questions.len(), "no answer is remembered twice");
    let lost: Vec<&String> = acknowledged.iter().filter(|it| !different.contains(it.as_str())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
