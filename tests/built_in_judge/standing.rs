//! Only judges that tell good answers from bad ones grade.

#[cfg(unix)]
use std::time::Duration;

use serde_json::Value;

#[cfg(unix)]
use crate::support::terminal::Terminal;
use crate::support::{Home, smollm2};
#[cfg(unix)]
use crate::support::{wait_for_long, wait_until};

const MODEL: &str = "smollm2:135m";

/// The built-in model is installed.
fn home_with_the_built_in_model() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["pull", &smollm2(), "--name", MODEL]).code, 0);
    home
}

#[track_caller]
fn row<'a>(rows: &'a Value, judge: &str, answers: &str) -> &'a Value {
    let is_wanted = |row: &&Value| row["judge"] == judge && row["answers"].as_str().unwrap_or("") == answers;
    rows.as_array().unwrap().iter().find(is_wanted).unwrap_or_else(|| panic!("no {judge} {answers} in {rows}"))
}

#[test]
fn judges_are_listed_with_their_marks() {
    let home = home_with_the_built_in_model();
    let rows = home.json(&["judge", "list", "--json"]);
    let prometheus = row(&rows, "prometheus:7b", "");
    assert_eq!((&prometheus["installed"], &prometheus["passed"]), (&Value::Bool(false), &Value::Null));
    let own = row(&rows, "likelihood", "of smollm2:135m");
    assert!(own["passed"] == true && own["auc"]["low"].as_f64().unwrap() > 0.65, "{own}");
    let others = row(&rows, "likelihood", "of others");
    assert_eq!(others["passed"], others["auc"]["low"].as_f64().unwrap() > 0.65, "{others}");
    let listed = home.run(&["judge", "list"]).stdout;
    assert!(listed.contains("likelihood, answers of smollm2:135m") && listed.contains("not installed"), "{listed}");
}

#[test]
fn the_likelihood_judge_grades_the_answers_of_its_own_model() {
    const QUESTION: [&str; 9] =
        ["chat", "What is the capital of France?", "--grade", "-m", MODEL, "-N", "40", "--temperature", "0"];
    let home = home_with_the_built_in_model();
    let answer = home.json(&[&QUESTION[..], &["--json"]].concat());
    let grade = &answer["grade"];
    assert_eq!((&grade["method"], &grade["judge"]), (&"likelihood".into(), &MODEL.into()), "{answer}");
    assert_eq!((&grade["score"], &grade["expected_score"]), (&Value::Null, &Value::Null), "{grade}");
    assert!((0.0..=1.0).contains(&grade["probability"].as_f64().unwrap()), "{grade}");
    let feedback = grade["feedback"].as_str().unwrap();
    assert!(feedback.starts_with("In its favour: ") || feedback.starts_with("Against it: "), "{grade}");
    let run = home.run(&QUESTION);
    let shown = match grade["likely"].as_str() {
        Some(word) => format!("◇ likely {word}"),
        None => "cannot tell whether it is right".to_owned(),
    };
    assert!(run.stderr.contains(&shown) || run.stdout.contains(&shown), "{}{}", run.stdout, run.stderr);
}

/// The likelihood judge was fitted twice, to its own answers and to those of others.
#[test]
fn a_grade_depends_on_who_answered_if_that_is_known() {
    let home = home_with_the_built_in_model();
    let answer = "The capital of France is Paris.";
    let asked = ["grade", "--query", "What is the capital of France?", "--answer", answer, "--json"];
    let probability = |author: &[&str]| -> f64 {
        let grade = home.json(&[&asked[..], author].concat());
        grade["probability"].as_f64().unwrap_or_else(|| panic!("{grade}"))
    };
    let unknown = probability(&[]);
    assert_eq!(unknown, probability(&["--answered-by", "qwen3:8b"]), "another model's");
    let own = probability(&["--answered-by", MODEL]);
    assert_ne!(own, unknown);
    assert_eq!(own, probability(&["--answered-by", MODEL]), "from the cache");
    assert_eq!(unknown, probability(&[]), "from the cache");
    // As a chat shows it.
    let file =
        home.write("answers.jsonl", serde_json::json!({"query": asked[2], "answer": answer}).to_string().as_bytes());
    let graded = home.json(&["grade", "--input", file.to_str().unwrap(), "--answered-by", MODEL]);
    assert_eq!(graded["probability"], own, "{graded}");
}

#[test]
fn nothing_grades_where_no_judge_knows_better_than_chance() {
    let home = home_with_the_built_in_model().variable("HONE_JUDGE_LEAST_AUC", "0.95");
    // Under another name its answers count as another model's.
    let answer = home.json_with_code(&["chat", "Is fire hot?", "--grade", "--json", "-m", &smollm2(), "-N", "20"], 0);
    let grade = &answer["grade"];
    assert_eq!(grade["score"], Value::Null, "{answer}");
    let failure = grade["failure"].as_str().unwrap();
    assert!(failure.contains("prometheus:7b") && failure.contains("answers of others"), "{failure}");
}

/// The built-in model's grades are noise, and hone finds out.
#[test]
fn a_judge_that_guesses_does_not_pass_and_does_not_grade() {
    let home = home_with_the_built_in_model().variable("HONE_JUDGE_FEEDBACK_TOKENS", "1");
    let marks = home.json_with_code(&["judge", "exam", MODEL, "--json"], 3);
    assert!(marks["auc"]["low"].as_f64().unwrap() <= 0.65, "{marks}");
    assert!((20..=60).contains(&marks["n_questions"].as_i64().unwrap()), "{marks}");
    let rows = home.json(&["judge", "list", "--json"]);
    assert_eq!(row(&rows, MODEL, "")["passed"], false);
    let run = home.run(&["chat", "Is fire hot?", "--grade", "--judge", MODEL, "-m", &smollm2(), "-N", "20"]);
    assert!(run.stderr.contains("did not pass its examination"), "{}{}", run.stdout, run.stderr);
    let grade = ["grade", "--query", "Is fire hot?", "--answer", "Yes.", "--judge", MODEL];
    assert!(home.run(&grade).stderr.contains("do not rely on these grades"));
}

/// Without a download of gigabytes, and without another judge's marks under its name.
#[test]
fn only_an_installed_judge_is_examined() {
    let home = home_with_the_built_in_model();
    let run = home.run(&["judge", "exam"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("hone pull prometheus:7b"), "{}", run.stderr);
}

/// The chat examines its judge while it is idle, and the next one resumes the examination.
#[cfg(unix)]
#[test]
fn an_idle_chat_examines_its_judge_and_says_what_came_of_it() {
    let home = Home::new();
    let file = home.path("guess.gguf").display().to_string();
    let synth = ["synth", "--shape", "tiny-llama3", "--context", "4096", "--tokenizer", &smollm2(), "--output", &file];
    assert_eq!(home.run(&synth).code, 0);
    assert_eq!(home.run(&["pull", &file, "--name", "guess:1m"]).code, 0);
    let home = home
        .variable("HONE_JUDGE_FEEDBACK_TOKENS", "1")
        .variable("HONE_JUDGE_MODEL", "guess:1m")
        .variable("HONE_JUDGE_GRADE_TIMEOUT", "3600");
    let verdicts = || std::fs::read_dir(home.path("data/cache/grades")).map_or(0, Iterator::count);
    let chat = || {
        let chat = Terminal::chat(&home, &["--max-tokens", "8"]);
        chat.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
        chat
    };
    let mut first = chat();
    wait_until("the judge has graded eight answers", || verdicts() >= 8);
    first.type_text("Is fire hot?\r");
    let has_answered = |lines: &[String]| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == ">");
    first.wait_for("answer", has_answered);
    first.end_chat();
    let before = verdicts();
    assert!((8..180).contains(&before), "{before} of 180 gradings: the first chat was left too late");
    let mut second = chat();
    // It takes 180 gradings at most.
    let marks = || home.path("data/judges").exists().then_some(());
    wait_for_long("the examination is over", Duration::from_secs(480), marks);
    let is_told = |lines: &[String]| lines.concat().replace(' ', "").contains("guess:1mdidnotpassitsexamination");
    second.wait_for("result", is_told);
    second.end_chat();
    assert!(verdicts() > before);
    let rows = home.json(&["judge", "list", "--json"]);
    assert_eq!(row(&rows, "guess:1m", "")["passed"], false);
}
