//! `hone report` over a small history.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
#[cfg(unix)]
use std::process::{Child, Command};
use std::time::SystemTime;

#[cfg(unix)]
use crate::support::wait_until;
use crate::support::{Home, Run, embedder, smollm2};
use serde_json::{Value, json};

/// The feedback on bad answers: three say the same, in their own words.
const FEEDBACK: [&str; 4] = [
    "The answer is too long and repeats itself.",
    "This answer is too long; it repeats itself.",
    "The answer is much too long and repeats itself often.",
    "The capital of France is wrong.",
];

/// A home whose memory holds eight questions, each answered by A and B and compared, and an answer by C.
fn home() -> Home {
    let home = Home::new();
    let mut lines = Vec::new();
    for question in 1..=8_u128 {
        // B's answer is longer, and wins six times; the models of B take turns.
        let of_b = if question % 2 == 0 { "second" } else { "third" };
        lines.push(answer(2 * question, "A", "first", "short", question <= 2));
        lines.push(answer(2 * question + 1, "B", of_b, "a longer answer", question > 2));
    }
    let mut other = answer(40, "another:7b", "first", "an answer", false);
    other["compared"] = Value::Null;
    other["pairwise_winner"] = Value::Null;
    lines.push(other);
    let lines: Vec<String> =
        lines.iter().map(|engram| json!({ "engram": engram, "vector": null }).to_string()).collect();
    let file = home.write("history.jsonl", lines.join("\n").as_bytes());
    let run = home.run(&["memory", "import", file.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    home
}

fn answer(number: u128, respondent: &str, model: &str, text: &str, has_won: bool) -> Value {
    let id = |number: u128| format!("01990000-0000-7000-8000-{number:012x}");
    let (question, other) = (number / 2 * 2, number ^ 1);
    json!({
        "query_id": id(number),
        "type": "episodic",
        "query": "Why?",
        "answer": text,
        "at": 1_700_000_000_000_u64 + number as u64,
        "session_id": id(1),
        "respondent_id": respondent,
        "model": model,
        "sampling": {},
        "correlation_id": id(question),
        "critic_score": if has_won { 5 } else { 2 },
        "feedback": FEEDBACK[number as usize / 2 % 4],
        "judge": "judge:7b",
        "self_graded": number == 2,
        "rubric": "default",
        "pairwise_winner": has_won,
        "compared": {
            "with": id(other), "log_odds": 1.0, "consistent": number / 2 != 3, "reason": "", "judge": "judge:7b",
        },
    })
}

#[test]
fn win_rates_have_the_length_bias_and_the_strengths_beside_them() {
    let report = home().json(&["report", "--json"]);
    let comparisons = &report["comparisons"][0];
    assert_eq!(
        (&comparisons["judge"], &comparisons["compared"], &comparisons["ties"]),
        (&json!("judge:7b"), &json!(8), &json!(0))
    );
    assert_eq!(comparisons["respondents"]["A"]["share"], 0.25, "{comparisons:#}");
    assert_eq!((&comparisons["longer_won"]["share"], &comparisons["longer_won"]["of"]), (&json!(0.75), &json!(8)));
    assert_eq!(comparisons["inconsistent"]["share"], 0.125);
    let interval = comparisons["longer_won"]["interval"].as_array().unwrap();
    assert!(interval[0].as_f64().unwrap() < 0.75 && interval[1].as_f64().unwrap() > 0.75, "{comparisons:#}");
    let strengths = comparisons["model_strengths"].as_array().unwrap();
    assert_eq!(strengths.len(), 3, "{comparisons:#}");
    assert_eq!(strengths[2]["name"], "first", "it has lost most: {comparisons:#}");
    assert_eq!(comparisons["respondent_strengths"], json!([]), "two respondents have a win rate");
    let text = home().run(&["report"]).stdout;
    assert!(
        text.contains(
            "judge:7b: 8 pairs, 0 ties; 12 % of the verdicts depend on the order; the longer answer won 75 % of 8"
        ),
        "{text}"
    );
}

#[test]
fn grades_that_a_model_gave_itself_stand_apart() {
    let report = home().json(&["report", "--json"]);
    let scales: Vec<(&str, u64)> = report["scales"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scale| (scale["scale"].as_str().unwrap(), scale["all"]["scored"].as_u64().unwrap()))
        .collect();
    assert_eq!(scales, [("judge:7b (self-graded), default", 1), ("judge:7b, default", 16)]);
    let [graded, best] = [&report["scales"][1]["all"]["mean"], &report["scales"][1]["range"]];
    assert!(graded.as_f64().is_some_and(|mean| mean > 2.0 && mean < 5.0), "{report:#}");
    assert_eq!(best, &json!([1.0, 5.0]));
}

#[test]
fn a_report_is_about_a_model_or_a_respondent_alone() {
    let home = home();
    let scored = |arguments: &[&str]| {
        let report = home.json(&[&["report", "--json"], arguments].concat());
        let scales = report["scales"].as_array().unwrap().iter();
        (
            scales.map(|scale| scale["all"]["scored"].as_u64().unwrap()).sum::<u64>(),
            report["comparisons"][0]["compared"].as_u64(),
        )
    };
    assert_eq!(scored(&["--model", "second"]), (4, Some(4)));
    assert_eq!(scored(&["--agent", "second"]), (4, Some(4)), "agents are named by their models");
    assert_eq!(scored(&["--respondent", "B"]), (8, Some(8)));
    assert_eq!(scored(&["--respondent", "another:7b"]), (1, None), "respondents have any name");
    assert_eq!(scored(&["--task-type", "python"]), (0, None));
    assert_eq!(scored(&["--task-type", "question"]), scored(&["--task-type", "chat"]), "all are plain questions");
    assert_eq!(home.run(&["report", "--respondent", ""]).code, 2);
}

#[test]
fn feedback_is_grouped_by_meaning_where_the_embedder_is_installed_and_otherwise_by_text() {
    let home = home();
    let run = home.run(&["report", "--feedback", "--json"]);
    let feedback = serde_json::from_str::<Value>(&run.stdout).unwrap()["feedback"].take();
    assert_eq!(feedback["grouped_by"], "text");
    assert_eq!(feedback["groups"].as_array().unwrap().len(), 4, "{feedback:#}");
    assert!(run.stderr.contains("feedback is grouped by its text, not by its meaning"), "{}", run.stderr);
    let home = home.variable("HONE_MEMORY_EMBEDDER", &embedder());
    let feedback = home.json(&["report", "--feedback", "--json"])["feedback"].take();
    assert_eq!(feedback["grouped_by"], "meaning");
    let groups = feedback["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{feedback:#}");
    assert!(groups[0][0].as_str().unwrap().contains("too long"), "{feedback:#}");
    assert!(home.json(&["report", "--json"]).get("feedback").is_none(), "it was not asked for");
}

#[test]
fn the_page_and_the_table_say_the_same() {
    let home = home();
    let page = home.path("report.html");
    assert_eq!(home.run(&["report", "--feedback", "--html", page.to_str().unwrap()]).code, 0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("the longer answer won 75 % of 8") && page.contains("<td>respondent A</td>"), "{page}");
    assert!(page.contains("commonest feedback, by text"), "{page}");
    let table = home.run(&["report", "--csv"]).stdout;
    assert!(table.contains("\"wins, judge:7b\",\"the longer answer\",8,0,0.7500,"), "{table}");
    assert_eq!(home.run(&["report", "--fail-under", "4.9"]).code, 3);
    assert_eq!(home.run(&["report", "--fail-under", "0.9"]).code, 1, "there are no tasks");
    assert_eq!(home.run(&["report", "--fail-under", "6"]).code, 2);
}

/// The model under a different name from its likelihood judge.
const PAST: &str = "past:1b";

/// A home in which the likelihood judge compares, with past questions that the model `PAST` has answered.
fn home_with_past(n_questions: u128) -> Home {
    let home = Home::new().variable("HONE_SAMPLING_MAX_TOKENS", "12").variable("HONE_JUDGE_GRADE_TIMEOUT", "600");
    assert_eq!(home.run(&["pull", &smollm2(), "--name", "smollm2:135m"]).code, 0);
    remember(&home, (1..=n_questions).map(question).collect());
    home
}

/// A question that begins a conversation, and its answer.
fn question(number: u128) -> Value {
    let mut engram = answer(2 * number, "A", PAST, &format!("It is {}.", number + 3), false);
    engram["query"] = format!("What is {number} + 3?").into();
    engram["session_id"] = engram["query_id"].clone();
    engram["finish_reason"] = "stop".into();
    engram["compared"] = Value::Null;
    engram["pairwise_winner"] = Value::Null;
    engram
}

fn remember(home: &Home, engrams: Vec<Value>) {
    let lines = engrams.iter().map(|engram| json!({ "engram": engram, "vector": null }).to_string());
    let file = home.write("past.jsonl", lines.collect::<Vec<_>>().join("\n").as_bytes());
    let run = home.run(&["memory", "import", file.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_model_is_compared_with_what_was_said_then() {
    let home = home_with_past(5);
    let compare = ["report", "--compare", &smollm2(), "--sample", "4"];
    let report = home.json(&[&compare[..], &["--json"]].concat());
    assert_eq!((&report["model"], &report["pairs"]), (&json!(smollm2()), &json!(4)), "{report:#}");
    assert_eq!((&report["unjudged"], &report["self_graded"]), (&json!(0), &json!(false)), "{report:#}");
    assert_eq!(report["judge"], "likelihood with smollm2:135m");
    let count = |name: &str| report[name].as_u64().unwrap();
    let inconsistent = report["compared"].as_array().unwrap().iter().filter(|one| one["outcome"] == "inconsistent");
    assert_eq!(count("won") + count("lost") + count("ties") + inconsistent.count() as u64, 4, "{report:#}");
    let decided = 4 - count("ties");
    assert_eq!(report["inconsistent"]["of"], 4, "{report:#}");
    let interval = report["win_rate"]["interval"].as_array().unwrap();
    assert!(interval[0].as_f64() < interval[1].as_f64(), "{report:#}");
    assert_eq!(report["conclusion"], "undecided", "four pairs decide nothing");
    assert_eq!((count("won") + count("lost"), &report["longer_won"]["of"]), (decided, &json!(decided)), "{report:#}");
    assert_eq!(report["against"][PAST]["pairs"], 4, "{report:#}");
    let first = &report["compared"][0];
    assert!(first["answer"].as_str().is_some_and(|text| !text.is_empty()), "{first:#}");
    assert!(first["answer_then"].as_str().unwrap().starts_with("It is "), "{first:#}");
    assert!(first["log_odds"].as_f64().unwrap() > 0.0 || first["outcome"] != "won", "{first:#}");
    let again = home.json(&[&compare[..], &["--json"]].concat());
    assert_eq!(again, report, "the same questions, answers and verdicts");
    let other = home.json(&[&compare[..], &["--json", "--seed", "1"]].concat());
    assert_ne!(other["compared"], report["compared"]);
    let text = home.run(&compare).stdout;
    assert!(
        text.starts_with("no difference can be told: ") && text.contains(&format!(" of {decided} pairs with a winner")),
        "{text}"
    );
    assert!(text.contains("ORDER DECIDES") && text.contains("WIN RATE"), "{text}");
}

#[test]
fn a_judge_that_compares_answers_of_its_own_is_marked() {
    let home = home_with_past(2);
    let run = home.run(&["report", "--compare", "smollm2:135m", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("do not rely on this: the judge gave some of the answers itself"), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["self_graded"], &report["pairs"]), (&json!(true), &json!(2)));
    assert_eq!(report["judge"], "likelihood with smollm2:135m (self-graded)");
}

/// Exchanges that a model alone could not have repeated, or that say nothing about another model, are left out.
#[test]
fn only_questions_are_asked_that_a_model_can_answer_alone() {
    let home = home_with_past(2);
    let with = |number: u128, changes: Value| {
        let mut engram = question(number);
        engram.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        engram
    };
    let [first, second] = [1, 2].map(|number| question(number)["query"].clone());
    remember(
        &home,
        vec![
            with(11, json!({"finish_reason": "length"})),
            with(12, json!({"finish_reason": null})),
            with(13, json!({"answer": " "})),
            with(14, json!({"session_id": question(1)["session_id"]})),
            with(15, json!({"model": smollm2()})),
            with(16, json!({"query": first, "model": "newer:1b"})),
            with(17, json!({"respondent_id": "B"})),
            with(18, json!({"owner": question(1)["query_id"]})),
        ],
    );
    let report = home.json(&["report", "--compare", &smollm2(), "--json"]);
    let left_out = json!({"cut": 3, "later": 1, "own": 1, "repeated": 1});
    assert_eq!(report["left_out"], left_out, "{report:#}");
    let compared = report["compared"].as_array().unwrap();
    let asked: BTreeMap<&str, &str> =
        compared.iter().map(|one| (one["question"].as_str().unwrap(), one["model_then"].as_str().unwrap())).collect();
    let expected = BTreeMap::from([(first.as_str().unwrap(), "newer:1b"), (second.as_str().unwrap(), PAST)]);
    assert_eq!(asked, expected, "the latest answer to a question counts");
    let pairs =
        |more: &[&str]| home.json(&[&["report", "--compare", &smollm2(), "--json"], more].concat())["pairs"].clone();
    assert_eq!(pairs(&["--model", "newer:1b"]), 1);
    assert_eq!(pairs(&["--respondent", "B"]), 1);
    assert_eq!(pairs(&["--task-type", "chat", "--since", "2020-01-01"]), 2);
}

/// The full path of a question: memory's contribution to an answer and earlier exchanges of a saved conversation are
/// known.
#[test]
fn a_history_of_real_chats_is_asked_again() {
    let home = home_with_past(0);
    let chat = |arguments: &[&str]| {
        let run = home.run(&[&["chat", "-m", "smollm2:135m", "-N", "24"], arguments].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    // The built-in model ends the first answer by itself, whatever the processor.
    chat(&["What is the capital of France?", "--temperature", "0"]);
    chat(&["What is the capital of Japan?", "--temperature", "0"]);
    let run = home.run(&["report", "--compare", &smollm2(), "--json"]);
    let remembered = home.run(&["memory", "list", "--json"]).stdout;
    assert_eq!(run.code, 0, "{}{remembered}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let n_asked = report["compared"].as_array().unwrap().len();
    let n_cut = report["left_out"]["cut"].as_u64().unwrap_or_default() as usize;
    assert_eq!((n_asked + n_cut, n_asked > 0), (2, true), "{report:#}");
}

fn check_no_comparison(home: &Home, arguments: &[&str], code: i32, complaint: &str) {
    let run = home.run(&[&["report", "--compare"], arguments].concat());
    assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{}", run.stderr);
    assert!(run.stderr.contains(complaint), "{}", run.stderr);
}

#[test]
fn what_is_missing_for_a_comparison_is_told() {
    let home = home_with_past(0);
    let model = smollm2();
    check_no_comparison(&home, &[&model], 1, "memory has no answers that");
    check_no_comparison(&home, &["qwen3:4b"], 1, "hone pull qwen3:4b");
    remember(&home, vec![question(1), question(2)]);
    check_no_comparison(&home, &[&model, "--sample", "3"], 2, "--sample is 3, and 2 past questions can be asked again");
    check_no_comparison(&home, &[&model, "--sample", "0"], 2, "--sample");
    check_no_comparison(&home, &[&model, "--task-type", "python"], 2, "whose type is chat, not \"python\"");
    check_no_comparison(&home, &[&model, "--trend", "day"], 2, "cannot be used with");
    let own = home.run(&["report", "--compare", &model, "--model", "x:1b"]);
    assert!(own.code == 1 && own.stderr.contains("memory has no answers"), "{}", own.stderr);
    assert_eq!(home.run(&["report", "--seed", "1"]).code, 2, "a seed without a comparison");
}

#[test]
fn a_judge_that_has_not_passed_is_refused_unless_somebody_names_it() {
    let home = home_with_past(1)
        .variable("HONE_JUDGE_MODEL", "smollm2:135m")
        .variable("HONE_JUDGE_FALLBACK", "none")
        .variable("HONE_JUDGE_FEEDBACK_TOKENS", "1");
    check_no_comparison(&home, &[&smollm2()], 1, "`hone judge exam smollm2:135m` starts it");
    assert!(!home.path("data/cache/answers").exists(), "nothing is asked that nobody may judge");
    let run = home.run(&["report", "--compare", &smollm2(), "--judge", "smollm2:135m", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("do not rely on these grades"), "{}", run.stderr);
    assert_eq!(serde_json::from_str::<Value>(&run.stdout).unwrap()["judge"], "smollm2:135m");
}

/// When each kept file was written.
#[cfg(unix)]
fn kept(home: &Home, folder: &str) -> BTreeMap<String, SystemTime> {
    let entries = fs::read_dir(home.path(&format!("data/cache/{folder}"))).into_iter().flatten().flatten();
    let written = |entry: fs::DirEntry| {
        let name = entry.file_name().to_str()?.to_owned();
        Some((name, entry.metadata().ok()?.modified().ok()?)).filter(|(name, _)| name.ends_with(".json"))
    };
    entries.filter_map(written).collect()
}

#[cfg(unix)]
fn start_until(home: &Home, folder: &str, n_kept: usize) -> Child {
    let child = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &["report", "--compare", &smollm2(), "--json"]);
    let mut child = { child }.spawn().unwrap();
    wait_until(&format!("{n_kept} files are kept in {folder}"), || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended too early");
        kept(home, folder).len() >= n_kept
    });
    child
}

/// Killed while it answers, killed while it judges, stopped, and then left alone.
#[cfg(unix)]
#[test]
fn a_comparison_resumes_whatever_stops_it() {
    let home = home_with_past(24);
    let mut child = start_until(&home, "answers", 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let answers = kept(&home, "answers");
    assert!((3..24).contains(&answers.len()), "{}", answers.len());
    let mut child = start_until(&home, "grades", 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let (all_answers, verdicts) = (kept(&home, "answers"), kept(&home, "grades"));
    assert!(all_answers.len() == 24 && (2..24).contains(&verdicts.len()), "{}", verdicts.len());
    assert!(answers.iter().all(|(name, at)| all_answers[name] == *at), "no answer is asked for again");
    let child = start_until(&home, "grades", verdicts.len() + 1);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let (told, result) = (String::from_utf8(ended.stderr).unwrap(), String::from_utf8(ended.stdout).unwrap());
    assert_eq!((ended.status.code(), result.as_str()), (Some(130), ""), "{told}");
    assert!(told.contains("stopped: the same command continues from here"), "{told}");
    let Run { code, stdout, stderr } = home.run(&["report", "--compare", &smollm2(), "--json"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["pairs"], 24);
    assert_eq!(kept(&home, "answers"), all_answers);
    let all_verdicts = kept(&home, "grades");
    assert_eq!(all_verdicts.len(), 24);
    assert!(verdicts.iter().all(|(name, at)| all_verdicts[name] == *at), "nothing is judged again");
}
