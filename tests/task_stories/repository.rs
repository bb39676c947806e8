//! A repository of 300 files and 2 MB: a scripted model that can use tools finds the bug, fixes it and delivers the
//! fix; and one that cannot use them is shown enough to do so.

use std::sync::Arc;

use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GateAction, GenerateError, GenerateRequest, Prompt, Role};
use hone_work::TaskState;

use crate::task_stories::stage::{PLAN, Stage, actions, prompt_of};

const N_MODULES: usize = 298;
const TASK: &str =
    "goal = \"convert_currency multiplies the wrong way round: mend it\"\ntype = \"node\"\npaths = [\"lib\"]\n";
const TESTS: &str = "import test from 'node:test';\nimport assert from 'node:assert';\nimport { convert_currency } from './lib/rates.mjs';\n\
                     test('converts', () => assert.equal(convert_currency(6, 2), 3));\n";
const WRONG: &str = "  return amount * rate;";
const RIGHT: &str = "  return amount / rate;";
const EDIT: &str =
    "=== edit lib/rates.mjs\n=== search\n  return amount * rate;\n=== replace\n  return amount / rate;\n=== end\n";

/// 298 modules of 6.6 KB, one of 60 KB with the function in its middle, and its test.
fn repository() -> Stage {
    let constants = |prefix: &str, n: usize| -> String {
        (0..n).map(|number| format!("export const {prefix}_{number} = {number};\n")).collect()
    };
    let mut files = vec![
        ("rates.test.mjs".to_owned(), TESTS.to_owned()),
        (".gitignore".to_owned(), "build/\n".to_owned()),
        ("build/out.txt".to_owned(), "convert_currency ".repeat(999)),
    ];
    let rate = |number| constants(&format!("rate_{number}"), 1000);
    let function = format!("export function convert_currency(amount, rate) {{\n{WRONG}\n}}\n");
    files.push(("lib/rates.mjs".to_owned(), format!("{}{function}{}", rate(1), rate(2))));
    let modules =
        (0..N_MODULES).map(|number| (format!("lib/part_{}/module_{number}.mjs", number % 7), constants("value", 230)));
    files.extend(modules);
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Stage::new(&files)
}

fn calling(name: &str, arguments: &str) -> Script {
    Script::saying(&[&format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")])
}

/// The results of tools that the model has received so far.
fn told(request: &GenerateRequest) -> Vec<&str> {
    let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
    messages.iter().filter(|message| message.role == Role::Tool).map(|message| message.content.as_str()).collect()
}

/// Searches, reads where the search leads, runs the tests, and edits what it has read.
fn capable(request: &GenerateRequest) -> Script {
    if prompt_of(request).contains("Write no other file") {
        return Script::saying(&[PLAN]);
    }
    match told(request)[..] {
        [] => calling("search", "{\"text\": \"function convert_currency\"}"),
        [found] => {
            let line = found.lines().nth(1).and_then(|line| line.split(':').nth(1)).unwrap();
            calling(
                "read",
                &format!(
                    "{{\"path\": \"lib/rates.mjs\", \"first_line\": {line}, \"last_line\": {}}}",
                    line.parse::<usize>().unwrap() + 2
                ),
            )
        }
        [_, _] => calling("run_tests", "{}"),
        [_, read, tested] if read.contains(WRONG) && tested.contains("12 == 3") => Script::saying(&[EDIT]),
        ref other => panic!("{other:#?}"),
    }
}

#[test]
fn a_model_with_tools_finds_mends_tests_and_delivers() {
    let stage = repository();
    let model = Arc::new(Scripted::new(capable));
    let record = stage.runner(&[], model.clone()).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted, "{:#?}", record.attempts);
    let coding = &record.attempts[1];
    let calls: Vec<&str> = coding.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(calls, ["search", "read", "run_tests"]);
    assert!(
        coding.calls[0].result.contains("lib/rates.mjs:1001: export function convert_currency"),
        "{:?}",
        coding.calls
    );
    let file = stage.file("lib/rates.mjs").unwrap();
    assert!(file.contains(RIGHT) && !file.contains(WRONG) && file.len() > 55_000, "{}", file.len());
    let first = prompt_of(&model.requests()[1]);
    for part in ["302 files with", "lib/part_3/ (", "--- lib/rates.mjs, lines ", WRONG] {
        assert!(first.contains(part), "{part:?} is missing in {first}");
    }
    assert!(!first.contains("build/out.txt") && first.len() < 16_000, "{} {first}", first.len());
}

#[test]
fn a_model_without_tools_is_shown_what_the_task_names() {
    let stage = repository();
    let model = Arc::new(Scripted::new(|request| {
        let prompt = prompt_of(request);
        match () {
            () if !request.tools.is_empty() => Script::failing(GenerateError::NoTools { model: request.model.clone() }),
            () if prompt.contains("Write no other file") => Script::saying(&[PLAN]),
            () if prompt.contains(WRONG) => Script::saying(&[EDIT]),
            () => panic!("{prompt}"),
        }
    }));
    let record = stage.runner(&[], model).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted, "{:#?}", record.attempts);
    assert!(record.attempts.iter().all(|attempt| attempt.calls.is_empty()));
}

#[test]
fn what_a_task_taught_is_told_to_the_next() {
    let stage = repository();
    let model = Arc::new(Scripted::new(|request| match () {
        () if prompt_of(request).contains("Write no other file") => Script::saying(&[PLAN]),
        () if prompt_of(request).contains("attempt 2 of") => Script::saying(&[EDIT]),
        () => Script::saying(&["=== write lib/new.mjs\nexport const x = 1;\n=== end\n"]),
    }));
    let runner = stage.runner(&[], model.clone());
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    let retried: Vec<GateAction> = actions(&record).into_iter().map(|(_, _, action)| action).collect();
    assert_eq!(retried[1], GateAction::Retry);
    let learned = stage.file(".hone/learned.md").unwrap();
    assert!(learned.contains("- coding: fix test converts"), "{learned}");
    let n_before = model.requests().len();
    runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    let next = prompt_of(&model.requests()[n_before]);
    assert!(next.contains("## What earlier tasks in this workspace taught\n- coding: fix test converts"), "{next}");
    assert!(!next.contains(".hone/learned.md ("), "{next}");
}

#[test]
fn an_answer_that_was_cut_is_told_so() {
    let stage = repository();
    let model = Arc::new(Scripted::new(|request| match () {
        () if prompt_of(request).contains("Write no other file") => Script::saying(&[PLAN]),
        () if prompt_of(request).contains("attempt 2 of") => Script::saying(&[EDIT]),
        () => Script {
            finish_reason: Some(hone_protocol::FinishReason::Length),
            ..Script::saying(&["=== write lib/rates.mjs\nexport const x"])
        },
    }));
    let mut runner = stage.runner(&[], model.clone());
    (runner.request.max_tokens, runner.request.thinking.budget) = (Some(2000), Some(300));
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    let cut = record.attempts[1].form_error.as_deref().unwrap();
    assert!(cut.starts_with("the answer was cut at 2000 tokens"), "{cut}");
    assert_eq!(record.state, TaskState::Accepted);
    let limits = model.requests().into_iter().map(|request| (request.max_tokens, request.thinking.budget));
    let limit = (Some(2000 + 300), Some(300));
    assert_eq!(limits.collect::<Vec<_>>(), [limit; 3], "reasoning comes on top of the answer");
}
