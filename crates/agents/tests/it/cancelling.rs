//! Questions, answers and gradings that are withdrawn, at every stage.

use hone_protocol::scripted::Script;
use hone_protocol::{Chunk, GenerateRequest, Payload, QueryId, RespondentId, Subject};

use crate::stage::{MODEL, Plan, Stage, count, grades_of, is_comparison, response_in, text_of, verdict};

/// Answers at once, but endlessly if the question says "endless", and never if it says "silent".
fn respond(request: &GenerateRequest) -> Script {
    let text = text_of(request);
    match () {
        () if text.contains("endless") => Script::never_ending(&["It", " goes", " on"]),
        () if text.contains("silent") => Script::never_ending(&[]),
        () => Script::saying(&["Yes to ", text.trim()]),
    }
}

/// Grades at once, but endlessly if the question says "hard".
fn judge(request: &GenerateRequest) -> Script {
    match text_of(request).contains("hard") {
        true => Script::never_ending(&["Hm"]),
        false => verdict(request, 4),
    }
}

fn cancelled() -> Vec<Result<u8, String>> {
    vec![Err("cancelled".to_owned())]
}

#[test]
fn an_answer_that_is_cancelled_ends_with_what_has_come() {
    let mut stage = Plan::answering(respond).start();
    let id = stage.ask("endless?");
    stage.wait(|envelope| envelope.payload == Payload::ResponseChunk(Chunk::Text(" on".to_owned())));
    assert_eq!(stage.shown(), "It goes on");
    stage.cancel(id);
    let answer = stage.wait_about(id, Subject::ResponseGeneration);
    assert_eq!(response_in(&answer).answer, "It goes on");
    assert_eq!(response_in(&answer).finish_reason, None);
    assert_eq!(response_in(&answer).timings.generation_tokens, 3);
    assert!(stage.generator.was_cancelled());
    let next = stage.ask("and now?");
    stage.wait_about(next, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), cancelled());
    assert_eq!(grades_of(&heard, next), [Ok(4)]);
    assert_eq!(stage.engram(id).answer, "It goes on", "what has come is remembered");
    assert_eq!(stage.engram(id).score(), None);
}

#[test]
fn an_answer_that_is_cancelled_before_its_first_word_is_empty_and_forgotten() {
    let mut stage = Plan::answering(respond).start();
    let id = stage.ask("silent?");
    stage.wait_for_request(&stage.generator, |request| text_of(request).contains("silent"));
    stage.cancel(id);
    let answer = stage.wait_about(id, Subject::ResponseGeneration);
    assert_eq!((response_in(&answer).answer.as_str(), response_in(&answer).finish_reason), ("", None));
    stage.wait_about(id, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), cancelled());
    assert_eq!(count(&heard, Subject::MemoryStored), 0);
    assert_eq!(stage.store.get(id).unwrap(), None);
}

#[test]
fn several_questions_are_answered_at_once_and_cancelled_one_by_one() {
    let mut stage = Plan { most_answers: 2, ..Plan::answering(respond) }.start();
    let [endless, other, waiting] = ["endless one?", "endless two?", "three?"].map(|question| stage.ask(question));
    for text in ["endless one?", "endless two?"] {
        stage.wait_for_request(&stage.generator, |request| text_of(request).contains(text));
    }
    assert!(stage.generator.requests().iter().all(|request| !text_of(request).contains("three?")));
    stage.cancel(other);
    stage.wait_about(waiting, Subject::CritiqueResult);
    stage.cancel(endless);
    stage.wait_about(endless, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!(count(&heard, Subject::ResponseGeneration), 3);
    assert_eq!((grades_of(&heard, endless), grades_of(&heard, other)), (cancelled(), cancelled()));
    assert_eq!(grades_of(&heard, waiting), [Ok(4)]);
}

#[test]
fn a_question_that_is_cancelled_while_it_waits_is_not_asked() {
    let mut stage = Plan::answering(respond).start();
    let first = stage.ask("endless?");
    let [second, third] = ["two?", "three?"].map(|question| stage.ask(question));
    stage.cancel(second);
    let answer = stage.wait_about(second, Subject::ResponseGeneration);
    assert_eq!((response_in(&answer).answer.as_str(), response_in(&answer).finish_reason), ("", None));
    stage.cancel(first);
    stage.wait_about(third, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!((grades_of(&heard, first), grades_of(&heard, second)), (cancelled(), cancelled()));
    assert_eq!(grades_of(&heard, third), [Ok(4)]);
    assert!(stage.generator.requests().iter().all(|request| !text_of(request).contains("two?")));
}

#[test]
fn a_grading_that_is_cancelled_gives_an_explicit_null() {
    let mut stage = Plan::answering(respond).judged_by(judge).start();
    let [hard, waiting, easy] = ["hard?", "waiting?", "easy?"].map(|question| stage.ask(question));
    stage.wait_for_judge("hard?");
    stage.wait_about(easy, Subject::ResponseGeneration);
    stage.cancel(waiting);
    stage.cancel(hard);
    stage.wait_about(easy, Subject::CritiqueResult);
    assert!(stage.judge.as_ref().unwrap().was_cancelled());
    let heard = stage.stop();
    assert_eq!((grades_of(&heard, hard), grades_of(&heard, waiting)), (cancelled(), cancelled()));
    assert_eq!(grades_of(&heard, easy), [Ok(4)]);
    assert_eq!(stage.engram(hard).score(), None);
}

#[test]
fn a_comparison_that_is_cancelled_has_no_winner() {
    let judge = |request: &GenerateRequest| match is_comparison(request) {
        true => Script::never_ending(&[]),
        false => verdict(request, 4),
    };
    let mut stage = Plan::answering(respond).judged_by(judge).with_b().start();
    let id = stage.ask("why?");
    stage.wait_for_judge("###Response A");
    stage.cancel(id);
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let hone_protocol::Payload::PairwiseResult(comparison) = &pairwise.payload else { panic!("it is a comparison") };
    assert_eq!(comparison.preference.winner, None);
    assert_eq!(comparison.preference.judging.failure.as_deref(), Some("cancelled"));
    assert!(stage.judge.as_ref().unwrap().was_cancelled());
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Ok(4)], "the grade had been given");
    assert_eq!(stage.engram(id).pairwise_winner, None);
}

#[test]
fn what_is_over_cannot_be_cancelled() {
    let mut stage = Plan::answering(respond).start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    stage.cancel(id);
    stage.cancel(QueryId::fresh());
    let next = stage.ask("and now?");
    stage.wait_about(next, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!((grades_of(&heard, id), grades_of(&heard, next)), (vec![Ok(4)], vec![Ok(4)]));
    assert_eq!(count(&heard, Subject::ResponseGeneration), 2);
}

#[test]
fn both_respondents_stop_when_the_question_is_cancelled() {
    let mut stage = Plan::answering(respond).with_b().start();
    let id = stage.ask("endless?");
    let from = |model: &'static str| move |request: &GenerateRequest| request.model == model;
    stage.wait_for_request(&stage.generator, from(MODEL));
    stage.wait_for_request(&stage.generator, from("second:1b"));
    stage.cancel(id);
    for respondent in [RespondentId::A, RespondentId::B] {
        let answer = stage.wait(|envelope| {
            envelope.subject() == Subject::CritiqueResult && envelope.respondent_id == Some(respondent)
        });
        assert_eq!(answer.correlation_id, Some(id));
    }
    assert!(stage.generator.was_cancelled());
    assert_eq!(count(&stage.stop(), Subject::PairwiseResult), 0);
}

#[test]
fn a_closed_session_leaves_nothing_unaccounted() {
    let mut stage = Plan::answering(respond).judged_by(judge).start();
    let graded = stage.ask("hard?");
    stage.wait_for_judge("hard?");
    let waiting = stage.ask("waiting?");
    stage.wait_about(waiting, Subject::ResponseGeneration);
    let answering = stage.ask("endless?");
    stage.wait_for_request(&stage.generator, |request| text_of(request).contains("endless"));
    let queued = stage.ask("queued?");
    let others = another_session(&mut stage, |stage| stage.ask("in another session?"));
    stage.close();
    stage.wait_about(others, Subject::CritiqueResult);
    for id in [graded, waiting, answering, queued] {
        stage.wait_about(id, Subject::CritiqueResult);
    }
    let heard = stage.stop();
    let closed = || vec![Err("the session was closed".to_owned())];
    assert_eq!((grades_of(&heard, graded), grades_of(&heard, waiting)), (closed(), closed()));
    assert_eq!((grades_of(&heard, answering), grades_of(&heard, queued)), (cancelled(), cancelled()));
    assert_eq!(grades_of(&heard, others), [Ok(4)]);
}

#[test]
fn an_answer_whose_other_one_never_comes_is_told_uncompared_when_the_session_closes() {
    let respond = |request: &GenerateRequest| match request.model == MODEL {
        true => Script::never_ending(&["It"]),
        false => Script::saying(&["Yes"]),
    };
    let mut stage = Plan::answering(respond).judged_by(judge).with_b().start();
    stage.ask("why?");
    let graded = stage.wait(|envelope| envelope.subject() == Subject::CritiqueResult);
    assert_eq!(graded.respondent_id, Some(RespondentId::B));
    stage.close();
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let Payload::PairwiseResult(comparison) = &pairwise.payload else { panic!("it is a comparison") };
    assert_eq!(comparison.preference.judging.failure.as_deref(), Some("the session was closed"));
    let b = stage.engram(graded.query_id.unwrap());
    assert!(b.due.is_some_and(|due| due.comparison), "it is compared later");
    assert_eq!(count(&stage.stop(), Subject::PairwiseResult), 1);
}

fn another_session(stage: &mut Stage, ask: impl FnOnce(&Stage) -> QueryId) -> QueryId {
    let session = std::mem::replace(&mut stage.session, hone_protocol::SessionId::fresh());
    let id = ask(stage);
    stage.session = session;
    id
}

#[test]
fn a_team_that_is_stopped_accounts_for_everything() {
    let mut stage = Plan::answering(respond).judged_by(judge).start();
    let graded = stage.ask("hard?");
    stage.wait_for_judge("hard?");
    let waiting = stage.ask("waiting?");
    stage.wait_about(waiting, Subject::ResponseGeneration);
    let answering = stage.ask("endless?");
    stage.wait(|envelope| envelope.payload == Payload::ResponseChunk(Chunk::Text(" on".to_owned())));
    let queued = stage.ask("queued?");
    let heard = stage.stop();
    let stopped = || vec![Err("the judge was stopped".to_owned())];
    assert_eq!((grades_of(&heard, graded), grades_of(&heard, waiting)), (stopped(), stopped()));
    // The critic receives these while it stops, or when it has almost stopped.
    assert_eq!([answering, queued].map(|id| grades_of(&heard, id).len()), [1, 1]);
    assert_eq!([graded, waiting, answering].map(|id| stage.engram(id).score()), [None; 3]);
    assert_eq!(stage.store.get(queued).unwrap(), None);
    assert!(stage.bus.mailboxes().iter().all(|mailbox| mailbox.name == "test"), "the agents are gone");
}
