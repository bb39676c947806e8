//! Puts any two texts into a judge's prompt as question and answer: they may not add parts to the prompt, and neither
//! may contain the fence: `cargo +nightly fuzz run neutralize`.
#![no_main]

use std::sync::Arc;

use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GenerateRequest, Prompt};
use hone_judging::{JudgeSettings, FenceKey, GradeTask, Judge, JudgeProfile, Rubric, neutralized, suspicion};
use libfuzzer_sys::fuzz_target;

/// Begins the line before a judged text.
const FENCE: &str = "<<<";

fuzz_target!(|texts: (&str, &str)| {
    let (query, answer) = texts;
    for text in [query, answer] {
        let quoted = neutralized(text);
        assert!(quoted.len() <= 3 * text.len());
        assert!(["###", "[RESULT]", "<|im_end|>", "[/INST]", "</s>"].iter().all(|marker| !quoted.contains(marker)));
        assert_eq!(neutralized(&quoted), quoted, "what is quoted stays as it is");
    }
    if let Some(found) = suspicion(query, answer) {
        assert!(!found.passage.contains(char::is_control) && found.passage.chars().count() <= 121);
    }
    let prompt = prompt(query, answer);
    let boundary = prompt.lines().find_map(|line| line.strip_prefix(FENCE)).expect("the question has a fence");
    assert_eq!(prompt.matches(boundary).count(), 4, "a line before and after each text");
    assert_eq!(prompt.matches("###Feedback:").count(), 1);
});

/// The judge's prompt for them.
fn prompt(query: &str, answer: &str) -> String {
    let model = Arc::new(Scripted::always(Script::saying(&["[RESULT] 1"])));
    let rubric = Rubric::shipped("default").expect("it is shipped").expect("it is sound");
    let key = FenceKey::from_bytes([7; FenceKey::LENGTH]);
    let profile = JudgeProfile::shipped("prometheus").expect("it is shipped");
    let settings = JudgeSettings::shipped();
    let judge = Judge::new(model.clone(), settings, profile, rubric, key).expect("the settings are sound");
    judge.judge(GradeTask { query: query.to_owned(), answer: answer.to_owned(), reference: None }, "");
    turn(&model.requests()[0])
}

fn turn(request: &GenerateRequest) -> String {
    match &request.prompt {
        Prompt::Chat(messages) => messages[0].content.clone(),
        other => panic!("{other:?} is no chat"),
    }
}
