//! `best:TYPE` in place of a model, over a history in which one of two installed models is clearly better.

use crate::support::{Home, smollm2};
use hone_judging::{Arm, RoutedModel, choose};
use hone_protocol::{GateAction, GateDecision, Timestamp};
use hone_work::{Assignment, TaskState, TaskStore, WorkAttempt};
use serde_json::{Value, json};

/// The two names of the same weights.
const BETTER: &str = "better:1b";
const WORSE: &str = "worse:1b";
/// Scores of each model.
const SCORES: usize = 20;
const PHASES: &str = "[[phases]]\nname = \"coding\"\nprompt = \"Write a file.\"\nfiles = []\nchecks_task = true\n\
                      evaluates_first = false\ndelivers = true\nmax_tokens = 8\ncandidates = 1\n";

fn home() -> Home {
    let home = Home::new();
    for name in [BETTER, WORSE] {
        assert_eq!(home.run(&["pull", &smollm2(), "--name", name]).code, 0);
    }
    home
}

/// Answers of both models, graded by one judge; another judge, which has graded less, thinks otherwise.
fn remember_grades(home: &Home) {
    remember(home, 2 * SCORES + 10, |number, is_better| {
        let (judge, is_good) = match number < 2 * SCORES {
            true => ("judge:7b", is_better),
            false => ("other:7b", !is_better),
        };
        json!({"critic_score": if is_good { 5 } else { 1 }, "judge": judge, "self_graded": false})
    });
}

/// Answers of both models, marked by the likelihood judge; the models also gave their own answers scores, and a few of
/// the better one's are marked as those of the judge's own model.
fn remember_marks(home: &Home) {
    remember(home, 4 * SCORES, |number, is_better| match (number < 2 * SCORES, is_better) {
        (false, true) => mark(0.1, json!("wrong"), true),
        (false, false) => json!({"critic_score": 5, "judge": WORSE, "self_graded": true}),
        (true, true) => mark(0.6, Value::Null, false),
        (true, false) => mark(0.1, json!("wrong"), false),
    });
}

/// A grade of the likelihood judge, which judges answers of its own model in another way.
fn mark(probability: f64, likely: Value, self_graded: bool) -> Value {
    json!({
        "critic_score": null, "probability": probability, "likely": likely, "judge": "smollm2:135m",
        "self_graded": self_graded, "judging_method": "likelihood",
    })
}

/// Imports answers of the two models in turn with the fields of their grades, by number and whether they are of the
/// better model.
fn remember(home: &Home, n: usize, grade: impl Fn(usize, bool) -> Value) {
    let id = |number: usize| format!("01990000-0000-7000-8000-{number:012x}");
    let engram = |number: usize| {
        let is_better = number.is_multiple_of(2);
        let mut engram = json!({
            "query_id": id(number), "correlation_id": id(number), "session_id": id(number), "respondent_id": "A",
            "query": "Why?", "answer": "So.", "at": 1_700_000_000_000_u64 + number as u64, "sampling": {},
            "model": if is_better { BETTER } else { WORSE }, "finish_reason": "stop", "rubric": "default",
        });
        let fields = grade(number, is_better);
        engram.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"engram": engram, "vector": null})
    };
    let lines: Vec<String> = (0..n).map(|number| engram(number).to_string()).collect();
    let file = home.write("history.jsonl", lines.join("\n").as_bytes());
    assert_eq!(home.run(&["memory", "import", file.to_str().unwrap()]).code, 0);
}

/// Tasks of the type python: one model's were all accepted at once, the other's never.
fn remember_tasks(home: &Home) {
    let store = TaskStore::new(home.path("data/tasks"));
    for (agent, state) in [(BETTER, TaskState::Accepted), (WORSE, TaskState::Rejected)].repeat(SCORES) {
        let assignment = Assignment::parse("goal = \"it works\"\ntype = \"python\"\n").unwrap();
        let mut record = store.create(assignment, home.path("")).unwrap();
        let decision = GateDecision {
            action: if state == TaskState::Accepted { GateAction::Accept } else { GateAction::Escalate },
            reason: String::new(),
            score: Some(0.9),
            agent: None,
            feedback: String::new(),
        };
        let attempt = WorkAttempt {
            phase: "coding".into(),
            number: 1,
            agent: agent.into(),
            temperature: None,
            thinking: false,
            started: Timestamp(1),
            ended: Some(Timestamp(2)),
            calls: Vec::new(),
            candidates: Vec::new(),
            chosen: None,
            answer: Some("=== add.py".into()),
            form_error: None,
            results: Vec::new(),
            critics: Vec::new(),
            decision: Some(decision),
        };
        record.attempts = vec![attempt];
        record.state = state;
        store.save(&record).unwrap();
    }
}

/// A seed with which the choice is made by the history, and one with which it explores and finds the worse model, if
/// each answer of the better one has this score and those of the worse one 0.
fn seeds(better: f64) -> [u64; 2] {
    let arm = |model: &str, score: f64| Arm { model: model.to_owned(), scores: vec![score; SCORES] };
    let arms = [arm(BETTER, better), arm(WORSE, 0.0)];
    let choice = |seed| choose(&arms, seed).unwrap();
    let is_by_history = |it: &RoutedModel| it.model == BETTER && it.reason.starts_with("drawn");
    let by_history = (0..).find(|seed| is_by_history(&choice(*seed))).unwrap();
    let explores = (0..).find(|seed| choice(*seed).model == WORSE && choice(*seed).reason.starts_with("to explore"));
    [by_history, explores.unwrap()]
}

/// Checks the message about the choice, with these seeds.
#[track_caller]
fn check_choice(home: &Home, arguments: &[&str], codes: &[i32], kind: &str) {
    check_choice_by(1.0, home, arguments, codes, kind);
}

#[track_caller]
fn check_choice_by(better: f64, home: &Home, arguments: &[&str], codes: &[i32], kind: &str) {
    let [by_history, explores] = seeds(better);
    for (seed, expected) in [
        (
            by_history,
            format!(
                "best:{kind} is {BETTER}: drawn from 2 models by their results; its {SCORES} results were {:.0} % of the \
                 best possible ones on average",
                100.0 * better
            ),
        ),
        (
            explores,
            format!("best:{kind} is {WORSE}: to explore, as one choice in ten does; its {SCORES} results were 0 %"),
        ),
    ] {
        let seed = seed.to_string();
        let run = home.run_with_stdin(&[arguments, &["--seed", &seed]].concat(), b"Say yes.");
        assert!(codes.contains(&run.code), "{run:?}");
        assert_eq!(run.stderr.matches(&expected).count(), 1, "expected once: {expected}\n{}", run.stderr);
    }
}

#[test]
fn a_task_goes_to_the_model_with_the_better_history_and_sometimes_to_another_one() {
    let home = home();
    remember_tasks(&home);
    let report = home.json(&["report", "--json"]);
    let python = &report["work"]["types"]["python"];
    assert_eq!((&python["tasks"], &python["pass_at_1"]["share"]), (&json!(2 * SCORES), &json!(0.5)), "{report:#}");
    assert_eq!(report["scales"][0]["agents"][WORSE]["mean"], 0.0, "{report:#}");
    home.write("config/phases.toml", PHASES.as_bytes());
    home.write("config/gate.toml", b"max_retries = 0\n");
    home.write("workspace/notes.txt", b"notes\n");
    let task = home.write("task.toml", b"goal = \"it works\"\ntype = \"python\"\nfiles = [\"add.py\"]\n");
    let workspace = home.path("workspace");
    let run = ["task", "run", task.to_str().unwrap(), "--workspace", workspace.to_str().unwrap()];
    check_choice(&home, &[&run[..], &["--model", "best:python"]].concat(), &[0, 3], "python");
    let records = home.run(&["task", "list", "--json"]).stdout;
    let agents: Vec<Value> = records
        .lines()
        .take(2)
        .map(|record| serde_json::from_str::<Value>(record).unwrap()["attempts"][0]["agent"].clone())
        .collect();
    assert_eq!(agents, [WORSE, BETTER], "the latest first: {records}");
}

#[test]
fn a_chat_and_a_text_come_from_the_model_whose_answers_were_graded_best() {
    let home = home();
    remember_grades(&home);
    let chat = ["chat", "Say yes.", "-N", "2", "-m", "best:chat"];
    check_choice(&home, &chat, &[0], "chat");
    check_choice(&home, &["chat", "Say yes.", "-N", "2", "-m", "best:question"], &[0], "question");
    check_choice(&home, &["generate", "-N", "2", "-m", "best:chat"], &[0], "chat");
    let [seed, _] = seeds(1.0).map(|seed| seed.to_string());
    let answer = home.json(&[&chat[..], &["--json", "--seed", &seed]].concat());
    assert_eq!(answer["model"], BETTER);
    home.write("config/engine.toml", b"model = \"best:chat\"\n");
    check_choice(&home, &["chat", "Say yes.", "-N", "2"], &[0], "chat");
}

#[test]
fn the_marks_of_a_judge_without_scores_count_too() {
    let home = home();
    remember_marks(&home);
    check_choice_by(0.5, &home, &["chat", "Say yes.", "-N", "2", "-m", "best:chat"], &[0], "chat");
}

/// A fresh installation has no judge that gives scores.
#[test]
fn the_answers_of_a_fresh_installation_count() {
    let home = Home::new();
    assert_eq!(home.run(&["pull", &smollm2(), "--name", "smollm2:135m"]).code, 0);
    let run = home.run(&["chat", "What is the capital of France?", "--grade", "-m", "smollm2:135m"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let run = home.run(&["chat", "Say yes.", "-N", "2", "-m", "best:chat"]);
    assert!(
        run.stderr.contains("best:chat is smollm2:135m: ") && run.stderr.contains("its only result was"),
        "{}",
        run.stderr
    );
}

#[test]
fn without_a_history_or_a_model_it_is_said() {
    let home = home();
    let run = home.run(&["chat", "Say yes.", "-N", "2", "-m", "best:haiku"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("best:haiku is ") && run.stderr.contains("it has no results yet"), "{}", run.stderr);
    let run = Home::new().run(&["chat", "Say yes.", "-m", "best:chat"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert!(run.stderr.contains("best:chat has no installed model to choose"), "{}", run.stderr);
}
