//! A workspace that node's own test runner tests.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GateAction, GenerateError};
use hone_work::{Resolution, TaskError, TaskPhase, TaskState};

use crate::task_stories::stage::{PLAN, Stage, actions, answering, prompt_of};

const TASK: &str = "goal = \"a function that adds\"\ntype = \"node\"\nfiles = [\"add.mjs\"]\n";
const TESTS: &str = "import test from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './add.mjs';\n\
                     test('adds', () => assert.equal(add(2, 3), 5));\n";

fn code(operator: char) -> String {
    format!("=== write add.mjs\nexport const add = (a, b) => a {operator} b;\n=== end\n")
}

fn node_stage() -> Stage {
    Stage::new(&[("add.test.mjs", TESTS)])
}

#[test]
fn good_work_reaches_the_workspace() {
    let stage = node_stage();
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
    let stage = node_stage();
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
    let stage = node_stage();
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
    let phases = TaskPhase::all(toml::Table::new()).unwrap();
    let resolved = stage.store().resolve(record, Resolution::Accept, Some("good enough"), &phases).unwrap();
    assert_eq!((resolved.state, resolved.notes.len()), (TaskState::Accepted, 1));
    assert_eq!(stage.file("add.mjs").unwrap(), "export const add = (a, b) => a - b;\n");
}

#[test]
fn a_person_can_reject_or_have_it_tried_again() {
    let stage = node_stage();
    let waiting = stage.runner(&[], answering(vec![code('-')])).run(stage.task(TASK), &mut |_| {}).unwrap();
    let phases = TaskPhase::all(toml::Table::new()).unwrap();
    let again = stage.store().resolve(waiting, Resolution::Retry, Some("use a plus sign"), &phases).unwrap();
    let model = answering(vec![code('+')]);
    let record = stage.runner(&[], model.clone()).run(again, &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted);
    assert!(prompt_of(&model.requests()[0]).contains("use a plus sign"));

    let other = node_stage();
    let waiting = other.runner(&[], answering(vec![code('-')])).run(other.task(TASK), &mut |_| {}).unwrap();
    let rejected = other.store().resolve(waiting, Resolution::Reject, None, &phases).unwrap();
    assert_eq!(rejected.state, TaskState::Rejected);
    assert_eq!(other.file("add.mjs"), None);
}

#[test]
fn what_leads_out_of_the_workspace_is_refused_and_said() {
    let stage = node_stage();
    let hook = "=== write .git/hooks/pre-commit\n#!/bin/sh\n=== end\n";
    let answers = ["=== write ../outside\nx\n=== end\n".to_owned(), hook.to_owned(), code('+')];
    let record = stage.runner(&[], answering(answers.to_vec())).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Accepted);
    let errors: Vec<&str> = record.attempts.iter().filter_map(|attempt| attempt.form_error.as_deref()).collect();
    assert!(errors[0].contains("../outside") && errors[1].contains("version control"), "{errors:?}");
    assert!(!stage.home.path("outside").exists());
    assert_eq!(stage.file(".git/hooks/pre-commit"), None);
}

#[test]
fn a_model_that_fails_costs_no_attempt() {
    let stage = node_stage();
    let record = stage.task(TASK);
    let failing = Arc::new(Scripted::new(|_| Script::failing(GenerateError::Stopped)));
    let error = stage.runner(&[], failing).run(record.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TaskError::Agent { .. }), "{error}");
    let record = stage.store().find(&record.id.to_string()).unwrap();
    let record = stage.runner(&[], answering(vec![code('+')])).run(record, &mut |_| {}).unwrap();
    assert_eq!((record.state, record.attempts.len()), (TaskState::Accepted, 3));
}

#[test]
fn a_task_whose_phase_is_no_longer_configured_is_not_delivered() {
    let stage = node_stage();
    let record = stage.task(&format!("{TASK}phases = [\"coding\"]\n"));
    let mut runner = stage.runner(&[], answering(vec![code('+')]));
    runner.phases.retain(|phase| phase.name != "coding");
    let error = runner.run(record.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, TaskError::UnknownPhase { phase, .. } if phase == "coding"), "{error}");
    assert_eq!(stage.file("add.mjs"), None);
    assert_eq!(stage.store().find(&record.id.to_string()).unwrap().state, TaskState::Working);
}

#[test]
fn what_somebody_else_has_changed_is_never_overwritten() {
    let stage = node_stage();
    let workspace = stage.workspace();
    let model = Arc::new(Scripted::new(move |request| {
        if prompt_of(request).contains("Write no other file") {
            return Script::saying(&[PLAN]);
        }
        // While the agent works, another program writes the same file.
        fs::write(workspace.join("add.mjs"), "somebody's work\n").unwrap();
        Script::saying(&[&code('+')])
    }));
    let record = stage.runner(&[], model).run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(record.state, TaskState::Waiting);
    assert!(record.notes[0].contains("add.mjs was changed"), "{:?}", record.notes);
    assert_eq!(stage.file("add.mjs").unwrap(), "somebody's work\n");
    let phases = TaskPhase::all(toml::Table::new()).unwrap();
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
        let stage = node_stage();
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
    let stage = node_stage();
    let record = stage.task(TASK);
    let _lock = stage.store().lock(record.id).unwrap();
    let error = stage.runner(&[], answering(vec![code('+')])).run(record, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TaskError::InUse(_)), "{error}");
}

/// Three candidates: wrong, malformed, right.
fn candidates() -> Arc<Scripted> {
    let answers = [code('-'), "no block".to_owned(), code('+')];
    let next = AtomicUsize::new(0);
    Arc::new(Scripted::new(move |_| Script::saying(&[&answers[next.fetch_add(1, Ordering::SeqCst) % 3]])))
}

fn with_candidates(n: usize) -> Vec<TaskPhase> {
    let mut phases = TaskPhase::all(toml::Table::new()).unwrap();
    phases.retain(|phase| phase.name == "coding");
    phases[0].candidates = n;
    phases
}

#[test]
fn the_best_of_several_candidates_is_taken() {
    let stage = node_stage();
    let model = candidates();
    let mut runner = stage.runner(&[], model.clone());
    runner.phases = with_candidates(3);
    runner.request.sampling.seed = Some(7);
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!(actions(&record), [("coding", "small", GateAction::Accept)], "they are one attempt");
    let attempt = &record.attempts[0];
    assert_eq!((attempt.chosen, attempt.answer.as_ref()), (Some(3), Some(&code('+'))));
    let found: Vec<_> = attempt.candidates.iter().map(|candidate| candidate.evaluation.as_ref().unwrap()).collect();
    assert_eq!(found.iter().map(|one| one.is_accepted).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((found[1].score, &found[2].results), (Some(0.0), &attempt.results));
    assert_eq!(stage.file("add.mjs").unwrap(), "export const add = (a, b) => a + b;\n");
    let requests = model.requests();
    assert!(requests.iter().all(|request| request.prompt == requests[0].prompt), "they share all of the prompt");
    let sampled: Vec<_> = requests.iter().map(|one| (one.sampling.seed, one.sampling.temperature)).collect();
    assert_eq!(sampled, [(Some(7), 0.0), (Some(8), 0.8), (Some(9), 0.8)]);
    assert_eq!(stage.subjects(), ["evaluation.started", "evaluation.completed", "task.accepted"]);
}

#[test]
fn of_bad_candidates_the_least_bad_is_told_to_the_next_attempt() {
    let stage = node_stage();
    let answers = [code('-'), "no block".to_owned()];
    let next = AtomicUsize::new(0);
    let model = Arc::new(Scripted::new(move |_| Script::saying(&[&answers[next.fetch_add(1, Ordering::SeqCst) % 2]])));
    let mut runner = stage.runner(&[], model.clone());
    runner.phases = with_candidates(2);
    let record = runner.run(stage.task(TASK), &mut |_| {}).unwrap();
    assert_eq!((record.state, record.attempts.len()), (TaskState::Waiting, 3));
    assert!(record.attempts.iter().all(|attempt| attempt.chosen == Some(1)), "{record:#?}");
    assert!(prompt_of(&model.requests()[2]).contains("-1 == 5"));
}

#[test]
fn a_run_that_is_stopped_between_candidates_asks_for_none_of_them_again() {
    let stage = node_stage();
    let record = stage.task(TASK);
    let model = candidates();
    let n_evaluated = Arc::new(AtomicUsize::new(0));
    let mut runner = stage.runner(&[], model.clone());
    runner.phases = with_candidates(3);
    let counted = Arc::clone(&n_evaluated);
    runner.tool_settings.is_cancelled = Arc::new(move || counted.load(Ordering::SeqCst) > 1);
    let counted = Arc::clone(&n_evaluated);
    let stopped = runner.run(record.clone(), &mut |progress| {
        if matches!(progress, hone_work::TaskProgress::Candidate { .. }) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert!(matches!(stopped, Err(TaskError::Stopped(_))), "{stopped:?}");
    let record = stage.store().find(&record.id.to_string()).unwrap();
    let is_evaluated: Vec<bool> =
        record.attempts[0].candidates.iter().map(|candidate| candidate.evaluation.is_some()).collect();
    assert_eq!(is_evaluated, [true, false, false]);
    let mut runner = stage.runner(&[], model.clone());
    runner.phases = with_candidates(3);
    let record = runner.run(record, &mut |_| {}).unwrap();
    assert_eq!((record.state, model.requests().len()), (TaskState::Accepted, 3));
}

#[test]
fn a_model_that_finds_a_critical_issue_has_the_work_tried_again() {
    let said = |blocking: &str, score: f64| {
        let criteria = ["correctness", "clarity", "completeness", "best_practices"].map(
            |criterion| serde_json::json!({"criterion": criterion, "passed": true, "score": score, "message": "read"}),
        );
        let issues: Vec<&str> = [blocking].into_iter().filter(|issue| !issue.is_empty()).collect();
        serde_json::json!({"overall_assessment": "read", "score": score, "criteria_results": criteria, "suggestions": [],
                           "blocking_issues": issues})
        .to_string()
    };
    let answers = [said("it is not documented", 0.4), said("", 0.9)];
    let next = AtomicUsize::new(0);
    let critic = hone_judging::JudgeSettings {
        model: "reviewer".into(),
        fallback: hone_judging::Fallback::None,
        ..hone_judging::JudgeSettings::shipped()
    };
    let (judge, reviewer) = hone_judging::scripted::judge(critic, move |_| {
        Script::saying(&[&answers[next.fetch_add(1, Ordering::SeqCst).min(1)]])
    });
    let mut stage = node_stage();
    let settings: toml::Table = include_str!("../../config/review.toml").parse().unwrap();
    let (reviewing, grading) = (judge.clone(), judge);
    stage.reviewers = hone_work::Reviewers::new(
        settings.try_into().unwrap(),
        0.7,
        Arc::new(move |task| reviewing.judge(task.clone(), "")),
        Arc::new(move |task| grading.judge(task.clone(), "")),
    );
    let model = answering(vec![code('-'), code('+')]);
    let record = stage.runner(&[], model.clone()).run(stage.task(TASK), &mut |_| {}).unwrap();
    let of_coding: Vec<GateAction> =
        actions(&record).into_iter().filter(|(phase, ..)| *phase == "coding").map(|(.., action)| action).collect();
    assert_eq!(of_coding, [GateAction::Retry, GateAction::Retry, GateAction::Accept]);
    assert_eq!(reviewer.requests().len(), 2, "it is not asked while a test fails");
    let third = prompt_of(&model.requests()[3]);
    assert!(third.contains("it is not documented") && third.contains("attempt 3 of 3"), "{third}");
}
