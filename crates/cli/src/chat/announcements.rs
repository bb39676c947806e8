//! Announcements about an answer after it was given: its grade, a comparison, the recollections it used.
//!
//! These arrive at any time, even while the next question is being typed or the next answer is streaming. A thread
//! receives them, folds them into their [exchanges](Exchange), and passes the resulting lines to the terminal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use crossbeam_channel::{Sender, bounded, select_biased};
use hone_agents::{Asker, Exchange, ExchangeChange, Expected};
use hone_app::Stack;
use hone_app::describe::on_one_line;
use hone_app::judge::calibration::Calibrated;
use hone_protocol::prospect::CALLS_TOOLS;
use hone_protocol::{
    Envelope, Grade, GradedAnswer, JudgingMethod, QueryId, Rating, Recall, RecalledEngram, RespondentId, Subject,
};

use super::attachments::label;
use super::explanation::{Explanation, explain, grade, no_answer_b, rating_of, recalled};
use crate::badge::badge;
use crate::events::event_line;
use crate::terminal::Line;
use crate::terminal::lines::Lines;

/// The subjects that badges and explanations need.
const SUBJECTS: [Subject; 7] = [
    Subject::QueryReceived,
    Subject::QueryCancelled,
    Subject::ResponseGeneration,
    Subject::ResponseFailed,
    Subject::MemoryRecalled,
    Subject::CritiqueResult,
    Subject::PairwiseResult,
];

/// The kinds of announcements to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    /// Badges, and the reasons for missing ones.
    pub(crate) badges: bool,
    /// Every event except pieces of answers.
    pub(crate) events: bool,
}

/// The outcomes of the questions so far, and where to announce them. Clones share them.
#[derive(Clone)]
pub(crate) struct Announcements {
    board: Arc<Mutex<Board>>,
    /// Where the lines are printed.
    pub(crate) lines: Lines,
}

/// A remark that is made once: what it says is found out when it is made.
pub(crate) type Remark = Box<dyn FnOnce() -> String + Send>;

#[derive(Default)]
struct Board {
    exchanges: HashMap<QueryId, Exchange>,
    /// The latest question.
    latest: Option<QueryId>,
    /// The reason for a missing grade that was announced last.
    told: Option<Line>,
    /// How often people agree with the judge, if the badges show it.
    calibrated: Option<Calibrated>,
    /// What to say of the first answer about which the likelihood judge says nothing.
    on_silence: Option<Remark>,
}

/// The listening thread. Dropping it ends and joins the thread, after all earlier messages have been processed.
pub(crate) struct Listener {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Announcements {
    /// No announcements yet.
    pub(crate) fn new(lines: Lines) -> Announcements {
        Announcements { board: Arc::default(), lines }
    }

    /// Shows in badges how often people agree.
    pub(crate) fn calibrated_by(self, calibrated: Option<Calibrated>) -> Announcements {
        self.lock().calibrated = calibrated;
        self
    }

    /// Remarks on the first answer about which the likelihood judge says nothing.
    pub(crate) fn remarking_on_silence(self, remark: Option<Remark>) -> Announcements {
        self.lock().on_silence = remark;
        self
    }

    /// Listens to messages about the questions of `asker` until the listener is dropped.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn listen(&self, asker: &Asker, announced: Announced) -> anyhow::Result<Listener> {
        let all_but_chunks: Vec<Subject> =
            Subject::ALL.iter().filter(|it| **it != Subject::ResponseChunk).copied().collect();
        let heard = if announced.events { &all_but_chunks[..] } else { &SUBJECTS };
        let mailbox = asker.listen("announcements", heard);
        let (stop, stopped) = bounded::<()>(0);
        let announcements = self.clone();
        let listen = move || {
            loop {
                select_biased! {
                    recv(mailbox.receiver()) -> envelope => match envelope {
                        Ok(envelope) => announcements.hear(&envelope, announced),
                        Err(_) => return,
                    },
                    recv(stopped) -> _ => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("announcements".to_string()).spawn(listen);
        let thread = thread.context("cannot start the thread that listens for grades")?;
        Ok(Listener { stop: Some(stop), thread: Some(thread) })
    }

    /// The number of questions with outcomes still expected.
    pub(crate) fn n_pending(&self, expected: Expected) -> usize {
        self.lock().exchanges.values().filter(|exchange| !exchange.is_complete(expected)).count()
    }

    /// Why an answer got its grade, what was recalled for it, and how it compared.
    ///
    /// # Errors
    /// When memory cannot be read and no message about the answer was received.
    pub(crate) fn explain(&self, id: QueryId, stack: &Stack) -> anyhow::Result<Explanation> {
        let exchange = self.lock().exchanges.get(&id).cloned();
        explain(id, exchange.as_ref(), stack)
    }

    /// The grade of an answer, if it has one.
    pub(crate) fn grade(&self, id: QueryId, stack: &Stack) -> Option<Grade> {
        let exchange = self.lock().exchanges.get(&id).cloned();
        grade(id, exchange.as_ref(), stack)
    }

    /// The badge of an answer; `None` if it has none, or memory cannot be read.
    pub(crate) fn badge(&self, id: QueryId, stack: &Stack) -> Option<Line> {
        let grade = self.grade(id, stack)?;
        badge(&grade, self.lock().agreement(&grade))
    }

    /// The user's rating of an answer, from this chat or memory.
    pub(crate) fn rating(&self, id: QueryId, stack: &Stack) -> Option<Rating> {
        let exchange = self.lock().exchanges.get(&id).cloned();
        rating_of(exchange.as_ref(), || stack.store()?.get(id).ok()??.user_feedback)
    }

    /// The recollections for an answer, in search order, without duplicates.
    pub(crate) fn recalled(&self, id: QueryId, stack: &Stack) -> Vec<RecalledEngram> {
        let exchange = self.lock().exchanges.get(&id).cloned();
        let mut found: Vec<RecalledEngram> = Vec::new();
        for engram in recalled(id, exchange.as_ref(), stack.store()) {
            if found.iter().all(|known| known.query_id != engram.query_id) {
                found.push(engram);
            }
        }
        found
    }

    fn hear(&self, envelope: &Envelope, announced: Announced) {
        let badge = self.lock().take(envelope);
        if announced.events {
            self.lines.announce(Line::plain(event_line(envelope)));
        }
        if let Some(badge) = badge.filter(|_| announced.badges) {
            self.lines.announce(badge);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// Processes an event, and returns what to announce.
    fn take(&mut self, envelope: &Envelope) -> Option<Line> {
        let id = envelope.correlation_id?;
        let change = self.exchanges.entry(id).or_insert_with(|| Exchange::new(id)).take(envelope);
        match change {
            ExchangeChange::Asked(_) => {
                self.latest = Some(id);
                None
            }
            ExchangeChange::Recalled(RespondentId::A, recall) => recalled_line(recall),
            ExchangeChange::Failed(RespondentId::B, error) => self.once(no_answer_b(error)),
            ExchangeChange::Graded(RespondentId::A, critique) => {
                let grade = &critique.grade;
                self.badge(id, critique).or_else(|| self.failure(id, grade)).or_else(|| self.silence(grade))
            }
            _ => None,
        }
    }

    /// The badge of an answer, with its question unless it is the latest one.
    fn badge(&self, id: QueryId, critique: &GradedAnswer) -> Option<Line> {
        let badge = badge(&critique.grade, self.agreement(&critique.grade))?;
        if self.latest == Some(id) {
            return Some(badge);
        }
        Some(badge.with_text(on_one_line(&critique.query)))
    }

    /// How often people agree with a grade, if the badges show it.
    fn agreement(&self, grade: &Grade) -> Option<f64> {
        self.calibrated.as_ref().and_then(|calibrated| calibrated.agreement(grade))
    }

    /// Why there is no grade; `None` if the same reason was announced last, the user stopped the answer, or it only
    /// calls tools, after which another answer follows.
    fn failure(&mut self, id: QueryId, grade: &Grade) -> Option<Line> {
        let is_stopped = self.exchanges.get(&id).is_some_and(Exchange::is_cancelled);
        let failure = grade.judging.failure.as_ref().filter(|failure| !is_stopped && *failure != CALLS_TOOLS)?;
        self.once(format!("not graded: {failure}"))
    }

    /// The remark on an answer about which the likelihood judge says nothing, if it was not made yet.
    fn silence(&mut self, grade: &Grade) -> Option<Line> {
        let judging = &grade.judging;
        if judging.method != JudgingMethod::Likelihood || judging.failure.is_some() || badge(grade, None).is_some() {
            return None;
        }
        let remark = self.on_silence.take()?;
        Some(Line::plain(remark()))
    }

    /// The text as a line, unless it was announced last.
    fn once(&mut self, text: String) -> Option<Line> {
        let line = Line::plain(text);
        if self.told.as_ref() == Some(&line) {
            return None;
        }
        self.told = Some(line.clone());
        Some(line)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A listener that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

/// The recollections behind an answer, so that it is not taken for the model's knowledge.
fn recalled_line(recall: &Recall) -> Option<Line> {
    let questions: Vec<String> = recall.engrams.iter().map(|engram| on_one_line(&label(&engram.query))).collect();
    (!questions.is_empty())
        .then(|| Line::plain(format!("recalled: {} (/forget removes it from memory)", questions.join("; "))))
}

#[cfg(test)]
mod tests {
    use hone_protocol::{GenerateError, Judging, Payload, RecallMode, SessionId};

    use super::*;
    use crate::terminal::Output;

    const FIRST: QueryId = QueryId::from_bits(1);
    const SECOND: QueryId = QueryId::from_bits(2);

    /// Output without a terminal, so that nothing is coloured.
    fn output() -> Output {
        Output::plain()
    }

    fn critique(id: QueryId, respondent: RespondentId, score: Option<u8>) -> Envelope {
        let judging = Judging { judge: "j".to_string(), tokens: 7, seconds: 0.5, ..Judging::default() };
        let feedback = "Because.".to_string();
        let (expected_score, entropy) = (Some(3.5), Some(0.25));
        let rubric = "default".to_string();
        let grade = Grade { score, feedback, expected_score, entropy, rubric, judging, ..Grade::default() };
        let critique = GradedAnswer { query: "Why\n?".to_string(), answer: "a".to_string(), grade };
        Envelope::new("critic", SessionId::from_bits(9), Payload::CritiqueResult(critique)).about(id, id, respondent)
    }

    /// The lines announced after `envelopes`, where the latest question is the second one.
    #[track_caller]
    fn check(envelopes: &[Envelope], expected: &[&str]) {
        let mut board = Board { latest: Some(SECOND), ..Board::default() };
        let lines = envelopes.iter().filter_map(|envelope| board.take(envelope));
        assert_eq!(lines.map(|line| output().rendered(&line)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_answer_without_a_mark_is_explained_once() {
        let silent = |id| {
            let judging = Judging { method: JudgingMethod::Likelihood, ..Judging::default() };
            let grade = Grade { probability: Some(0.5), judging, ..Grade::default() };
            let critique = GradedAnswer { query: "Why?".to_string(), answer: "a".to_string(), grade };
            let payload = Payload::CritiqueResult(critique);
            Envelope::new("critic", SessionId::from_bits(9), payload).about(id, id, RespondentId::A)
        };
        let (told, tells) = crossbeam_channel::unbounded();
        let remark: Remark = Box::new(move || {
            told.send(()).unwrap();
            "no mark".to_string()
        });
        let mut board = Board { on_silence: Some(remark), ..Board::default() };
        let scored = critique(FIRST, RespondentId::A, Some(4));
        let lines: Vec<Option<Line>> =
            [scored, silent(FIRST), silent(SECOND)].iter().map(|envelope| board.take(envelope)).collect();
        assert_eq!(lines[1..], [Some(Line::plain("no mark")), None]);
        assert!(lines[0].is_some());
        assert_eq!(tells.try_iter().count(), 1);
    }

    #[test]
    fn a_badge_stands_alone_for_the_last_answer_and_names_the_question_of_another() {
        check(&[critique(SECOND, RespondentId::A, Some(4))], &["● 4/5"]);
        check(&[critique(FIRST, RespondentId::A, Some(2))], &["● 2/5 Why ?"]);
        check(&[critique(SECOND, RespondentId::A, None)], &[]);
        let mut failed = critique(SECOND, RespondentId::A, None);
        let Payload::CritiqueResult(result) = &mut failed.payload else { panic!("it is a critique") };
        result.grade.judging.failure = Some("timeout".to_string());
        check(&[failed.clone(), failed.clone()], &["not graded: timeout"]);
        let about_second = |payload, respondent| {
            Envelope::new("generator", SessionId::from_bits(9), payload).about(SECOND, SECOND, respondent)
        };
        let stopped = about_second(Payload::QueryCancelled(hone_protocol::Nothing {}), RespondentId::A);
        check(&[stopped, failed], &[]);
        let silent = Payload::ResponseFailed(GenerateError::Failed("no memory".into()));
        let silent = about_second(silent, RespondentId::B);
        check(&[silent.clone(), silent], &["respondent B gave no answer: generation failed: no memory"]);
        check(&[critique(SECOND, RespondentId::B, Some(4))], &[]);
    }

    #[test]
    fn what_an_answer_was_given_from_is_said() {
        let recalled = |queries: &[&str]| {
            let engrams = queries.iter().map(|query| RecalledEngram {
                query_id: FIRST,
                query: (*query).to_owned(),
                answer: "Mario.".to_owned(),
                score: None,
                similarity: 0.75,
                relevance: 0.75,
                self_graded: false,
                judging_method: JudgingMethod::default(),
                words: 0.5,
                is_fact: false,
                is_unreviewed: false,
            });
            let recall = Recall { mode: RecallMode::Context, search: String::new(), engrams: engrams.collect() };
            let payload = Payload::MemoryRecalled(recall);
            Envelope::new("memory", SessionId::from_bits(9), payload).about(SECOND, SECOND, RespondentId::A)
        };
        check(&[recalled(&[])], &[]);
        let expected = "recalled: Who am I?; Who\u{a0}else? (/forget removes it from memory)".replace('\u{a0}', " ");
        check(&[recalled(&["Who am I?", "Who\nelse?"])], &[&expected]);
    }
}
