//! Answers that a client sends to be graded or compared.

use hone_app::config::ServerSettings;
use hone_protocol::scripted::{Script, Scripted};
use serde_json::json;

use crate::stage::{Plan, Stage, echo, settings, wait_until};

/// The error of a server whose judge cannot be created.
const NO_RUBRIC: &str = "there is no rubric \"missing\": there are ";

/// The request for a grade that never comes.
fn endless() -> serde_json::Value {
    json!({"query": "Why?", "answer": "endless"})
}

#[test]
fn an_answer_is_graded_for_a_client_and_not_remembered() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    let (status, grade) = stage.post("/hone/v1/grade", &json!({"query": "Why?", "answer": "Because."}));
    assert_eq!((status, &grade["score"], &grade["badge"]["text"]), (200, &json!(4), &json!("● 4/5")), "{grade}");
    assert_eq!(grade["feedback"], "It is fine.", "{grade}");
    let reference = json!({"query": "Why?", "answer": "Because.", "reference": "Because it is so."});
    assert_eq!(stage.post("/hone/v1/grade", &reference).0, 200);
    assert_eq!(grade["self_graded"], false, "{grade}");
    let own = json!({"query": "Why?", "answer": "Because.", "answered_by": grade["judge"]});
    assert_eq!(stage.post("/hone/v1/grade", &own).1["self_graded"], true, "a judge is told that it answered");
    assert_eq!(stage.get("/hone/v1/memory").1, json!({"engrams": []}));
    assert_eq!(stage.model.requests().len(), 0, "the judge is asked, and not the model that answers");
}

#[test]
fn two_answers_are_compared_for_a_client() {
    let judge = Scripted::new(|request| {
        let turn = hone_judging::scripted::turn(request);
        let is_good_first = turn.find("the good one") < turn.find("the bad one");
        Script::saying(if is_good_first { &["A. It is good."] } else { &["B. It is good."] })
    });
    let stage = Stage::planned(settings(), Plan { judge: Some(judge), ..Plan::default() }, echo);
    let asked = json!({"query": "Which?", "a": "the bad one", "b": "the good one"});
    let (status, verdict) = stage.post("/hone/v1/compare", &asked);
    assert_eq!((status, &verdict["winner"], &verdict["consistent"]), (200, &json!("B"), &json!(true)), "{verdict}");
}

#[test]
fn a_judge_that_gives_no_verdict_says_why() {
    let judge = Scripted::always(Script::saying(&["It is fine."]));
    let stage = Stage::planned(settings(), Plan { judge: Some(judge), ..Plan::default() }, echo);
    let (status, grade) = stage.post("/hone/v1/grade", &json!({"query": "Why?", "answer": "Because."}));
    assert_eq!((status, &grade["score"], &grade["badge"]), (200, &json!(null), &json!(null)), "{grade}");
    assert!(grade["failure"].as_str().unwrap().contains("no verdict"), "{grade}");
    let without = Stage::start(settings(), echo);
    let (status, refused) = without.post("/hone/v1/grade", &json!({"query": "Why?", "answer": "Because."}));
    let told = refused["error"]["message"].as_str().unwrap();
    assert_eq!((status, told.starts_with(NO_RUBRIC)), (500, true), "{refused}");
}

#[test]
fn what_is_no_request_is_refused() {
    let stage = Stage::planned(settings(), Plan::grading(4), echo);
    for (path, body) in [
        ("/hone/v1/grade", json!({"query": "Why?"})),
        ("/hone/v1/grade", json!({"query": "Why?", "answer": "a", "b": "b"})),
        ("/hone/v1/grade", json!({"query": "Why?", "answer": 1})),
        ("/hone/v1/compare", json!({"query": "Why?", "answer": "a"})),
        ("/hone/v1/compare", json!([])),
    ] {
        let (status, refused) = stage.post(path, &body);
        assert_eq!(status, 400, "{path} {body} {refused}");
    }
}

#[test]
fn a_client_that_goes_away_stops_its_judge_and_makes_room() {
    let stage = Stage::planned(ServerSettings { most_questions: 1, ..settings() }, Plan::grading(4), echo);
    let waiting = stage.connect(&stage.post_text("/hone/v1/grade", &endless()));
    let judge = stage.judge.as_ref().unwrap();
    wait_until("the judge is asked", || !judge.requests().is_empty());
    let asked = json!({"query": "Why?", "answer": "Because."});
    let (status, refused) = stage.post("/hone/v1/grade", &asked);
    assert_eq!((status, &refused["error"]["type"]), (503, &json!("overloaded_error")), "{refused}");
    drop(waiting);
    wait_until("the judge of a client that has gone is stopped", || stage.post("/hone/v1/grade", &asked).0 == 200);
    assert!(judge.was_cancelled(), "nobody waits for it");
}
