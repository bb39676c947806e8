//! Answers without a grade stay due, and are graded when there is time.

use std::sync::atomic::{AtomicUsize, Ordering};

use hone_judging::{Standing, Standings};
use hone_memory::{Due, Engram};
use hone_protocol::prospect::{ALONE, CANCELLED, NO_VERDICT, SESSION_CLOSED, TOO_MANY};
use hone_protocol::scripted::Script;
use hone_protocol::{
    Chunk, Envelope, GenerateError, GenerateRequest, Payload, Preference, QueryId, RespondentId, Response, Subject,
};

use crate::stage::{MODEL, Plan, Stage, count, grades_of, is_comparison, text_of, verdict, wait_until};

/// Answers with the question.
fn respond(request: &GenerateRequest) -> Script {
    Script::saying(&["Yes to ", text_of(request).trim()])
}

fn plan() -> Plan {
    Plan::answering(respond)
}

/// Grades at once, but endlessly if the question says "hard".
fn patient(request: &GenerateRequest) -> Script {
    if text_of(request).contains("hard") { Script::never_ending(&["Hm"]) } else { verdict(request, 4) }
}

/// The ids of the answers in the backlog.
fn backlog(stage: &Stage) -> Vec<QueryId> {
    stage.store.backlog().unwrap().iter().map(|entry| entry.query_id).collect()
}

fn reason(stage: &Stage, id: QueryId) -> Option<String> {
    stage.engram(id).due.and_then(|due| due.reason)
}

fn preference_in(envelope: &Envelope) -> &Preference {
    match &envelope.payload {
        Payload::PairwiseResult(comparison) => &comparison.preference,
        other => panic!("{other:?} is no comparison"),
    }
}

/// Two answers that a session has left without their grades.
fn left_behind() -> (Stage, [QueryId; 2]) {
    let mut stage = plan().judged_by(|_| Script::never_ending(&["Hm"])).start();
    let ids = ["one?", "two?"].map(|question| stage.ask(question));
    stage.wait_for_judge("one?");
    stage.wait_about(ids[1], Subject::MemoryStored);
    stage.close();
    ids.iter().for_each(|id| drop(stage.wait_about(*id, Subject::CritiqueResult)));
    stage.stop();
    (stage, ids)
}

#[test]
fn what_a_session_leaves_ungraded_is_graded_by_the_next_while_nobody_waits() {
    let (stage, ids) = left_behind();
    assert_eq!(backlog(&stage), ids);
    assert_eq!(ids.map(|id| reason(&stage, id).unwrap()), [SESSION_CLOSED; 2]);
    let mut plan = plan();
    plan.works_off_backlog = true;
    let mut stage = plan.start_in(stage.leave_folder());
    ids.iter().for_each(|id| drop(stage.wait_about(*id, Subject::CritiqueResult)));
    let heard = stage.stop();
    assert_eq!(ids.map(|id| grades_of(&heard, id)), [vec![Ok(4)], vec![Ok(4)]]);
    assert_eq!(ids.map(|id| (stage.engram(id).score(), stage.engram(id).due)), [(Some(4), None), (Some(4), None)]);
    assert_eq!(backlog(&stage), []);
}

#[test]
fn a_chat_that_does_not_work_off_the_backlog_leaves_it_alone() {
    let (stage, ids) = left_behind();
    let mut stage = plan().start_in(stage.leave_folder());
    let id = stage.ask("three?");
    stage.wait_about(id, Subject::CritiqueResult);
    stage.stop();
    assert_eq!(backlog(&stage), ids);
}

#[test]
fn a_question_comes_before_what_is_due() {
    let first = plan().judged_by(patient).start();
    let hard = first.ask("hard?");
    first.wait_for_judge("hard?");
    first.close();
    let mut plan = plan().judged_by(patient);
    plan.works_off_backlog = true;
    let mut stage = plan.start_in(first.leave_folder());
    stage.wait_for_judge("hard?");
    let question = stage.ask("easy?");
    let critique = stage.wait_about(question, Subject::CritiqueResult);
    wait_until("the judge makes room", || stage.judge.as_ref().unwrap().was_cancelled());
    assert!(critique.sender == "critic");
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, hard), []);
    assert_eq!(backlog(&stage), [hard]);
    assert!(!stage.store.backlog().unwrap()[0].is_held, "who has left holds nothing");
}

#[test]
fn nothing_is_due_where_nobody_wants_grades() {
    for (grades_due, expected) in [(false, None), (true, Some(Due::fresh(false)))] {
        let mut plan = plan();
        (plan.judge, plan.grades_due) = (None, grades_due);
        let mut stage = plan.start();
        let id = stage.ask("why?");
        stage.wait_about(id, Subject::MemoryStored);
        stage.stop();
        assert_eq!(stage.engram(id).due, expected);
    }
}

#[test]
fn a_judge_that_cannot_work_leaves_its_answers_due() {
    let late = |_: &GenerateRequest| Script::failing(GenerateError::Failed("no device".to_owned()));
    let mut stage = plan().judged_by(late).start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    stage.stop();
    let due = stage.engram(id).due.unwrap();
    assert_eq!((due.grade, due.failures), (true, 1));
    assert!(due.reason.unwrap().contains("no device"));
    assert_eq!(stage.engram(id).grade, None);
}

#[test]
fn what_is_due_is_graded_as_soon_as_the_judge_has_passed_its_examination() {
    let (stage, [id, _]) = left_behind();
    let mut plan = plan();
    plan.works_off_backlog = true;
    let mut stage = plan.start_in(stage.leave_folder());
    let judge = stage.grader.clone().unwrap();
    judge.set_standings(Standings { judge: Standing::Barred("not examined".to_owned()), ..Standings::default() });
    stage.wait_about(id, Subject::CritiqueResult);
    judge.set_standings(Standings { judge: Standing::Passed, ..Standings::default() });
    stage.wait(|envelope| envelope.query_id == Some(id) && is_graded(envelope));
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Err("not examined".to_owned()), Ok(4)]);
}

fn is_graded(envelope: &Envelope) -> bool {
    matches!(&envelope.payload, Payload::CritiqueResult(critique) if critique.grade.score.is_some())
}

#[test]
fn a_null_that_is_final_says_so_on_the_engram() {
    let respond = |request: &GenerateRequest| match text_of(request).contains("endless") {
        true => Script::never_ending(&["It", " goes", " on"]),
        false => Script::saying(&[" \n"]),
    };
    let mut stage = Plan::answering(respond).start();
    let endless = stage.ask("endless?");
    stage.wait(|envelope| matches!(&envelope.payload, Payload::ResponseChunk(Chunk::Text(_))));
    stage.cancel(endless);
    let empty = stage.ask("nothing?");
    stage.wait_about(empty, Subject::CritiqueResult);
    stage.stop();
    let failure = |id| stage.engram(id).grade.and_then(|grade| grade.judging.failure);
    assert_eq!(failure(endless).as_deref(), Some(CANCELLED));
    assert_eq!(failure(empty).as_deref(), Some("the answer is empty"));
    assert_eq!(backlog(&stage), []);
}

#[test]
fn a_judge_without_a_verdict_is_asked_twice() {
    let mut plan = plan().judged_by(|_| Script::saying(&["I cannot say."]));
    plan.works_off_backlog = true;
    let mut stage = plan.start();
    let id = stage.ask("why?");
    stage.wait(|envelope| envelope.subject() == Subject::CritiqueResult && envelope.sender == "backlog");
    let heard = stage.stop();
    let failures: Vec<String> = grades_of(&heard, id).into_iter().map(Result::unwrap_err).collect();
    assert!(failures.len() == 2 && failures.iter().all(|failure| failure.starts_with(NO_VERDICT)), "{failures:?}");
    let engram = stage.engram(id);
    assert_eq!((engram.grade.unwrap().judging.failure, engram.due), (failures.last().cloned(), None));
}

/// An answer with this number, as if from a generator.
fn answered(stage: &Stage, number: usize) -> Envelope {
    let response = Response::new(format!("hard {number}?"), "Yes.", MODEL.to_owned());
    let id = QueryId::fresh();
    let envelope = Envelope::new("test", stage.session, Payload::ResponseGeneration(response));
    envelope.about(id, id, RespondentId::A)
}

#[test]
fn more_answers_than_a_critic_keeps_in_mind_are_due() {
    let mut stage = plan().judged_by(patient).start();
    let answers: Vec<Envelope> = (0..400).map(|number| answered(&stage, number)).collect();
    answers.iter().for_each(|answer| stage.bus.publish(answer.clone()).unwrap());
    let last = answers[399].query_id.unwrap();
    stage.wait_about(last, Subject::CritiqueResult);
    stage.wait_about(last, Subject::MemoryStored);
    stage.stop();
    assert_eq!(reason(&stage, last).as_deref(), Some(TOO_MANY));
    assert_eq!(backlog(&stage), answers.iter().filter_map(|answer| answer.query_id).collect::<Vec<_>>());
}

#[test]
fn an_answer_at_which_the_backlog_fails_does_not_hold_up_the_others() {
    let mut first = plan().judged_by(|_| Script::never_ending(&[])).start();
    let ids = ["poison?", "two?"].map(|question| first.ask(question));
    first.wait_for_judge("poison?");
    first.wait_about(ids[1], Subject::MemoryStored);
    let judge = |request: &GenerateRequest| {
        assert!(!text_of(request).contains("poison"), "this judge cannot bear poison");
        verdict(request, 4)
    };
    let mut plan = plan().judged_by(judge);
    plan.works_off_backlog = true;
    let mut stage = plan.start_in(first.leave_folder());
    stage.wait_about(ids[1], Subject::CritiqueResult);
    stage.stop();
    assert_eq!(backlog(&stage), [ids[0]]);
    assert!(stage.engram(ids[0]).due.unwrap().failures > 0);
    assert_eq!(stage.engram(ids[1]).score(), Some(4));
}

/// B's answer to a question.
fn answer_b(stage: &mut Stage) -> Engram {
    let answer = stage.wait(|envelope| {
        envelope.subject() == Subject::MemoryStored && envelope.respondent_id == Some(RespondentId::B)
    });
    stage.engram(answer.query_id.unwrap())
}

#[test]
fn two_answers_are_compared_where_one_could_not_be_graded() {
    let judge = |request: &GenerateRequest| match text_of(request) {
        text if !is_comparison(request) && text.contains("second") => Script::saying(&["I cannot say."]),
        _ => verdict(request, 4),
    };
    let respond =
        |request: &GenerateRequest| Script::saying(&[if request.model == MODEL { "first" } else { "second" }]);
    let mut stage = Plan::answering(respond).judged_by(judge).with_b().start();
    let id = stage.ask("why?");
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    assert_eq!(preference_in(&pairwise).judging.failure, None);
    let b = answer_b(&mut stage).query_id;
    stage.stop();
    let [a, b] = [id, b].map(|id| stage.engram(id));
    assert_eq!((a.score(), b.score()), (Some(4), None));
    assert_eq!((a.compared.unwrap().with, b.compared.unwrap().with), (b.query_id, id));
    let due = b.due.unwrap();
    assert!(due.grade && !due.comparison);
}

/// A stage whose judge panics in its first `n_panics` comparisons.
fn panicking(n_panics: usize) -> Stage {
    let n_asked = AtomicUsize::new(0);
    let judge = move |request: &GenerateRequest| {
        let is_hit = is_comparison(request) && n_asked.fetch_add(1, Ordering::Relaxed) < n_panics;
        assert!(!is_hit, "this judge cannot bear comparisons");
        verdict(request, 4)
    };
    plan().judged_by(judge).with_b().start()
}

#[test]
fn a_critic_that_panics_in_a_comparison_takes_it_up_again() {
    let mut stage = panicking(1);
    let id = stage.ask("why?");
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    assert_eq!(preference_in(&pairwise).judging.failure, None);
    let heard = stage.stop();
    assert_eq!((count(&heard, Subject::PairwiseResult), grades_of(&heard, id)), (1, vec![Ok(4)]));
    assert!(stage.engram(id).compared.is_some());
}

#[test]
fn a_comparison_at_which_every_critic_panics_ends_all_the_same() {
    let mut stage = panicking(2);
    let [first, second] = ["one?", "two?"].map(|question| stage.ask(question));
    let of = |id| move |it: &Envelope| it.subject() == Subject::PairwiseResult && it.correlation_id == Some(id);
    let failure = stage.wait(of(first));
    assert!(preference_in(&failure).judging.failure.as_deref().unwrap().contains("was started again"));
    assert_eq!(preference_in(&stage.wait(of(second))).judging.failure, None);
    stage.stop();
    assert_eq!(stage.engram(first).compared, None);
    assert!(stage.engram(second).compared.is_some());
    assert_eq!(backlog(&stage).len(), 1, "the comparison stays due");
}

#[test]
fn a_comparison_that_is_due_is_made_later_or_never_where_the_other_answer_is_gone() {
    let judge = |request: &GenerateRequest| match is_comparison(request) {
        true => Script::never_ending(&[]),
        false => verdict(request, 4),
    };
    for is_gone in [false, true] {
        let mut first = plan().judged_by(judge).with_b().start();
        let id = first.ask("why?");
        let b = answer_b(&mut first).query_id;
        first.wait_for_judge("###Response A");
        first.close();
        first.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
        first.stop();
        assert_eq!(backlog(&first), [b]);
        if is_gone {
            first.store.remove(&[id]).unwrap();
        }
        let mut plan = plan();
        plan.works_off_backlog = true;
        let mut stage = plan.start_in(first.leave_folder());
        stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
        stage.stop();
        let compared = stage.engram(b).compared.unwrap();
        assert_eq!(compared.failure.as_deref(), is_gone.then_some(ALONE));
        assert_eq!(backlog(&stage), []);
    }
}
