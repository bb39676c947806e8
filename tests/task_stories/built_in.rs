//! A task for the built-in model, with everything real. The model may write anything; the task still ends in a defined
//! way, and everything is recorded.

use serde_json::Value;

use crate::support::{Home, smollm2};

const PHASES: &str = "\
[[phases]]
name = \"coding\"
prompt = \"Write a function add(a, b) to the file add.mjs.\"
files = []
checks_task = true
evaluates_first = false
delivers = true
max_tokens = 48
candidates = 2
";
const TESTS: &str = "import test from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './add.mjs';\n\
                     test('adds', () => assert.equal(add(2, 3), 5));\n";

#[test]
fn whatever_the_built_in_model_writes_the_task_ends_and_all_is_recorded() {
    let home = Home::new();
    let (model, task) =
        (smollm2(), home.write("task.toml", b"goal = \"it adds\"\ntype = \"small\"\nfiles = [\"add.mjs\"]\n"));
    home.write("config/phases.toml", PHASES.as_bytes());
    home.write("workspace/add.test.mjs", TESTS.as_bytes());
    let workspace = home.path("workspace");
    let run = home.run(&[
        "task",
        "run",
        task.to_str().unwrap(),
        "--workspace",
        workspace.to_str().unwrap(),
        "--model",
        &model,
        "--json",
    ]);
    assert!([0, 3].contains(&run.code), "{run:?}");
    let record: Value = serde_json::from_str(&run.stdout).unwrap();
    let attempts = record["attempts"].as_array().unwrap();
    let last = attempts.last().unwrap()["decision"]["action"].as_str().unwrap();
    let ending = match run.code {
        0 => ("accepted", "accept"),
        _ => ("waiting", "escalate"),
    };
    assert_eq!((record["state"].as_str().unwrap(), last), ending);
    assert_eq!(workspace.join("add.mjs").exists(), run.code == 0);
    let numbers: Vec<usize> = attempts.iter().map(|one| one["number"].as_u64().unwrap() as usize).collect();
    assert_eq!(numbers, (1..=attempts.len()).collect::<Vec<_>>());
    for attempt in attempts {
        let candidates = attempt["candidates"].as_array().unwrap();
        assert!(candidates.len() == 2 && candidates.iter().all(|one| one["evaluation"].is_object()), "{attempt:#}");
        let chosen = attempt["chosen"].as_u64().unwrap() as usize;
        assert_eq!(attempt["answer"], candidates[chosen - 1]["answer"]);
        assert!(attempt["answer"].as_str().unwrap().starts_with("=== "), "a constraint holds it to the form");
        assert!(!attempt["results"].as_array().unwrap().is_empty());
    }
    let of_type = |subject: &str| home.run(&["events", "--json", "--type", subject]).stdout.lines().count();
    let n_evaluated = of_type("evaluation.completed") + of_type("evaluation.failed");
    assert_eq!((of_type("evaluation.started"), n_evaluated), (attempts.len(), attempts.len()));
    assert_eq!(of_type("task.accepted") + of_type("task.escalated"), 1);
    let report = home.json(&["report", "--json"]);
    assert_eq!(report["work"]["types"]["small"]["decisions"]["attempts"], attempts.len());
    let inbox = home.run(&["task", "inbox", "--json"]);
    assert_eq!(inbox.stdout.lines().count(), usize::from(run.code == 3));
}
