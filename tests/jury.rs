//! Several judges give one verdict: the mean of their scores, with each one's own verdict.

use std::fs;

use crate::support::{Home, smollm2};
use serde_json::{Value, json};

const MODEL: &str = "smollm2:135m";
/// The built-in model under a name for which the prompts of Prometheus are used, so that it gives other scores.
const OTHER: &str = "prometheus:135m";
const JURY: [&str; 4] = ["--judge", OTHER, "--judge", MODEL];
const ANSWER: [&str; 4] = ["--query", "What is the capital of France?", "--answer", "The capital of France is Paris."];

/// The built-in model is installed and grades in a few words, whether or not it can tell answers apart.
fn home() -> Home {
    let home = Home::graded_by_the_generator().variable("HONE_JUDGE_FEEDBACK_TOKENS", "8");
    install(&home);
    home
}

fn install(home: &Home) {
    for name in [MODEL, OTHER] {
        assert_eq!(home.run(&["pull", &smollm2(), "--name", name]).code, 0);
    }
}

fn joined<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

/// The score of a juror's own verdict.
fn value_of(juror: &Value) -> f64 {
    juror["expected_score"].as_f64().unwrap_or_else(|| juror["score"].as_f64().unwrap())
}

#[test]
fn a_jury_grades_with_the_mean_of_its_scores() {
    let home = home();
    let grade = home.json(&joined(&[&["grade"], &ANSWER, &JURY, &["--json"]]));
    let jurors = grade["jury"].as_array().unwrap();
    let names: Vec<&Value> = jurors.iter().map(|juror| &juror["name"]).collect();
    assert_eq!(names, [OTHER, MODEL], "{grade}");
    assert_eq!(grade["judge"], format!("{OTHER}, {MODEL}"));
    let mean = jurors.iter().map(value_of).sum::<f64>() / 2.0;
    assert!((grade["expected_score"].as_f64().unwrap() - mean).abs() < 1e-9, "{grade}");
    assert_eq!(grade["score"].as_f64().unwrap(), mean.round(), "{grade}");
    let scores = [&jurors[0], &jurors[1]].map(|juror| juror["score"].as_u64().unwrap());
    assert_eq!(grade["spread"], scores[0].abs_diff(scores[1]), "{grade}");
    let again = home.json(&joined(&[&["grade"], &ANSWER, &JURY, &["--json"]]));
    let seconds = |grade: &Value| grade["seconds"].as_f64().unwrap();
    assert!((seconds(&again) - seconds(&grade)).abs() < 1e-9, "it is from the cache: {again}");
    let shown = home.run(&joined(&[&["grade"], &ANSWER, &JURY])).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("prometheus:135m: ")), "{shown}");
    assert!(lines.iter().any(|line| line.starts_with("smollm2:135m: ")), "{shown}");
    assert!(shown.contains(&format!("mean {mean:.2} · spread ")), "{shown}");
}

/// The answer that two judges of this size disagree about depends on the processor, so the test searches for one. It
/// also depends on the home's key, which fences in answers; with this one they disagree about the first by two levels.
#[test]
fn a_stronger_judge_decides_where_the_jurors_disagree() {
    let copy = home();
    copy.write("data/judge.key", &[2; 32]);
    let stronger = copy.path("stronger.gguf");
    fs::copy(smollm2(), &stronger).unwrap();
    let stronger = stronger.to_str().unwrap().to_owned();
    let home = copy.variable("HONE_JUDGE_DISAGREEMENT", "1").variable("HONE_JUDGE_STRONGER", &stronger);
    let answers = [
        "391",
        "I do not know.",
        "17 times 23 is 391.",
        "To multiply 17 by 23, take 17 times 20, which is 340, and 17 times 3, which is 51; together that is 391.",
        "It is 12.",
        "Sure! Multiplication is repeated addition, which is a wonderful idea that people have used for a long time.",
    ];
    let (question, grade) = answers
        .iter()
        .map(|answer| ["--query", "What is 17 times 23?", "--answer", answer])
        .map(|question| (question, home.json(&joined(&[&["grade"], &question, &JURY, &["--json"]]))))
        .inspect(|(_, grade)| assert_eq!(grade["disputed"] == true, grade["spread"] != 0, "{grade}"))
        .find(|(_, grade)| grade["disputed"] == true)
        .expect("the jurors disagree about an answer");
    let decisive = &grade["jury"][2];
    assert_eq!((&decisive["is_stronger"], &decisive["score"]), (&true.into(), &grade["score"]), "{grade}");
    assert_eq!((&grade["judge"], &grade["feedback"]), (&"~/stronger.gguf".into(), &decisive["feedback"]));
    let shown = home.run(&joined(&[&["grade"], &question, &JURY])).stdout;
    let badge = format!("◐ {}/5 ±{}\n", grade["score"], grade["spread"]);
    assert!(shown.starts_with(&badge) && shown.contains("(the stronger judge): "), "{shown}");
}

#[test]
fn a_jury_in_a_chat_stands_on_the_engram() {
    let home = home().variable("HONE_JUDGE_MODELS", "[\"prometheus:135m\", \"smollm2:135m\"]");
    let ask = ["chat", "Is fire hot?", "--grade", "--json", "-m", MODEL, "-N", "20"];
    let grade = home.json(&ask)["grade"].clone();
    assert_eq!(grade["jury"].as_array().unwrap().len(), 2, "{grade}");
    let engrams = home.json(&["memory", "list", "--json"]);
    let engram = &engrams[0];
    let second = |jury: &Value| [jury[1]["name"].clone(), jury[1]["score"].clone(), jury[1]["feedback"].clone()];
    assert_eq!(second(&engram["critic_jury"]), second(&grade["jury"]), "{engram}");
    assert_eq!(engram["critic_spread"], grade["spread"], "{engram}");
    let shown = home.run(&["memory", "show", engram["query_id"].as_str().unwrap()]).stdout;
    assert!(
        shown.contains("juror") && shown.contains("prometheus:135m: ") && shown.contains("smollm2:135m: "),
        "{shown}"
    );
    let alone = home.json(&joined(&[&ask, &["--judge", "likelihood"]]))["grade"].clone();
    assert_eq!((&alone["jury"], &alone["method"]), (&Value::Null, &"likelihood".into()), "{alone}");
    let doctor = home.run(&["doctor"]).stdout;
    assert!(doctor.contains("a jury: prometheus:135m (profile prometheus), smollm2:135m (profile plain)"), "{doctor}");
}

#[test]
fn jurors_that_have_not_passed_have_no_vote() {
    let home = Home::new();
    install(&home);
    let ask = ["chat", "What is the capital of France?", "--grade", "--json", "-m", MODEL, "-N", "20"];
    let grade = home.json(&joined(&[&ask, &JURY]))["grade"].clone();
    assert_eq!(grade["score"], Value::Null, "{grade}");
    let failure = grade["failure"].as_str().unwrap();
    assert!(
        failure.starts_with("no juror gave a verdict (") && failure.contains("has not taken its examination"),
        "{grade}"
    );
}

#[test]
fn a_jury_compares_two_answers() {
    let home = home();
    let pair = ["compare", "--query", "What is 2 + 2?", "--a", "2 + 2 is 4.", "--b", "Fish."];
    let preference = home.json(&joined(&[&pair, &JURY, &["--json"]]));
    let jurors = preference["jury"].as_array().unwrap();
    let log_odds = jurors.iter().map(|juror| juror["log_odds"].as_f64().unwrap()).sum::<f64>() / 2.0;
    assert!((preference["log_odds"].as_f64().unwrap() - log_odds).abs() < 1e-9, "{preference}");
    let shown = home.run(&joined(&[&pair, &JURY])).stdout;
    assert!(shown.contains("\nprometheus:135m: ") && shown.contains("\nsmollm2:135m: "), "{shown}");
}

#[test]
fn a_file_is_judged_by_one_jury_and_resumed_by_no_other() {
    let home = home();
    let input = home.write("in.jsonl", b"{\"query\":\"Q\",\"answer\":\"A\"}\n{\"query\":\"Q\",\"answer\":\"B\"}\n");
    let output = home.path("out.jsonl");
    let files = ["grade", "--input", input.to_str().unwrap(), "--output", output.to_str().unwrap(), "--json"];
    let summary = home.json(&joined(&[&files, &JURY]));
    assert_eq!((&summary["judged"], &summary["cached"]), (&json!(2), &json!(0)), "{summary}");
    let lines = fs::read_to_string(&output).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["jury"][0]["name"], OTHER, "{line}");
    assert_eq!(home.json(&joined(&[&files, &JURY]))["resumed"], 2);
    let alone = home.run(&joined(&[&files, &["--judge", "likelihood"]]));
    assert!(alone.code == 2 && alone.stderr.contains("was judged by "), "{}", alone.stderr);
    let bounded = home.variable("HONE_JUDGE_DISAGREEMENT", "4");
    let other = bounded.run(&joined(&[&files, &JURY]));
    assert!(other.code == 2 && other.stderr.contains("other settings of the judge"), "{}", other.stderr);
}

#[test]
fn a_jury_that_cannot_be_is_refused() {
    let home = home();
    let check = |judges: &[&str], code, expected: &str| {
        let run = home.run(&joined(&[&["grade"], &ANSWER, judges]));
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{judges:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{judges:?}: {}", run.stderr);
    };
    let twice = "judge.models (--judge): models names \"smollm2:135m\" twice: name every judge once";
    check(&["--judge", MODEL, "--judge", MODEL], 2, twice);
    let unknown = "judge.models names \"nobody\", and there is no such model: name one that `hone list --all` shows";
    check(&["--judge", MODEL, "--judge", "nobody"], 2, unknown);
    let scoreless = "judge.models names \"likelihood\", which gives no score from 1 to 5: name judges that do";
    check(&["--judge", MODEL, "--judge", "likelihood"], 2, scoreless);
    check(&["--judge", MODEL, "--judge", "prometheus:7b"], 1, "cannot judge with \"prometheus:7b\"");
    let home = home.variable("HONE_JUDGE_STRONGER", MODEL);
    let run = home.run(&joined(&[&["grade"], &ANSWER, &JURY]));
    let juror = "judge.stronger is \"smollm2:135m\", which is a juror: name another judge, or none";
    assert!(run.code == 2 && run.stderr.contains(juror), "{}", run.stderr);
}
