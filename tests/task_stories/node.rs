//! Tasks from the first prompt to the workspace: a scripted model writes the text, and node's own test runner, contained,
//! says what it is worth.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hone_agents::{Resolution, TaskError, TaskRecord, TaskRunner, TaskState, TaskStore, ToolSettings};
use hone_bus::{Bus, Mailbox, Overload, Subscription};
use hone_containment::Launcher;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GateAction, GenerateError, GenerateRequest, Prompt, SamplingOptions, Subject};
use hone_quality::{Assignment, EvaluatorTool, Phase, Reviewers};
use tempfile::TempDir;

const TASK: &str = "goal = \"a function that adds\"\ntype = \"node\"\nfiles = [\"add.mjs\"]\n";
const PLAN: &str = "=== write implementation_plan.md\nWrite add.mjs.\n=== end\n";
const TESTS: &str = "import test from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './add.mjs';\n\
                     test('adds', () => assert.equal(add(2, 3), 5));\n";

fn code(operator: char) -> String {
    format!("=== write add.mjs\nexport const add = (a, b) => a {operator} b;\n=== end\n")
}

fn prompt_of(request: &GenerateRequest) -> String {
    let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
    messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
}

/// A workspace with a test, a place for tasks, and everything that a runner needs.
struct Stage {
    folder: TempDir,
    bus: Bus,
    events: Mailbox,
    reviewers: Reviewers,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        fs::write(folder.path().join("workspace/add.test.mjs"), TESTS).unwrap();
        let bus = Bus::new();
        let events = bus.subscribe(Subscription {
            name: "test".into(),
            subjects: Subject::ALL.to_vec(),
            sessions: None,
            capacity: 256,
            overload: Overload::Close,
        });
        Stage { folder, bus, events, reviewers: Reviewers::default() }
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace").canonicalize().unwrap()
    }

    fn store(&self) -> TaskStore {
        TaskStore::new(self.folder.path().join("tasks"))
    }

    fn task(&self, text: &str) -> TaskRecord {
        self.store().create(Assignment::parse(text).unwrap(), self.workspace()).unwrap()
    }

    fn runner(&self, ladder: &[&str], generator: Arc<Scripted>) -> TaskRunner {
        let mut gate: toml::Table = include_str!("../config/gate.toml").parse().unwrap();
        gate.insert("ladder".into(), ladder.iter().map(|agent| (*agent).to_owned()).collect::<Vec<_>>().into());
        let launcher = Launcher {
            program: Path::new(env!("CARGO_BIN_EXE_hone")).to_owned(),
            arguments: vec!["command-worker".into()],
            uses_namespaces: true,
        };
        TaskRunner {
            generator,
            sampling: SamplingOptions::default(),
            agent: "small".into(),
            phases: Phase::all(toml::Table::new()).unwrap(),
            tools: EvaluatorTool::all(&toml::Table::new()).unwrap(),
            tool_settings: ToolSettings {
                launcher,
                workspace: self.workspace(),
                environment: std::env::vars().collect(),
                is_cancelled: Arc::new(|| false),
            },
            reviewers: self.reviewers.clone(),
            gate: gate.try_into().unwrap(),
            bus: self.bus.clone(),
            store: self.store(),
        }
    }

    fn subjects(&self) -> Vec<&'static str> {
        self.events.receiver().try_iter().map(|envelope| envelope.subject().as_str()).collect()
    }

    fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }
}

/// A model that plans, and then gives these answers, the last one again and again.
fn answering(answers: Vec<String>) -> Arc<Scripted> {
    let next = AtomicUsize::new(0);
    Arc::new(Scripted::new(move |request| {
        if prompt_of(request).contains("Write no other file") {
            return Script::saying(&[PLAN]);
        }
        let n = next.fetch_add(1, Ordering::SeqCst);
        Script::saying(&[&answers[n.min(answers.len() - 1)]])
    }))
}

fn actions(record: &TaskRecord) -> Vec<(&str, &str, GateAction)> {
    let of = |attempt: &'_ hone_agents::WorkAttempt| attempt.decision.as_ref().unwrap().action;
    record.attempts.iter().map(|attempt| (attempt.phase.as_str(), attempt.agent.as_str(), of(attempt))).collect()
}

#[test]
fn good_work_reaches_the_workspace() {
    let stage = Stage::new();
    let runner = stage.runner(&[], answering(vec![code('+')]));
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted, "{record:#?}");
    let accepted = GateAction::Accept;
    let expected =
        [("discovery", "small", accepted), ("coding", "small", accepted), ("verification", "small", accepted)];
    assert_eq!(actions(&record), expected);
    assert_eq!(stage.file("add.mjs").unwrap(), "export const add = (a, b) => a + b;\n");
    assert_eq!(stage.file("implementation_plan.md"), None, "the plan is no part of the result");
    assert!(stage.store().diff(record.id).contains("+export const add"));
    let subjects = stage.subjects();
    let evaluated = ["evaluation.started", "evaluation.completed"];
    assert_eq!(subjects, [&evaluated[..], &evaluated, &evaluated, &["task.accepted"]].concat());
    assert_eq!(stage.store().find(&record.id.to_string()).unwrap(), record);
}

#[test]
fn failing_tests_are_tried_again_with_the_failure_in_the_prompt() {
    let stage = Stage::new();
    let model = answering(vec![code('-'), code('+')]);
    let record = stage.runner(&[], model.clone()).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted);
    assert_eq!(
        actions(&record)[1..3],
        [("coding", "small", GateAction::Retry), ("coding", "small", GateAction::Accept)]
    );
    let prompt = prompt_of(&model.requests()[2]);
    for part in ["attempt 2 of 3", "test adds", "-1 == 5", "=== write add.mjs"] {
        assert!(prompt.contains(part), "{part:?} is missing in {prompt}");
    }
    let subjects = stage.subjects();
    assert!(subjects.contains(&"task.retried") && subjects.contains(&"optimization.started"), "{subjects:?}");
}

#[test]
fn two_bad_results_are_reassigned_and_a_third_waits_for_a_person() {
    let stage = Stage::new();
    let runner = stage.runner(&["small", "large"], answering(vec![code('-')]));
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Waiting);
    let expected = [
        ("discovery", "small", GateAction::Accept),
        ("coding", "small", GateAction::Retry),
        ("coding", "small", GateAction::Reassign),
        ("coding", "large", GateAction::Escalate),
    ];
    assert_eq!(actions(&record), expected);
    assert_eq!(stage.file("add.mjs"), None, "nothing of the user's is touched before acceptance");
    let subjects = stage.subjects();
    for subject in ["task.retried", "task.reassigned", "escalation.required", "task.escalated"] {
        assert_eq!(subjects.iter().filter(|one| **one == subject).count(), 1, "{subject} in {subjects:?}");
    }
    let phases = Phase::all(toml::Table::new()).unwrap();
    let resolved = stage.store().resolve(record, Resolution::Accept, Some("good enough"), &phases).unwrap();
    assert_eq!((resolved.state, resolved.notes.len()), (TaskState::Accepted, 1));
    assert_eq!(stage.file("add.mjs").unwrap(), "export const add = (a, b) => a - b;\n");
}

#[test]
fn a_person_can_reject_or_have_it_tried_again() {
    let stage = Stage::new();
    let waiting = stage.runner(&[], answering(vec![code('-')])).run(stage.task(TASK), &mut |_| {}).unwrap();
    let phases = Phase::all(toml::Table::new()).unwrap();
    let again = stage.store().resolve(waiting, Resolution::Retry, Some("use a plus sign"), &phases).unwrap();
    let model = answering(vec![code('+')]);
    let record = stage.runner(&[], model.clone()).run(again, &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted);
    assert!(prompt_of(&model.requests()[0]).contains("use a plus sign"));

    let other = Stage::new();
    let waiting = other.runner(&[], answering(vec![code('-')])).run(other.task(TASK), &mut |_| {}).unwrap();
    let rejected = other.store().resolve(waiting, Resolution::Reject, None, &phases).unwrap();
    assert_eq!(rejected.state, TaskState::Rejected);
    assert_eq!(other.file("add.mjs"), None);
}

#[test]
fn what_leads_out_of_the_workspace_is_refused_and_said() {
    let stage = Stage::new();
    let hook = "=== write .git/hooks/pre-commit\n#!/bin/sh\n=== end\n";
    let answers = ["=== write ../outside\nx\n=== end\n".to_owned(), hook.to_owned(), code('+')];
    let record = stage.runner(&[], answering(answers.to_vec())).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted);
    let errors: Vec<&str> = record.attempts.iter().filter_map(|attempt| attempt.form_error.as_deref()).collect();
    assert!(errors[0].contains("../outside") && errors[1].contains("version control"), "{errors:?}");
    assert!(!stage.folder.path().join("outside").exists());
    assert_eq!(stage.file(".git/hooks/pre-commit"), None);
}

#[test]
fn a_model_that_fails_costs_no_attempt() {
    let stage = Stage::new();
    let record = stage.task(TASK);
    let failing = Arc::new(Scripted::new(|_| Script::failing(GenerateError::Stopped)));
    let error = stage.runner(&[], failing).run(record.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TaskError::Agent { .. }), "{error}");
    let record = stage.store().find(&record.id.to_string()).unwrap();
    let record = stage.runner(&[], answering(vec![code('+')])).run(record, &mut |_| {}).unwrap();
    assert_eq!((record.state, record.attempts.len()), (TaskState::Accepted, 3));
}

#[test]
fn what_somebody_else_has_changed_is_never_overwritten() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    let model = Arc::new(Scripted::new(move |request| {
        if prompt_of(request).contains("Write no other file") {
            return Script::saying(&[PLAN]);
        }
        // While the agent works, somebody writes the same file.
        fs::write(workspace.join("add.mjs"), "somebody's work\n").unwrap();
        Script::saying(&[&code('+')])
    }));
    let record = stage.runner(&[], model).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Waiting);
    assert!(record.notes[0].contains("add.mjs was changed"), "{:?}", record.notes);
    assert_eq!(stage.file("add.mjs").unwrap(), "somebody's work\n");
    let phases = Phase::all(toml::Table::new()).unwrap();
    let error = stage.store().resolve(record, Resolution::Accept, None, &phases).unwrap_err();
    assert!(matches!(error, TaskError::Conflict(_)), "{error}");
}

/// Stops a run at each of its steps, and lets another one finish it.
#[test]
fn a_run_that_is_stopped_anywhere_resumes_and_counts_no_attempt_twice() {
    let text = format!(
        "{TASK}phases = [\"coding\"]\n[[requirements]]\ntext = \"it adds\"\nfile = \"add.mjs\"\ncontains = \"a + b\"\n"
    );
    let mut n_stopped = 0;
    for polls in 0..60 {
        let stage = Stage::new();
        let record = stage.task(&text);
        let left = AtomicUsize::new(polls);
        let mut runner = stage.runner(&[], answering(vec![code('-')]));
        // The rules alone evaluate: node has its own tests above.
        runner.tools.clear();
        runner.tool_settings.is_cancelled =
            Arc::new(move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err());
        let first = runner.run(record.clone(), &mut |_| {});
        let stopped = matches!(first, Err(TaskError::Stopped(_)));
        n_stopped += usize::from(stopped);
        assert!(stopped || first.is_ok(), "{first:?}");
        assert_eq!(stage.file("add.mjs"), None);
        let record = stage.store().find(&record.id.to_string()).unwrap();
        let mut runner = stage.runner(&[], answering(vec![code('-'), code('-'), code('-')]));
        runner.tools.clear();
        let record = runner.run(record, &mut |_| {}).unwrap();
        let numbers: Vec<usize> = record.attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!((record.state, numbers.as_slice()), (TaskState::Waiting, &[1, 2, 3][..]), "stopped after {polls}");
        if !stopped {
            break;
        }
    }
    assert!(n_stopped >= 8, "it was stopped {n_stopped} times");
}

#[test]
fn two_processes_do_not_work_on_one_task() {
    let stage = Stage::new();
    let record = stage.task(TASK);
    let _lock = stage.store().lock(record.id).unwrap();
    let error = stage.runner(&[], answering(vec![code('+')])).run(record, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TaskError::InUse(_)), "{error}");
}
