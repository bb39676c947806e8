//! Judge quality: measured on judged data sets, and calibrated by ratings.

use std::fs;

use crate::support::{Home, smollm2};
use serde_json::{Value, json};

const MODEL: &str = "smollm2:135m";
/// Answers with scores; a figure takes ten of them.
const QUESTIONS: usize = 12;

/// The built-in model is installed, and grades in few words.
fn home() -> Home {
    let home = Home::new().variable("HONE_JUDGE_FEEDBACK_TOKENS", "1");
    assert_eq!(home.run(&["pull", &smollm2(), "--name", MODEL]).code, 0);
    home
}

/// Sums: correct ones with a 5 and wrong ones with a 1.
fn answers() -> Vec<Value> {
    let answer = |n: usize| {
        let is_right = n.is_multiple_of(2);
        let sum = if is_right { n + 3 } else { 7 * n + 11 };
        json!({"question": format!("What is {n} + 3?"), "answer": format!("{n} + 3 = {sum}"),
            "score": if is_right { 5 } else { 1 }})
    };
    (0..QUESTIONS).map(answer).collect()
}

fn pairs() -> Vec<Value> {
    let pair = |n: usize| {
        let (right, wrong) = (format!("It is {}.", n + 1), format!("It is {}, as everybody knows.", 9 * n + 5));
        let (a, b, winner) = if n.is_multiple_of(2) { (right, wrong, "A") } else { (wrong, right, "B") };
        json!({"question": format!("What is {n} + 1?"), "a": a, "b": b, "winner": winner})
    };
    (0..QUESTIONS).map(pair).collect()
}

fn written(home: &Home, name: &str, lines: &[Value]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    home.write(name, text.as_bytes()).to_str().unwrap().to_owned()
}

#[test]
fn a_judge_is_measured_on_answers_and_pairs() {
    let home = home();
    let set = written(&home, "set.jsonl", &[answers(), pairs()].concat());
    let report = home.json(&["judge", "eval", &set, "--judge", MODEL, "--json"]);
    assert_eq!((&report["answers"], &report["pairs"]), (&json!(QUESTIONS), &json!(QUESTIONS)), "{report}");
    let judge = &report["judges"][0];
    assert_eq!((&judge["judge"], &judge["unparsed"]), (&json!(MODEL), &json!(0)), "{report}");
    assert_eq!((&judge["graded"], &judge["compared"]), (&json!(QUESTIONS), &json!(QUESTIONS)), "{report}");
    let counts = judge["distribution"]["counts"].as_array().unwrap();
    assert_eq!(counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), QUESTIONS as u64);
    for key in [
        "exact",
        "within_one",
        "mean_bias",
        "brier",
        "calibration_error",
        "pairwise_accuracy",
        "position_bias",
        "seconds_per_grade",
    ] {
        let figure = &judge["figures"][key];
        let [value, low, high] = ["value", "low", "high"].map(|name| figure[name].as_f64().unwrap());
        assert!(low <= value && value <= high, "{key}: {figure}");
    }
    for key in ["pearson", "spearman", "kendall", "spearman_expected", "length_bias", "pairwise_length_bias"] {
        let figure = &judge["figures"][key];
        assert!(figure["value"].is_f64() != figure["reason"].is_string(), "{key}: {figure}");
    }
    // Resumed: judged answers are not judged again, so even the seconds are the same.
    let again = home.json(&["judge", "eval", &set, "--judge", MODEL, "--json"]);
    let value = |report: &Value, key: &str| report["judges"][0]["figures"][key]["value"].as_f64().unwrap();
    for key in ["exact", "pairwise_accuracy", "seconds_per_grade", "seconds_per_comparison"] {
        assert!((value(&again, key) - value(&report, key)).abs() < 1e-9, "{key}: {again}");
    }
    let diagram = home.path("reliability.svg");
    let table = home.run(&["judge", "eval", &set, "--judge", MODEL, "--diagram", diagram.to_str().unwrap()]).stdout;
    let drawn = std::fs::read_to_string(diagram).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains(MODEL) && drawn.contains("<circle"), "{drawn}");
    for label in ["Pearson", "Kendall's tau-b", "exact agreement", "position bias", "seconds per grade", "unparsed"] {
        assert!(table.contains(label), "{table}");
    }
}

#[test]
fn several_judges_stand_side_by_side_with_their_agreement() {
    let home = home();
    let set = written(&home, "set.jsonl", &answers());
    let judges = ["judge", "eval", &set, "--judge", MODEL, "--judge", "likelihood"];
    let report = home.json(&[&judges[..], &["--json"]].concat());
    let names: Vec<&Value> = report["judges"].as_array().unwrap().iter().map(|judge| &judge["judge"]).collect();
    assert_eq!(names, [MODEL, "likelihood"]);
    // The built-in model judges in both ways, and a verdict of one does not count for the other.
    let seconds = |judge: usize| &report["judges"][judge]["figures"]["seconds_per_grade"];
    assert_ne!(seconds(0), seconds(1), "{report}");
    let agreement = report["agreement"].as_array().unwrap();
    assert_eq!(agreement.len(), 1);
    assert_eq!(agreement[0]["judges"], json!([MODEL, "likelihood"]));
    assert!(agreement[0]["scores"]["n"] == QUESTIONS && agreement[0]["choices"].is_null(), "{agreement:?}");
    let table = home.run(&judges).stdout;
    assert!(table.contains("KRIPPENDORFF'S ALPHA") && table.contains("smollm2:135m, likelihood"), "{table}");
    let csv = home.run(&[&judges[..], &["--csv"]].concat()).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "judge,figure,value,low,high,n,reason");
    assert!(lines.iter().all(|line| line.matches(',').count() >= 6), "{csv}");
    assert!(csv.contains("\nlikelihood,exact,") && csv.contains("smollm2:135m & likelihood,alpha_scores,"), "{csv}");
}

/// Small samples of every format, made up for this test.
#[test]
fn the_formats_of_others_are_read() {
    let home = home();
    let folder = crate::support::root().join("tests/data/judged");
    for (file, answers, pairs, format) in [
        ("feedback_bench.jsonl", 2, 0, "prometheus-eval's Feedback-Bench"),
        ("preference_bench.json", 0, 2, "prometheus-eval's Preference-Bench"),
        ("rewardbench.jsonl", 0, 2, "RewardBench"),
        ("judgebench.jsonl", 0, 2, "JudgeBench"),
        ("mt_bench.json", 0, 2, "MT-bench"),
        ("llmbar.json", 0, 2, "LLMBar"),
    ] {
        let path = folder.join(file);
        let report = home.json(&["judge", "eval", path.to_str().unwrap(), "--judge", MODEL, "--json"]);
        assert_eq!((&report["answers"], &report["pairs"]), (&json!(answers), &json!(pairs)), "{report}");
        assert!(report["formats"][0].as_str().unwrap().ends_with(format), "{report}");
        let judge = &report["judges"][0];
        assert_eq!((&judge["graded"], &judge["compared"]), (&json!(answers), &json!(pairs)), "{report}");
        assert_eq!(judge["unparsed"], 0);
        let few = judge["figures"].as_object().unwrap().values().all(|figure| figure["reason"].is_string());
        assert!(few, "two lines are too few for a figure: {judge}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 6, "every sample is read");
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_the_reason() {
    let home = home();
    let check = |lines: &[Value], arguments: &[&str], code: i32, expected: &str| {
        let set = written(&home, "set.jsonl", lines);
        let run = home.run(&[&["judge", "eval", &set], arguments].concat());
        assert!(run.code == code && run.stdout.is_empty() && run.stderr.contains(expected), "{run:?}");
    };
    let lacking = [answers()[0].clone(), json!({"question": "Q", "response_A": "R", "response_B": "S"})];
    check(&lacking, &["--judge", MODEL], 2, "line 2 of ~/set.jsonl lacks \"label\", which a pair of JudgeBench has");
    check(&[], &["--judge", MODEL], 2, "~/set.jsonl is empty");
    check(&answers(), &[], 1, "hone pull prometheus:7b");
    check(&answers(), &["--judge", "nobody"], 1, "nobody");
    check(&answers(), &["--judge", MODEL, "--csv", "--json"], 2, "--csv");
}

/// A person who rates as good the answers to which the judge gives the higher scores.
fn rated_like_the_judge(home: &Home) -> Vec<Value> {
    let line = |n: usize| json!({"query": format!("Say {n} words."), "answer": "word ".repeat(n % 9) + &n.to_string()});
    let tasks: Vec<Value> = (0..40).map(line).collect();
    let (input, output) = (written(home, "tasks.jsonl", &tasks), home.path("grades.jsonl"));
    let grades = ["grade", "--input", &input, "--output", output.to_str().unwrap(), "--judge", MODEL];
    assert_eq!(home.run(&grades).code, 0);
    let graded: Vec<Value> =
        fs::read_to_string(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = |line: &Value| line["expected_score"].as_f64().unwrap();
    let mut sorted: Vec<f64> = graded.iter().map(expected).collect();
    sorted.sort_by(f64::total_cmp);
    let score = |line: &Value| if expected(line) > sorted[20] { 5 } else { 2 };
    graded
        .iter()
        .map(|line| json!({"question": line["query"], "answer": line["answer"], "score": score(line)}))
        .collect()
}

#[test]
fn a_badge_shows_how_often_a_person_agrees() {
    let home = home().variable("HONE_JUDGE_CALIBRATED", "true");
    let lines = rated_like_the_judge(&home);
    let grade = |home: &Home| {
        let run = home.run(&["grade", "--query", "Say 3 words.", "--answer", "one two three", "--judge", MODEL]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    assert!(!grade(&home).contains("agree"), "nothing is known yet");
    let data = written(&home, "rated.jsonl", &lines);
    let report = home.json(&["judge", "calibrate", MODEL, "--data", &data, "--json"]);
    assert_eq!(
        (&report["n"], &report["from_files"], &report["helps"]),
        (&json!(40), &json!(40), &json!(true)),
        "{report}"
    );
    assert!(report["brier"].as_f64().unwrap() < report["brier_uncalibrated"].as_f64().unwrap(), "{report}");
    let agreement: Vec<f64> =
        report["agreement"].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).collect();
    assert!(agreement.is_sorted() && agreement[0] > 0.0 && agreement[4] < 1.0, "{report}");
    let graded = grade(&home);
    assert!(graded.contains("/5 (") && graded.contains(" % agree)"), "{graded}");
    let other = home.variable("HONE_JUDGE_RUBRIC", "honesty");
    assert!(!grade(&other).contains("agree"), "another rubric has another meaning");
}

#[test]
fn ratings_in_memory_count_and_too_few_are_refused() {
    let home = home();
    let run = home.run(&["judge", "calibrate", MODEL]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    let expected = "30 more ratings are needed, at least 5 of them good and 5 bad";
    assert!(run.stderr.contains(expected) && run.stderr.contains("/good and /bad"), "{}", run.stderr);
    remember_rated(&home, &["good", "bad", "good"]);
    let run = home.run(&["judge", "calibrate", MODEL]);
    let expected = "27 more ratings are needed, at least 3 of them good and 4 bad";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
    let pairs = written(&home, "pairs.jsonl", &pairs());
    let run = home.run(&["judge", "calibrate", MODEL, "--data", &pairs]);
    assert!(run.code == 2 && run.stderr.contains("~/pairs.jsonl has pairs only"), "{}", run.stderr);
    let run = home.run(&["judge", "calibrate", "likelihood"]);
    assert!(run.code == 2 && run.stderr.contains("gives no scores"), "{}", run.stderr);
}

/// Remembers answers with these ratings.
fn remember_rated(home: &Home, ratings: &[&str]) {
    assert_eq!(home.run(&["chat", "Is fire hot?", "-m", MODEL, "-N", "4"]).code, 0);
    let exported = home.path("export.jsonl");
    assert_eq!(home.run(&["memory", "export", exported.to_str().unwrap()]).code, 0);
    let line: Value = serde_json::from_str(fs::read_to_string(exported).unwrap().lines().next().unwrap()).unwrap();
    let rated = |(n, rating): (usize, &&str)| {
        let mut line = line.clone();
        let id = line["engram"]["query_id"].as_str().unwrap();
        line["engram"]["query_id"] = format!("{}{n:04}", &id[..id.len() - 4]).into();
        line["engram"]["user_feedback"] = (*rating).into();
        line
    };
    let lines: Vec<Value> = ratings.iter().enumerate().map(rated).collect();
    let imported = home.run(&["memory", "import", &written(home, "rated-memory.jsonl", &lines)]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
}
