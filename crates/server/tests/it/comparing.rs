//! The second respondent: its answer stays out of the conversation, and is compared with the first.

use hone_app::config::ServerSettings;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GenerateError, GenerateRequest};
use serde_json::{Value, json};

use crate::hone::{answered, chat, report_with};
use crate::stage::{Plan, Stage, ask, name_of, question_of, settings, wait_for, wait_until};

/// A judge that prefers a polite answer to any other.
fn polite_judge(request: &GenerateRequest) -> Script {
    let prompt = question_of(request);
    let verdict = match prompt.split_once("###Response B") {
        Some((a, _)) if a.contains("please") => "A",
        Some(_) => "B",
        None => "4",
    };
    Script::saying(&["One is polite.", &format!(" [RESULT] {verdict}")])
}

/// Respondents; the second one, with the higher temperature, is polite.
fn respond(request: &GenerateRequest) -> Script {
    Script::saying(&[if is_second(request) { "Yes, **please**." } else { "Yes." }])
}

fn is_second(request: &GenerateRequest) -> bool {
    request.sampling.temperature == settings().temperature_b
}

fn stage() -> Stage {
    let judge = Some(Scripted::new(polite_judge));
    Stage::planned(settings(), Plan { judge, remembers: true, ..Plan::default() }, respond)
}

/// The critique of an answer once it is compared.
fn compared(stage: &Stage, id: &str) -> Value {
    let judged = || stage.get(&format!("/hone/v1/critique/{id}")).1;
    wait_for("it is compared", || Some(judged()).filter(|judged| !judged["comparison"].is_null()))
}

#[test]
fn the_second_answer_is_compared_and_stays_out_of_the_conversation() {
    let stage = stage();
    let told = chat(&stage, &json!({"question": "May I?", "compare": true}));
    let end = answered(&told);
    assert_eq!((&end["is_compared"], &end["exchange"]["answer"]), (&json!(true), &json!("Yes.")));
    let judged = compared(&stage, end["exchange"]["query_id"].as_str().unwrap());
    let (comparison, other) = (&judged["comparison"], &judged["other"]);
    assert_eq!((&comparison["winner"], &comparison["consistent"]), (&json!("B"), &json!(true)), "{judged}");
    assert_eq!((&comparison["reason"], &comparison["failure"]), (&json!("One is polite."), &Value::Null));
    assert_eq!(
        (&other["html"], &other["grade"]["score"]),
        (&json!("<p>Yes, <strong>please</strong>.</p>\n"), &json!(4))
    );
    assert_eq!((&other["model"], &other["temperature"]), (&json!("scripted"), &json!(0.5)));
    assert_eq!(judged["is_comparing"], false);
    let (_, shown) = stage.get(&format!("/hone/v1/conversations/{}", name_of("May I?")));
    assert_eq!(shown["exchanges"].as_array().unwrap().len(), 1);
    assert_eq!(shown["exchanges"][0]["grade"]["comparison"], *comparison, "memory says what the messages said");
    assert_eq!(shown["exchanges"][0]["grade"]["other"], *other);
    chat(&stage, &json!({"question": "And now?", "conversation": name_of("May I?"), "compare": false}));
    let asked = format!("{:?}", stage.model.requests().last().unwrap().prompt);
    assert!(asked.contains("Yes.") && !asked.contains("please"), "{asked}");
    let is_won = |report: &Value| {
        let rates = report["win_rates"]["rates"].as_array();
        rates.into_iter().flatten().any(|rate| rate["of"] == "B" && rate["won"] == 1)
    };
    report_with(&stage, is_won);
}

#[test]
fn the_second_respondent_answers_only_where_it_is_wanted() {
    let stage = stage();
    let told = chat(&stage, &json!({"question": "alone"}));
    assert_eq!(answered(&told)["is_compared"], false);
    assert_eq!(stage.post("/v1/chat/completions", &ask("alone")).0, 200);
    assert_eq!(
        stage
            .post(
                "/v1/messages",
                &json!({"model": "scripted", "max_tokens": 9, "messages": [{"role": "user", "content": "alone"}]})
            )
            .0,
        200
    );
    assert_eq!(stage.post("/v1/responses", &json!({"model": "scripted", "input": "alone"})).0, 200);
    assert_eq!(
        stage
            .post(
                "/api/chat",
                &json!({"model": "scripted", "stream": false, "messages": [{"role": "user", "content": "alone"}]})
            )
            .0,
        200
    );
    assert_eq!(stage.model.requests().len(), 5, "one request for each question");
    let refused = stage.post("/hone/v1/chat", &json!({"question": "x", "compare": true, "model_b": "/etc/passwd"}));
    assert_eq!(refused.0, 404);
}

#[test]
fn a_server_compares_by_default_if_it_is_told_to_and_the_page_names_the_model() {
    let told = ServerSettings { respondent_b: true, ..settings() };
    let stage = Stage::start(told, respond);
    assert_eq!(stage.get("/hone/v1/models").1["respondent_b"], json!({"is_on": true, "model": "", "temperature": 0.5}));
    let told = chat(&stage, &json!({"question": "one", "model_b": "scripted"}));
    assert_eq!(answered(&told)["is_compared"], true);
    wait_until("both are asked", || stage.model.requests().len() == 2);
}

#[test]
fn a_second_respondent_that_cannot_answer_leaves_the_first_answer_as_it_is() {
    let stage = Stage::start(settings(), |request| match is_second(request) {
        true => Script::failing(GenerateError::Stopped),
        false => respond(request),
    });
    let told = chat(&stage, &json!({"question": "one", "compare": true}));
    let path = format!("/hone/v1/critique/{}", answered(&told)["exchange"]["query_id"].as_str().unwrap());
    let failure = || stage.get(&path).1["other_failure"].clone();
    let failure = wait_for("the second one has failed", || Some(failure()).filter(|failure| !failure.is_null()));
    assert_eq!(failure, "the engine has stopped");
}
