//! A question leads to an answer, an engram, a grade and a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hone_memory::EventFilter;
use hone_protocol::scripted::Script;
use hone_protocol::{
    Chunk, Envelope, FinishReason, GenerateError, GenerateRequest, Message, Payload, QueryId, Rating, RespondentId,
    Role, Subject, TokenLogprobs,
};

use crate::stage::{
    MODEL, Plan, count, critique_in, grades_of, is_comparison, messages_of, response_in, text_of, verdict,
};

#[test]
fn an_answer_is_graded_and_the_score_stands_on_its_engram() {
    let mut stage = Plan::answering(|_| Script::saying(&["At ", "100 °C", "."])).start();
    let id = stage.ask("When does water boil?");
    let answer = stage.wait_about(id, Subject::ResponseGeneration);
    assert_eq!(response_in(&answer).answer, "At 100 °C.");
    assert_eq!(response_in(&answer).finish_reason, Some(FinishReason::Stop));
    assert_eq!(response_in(&answer).timings.generation_tokens, 3);
    assert_eq!((answer.correlation_id, answer.respondent_id), (Some(id), Some(RespondentId::A)));
    let critique = stage.wait_about(id, Subject::CritiqueResult);
    assert_eq!(critique_in(&critique).grade.score, Some(4));
    assert_eq!(critique_in(&critique).grade.feedback, "It is fine.");
    assert_eq!(critique_in(&critique).answer, "At 100 °C.");
    assert_eq!(stage.shown(), "At 100 °C.");
    let heard = stage.stop();
    assert_eq!(count(&heard, Subject::MemoryStored), 1);
    assert_eq!(count(&heard, Subject::PairwiseResult), 0);
    let engram = stage.engram(id);
    assert_eq!(engram.score(), Some(4));
    assert_eq!((engram.query.as_str(), engram.answer.as_str()), ("When does water boil?", "At 100 °C."));
    assert_eq!((engram.session_id, engram.model.as_str()), (stage.session, MODEL));
    assert_eq!(engram.pairwise_winner, None);
}

/// An answer of two tokens, with their log-probabilities if the answer is given.
fn with_logprobs(request: &GenerateRequest) -> Script {
    let token = |logprob| TokenLogprobs { logprob, ..TokenLogprobs::default() };
    let logprobs = if request.logprobs.is_wanted() { vec![token(-0.25), token(-0.5)] } else { Vec::new() };
    Script { logprobs, ..Script::saying(&["At ", "100 °C."]) }
}

#[test]
fn the_likelihood_judge_reads_an_answer_after_its_question_alone() {
    let mut plan = Plan::answering(with_logprobs).judged_by(with_logprobs);
    plan.by_likelihood = true;
    let mut stage = plan.start();
    let history = || vec![Message::new(Role::User, "Hello."), Message::new(Role::Assistant, "Hello.")];
    let questions = [Vec::new(), history()].map(|history| stage.ask_after("When does water boil?", history));
    let grades = questions.map(|id| critique_in(&stage.wait_about(id, Subject::CritiqueResult)).grade.clone());
    assert!(grades.iter().all(|grade| grade.is_verdict() && grade.score.is_none()), "{grades:?}");
    assert_eq!(grades[0].probability, grades[1].probability, "what was said before does not count");
    let is_chunk = |envelope: &&Arc<Envelope>| matches!(&envelope.payload, Payload::ResponseChunk(Chunk::Logprobs(_)));
    assert_eq!(stage.stop().iter().filter(is_chunk).count(), 0, "a client that has not asked for them gets none");
}

#[test]
fn two_answers_are_graded_compared_and_annotated() {
    let respond = |request: &GenerateRequest| {
        let answer = if request.model == MODEL { "At 100 °C." } else { "At 90 °C." };
        Script::saying(&[answer])
    };
    // The judge prefers A in both orders.
    let judge = |request: &GenerateRequest| {
        let text = text_of(request);
        match (is_comparison(request), text.find("100 °C"), text.find("90 °C")) {
            (true, Some(a), Some(b)) => Script::saying(&[if a < b { "A" } else { "B" }]),
            (_, Some(_), _) => verdict(request, 5),
            _ => verdict(request, 2),
        }
    };
    let mut stage = Plan::answering(respond).judged_by(judge).with_b().start();
    let id = stage.ask("When does water boil?");
    let pairwise = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let Payload::PairwiseResult(comparison) = &pairwise.payload else { panic!("it is a comparison") };
    assert_eq!((comparison.original_query_id, comparison.query_id_a), (id, id));
    assert_ne!(comparison.query_id_b, id);
    assert_eq!((comparison.score_a, comparison.score_b), (Some(5), Some(2)));
    assert_eq!(comparison.preference.winner, Some(RespondentId::A));
    assert!(comparison.preference.consistent);
    let heard = stage.stop();
    assert_eq!(count(&heard, Subject::ResponseGeneration), 2);
    assert_eq!(count(&heard, Subject::PairwiseResult), 1);
    let (a, b) = (stage.engram(id), stage.engram(comparison.query_id_b));
    assert_eq!((a.pairwise_winner, b.pairwise_winner), (Some(true), Some(false)));
    assert_eq!((a.score(), b.score()), (Some(5), Some(2)), "what stood there stays");
    assert_eq!((a.respondent_id, b.respondent_id), (RespondentId::A, RespondentId::B));
    assert_eq!((b.model.as_str(), b.sampling.temperature, b.correlation_id), ("second:1b", 0.5, id));
}

#[test]
fn without_b_nothing_is_compared() {
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let ids = ["one?", "two?"].map(|question| stage.ask(question));
    for id in ids {
        stage.wait_about(id, Subject::CritiqueResult);
    }
    let heard = stage.stop();
    assert_eq!(count(&heard, Subject::PairwiseResult), 0);
    assert!(stage.judge.as_ref().unwrap().requests().iter().all(|request| !is_comparison(request)));
}

#[test]
fn a_missing_judge_leaves_the_answer_unscored_and_the_rest_as_it_was() {
    let missing = GenerateError::Model { model: "prometheus:7b".into(), reason: "it is not installed".into() };
    let plan = Plan::answering(|_| Script::saying(&["Yes."])).judged_by(move |_| Script::failing(missing.clone()));
    let mut stage = plan.with_b().start();
    for question in ["one?", "two?"] {
        let id = stage.ask(question);
        for respondent in [RespondentId::A, RespondentId::B] {
            let critique = stage.wait(|envelope| {
                let about = (envelope.correlation_id, envelope.respondent_id);
                envelope.subject() == Subject::CritiqueResult && about == (Some(id), Some(respondent))
            });
            let grade = &critique_in(&critique).grade;
            assert_eq!(grade.score, None);
            assert!(grade.judging.failure.as_ref().unwrap().contains("not installed"), "{grade:?}");
        }
        // A comparison in progress is given up when the critic stops.
        stage.wait(|it| it.correlation_id == Some(id) && it.subject() == Subject::PairwiseResult);
    }
    let heard = stage.stop();
    let failures = heard.iter().filter_map(|envelope| match &envelope.payload {
        Payload::PairwiseResult(comparison) => comparison.preference.judging.failure.as_deref(),
        _ => None,
    });
    let failures: Vec<&str> = failures.collect();
    assert!(failures.len() == 2 && failures.iter().all(|it| it.contains("not installed")), "{failures:?}");
    let engrams = heard.iter().filter(|envelope| envelope.subject() == Subject::MemoryStored);
    let scores: Vec<Option<u8>> = engrams.map(|stored| stage.engram(stored.query_id.unwrap()).score()).collect();
    assert_eq!(scores, [None; 4]);
}

#[test]
fn a_judge_that_takes_too_long_is_given_up() {
    let judge = |request: &GenerateRequest| match text_of(request).contains("slow") {
        true => Script::never_ending(&["Let me", " think"]),
        false => verdict(request, 3),
    };
    let mut plan = Plan::answering(|_| Script::saying(&["Yes."])).judged_by(judge);
    plan.grade_timeout = Duration::from_millis(200);
    let mut stage = plan.start();
    let [slow, quick] = ["slow?", "quick?"].map(|question| stage.ask(question));
    stage.wait_about(quick, Subject::CritiqueResult);
    assert!(stage.judge.as_ref().unwrap().was_cancelled());
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, slow), [Err("timeout".to_owned())]);
    assert_eq!(grades_of(&heard, quick), [Ok(3)]);
    assert_eq!(stage.engram(slow).score(), None);
}

#[test]
fn an_empty_answer_is_not_graded() {
    let mut stage = Plan::answering(|_| Script::saying(&[" ", "\n"])).start();
    let id = stage.ask("anything?");
    stage.wait_about(id, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Err("the answer is empty".to_owned())]);
    assert!(stage.judge.as_ref().unwrap().requests().is_empty());
}

#[test]
fn an_answer_that_fails_is_neither_remembered_nor_graded() {
    let failure = GenerateError::Failed("the device is gone".to_owned());
    let expected = failure.clone();
    let mut stage = Plan::answering(move |request| match text_of(request).contains("fail") {
        true => Script::failing(failure.clone()),
        false => Script::saying(&["Yes."]),
    })
    .start();
    let [first, second] = ["fail?", "again?"].map(|question| stage.ask(question));
    let failed = stage.wait_about(first, Subject::ResponseFailed);
    assert_eq!(failed.payload, Payload::ResponseFailed(expected));
    stage.wait_about(second, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!((grades_of(&heard, first).len(), grades_of(&heard, second)), (0, vec![Ok(4)]));
    assert_eq!(stage.store.get(first).unwrap(), None);
}

#[test]
fn feedback_stands_on_the_engram_and_becomes_a_reward() {
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let [good, bad] = ["one?", "two?"].map(|question| stage.ask(question));
    for id in [good, bad] {
        stage.wait_about(id, Subject::CritiqueResult);
    }
    let unknown = QueryId::fresh();
    stage.rate(good, Rating::Good);
    stage.rate(bad, Rating::Bad);
    stage.rate(unknown, Rating::Good);
    let heard = stage.stop();
    let reward = |id: QueryId| {
        let mut rewards = heard.iter().filter(|envelope| envelope.query_id == Some(id));
        rewards.find_map(|envelope| match &envelope.payload {
            Payload::RewardEvent(reward) => Some((reward.reward, reward.model.clone())),
            _ => None,
        })
    };
    assert_eq!(reward(good), Some((1.0, MODEL.to_owned())));
    assert_eq!(reward(bad), Some((-1.0, MODEL.to_owned())));
    assert_eq!(reward(unknown), None, "an unknown answer earns nothing");
    assert_eq!(stage.engram(good).user_feedback, Some(Rating::Good));
    assert_eq!(stage.engram(bad).user_feedback, Some(Rating::Bad));
    assert_eq!(stage.engram(good).score(), Some(4));
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let pieces = ["<th", "ink>\nWater", "? Hot", ".</thi", "nk>\n\n", "At ", "100 °C."];
    let mut stage = Plan::answering(move |_| Script::saying(&pieces)).start();
    let id = stage.ask("When does water boil?");
    let answer = stage.wait_about(id, Subject::ResponseGeneration);
    assert_eq!(response_in(&answer).answer, "At 100 °C.");
    assert_eq!(response_in(&answer).thinking, "Water? Hot.");
    assert_eq!(stage.shown(), "{Water}{? Hot}{.}At 100 °C.");
    stage.wait_for_judge("At 100 °C.");
    stage.stop();
    assert_eq!(stage.engram(id).answer, "At 100 °C.");
    let requests = stage.judge.as_ref().unwrap().requests();
    assert!(requests.iter().all(|request| !text_of(request).contains("Hot")), "the judge does not see it");
}

#[test]
fn everything_but_chunks_is_in_the_event_log_causes_before_effects() {
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    stage.rate(id, Rating::Good);
    stage.stop();
    let events = stage.store.events(&EventFilter::default(), None).unwrap();
    let subjects: Vec<Subject> = events.iter().map(|(_, event)| event.subject()).collect();
    let place = |subject: Subject| {
        let found: Vec<usize> = (0..subjects.len()).filter(|index| subjects[*index] == subject).collect();
        assert_eq!(found.len(), 1, "{subject} in {subjects:?}");
        found[0]
    };
    assert_eq!(subjects.len(), 6, "{subjects:?}");
    assert!(place(Subject::QueryReceived) < place(Subject::ResponseGeneration));
    assert!(place(Subject::ResponseGeneration) < place(Subject::MemoryStored));
    assert!(place(Subject::ResponseGeneration) < place(Subject::CritiqueResult));
    assert!(place(Subject::UserFeedback) < place(Subject::RewardEvent));
}

#[test]
fn the_conversation_before_the_question_reaches_the_model() {
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let history = vec![
        Message::new(Role::System, "Be brief."),
        Message::new(Role::User, "one?"),
        Message::new(Role::Assistant, "Yes."),
    ];
    let id = stage.ask_after("two?", history.clone());
    stage.wait_about(id, Subject::ResponseGeneration);
    let mut expected = history;
    expected.push(Message::new(Role::User, "two?"));
    let request = &stage.generator.requests()[0];
    assert_eq!(messages_of(request), expected);
    assert!(request.tools.is_empty());
}

#[test]
fn two_hundred_questions_leave_two_hundred_engrams_and_grades() {
    const QUESTIONS: usize = 200;
    let judge = |request: &GenerateRequest| {
        let text = text_of(request);
        let number = text.split("Answer ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        match number.unwrap() % 10 {
            0 => Script::saying(&["I cannot say."]),
            rest => verdict(request, u8::try_from(rest % 5).unwrap() + 1),
        }
    };
    let respond = |request: &GenerateRequest| {
        let question = messages_of(request).last().unwrap().content.clone();
        Script::saying(&["Answer ", question.trim_start_matches("Question "), "."])
    };
    let mut stage = Plan::answering(respond).judged_by(judge).start();
    let ids: Vec<QueryId> = (0..QUESTIONS).map(|number| stage.ask(&format!("Question {number}"))).collect();
    for id in &ids {
        stage.wait_about(*id, Subject::CritiqueResult);
    }
    let heard = stage.stop();
    for subject in [Subject::ResponseGeneration, Subject::MemoryStored, Subject::CritiqueResult] {
        let mut per_question: BTreeMap<QueryId, usize> = BTreeMap::new();
        for envelope in heard.iter().filter(|envelope| envelope.subject() == subject) {
            *per_question.entry(envelope.query_id.unwrap()).or_default() += 1;
        }
        assert_eq!(per_question, ids.iter().map(|id| (*id, 1)).collect(), "{subject}");
    }
    let mut sequences = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let engram = stage.engram(*id);
        let expected = (number % 10 > 0).then(|| u8::try_from(number % 10 % 5).unwrap() + 1);
        assert_eq!(
            (engram.query, engram.grade.and_then(|grade| grade.score)),
            (format!("Question {number}"), expected)
        );
        sequences.push(engram.sequence);
    }
    assert_eq!(sequences, (1..=u64::try_from(QUESTIONS).unwrap()).collect::<Vec<_>>(), "in the order of the questions");
}

#[test]
fn answers_that_are_too_many_to_wait_for_their_grades_stay_unscored() {
    const QUESTIONS: usize = 300;
    let judge = |_: &GenerateRequest| Script::never_ending(&["Hm"]);
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).judged_by(judge).start();
    let mut ids = Vec::new();
    for number in 0..QUESTIONS {
        let id = stage.ask(&format!("{number}?"));
        stage.wait_about(id, Subject::ResponseGeneration);
        ids.push(id);
    }
    let refused = "too many answers wait for their grades";
    let last = *ids.last().unwrap();
    stage.wait_about(last, Subject::CritiqueResult);
    let heard = stage.stop();
    let grades: Vec<_> = ids.iter().map(|id| grades_of(&heard, *id)).collect();
    assert!(grades.iter().all(|grades| grades.len() == 1), "every answer has one critique: {grades:?}");
    let n_refused = grades.iter().flatten().filter(|grade| **grade == Err(refused.to_owned())).count();
    assert_eq!(n_refused, QUESTIONS - 257, "one is graded and 256 wait");
    assert_eq!(count(&heard, Subject::MemoryStored), QUESTIONS);
}

#[test]
fn questions_that_are_too_many_to_wait_are_refused() {
    let mut stage = Plan::answering(|_| Script::never_ending(&["Hm"])).start();
    let ids: Vec<QueryId> = (0..258).map(|number| stage.ask(&format!("{number}?"))).collect();
    let last = *ids.last().unwrap();
    let failed = stage.wait_about(last, Subject::ResponseFailed);
    let Payload::ResponseFailed(error) = &failed.payload else { panic!("it is a failure") };
    assert!(matches!(error, GenerateError::Busy { queued: 256, .. }), "{error}");
    let heard = stage.stop();
    assert_eq!(count(&heard, Subject::ResponseGeneration), ids.len() - 1);
}
