//! One grading while it runs.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{Constraint, GenerationEvent, Grade};

use crate::judge::{Form, GradeTask, Judge};
use crate::neutralize::neutralized;
use crate::probabilities::{score_distribution, spellings};
use crate::run::{Attempt, Progress, Run};
use crate::shorten::{characters, shortened};
use crate::verdict::score_at_end;

/// What stands before the score.
const MARKER: &str = "[RESULT]";
/// Tokens of the marker and the score, also for a tokenizer that has a token for every byte.
const TAIL_TOKENS: usize = 16;

/// A grading while it runs. Whoever holds it takes the events from [`events`](Grading::events) and hands them to
/// [`take`](Grading::take), until that returns the grade. Dropping it cancels the grading within one token.
#[derive(Debug)]
pub struct Grading {
    judge: Judge,
    task: GradeTask,
    attempt: Attempt,
    left_out: usize,
    run: Run,
}

impl Grading {
    pub(crate) fn start(judge: Judge, task: GradeTask, answered_by: &str) -> Grading {
        let attempt = Attempt::first(&judge, answered_by, task.answer.chars().count());
        let (run, left_out) = ask(&judge, &task, &attempt);
        Grading { judge, task, attempt, left_out, run }
    }

    /// The channel of events. It is another one after a [`take`](Grading::take) that had to ask anew: look here before every
    /// wait.
    pub fn events(&self) -> &Receiver<GenerationEvent> {
        self.run.events()
    }

    /// Takes in what the channel gave. Returns the grade when it is certain.
    pub fn take(&mut self, event: Result<GenerationEvent, RecvError>) -> Option<Grade> {
        let next = match self.run.take(event) {
            Progress::Running => return None,
            Progress::Ended => return Some(self.conclude()),
            Progress::TooLong(overflow) => self.attempt.shorten(overflow),
            Progress::Failed(error) => self.attempt.fall_back(&error),
        };
        match next {
            Ok(()) => {
                self.attempt.count(&self.run);
                (self.run, self.left_out) = ask(&self.judge, &self.task, &self.attempt);
                None
            }
            Err(failure) => Some(self.failed(failure, String::new())),
        }
    }

    /// Ends the grading without a score, and says why.
    pub fn give_up(self, reason: &str) -> Grade {
        self.failed(reason.to_owned(), String::new())
    }

    /// Waits for the grade.
    pub(crate) fn wait(mut self) -> Grade {
        loop {
            let event = self.events().recv();
            if let Some(grade) = self.take(event) {
                return grade;
            }
        }
    }

    fn conclude(&self) -> Grade {
        let completion = self.run.completion();
        let Some(found) = score_at_end(&completion.text) else {
            let feedback = self.feedback(&completion.text);
            return self.failed("the judge wrote no verdict".to_owned(), feedback);
        };
        let distribution = score_distribution(&completion.logprobs, found.verdict);
        Grade {
            score: Some(found.verdict),
            feedback: self.feedback(&completion.text[..found.place.start]),
            expected_score: distribution.map(|distribution| distribution.expected_score),
            entropy: distribution.map(|distribution| distribution.entropy),
            rubric: self.judge.rubric().name.clone(),
            judging: self.attempt.judging([&self.run], None),
        }
    }

    fn failed(&self, failure: String, feedback: String) -> Grade {
        Grade {
            feedback,
            rubric: self.judge.rubric().name.clone(),
            judging: self.attempt.judging([&self.run], Some(failure)),
            ..Grade::default()
        }
    }

    fn feedback(&self, text: &str) -> String {
        with_remark(without_label(text.trim()), self.left_out, "answer")
    }
}

/// What the judge wrote, and how much of the `answers` it was not shown.
pub(crate) fn with_remark(text: &str, left_out: usize, answers: &str) -> String {
    if left_out == 0 {
        return text.to_owned();
    }
    let what = characters(left_out);
    let remark = format!("[Left out in the middle of the {answers}, which the judge's context does not hold: {what}.]");
    format!("{text}\n{remark}").trim_start().to_owned()
}

/// Asks for a grade; beside it, how many characters of the answer the judge is not shown.
fn ask(judge: &Judge, task: &GradeTask, attempt: &Attempt) -> (Run, usize) {
    let feedback_tokens = judge.settings().feedback_tokens;
    let [answer] = shortened([&task.answer], attempt.shown);
    let reference = task.reference.as_deref().map(neutralized);
    let turn = judge.absolute_turn(&neutralized(&task.query), &neutralized(&answer.text), reference.as_deref());
    let form = Form {
        constraint: Constraint::FreeThenRegex {
            free_tokens: feedback_tokens,
            marker: MARKER.to_owned(),
            regex: " ?[1-5]".to_owned(),
        },
        max_tokens: feedback_tokens + TAIL_TOKENS,
        named: spellings(&["1", "2", "3", "4", "5"]),
    };
    (judge.ask(&attempt.model, turn, form), answer.left_out)
}

/// The feedback without the label that the prompt ends with, should the judge repeat it.
fn without_label(text: &str) -> &str {
    const LABEL: &str = "feedback:";
    let bare = text.trim_start_matches(['#', '*', ' ']);
    match bare.get(..LABEL.len()) {
        Some(start) if start.eq_ignore_ascii_case(LABEL) => bare[LABEL.len()..].trim_start_matches('*').trim_start(),
        _ => text,
    }
}
