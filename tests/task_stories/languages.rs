//! Workspaces of three languages and their own tools: ruff and pytest, cargo, tsc and vitest.

use std::fs;
use std::path::{Path, PathBuf};

use hone_protocol::{EvaluationResult, GateAction, SamplingOptions};
use hone_work::{TaskRecord, TaskState};
use serde_json::Value;

use crate::support::Home;
use crate::task_stories::stage::{Stage, actions, answering, prompt_of};

/// A task in a language.
struct Language {
    /// Its type in reports.
    name: &'static str,
    /// The file to write.
    file: &'static str,
    good: &'static str,
    bad: &'static str,
    /// The tool that tests it.
    tests: &'static str,
    /// Another tool that checks the work.
    checks: &'static str,
    /// The test's message about bad work.
    failure: &'static str,
    stage: fn() -> Stage,
}

const PYTHON: Language = Language {
    name: "python",
    file: "add.py",
    good: "def add(a, b):\n    return a + b\n",
    bad: "def add(a, b):\n    return a - b\n",
    tests: "pytest",
    checks: "ruff",
    failure: "assert -1 == 5",
    stage: || {
        let stage =
            Stage::new(&[("test_add.py", "from add import add\n\n\ndef test_adds():\n    assert add(2, 3) == 5\n")]);
        link(&stage, &test_tools("python"), ".venv");
        stage
    },
};

const RUST: Language = Language {
    name: "rust",
    file: "src/lib.rs",
    good: "pub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n",
    bad: "pub fn add(a: i64, b: i64) -> i64 {\n    a - b\n}\n",
    tests: "cargo-test",
    checks: "clippy",
    failure: "left: -1",
    stage: || {
        let mut stage = Stage::new(&[
            ("Cargo.toml", "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
            ("src/lib.rs", ""),
            ("tests/add.rs", "#[test]\nfn adds() {\n    assert_eq!(sample::add(2, 3), 5);\n}\n"),
        ]);
        let of = |variable: &str, folder: &str| {
            std::env::var(variable).unwrap_or_else(|_| std::env::home_dir().unwrap().join(folder).display().to_string())
        };
        let readable = [of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup")];
        stage.tools = toml::toml! { [cargo-test] [clippy] };
        for (_, table) in &mut stage.tools {
            table.as_table_mut().unwrap().insert("readable".into(), readable.to_vec().into());
        }
        stage
    },
};

const TYPESCRIPT: Language = Language {
    name: "typescript",
    file: "add.ts",
    good: "export function add(a: number, b: number): number {\n  return a + b;\n}\n",
    bad: "export function add(a: number, b: number): number {\n  return a - b;\n}\n",
    tests: "vitest",
    checks: "tsc",
    failure: "expected -1 to be 5",
    stage: || {
        let stage = Stage::new(&[
            ("package.json", "{\"name\": \"sample\", \"private\": true, \"type\": \"module\"}\n"),
            (
                "tsconfig.json",
                "{\"compilerOptions\": {\"strict\": true, \"module\": \"nodenext\", \"target\": \"es2022\", \"types\": [], \
                 \"skipLibCheck\": true}, \"include\": [\"add*.ts\"]}\n",
            ),
            ("vitest.config.ts", "export default {};\n"),
            (
                "add.test.ts",
                "import { expect, test } from 'vitest';\nimport { add } from './add.js';\n\
                 test('adds', () => expect(add(2, 3)).toBe(5));\n",
            ),
        ]);
        link(&stage, &test_tools("typescript").join("node_modules"), "node_modules");
        stage
    },
};

/// A folder of installed tools.
fn test_tools(name: &str) -> PathBuf {
    let default = || crate::support::root().join("target/test-tools");
    let folder = std::env::var_os("HONE_TEST_TOOLS").map_or_else(default, PathBuf::from).join(name);
    assert!(folder.exists(), "{} is missing: scripts/lib/install-test-tools.sh installs it", folder.display());
    folder
}

/// Gives a workspace the packages that it would have installed.
fn link(stage: &Stage, installed: &Path, name: &str) {
    std::os::unix::fs::symlink(installed, stage.workspace().join(name)).unwrap();
}

impl Language {
    fn task(&self) -> String {
        format!("goal = \"a function that adds\"\ntype = \"{}\"\nfiles = [\"{}\"]\n", self.name, self.file)
    }

    /// The record of a run by two agents that give these answers.
    fn run(&self, stage: &Stage, answers: &[&str]) -> (TaskRecord, Vec<String>) {
        let answers = answers.iter().map(|text| format!("=== write {}\n{text}=== end\n", self.file)).collect();
        let model = answering(answers);
        let runner = stage.runner(&["small", "large"], model.clone());
        let record = runner.run(stage.task(&self.task()), &mut |_| {}).unwrap();
        (record, model.requests().iter().map(prompt_of).collect())
    }

    fn good_work_is_accepted(&self) {
        let stage = (self.stage)();
        let (record, _) = self.run(&stage, &[self.good]);
        assert_eq!(record.state, TaskState::Accepted, "{record:#?}");
        assert_eq!(record.attempts.len(), 3, "one of each phase");
        let of_coding = &record.attempts[1].results;
        assert_eq!(result(of_coding, self.tests).tests.unwrap().passed, 1, "{of_coding:#?}");
        assert!(result(of_coding, self.checks).is_passed(), "{of_coding:#?}");
        assert_eq!(stage.file(self.file).as_deref(), Some(self.good));
        self.check_log(&stage, &[("task.accepted", 1), ("evaluation.completed", 3)], [1.0, 0.0, 0.0, 0.0]);
    }

    fn bad_work_is_retried_then_reassigned(&self) {
        let stage = (self.stage)();
        let (record, prompts) = self.run(&stage, &[self.bad, self.bad, self.good]);
        assert_eq!(record.state, TaskState::Accepted, "{record:#?}");
        let expected = [
            ("coding", "small", GateAction::Retry),
            ("coding", "small", GateAction::Reassign),
            ("coding", "large", GateAction::Accept),
        ];
        assert_eq!(actions(&record)[1..4], expected);
        for part in ["attempt 2 of 3", self.tests, self.failure, self.bad] {
            assert!(prompts[2].contains(part), "{part:?} is missing in {}", prompts[2]);
        }
        assert!(prompts[3].contains("FINAL attempt"), "{}", prompts[3]);
        assert_eq!(stage.file(self.file).as_deref(), Some(self.good));
        let events = [("task.retried", 1), ("task.reassigned", 1), ("optimization.started", 2), ("task.accepted", 1)];
        self.check_log(&stage, &events, [0.6, 0.2, 0.2, 0.0]);
        let report = stage.home.json(&["report", "--json"]);
        let configurations = report["scales"][0]["configurations"].as_array().unwrap();
        let keys = |it: &Value| ["model", "temperature", "thinking", "kind"].map(|key| it[key].clone());
        let temperature = SamplingOptions::default().temperature;
        let of = |model: &str| serde_json::json!([model, temperature, false, self.name]);
        assert_eq!(
            configurations.iter().map(|it| Value::from(keys(it).to_vec())).collect::<Vec<_>>(),
            [of("large"), of("small")]
        );
    }

    fn work_that_stays_bad_waits_for_a_person(&self) {
        let stage = (self.stage)();
        let before = stage.file(self.file);
        let (record, _) = self.run(&stage, &[self.bad]);
        assert_eq!(record.state, TaskState::Waiting);
        assert_eq!(record.attempts.last().unwrap().decision.as_ref().unwrap().action, GateAction::Escalate);
        assert_eq!(stage.file(self.file), before, "nothing of the user's is touched");
        self.check_log(&stage, &[("escalation.required", 1), ("task.escalated", 1)], [0.25, 0.25, 0.25, 0.25]);
        let inbox = stage.home.run(&["task", "inbox"]);
        for part in [self.failure, self.tests, "escalate", self.file] {
            assert!(inbox.stdout.contains(part), "{part:?} is missing in {}", inbox.stdout);
        }
    }

    /// Checks `hone events` (the counts of some subjects) and `hone report` (the shares of attempts that were accepted,
    /// retried, reassigned and escalated).
    fn check_log(&self, stage: &Stage, counts: &[(&str, usize)], shares: [f64; 4]) {
        stage.log_events();
        let events = stage.home.run(&["events", "--json"]);
        let subjects: Vec<String> = events
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["subject"].as_str().unwrap().to_owned())
            .collect();
        for (subject, count) in counts {
            assert_eq!(subjects.iter().filter(|one| *one == subject).count(), *count, "{subject} in {subjects:?}");
        }
        let report = stage.home.json(&["report", "--json"]);
        let decisions = &report["work"]["types"][self.name]["decisions"];
        let found = ["accepted", "retried", "reassigned", "escalated"].map(|name| decisions[name].as_f64().unwrap());
        for (found, expected) in found.iter().zip(shares) {
            assert!((found - expected).abs() < 1e-9, "{decisions:#}");
        }
    }

    fn check(&self) {
        self.good_work_is_accepted();
        self.bad_work_is_retried_then_reassigned();
        self.work_that_stays_bad_waits_for_a_person();
    }
}

fn result<'a>(results: &'a [EvaluationResult], name: &str) -> &'a EvaluationResult {
    results.iter().find(|result| result.evaluator == name).unwrap()
}

#[test]
fn python_work_is_evaluated_with_ruff_and_pytest() {
    PYTHON.check();
}

#[test]
fn rust_work_is_evaluated_with_cargo() {
    RUST.check();
}

#[test]
fn typescript_work_is_evaluated_with_tsc_and_vitest() {
    TYPESCRIPT.check();
}

#[test]
fn what_a_linter_finds_is_told() {
    let stage = (PYTHON.stage)();
    let untidy = "import os\nimport sys\nimport json\nimport re\n\n\ndef add(a, b):\n    return a + b\n";
    let (record, _) = PYTHON.run(&stage, &[untidy]);
    let ruff = result(&record.attempts[1].results, "ruff");
    assert!(ruff.is_failed() && ruff.suggestions.iter().any(|one| one.contains("F401")), "{ruff:#?}");
    assert!(fs::exists(stage.workspace().join(".venv")).unwrap());
}

/// The gate's exit code for a workspace of these files, and the failed criteria of what checks whether they load.
fn loaded(files: &[(&str, &str)], evaluator: &str) -> (i32, Vec<String>) {
    let home = Home::new();
    for (path, text) in files {
        home.write(&format!("workspace/{path}"), text.as_bytes());
    }
    let workspace = home.path("workspace");
    std::os::unix::fs::symlink(test_tools("python"), workspace.join(".venv")).unwrap();
    let run = home.run(&["task", "check", "--workspace", workspace.to_str().unwrap(), "--json", "--deterministic"]);
    let checked: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let results = checked["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["evaluator"] == evaluator).unwrap();
    assert!(["passed", "failed"].contains(&result["status"].as_str().unwrap()), "{result:#}");
    let failed = result["criteria"].as_array().unwrap().iter().filter(|criterion| criterion["passed"] == false);
    (run.code, failed.map(|criterion| criterion["message"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn what_cannot_be_loaded_is_blocked_although_no_test_imports_it() {
    let check = |files: &[(&str, &str)], evaluator: &str, expected: &str| {
        let (code, messages) = loaded(files, evaluator);
        assert!(code == 3 && messages.iter().any(|message| message.contains(expected)), "{code}: {messages:?}");
    };
    let settings = ("pyproject.toml", "[tool.ruff]\nextend-exclude = [\"a.py\"]\n");
    check(&[settings, ("a.py", "x = (\n")], "python-loads", "was never closed");
    let main = ("main.py", "def f():\n    return 1\n");
    check(
        &[main, ("other.py", "from main import nothere\n\nnothere()\n")],
        "python-loads",
        "cannot import name 'nothere'",
    );
    let package = [("pkg/__init__.py", ""), ("pkg/a.py", "from .gone import x\n\nx()\n")];
    check(&package, "python-loads", "No module named '.gone'");
    check(&[("a.mjs", "export const x = (;\n")], "node-loads", "SyntaxError");
    check(&[("b.mjs", "import x from './gone.mjs';\n")], "node-loads", "Cannot find module './gone.mjs'");
}

#[test]
fn what_loads_in_unusual_ways_is_not_blocked() {
    let files = [
        (
            "names.py",
            "import os\nfrom sys import path as where\n\nfor i, (j, k) in []:\n    pass\nwith open(os.devnull) as f:\n    pass\n",
        ),
        ("lazy.py", "def __getattr__(name):\n    return name\n"),
        ("optional.py", "try:\n    from names import gone\nexcept ImportError:\n    gone = None\n"),
        (
            "main.py",
            "from lazy import anything\nfrom names import f, i, j, k, os, where\n\nprint(anything, f, i, j, k, os, where)\n",
        ),
        ("third.py", "import numpy\n\nprint(numpy)\n"),
        ("json.py", "raise SystemExit(\"a module of the workspace that is called like one of Python's\")\n"),
    ];
    assert_eq!(loaded(&files, "python-loads"), (0, Vec::new()));
    let modules = [("a.mjs", "export const x = 1;\n"), ("b.cjs", "const { join } = require('node:path');\n")];
    assert_eq!(loaded(&modules, "node-loads"), (0, Vec::new()));
}
