//! Answers that are graded on other machines, simulated by a channel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use hone_agents::Graders;
use hone_memory::Engram;
use hone_protocol::prospect::{LATE, NO_WORKER, TOO_LONG};
use hone_protocol::scripted::Script;
use hone_protocol::{
    AnswersToCompare, ComparedAnswer, Comparison, Envelope, Grade, GradedAnswer, Payload, Preference, QueryId,
    RespondentId, Subject, WorkResult,
};

use crate::stage::{PATIENCE, Plan, Stage, grades_of, wait_until};

/// Graders controlled by a test.
pub(crate) struct Elsewhere {
    asked: Mutex<Vec<(Envelope, bool)>>,
    pub(crate) results: (Sender<WorkResult>, Receiver<WorkResult>),
    is_reachable: AtomicBool,
    patience: Duration,
}

impl Elsewhere {
    pub(crate) fn new(patience: Duration) -> Arc<Elsewhere> {
        let (asked, results) = (Mutex::default(), unbounded());
        Arc::new(Elsewhere { asked, results, is_reachable: AtomicBool::new(true), patience })
    }

    /// The `n`th request, and whether it is urgent.
    pub(crate) fn asked(&self, n: usize) -> (Envelope, bool) {
        wait_until("a request", || self.asked.lock().unwrap().len() >= n);
        self.asked.lock().unwrap()[n - 1].clone()
    }

    fn n_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub(crate) fn grade(&self, request: &Envelope, score: u8) {
        let Payload::ResponseGeneration(response) = &request.payload else { panic!("it is an answer") };
        let grade = Grade { score: Some(score), ..Grade::default() };
        let graded = GradedAnswer { query: response.query.clone(), answer: response.answer.clone(), grade };
        self.answer(request, Payload::CritiqueResult(graded));
    }

    /// Says that B's answer is the better one.
    fn prefer_b(&self, request: &Envelope) {
        let side = ComparedAnswer { query_id: request.query_id.unwrap(), model: "", grade: None };
        let preference = Preference { winner: Some(RespondentId::B), ..Preference::default() };
        self.answer(request, Payload::PairwiseResult(Comparison::new(side, side, preference)));
    }

    fn answer(&self, request: &Envelope, payload: Payload) {
        let outcome = Ok(Box::new(request.reply("grade", payload)));
        self.results.0.send(WorkResult { request: request.id, outcome }).unwrap();
    }
}

impl Graders for Elsewhere {
    fn ask(&self, answers: &Envelope, is_urgent: bool) -> Result<(), &'static str> {
        if matches!(&answers.payload, Payload::ResponseGeneration(response) if response.answer.contains("long")) {
            return Err(TOO_LONG);
        }
        self.asked.lock().unwrap().push((answers.clone(), is_urgent));
        Ok(())
    }

    fn verdicts(&self) -> &Receiver<WorkResult> {
        &self.results.1
    }

    fn can_be_reached(&self) -> bool {
        self.is_reachable.load(Ordering::Relaxed)
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

pub(crate) fn plan(graders: &Arc<Elsewhere>) -> Plan {
    let mut plan = Plan::answering(|_| Script::saying(&["Yes."]));
    plan.judge = None;
    plan.graders = Some(Arc::clone(graders) as _);
    plan.works_off_backlog = true;
    plan
}

/// The answer in memory, if it has been stored yet.
fn remembered(stage: &Stage, id: QueryId) -> Option<Engram> {
    stage.store.get(id).unwrap()
}

fn wait_for_score(stage: &Stage, id: QueryId, score: u8) {
    wait_until("the grade", || remembered(stage, id).is_some_and(|engram| engram.score() == Some(score)));
}

fn is_due(engram: &Engram) -> bool {
    engram.due.as_ref().is_some_and(|due| due.grade)
}

#[test]
fn a_grade_from_elsewhere_is_told_and_remembered_once() {
    let graders = Elsewhere::new(PATIENCE);
    let mut stage = plan(&graders).start();
    let id = stage.ask("why?");
    let (request, is_urgent) = graders.asked(1);
    assert!(is_urgent);
    graders.grade(&request, 4);
    // It may come twice.
    graders.grade(&request, 1);
    stage.wait_about(id, Subject::CritiqueResult);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Ok(4)]);
    let engram = stage.engram(id);
    assert_eq!((engram.score(), is_due(&engram)), (Some(4), false));
}

#[test]
fn a_grade_that_is_late_is_remembered_when_it_comes() {
    let graders = Elsewhere::new(Duration::ZERO);
    let mut stage = plan(&graders).start();
    let id = stage.ask("why?");
    let (request, _) = graders.asked(1);
    stage.wait_about(id, Subject::CritiqueResult);
    wait_until("memory has it as due", || remembered(&stage, id).is_some_and(|engram| is_due(&engram)));
    graders.grade(&request, 4);
    wait_for_score(&stage, id, 4);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Err(LATE.to_owned()), Ok(4)]);
}

#[test]
fn while_nobody_can_be_reached_the_grade_is_due_and_asked_for_later() {
    let graders = Elsewhere::new(PATIENCE);
    graders.is_reachable.store(false, Ordering::Relaxed);
    let mut stage = plan(&graders).start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    assert_eq!(graders.n_asked(), 0);
    graders.is_reachable.store(true, Ordering::Relaxed);
    let (request, is_urgent) = graders.asked(1);
    assert!(!is_urgent);
    graders.grade(&request, 2);
    wait_for_score(&stage, id, 2);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Err(NO_WORKER.to_owned()), Ok(2)]);
}

#[test]
fn the_next_process_asks_for_what_the_last_one_left() {
    let graders = Elsewhere::new(PATIENCE);
    let mut before = plan(&graders).start();
    let id = before.ask("why?");
    let (old, _) = graders.asked(1);
    before.wait_about(id, Subject::MemoryStored);
    let folder = before.leave_folder();
    let stage = plan(&graders).start_in(folder);
    let (request, is_urgent) = graders.asked(2);
    assert_eq!((request.query_id, is_urgent), (Some(id), false));
    // A result for the process that has ended is ignored.
    graders.grade(&old, 1);
    graders.grade(&request, 5);
    wait_for_score(&stage, id, 5);
}

#[test]
fn work_that_is_given_up_is_told_and_stays_due() {
    let graders = Elsewhere::new(PATIENCE);
    let mut stage = plan(&graders).start();
    let id = stage.ask("why?");
    let (request, _) = graders.asked(1);
    let outcome = Err("no judge".to_owned());
    graders.results.0.send(WorkResult { request: request.id, outcome }).unwrap();
    stage.wait_about(id, Subject::CritiqueResult);
    wait_until("memory knows", || {
        remembered(&stage, id).and_then(|engram| engram.due).is_some_and(|due| due.failures == 1)
    });
    // A person has the work done anyway.
    graders.grade(&request, 3);
    wait_for_score(&stage, id, 3);
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, id), [Err("no judge".to_owned()), Ok(3)]);
}

#[test]
fn what_is_too_long_to_be_sent_stays_ungraded() {
    let graders = Elsewhere::new(PATIENCE);
    let mut plan = plan(&graders);
    plan.generator = hone_protocol::scripted::Scripted::new(|_| Script::saying(&["A long answer."]));
    let mut stage = plan.start();
    let id = stage.ask("why?");
    stage.wait_about(id, Subject::CritiqueResult);
    wait_until("memory knows", || remembered(&stage, id).is_some_and(|engram| !is_due(&engram)));
    assert_eq!(grades_of(&stage.stop(), id), [Err(TOO_LONG.to_owned())]);
}

#[test]
fn two_answers_are_graded_and_then_compared_once() {
    let graders = Elsewhere::new(PATIENCE);
    let mut stage = plan(&graders).with_b().start();
    let id = stage.ask("why?");
    let requests = [1, 2].map(|n| graders.asked(n).0);
    requests.iter().for_each(|request| graders.grade(request, 4));
    let (request, is_urgent) = graders.asked(3);
    assert!(is_urgent);
    let Payload::PairwiseAsked(AnswersToCompare { query, answer_a, answer_b, .. }) = &request.payload else {
        panic!("it is a pair: {request:?}")
    };
    assert_eq!([query, answer_a, answer_b], ["why?", "Yes.", "Yes."]);
    graders.prefer_b(&request);
    graders.prefer_b(&request);
    let compared = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let Payload::PairwiseResult(comparison) = &compared.payload else { panic!("it is a comparison") };
    assert_eq!(comparison.preference.winner, Some(RespondentId::B));
    assert_eq!((comparison.score_a, comparison.score_b, comparison.query_id_a), (Some(4), Some(4), id));
    let b = comparison.query_id_b;
    wait_until("nothing is due", || {
        [id, b].iter().all(|id| remembered(&stage, *id).is_some_and(|engram| engram.due.is_none()))
    });
    let heard = stage.stop();
    let n_compared = heard.iter().filter(|envelope| envelope.subject() == Subject::PairwiseResult).count();
    assert_eq!((grades_of(&heard, id), grades_of(&heard, b), n_compared), (vec![Ok(4)], vec![Ok(4)], 1));
    assert_eq!(graders.n_asked(), 3);
}

#[test]
fn answers_that_nobody_could_compare_are_compared_later() {
    let graders = Elsewhere::new(PATIENCE);
    graders.is_reachable.store(false, Ordering::Relaxed);
    let mut stage = plan(&graders).with_b().start();
    let id = stage.ask("why?");
    let compared = stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let Payload::PairwiseResult(comparison) = &compared.payload else { panic!("it is a comparison") };
    assert_eq!(comparison.preference.judging.failure.as_deref(), Some(NO_WORKER));
    let b = comparison.query_id_b;
    graders.is_reachable.store(true, Ordering::Relaxed);
    let requests = [1, 2].map(|n| graders.asked(n).0);
    requests.iter().for_each(|request| graders.grade(request, 3));
    let (request, is_urgent) = graders.asked(3);
    assert!(!is_urgent && matches!(request.payload, Payload::PairwiseAsked(_)), "{request:?}");
    graders.prefer_b(&request);
    wait_until("nothing is due", || {
        [id, b].iter().all(|id| remembered(&stage, *id).is_some_and(|engram| engram.due.is_none()))
    });
    let last = stage.stop().into_iter().rfind(|envelope| envelope.subject() == Subject::PairwiseResult);
    let Payload::PairwiseResult(comparison) = &last.unwrap().payload else { panic!("it is a comparison") };
    assert_eq!((comparison.preference.winner, comparison.score_b), (Some(RespondentId::B), Some(3)));
}
