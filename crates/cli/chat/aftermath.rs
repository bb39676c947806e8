//! What comes of an answer after it was given: its grade, a comparison, what had been recalled for it.
//!
//! These arrive at any time, also while the next question is being typed or the next answer streams by. A thread hears
//! them; the line that announces one goes above the line that is being typed, or waits until the answer on the screen has
//! ended.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, bounded, select_biased, unbounded};
use hone_protocol::{
    Comparison, Critique, Envelope, GenerateError, Grade, Payload, Preference, QueryId, Recall, RespondentId, Subject,
};

use crate::badge::badge;
use crate::describe::on_one_line;
use crate::events::event_line;
use crate::output::{Line, Output};
use crate::stack::Stack;

/// What is heard.
const SUBJECTS: [Subject; 6] = [
    Subject::QueryReceived,
    Subject::QueryCancelled,
    Subject::ResponseFailed,
    Subject::MemoryRecalled,
    Subject::CritiqueResult,
    Subject::PairwiseResult,
];

/// What came of the answers so far.
#[derive(Clone)]
pub(crate) struct Aftermath {
    board: Arc<Mutex<Board>>,
    /// Lines of the log go through a channel: whoever logs may hold the board.
    log: (Sender<String>, Receiver<String>),
}

impl Default for Aftermath {
    fn default() -> Self {
        Aftermath { board: Arc::default(), log: unbounded() }
    }
}

#[derive(Default)]
struct Board {
    grades: HashMap<QueryId, Grade>,
    /// Questions that were taken back.
    stopped: HashSet<QueryId>,
    recalls: HashMap<QueryId, Recall>,
    comparisons: HashMap<QueryId, Comparison>,
    /// The question that was asked last.
    latest: Option<QueryId>,
    /// Why there was no grade, when a person was last told.
    told: Option<Line>,
    /// The latest line of the log.
    logged: Option<Line>,
    /// Prints above the line that is being typed, while one is.
    prompt: Option<Typing>,
    /// Lines that wait for the end of an answer.
    held: Vec<Line>,
}

/// A line that is being typed, and what prints above it.
struct Typing {
    printer: SyncSender<String>,
    output: Output,
}

/// Why an answer got its grade.
#[derive(Debug, PartialEq)]
pub(crate) struct Explanation {
    /// Facts, each with its name.
    pub(crate) rows: Vec<Vec<String>>,
    /// What the judge says.
    pub(crate) feedback: Option<String>,
}

/// The thread that listens; dropping it ends and joins it.
pub(crate) struct Listener {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Aftermath {
    /// Listens to `stack` until the listener is dropped. With `monitors`, every event is announced, and not badges alone.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn listen(&self, stack: &Stack, monitors: bool) -> anyhow::Result<Listener> {
        let heard: Vec<Subject> = Subject::ALL.iter().filter(|it| **it != Subject::ResponseChunk).copied().collect();
        let mailbox = stack.listen("aftermath", if monitors { &heard } else { &SUBJECTS });
        let (stop, stopped) = bounded(0);
        let aftermath = self.clone();
        let listen = move || {
            loop {
                let envelope = select_biased! {
                    recv(stopped) -> _ => return,
                    recv(mailbox.receiver()) -> envelope => envelope,
                    recv(aftermath.log.1) -> line => {
                        line.into_iter().for_each(|line| aftermath.lock().announce_log(line));
                        continue;
                    }
                };
                let Ok(envelope) = envelope else { return };
                aftermath.hear(&envelope, monitors);
            }
        };
        let thread = std::thread::Builder::new().name("aftermath".to_string()).spawn(listen);
        let thread = thread.context("cannot start the thread that listens for grades")?;
        Ok(Listener { stop: Some(stop), thread: Some(thread) })
    }

    /// From now on a line is being typed, and `printer` prints above it. What waited is given to the caller to print.
    pub(crate) fn begin_typing(&self, printer: SyncSender<String>, output: Output) -> Vec<Line> {
        let mut board = self.lock();
        board.prompt = Some(Typing { printer, output });
        std::mem::take(&mut board.held)
    }

    /// Takes lines of the log, to be announced.
    pub(crate) fn log(&self) -> Sender<String> {
        self.log.0.clone()
    }

    /// From now on nothing is typed any more; what waited is given to the caller to print.
    pub(crate) fn end(&self) -> Vec<Line> {
        let mut board = self.lock();
        board.prompt = None;
        self.log.1.try_iter().for_each(|line| board.announce_log(line));
        std::mem::take(&mut board.held)
    }

    /// From now on no line is being typed.
    pub(crate) fn end_typing(&self) {
        self.lock().prompt = None;
    }

    /// Why an answer got its grade, what had been recalled for it, and how it compared.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub(crate) fn explain(&self, id: QueryId, stack: &Stack) -> anyhow::Result<Explanation> {
        let board = self.lock();
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push(vec![name.to_string(), value]);
        let remembered = || Ok::<_, anyhow::Error>(stack.store().map(|store| store.get(id)).transpose()?.flatten());
        let grade = match board.grades.get(&id) {
            Some(grade) => Some(grade.clone()),
            None => remembered()?.and_then(|engram| engram.grade),
        };
        match &grade {
            Some(grade) => explain_grade(grade, &mut row),
            None if stack.grades() => row("score", "not graded yet".to_string()),
            None => row("score", "not graded: grading is off (--grade)".to_string()),
        }
        if let Some(comparison) = board.comparisons.get(&id) {
            explain_comparison(comparison, &mut row);
        }
        for recalled in board.recalls.get(&id).iter().flat_map(|recall| &recall.engrams) {
            let score = recalled.score.map_or_else(|| "unscored".to_string(), |score| format!("{score}/5"));
            row("recalled", format!("{:.2} {score} {}", recalled.similarity, recalled.query));
        }
        let feedback = grade.map(|grade| grade.feedback).filter(|feedback| !feedback.is_empty());
        Ok(Explanation { rows, feedback })
    }

    fn hear(&self, envelope: &Envelope, monitors: bool) {
        let mut board = self.lock();
        let badge = board.take(envelope);
        if monitors {
            board.announce(Line::plain(event_line(envelope)));
        }
        if let Some(badge) = badge {
            board.announce(badge);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// Takes note of an event; what to announce of it.
    fn take(&mut self, envelope: &Envelope) -> Option<Line> {
        let id = envelope.query_id?;
        if envelope.respondent_id == Some(RespondentId::B) {
            return match &envelope.payload {
                Payload::ResponseFailed(error) => self.once(no_answer_b(error)),
                _ => None,
            };
        }
        match &envelope.payload {
            Payload::QueryReceived(_) => self.latest = Some(id),
            Payload::QueryCancelled(_) => {
                self.stopped.insert(id);
            }
            Payload::MemoryRecalled(recall) => drop(self.recalls.insert(id, recall.clone())),
            Payload::CritiqueResult(critique) => {
                self.grades.insert(id, critique.grade.clone());
                return self.badge(id, critique).or_else(|| self.failure(id, &critique.grade));
            }
            Payload::PairwiseResult(comparison) => {
                self.comparisons.insert(comparison.query_id_a, comparison.clone());
            }
            _ => {}
        }
        None
    }

    /// The badge of an answer; for any but the last one with its question.
    fn badge(&self, id: QueryId, critique: &Critique) -> Option<Line> {
        let badge = badge(&critique.grade)?;
        if self.latest == Some(id) {
            return Some(badge);
        }
        Some(badge.with_text(on_one_line(&critique.query)))
    }

    /// Why there is no grade, unless it was said of the answer before or a person stopped it.
    fn failure(&mut self, id: QueryId, grade: &Grade) -> Option<Line> {
        let failure = grade.judging.failure.as_ref().filter(|_| !self.stopped.contains(&id))?;
        self.once(format!("not graded: {failure}"))
    }

    /// What has not just been said.
    fn once(&mut self, text: String) -> Option<Line> {
        let line = Line::plain(text);
        if self.told.as_ref() == Some(&line) {
            return None;
        }
        self.told = Some(line.clone());
        Some(line)
    }

    /// Announces a line of the log, once where it says the same again and again.
    fn announce_log(&mut self, text: String) {
        let line = Line::plain(text);
        if self.logged.as_ref() != Some(&line) {
            self.logged = Some(line.clone());
            self.announce(line);
        }
    }

    /// Shows a line where it spoils nothing: above what is being typed, or else after the answer on the screen.
    fn announce(&mut self, line: Line) {
        let Some(typing) = &self.prompt else {
            self.held.push(line);
            return;
        };
        // A prompt that is gone or overrun keeps nothing: the line waits for the next one.
        if typing.printer.try_send(typing.output.rendered(&line)).is_err() {
            self.held.push(line);
        }
    }
}

fn explain_grade(grade: &Grade, row: &mut impl FnMut(&str, String)) {
    match grade.score {
        Some(score) => row("score", format!("{score}/5")),
        None => row("score", "none".to_string()),
    }
    if let Some(failure) = &grade.judging.failure {
        row("because", failure.clone());
    }
    if let (Some(expected), Some(entropy)) = (grade.expected_score, grade.entropy) {
        row("expected score", format!("{expected:.2} (entropy {entropy:.2} nats)"));
    }
    if let Some(suspicion) = &grade.suspicious {
        row("suspicious", suspicion.to_string());
    }
    let judging = &grade.judging;
    // Where no judge had begun there is nothing more to tell.
    if judging.judge.is_empty() {
        return;
    }
    let self_graded = if judging.self_graded { " (grades its own answer)" } else { "" };
    row("judge", format!("{}{self_graded}", judging.judge));
    row("rubric", grade.rubric.clone());
    let waited = if judging.queue_seconds >= 0.1 {
        format!(", {:.1} s of it waiting", judging.queue_seconds)
    } else {
        String::new()
    };
    row("time", format!("{:.1} s{waited}, {} tokens", judging.seconds, judging.tokens));
}

fn explain_comparison(comparison: &Comparison, row: &mut impl FnMut(&str, String)) {
    row("compared", comparison_text(&comparison.preference));
}

/// Why there is no second answer.
pub(crate) fn no_answer_b(error: &GenerateError) -> String {
    format!("respondent B gave no answer: {error}")
}

/// How an answer compares with the second respondent's.
pub(crate) fn comparison_text(preference: &Preference) -> String {
    if let Some(failure) = &preference.judging.failure {
        return format!("not compared: {failure}");
    }
    let comparison = match preference.winner {
        Some(RespondentId::A) => "better than respondent B's",
        Some(RespondentId::B) => "worse than respondent B's",
        None => "as good as respondent B's",
    };
    let orders = if preference.consistent { "both orders agree" } else { "the orders disagree" };
    format!("{comparison} (log-odds {:.2}, {orders})", preference.log_odds)
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A listener that panicked has said so already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::sync_channel;

    use hone_protocol::{Judging, Preference, SessionId};

    use super::super::scripted::{saying, stack};
    use super::*;

    const FIRST: QueryId = QueryId::from_bits(1);
    const SECOND: QueryId = QueryId::from_bits(2);

    /// Nobody's terminal, so that nothing is coloured.
    fn output() -> Output {
        Output::plain()
    }

    fn critique(id: QueryId, respondent: RespondentId, score: Option<u8>) -> Envelope {
        let judging = Judging { judge: "j".to_string(), tokens: 7, seconds: 0.5, ..Judging::default() };
        let feedback = "Because.".to_string();
        let (expected_score, entropy) = (Some(3.5), Some(0.25));
        let rubric = "default".to_string();
        let grade = Grade { score, feedback, expected_score, entropy, rubric, suspicious: None, judging };
        let critique = Critique { query: "Why\n?".to_string(), answer: "a".to_string(), grade };
        Envelope::new("critic", SessionId::from_bits(9), Payload::CritiqueResult(critique)).about(id, id, respondent)
    }

    /// The lines announced after `envelopes`, where the question asked last is the second.
    #[track_caller]
    fn check(envelopes: &[Envelope], expected: &[&str]) {
        let mut board = Board { latest: Some(SECOND), ..Board::default() };
        let lines = envelopes.iter().filter_map(|envelope| board.take(envelope));
        assert_eq!(lines.map(|line| output().rendered(&line)).collect::<Vec<_>>(), expected);
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
    fn a_line_waits_while_nothing_is_typed() {
        let mut board = Board::default();
        board.announce(Line::plain("one"));
        let aftermath = Aftermath { board: Arc::new(Mutex::new(board)), ..Aftermath::default() };
        let (prompt, shown) = sync_channel(1);
        assert_eq!(aftermath.begin_typing(prompt.clone(), output()), [Line::plain("one")]);
        aftermath.lock().announce(Line::plain("two\u{1b}[2J"));
        assert_eq!(shown.try_recv().as_deref(), Ok("two␛[2J"));
        aftermath.end_typing();
        aftermath.lock().announce(Line::plain("three"));
        assert!(shown.try_recv().is_err());
        assert_eq!(aftermath.begin_typing(prompt, output()), [Line::plain("three")]);
        aftermath.lock().announce(Line::plain("four"));
        aftermath.lock().announce(Line::plain("too many for the prompt"));
        let (prompt, _shown) = sync_channel(1);
        assert_eq!(aftermath.begin_typing(prompt, output()), [Line::plain("too many for the prompt")]);
    }

    #[test]
    fn a_grade_is_explained() {
        let aftermath = Aftermath::default();
        let stack = stack(&saying(&[]));
        let rows = |rows: &[[&str; 2]]| rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect::<Vec<_>>();
        let ungraded = aftermath.explain(FIRST, &stack).unwrap();
        assert_eq!(ungraded.rows, rows(&[["score", "not graded: grading is off (--grade)"]]));
        aftermath.lock().take(&critique(FIRST, RespondentId::A, Some(4)));
        let comparison = Comparison {
            original_query_id: FIRST,
            query_id_a: FIRST,
            query_id_b: SECOND,
            score_a: Some(4),
            score_b: None,
            preference: Preference { winner: Some(RespondentId::A), log_odds: 1.5, ..Preference::default() },
        };
        let session = SessionId::from_bits(9);
        let envelope = Envelope::new("critic", session, Payload::PairwiseResult(comparison));
        aftermath.lock().take(&envelope.about(FIRST, FIRST, RespondentId::A));
        let graded = aftermath.explain(FIRST, &stack).unwrap();
        let expected = [
            ["score", "4/5"],
            ["expected score", "3.50 (entropy 0.25 nats)"],
            ["judge", "j"],
            ["rubric", "default"],
            ["time", "0.5 s, 7 tokens"],
            ["compared", "better than respondent B's (log-odds 1.50, the orders disagree)"],
        ];
        assert_eq!(graded, Explanation { rows: rows(&expected), feedback: Some("Because.".to_owned()) });
    }
}
