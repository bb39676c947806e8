//! `hone report` over a small history.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::{Home, embedder};

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
    assert_eq!(home.run(&["report", "--fail-under", "0.9"]).code, 3);
}
