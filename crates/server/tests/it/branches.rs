//! Branches of a conversation of the page.

use hone_protocol::QueryId;
use serde_json::{Value, json};

use crate::hone::chat;
use crate::stage::{Stage, echo, name_of, settings};

/// The visible answers, each with its place among its branches if it has any.
fn shown(conversation: &Value) -> String {
    let exchanges = conversation["exchanges"].as_array().unwrap_or_else(|| panic!("{conversation}"));
    let described = |exchange: &Value| match &exchange["branch"] {
        place if place["count"] == 1 => exchange["answer"].as_str().unwrap().to_owned(),
        place => format!("{}({}/{})", exchange["answer"].as_str().unwrap(), place["number"], place["count"]),
    };
    exchanges.iter().map(described).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_edited_question_keeps_the_earlier_branch_and_the_model_sees_the_one_that_is_shown() {
    let stage = Stage::start(settings(), echo);
    let path = &format!("/hone/v1/conversations/{}", name_of("one"));
    let ask = |question: &str, keep: usize| {
        let told = chat(&stage, &json!({"question": question, "conversation": name_of("one"), "keep": keep}));
        told.last().unwrap()["exchange"]["branch"].clone()
    };
    chat(&stage, &json!({"question": "one"}));
    ask("two", 1);
    ask("three", 2);
    assert_eq!(ask("deux", 1), json!({"number": 2, "count": 2}));
    assert_eq!(shown(&stage.get(path).1), "one deux(2/2)");
    let switch =
        |index: usize, number: usize| stage.post(&format!("{path}/branch"), &json!({"index": index, "number": number}));
    let (status, switched) = switch(1, 1);
    assert_eq!((status, shown(&switched)), (200, "one two(1/2) three".to_owned()));
    assert_eq!(shown(&stage.get(path).1), "one two(1/2) three", "it stays so");
    ask("four", 3);
    let sent = format!("{:?}", stage.model.requests().last().unwrap().prompt);
    assert!(sent.contains("three") && !sent.contains("deux"), "{sent}");
    assert_eq!(shown(&switch(1, 2).1), "one deux(2/2)");
    assert_eq!(shown(&switch(1, 1).1), "one two(1/2) three four");
    let (_, markdown) = stage.get(&format!("{path}/export"));
    assert!(!markdown.to_string().contains("deux"), "the branch that is shown is exported: {markdown}");
    for (index, number) in [(1, 0), (1, 3), (9, 1)] {
        assert_eq!(switch(index, number).0, 404, "{index} {number}");
    }
    assert_eq!(stage.post("/hone/v1/conversations/none/branch", &json!({"index": 0, "number": 1})).0, 404);
}

#[test]
fn a_question_follows_the_exchange_that_it_names() {
    let stage = Stage::start(settings(), echo);
    let name = name_of("one");
    let ask = |question: &str, more: Value| {
        let mut body = json!({"question": question, "conversation": name});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chat(&stage, &body).last().unwrap()["exchange"]["query_id"].clone()
    };
    chat(&stage, &json!({"question": "one"}));
    let two = ask("two", json!({"keep": 1}));
    ask("deux", json!({"keep": 1}));
    ask("three", json!({"after": two, "keep": 2}));
    assert_eq!(shown(&stage.get(&format!("/hone/v1/conversations/{name}")).1), "one two(1/2) three");
    ask("four", json!({"after": QueryId::fresh()}));
    assert_eq!(shown(&stage.get(&format!("/hone/v1/conversations/{name}")).1), "one two(1/2) three four");
}

#[test]
fn every_branch_is_searched() {
    let stage = Stage::start(settings(), echo);
    chat(&stage, &json!({"question": "one"}));
    chat(&stage, &json!({"question": "another", "conversation": name_of("one"), "keep": 0}));
    let (_, found) = stage.get("/hone/v1/conversations?search=one");
    assert_eq!(found["conversations"].as_array().unwrap().len(), 1);
}
