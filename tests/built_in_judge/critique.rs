//! `hone critique`: the real binary with the built-in model, which has not passed an examination.

use crate::support::{Home, smollm2};
use serde_json::{Value, json};

const TEXT: &str = "The Eiffel Tower is in Berlin, and it is 3 metres high.";

/// Checks that a result is well-formed, or reports that the model did not finish: the built-in one may ramble until its
/// tokens are used up, and its output differs with the secret of each home. Returns whether there is a verdict.
#[track_caller]
fn has_verdict(result: &Value) -> bool {
    if result["level"].is_null() {
        let failure = result["failure"].as_str().unwrap();
        assert!(failure.contains("expected a complete JSON object"), "{result}");
        return false;
    }
    assert!(["pass", "minor", "major", "block"].iter().any(|level| result["level"] == *level), "{result}");
    assert!((0.0..=1.0).contains(&result["validity_score"].as_f64().unwrap()), "{result}");
    assert!(result["reasoning"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
    true
}

#[test]
fn a_text_of_every_type_is_criticized_in_the_form_and_a_model_without_examination_blocks_nothing() {
    let home = Home::new();
    let file = home.write("text.txt", TEXT.as_bytes());
    for kind in ["general", "intention", "research", "consolidation"] {
        let file = file.to_str().unwrap();
        let arguments =
            ["critique", file, "--type", kind, "--context", "Where is it?", "--judge", &smollm2(), "--json"];
        let run = home.run(&arguments);
        let result: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        assert_eq!((&result["content_type"], &result["should_block"]), (&kind.into(), &false.into()), "{result}");
        let has_verdict = has_verdict(&result);
        assert_eq!(run.code, i32::from(!has_verdict), "{}", run.stderr);
        if has_verdict {
            let reason = result["disregarded"].as_str().unwrap();
            assert!(reason.contains("has not taken the critic's examination"), "{reason}");
        }
    }
}

#[test]
fn a_model_that_criticizes_its_own_text_is_named_or_refused() {
    let home = Home::graded_by_the_generator();
    let own = |home: &Home| {
        let arguments = ["critique", "--by", &smollm2(), "--judge", &smollm2(), "--json"];
        let run = home.run_with_stdin(&arguments, TEXT.as_bytes());
        serde_json::from_str::<Value>(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr))
    };
    let result = own(&home);
    assert_eq!(result["self_graded"], true, "{result}");
    if has_verdict(&result) {
        assert!(result["disregarded"].as_str().unwrap().ends_with("criticizes its own text"), "{result}");
    }
    let result = own(&home.variable("HONE_CRITIQUE_SELF_CRITIQUE", "false"));
    assert_eq!(result["level"], Value::Null);
    assert!(result["failure"].as_str().unwrap().contains("may not criticize it"), "{result}");
}

#[test]
fn a_batch_is_printed_line_by_line_and_taken_from_the_cache_the_next_time() {
    let home = Home::new();
    let lines = [
        json!({"content": TEXT, "id": 7}),
        json!({"content": "Buy milk.", "type": "intention", "context": "The fridge is empty."}),
    ];
    let file = home.write("batch.jsonl", lines.map(|line| format!("{line}\n")).concat().as_bytes());
    let arguments = ["critique", "--batch", file.to_str().unwrap(), "--type", "research", "--judge", &smollm2()];
    let [first, second] = [(); 2].map(|()| {
        let run = home.run(&arguments);
        assert!(run.stderr.contains("2 criticized, 0 blocked"), "{}", run.stderr);
        let printed = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        printed.collect::<Vec<Value>>()
    });
    assert_eq!((&first[0]["id"], &first[0]["content_type"]), (&7.into(), &"research".into()));
    assert_eq!((&first[1]["content"], &first[1]["content_type"]), (&"Buy milk.".into(), &"intention".into()));
    for (first, second) in first.iter().zip(&second).filter(|(first, _)| has_verdict(first)) {
        assert_eq!(first, second, "even the seconds are those of the first run");
    }
}

#[test]
fn what_cannot_be_criticized_is_named() {
    let home = Home::graded_by_the_generator();
    let check = |arguments: &[&str], stdin: &str, code: i32, expected: &str| {
        let run = home.run_with_stdin(&[&["critique"], arguments].concat(), stdin.as_bytes());
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    };
    check(&[], "", 2, "there is no text on stdin");
    check(&["absent.txt"], "", 1, "cannot read absent.txt");
    check(&["--type", "poem"], "x", 2, "is no type of content");
    check(&["--batch", "-"], "{\"text\": \"x\"}\n", 2, "line 1 of stdin: missing field `content`");
    check(&[], "x", 1, "is not installed");
}
