//! Extraction of intent and entities in the background.

use hone_protocol::scripted::Script;
use hone_protocol::{Constraint, GenerateRequest, Lane, Subject};

use crate::stage::{MODEL, Plan, Stage, grades_of, is_comparison, text_of, verdict, wait_until};

fn is_extraction(request: &GenerateRequest) -> bool {
    request.constraint.is_some()
}

fn plan(respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static) -> Plan {
    let mut plan = Plan::answering(respond);
    plan.settings.extract = true;
    plan
}

/// Waits until an engram has its intent.
fn wait_for_intent(stage: &Stage, id: hone_protocol::QueryId) {
    wait_until("the intent", || stage.store.get(id).unwrap().is_some_and(|engram| engram.intent.is_some()));
}

const EXTRACT: [&str; 2] = [r#"{"intent": "to learn", "#, r#""entities": ["water", "steam"]}"#];

#[test]
fn intent_and_entities_stand_on_the_engram_after_the_grade() {
    let mut stage = plan(|request| match is_extraction(request) {
        true => Script::saying(&EXTRACT),
        false => Script::saying(&["At 100 °C."]),
    })
    .start();
    let id = stage.ask("When does water boil?");
    wait_for_intent(&stage, id);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Ok(4)]);
    let engram = stage.engram(id);
    assert_eq!(engram.intent.as_deref(), Some("to learn"));
    assert_eq!(engram.entities, ["water", "steam"]);
    assert_eq!(engram.score(), Some(4), "what stood there stays");
    let requests = stage.generator.requests();
    let request = &requests[1];
    assert_eq!((request.model.as_str(), request.sampling.temperature, request.max_tokens), (MODEL, 0.0, Some(64)));
    assert!(matches!(request.constraint, Some(Constraint::JsonSchema(_))));
    assert_eq!(text_of(request), "user: Extract from When does water boil? and At 100 °C.\n");
}

#[test]
fn a_failed_extraction_leaves_them_empty_and_the_next_goes_on() {
    let mut stage = plan(|request| match (is_extraction(request), text_of(request).contains("odd")) {
        (true, true) => Script::saying(&["no json"]),
        (true, false) => Script::saying(&EXTRACT),
        _ => Script::saying(&["Yes."]),
    })
    .start();
    let odd = stage.ask("odd?");
    let even = stage.ask("even?");
    wait_for_intent(&stage, even);
    stage.stop();
    assert_eq!((stage.engram(odd).intent, stage.engram(odd).entities), (None, Vec::<String>::new()));
}

#[test]
fn what_a_session_has_left_undone_is_done_in_the_next() {
    let mut before = plan(|request| match is_extraction(request) {
        true => Script::never_ending(&["{"]),
        false => Script::saying(&["Yes."]),
    })
    .start();
    let left = ["first?", "second?"].map(|question| before.ask(question));
    before.wait_for_request(&before.generator, is_extraction);
    before.wait_about(left[1], Subject::MemoryStored);
    let mut stage = plan(|request| match is_extraction(request) {
        true => Script::saying(&EXTRACT),
        false => Script::saying(&["Yes."]),
    })
    .start_in(before.leave_folder());
    let id = stage.ask("third?");
    [id, left[0], left[1]].iter().for_each(|id| wait_for_intent(&stage, *id));
    let requests = stage.generator.requests();
    let lanes: Vec<Lane> = requests.iter().map(|request| request.lane).collect();
    assert_eq!(lanes, [Lane::Interactive, Lane::Background, Lane::Background, Lane::Background]);
    stage.stop();
}

#[test]
fn nothing_is_extracted_unless_it_is_asked_for() {
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    stage.stop();
    assert!(stage.generator.requests().iter().all(|request| !is_extraction(request)));
}

#[test]
fn without_a_critic_extraction_does_not_wait_for_grades() {
    let mut plan = plan(|request| match is_extraction(request) {
        true => Script::saying(&EXTRACT),
        false => Script::saying(&["Yes."]),
    });
    plan.judge = None;
    let mut stage = plan.start();
    let id = stage.ask("why?");
    wait_for_intent(&stage, id);
    stage.stop();
    assert_eq!(stage.engram(id).score(), None);
}

#[test]
fn both_respondents_answers_have_their_intent() {
    let mut stage = plan(|request| match is_extraction(request) {
        true => Script::saying(&EXTRACT),
        false => Script::saying(&["Yes."]),
    })
    .judged_by(|request| if is_comparison(request) { Script::saying(&["A"]) } else { verdict(request, 4) })
    .with_b()
    .start();
    let id = stage.ask("why?");
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let hone_protocol::Payload::PairwiseResult(comparison) = &pairwise.payload else { panic!("it is a comparison") };
    wait_for_intent(&stage, id);
    wait_for_intent(&stage, comparison.query_id_b);
    stage.stop();
}
