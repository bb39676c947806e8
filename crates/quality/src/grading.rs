//! One grading while it runs.

use crossbeam_channel::{Receiver, RecvError};
use hone_protocol::{Constraint, GenerationEvent, Grade};

use crate::judge::{Form, GradeTask, Judge};
use crate::neutralize::neutralized;
use crate::probabilities::{ScoreDistribution, score_distribution, spellings};
use crate::run::{Attempt, Progress, Run};
use crate::shorten::{characters, shortened};
use crate::suspicion::Examined;
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
    examined: Examined,
    attempt: Attempt,
    left_out: usize,
    /// The same question, asked as often as the settings say.
    runs: Vec<Run>,
    /// How many of them have ended.
    n_ended: usize,
}

/// What one run says.
struct Sample<'a> {
    score: u8,
    feedback: &'a str,
    distribution: Option<ScoreDistribution>,
}

impl Grading {
    pub(crate) fn start(judge: Judge, task: GradeTask, answered_by: &str) -> Grading {
        let examined = Examined::of(&task.query, &task.answer, judge.settings().leave_out_suspicious);
        let attempt = Attempt::first(&judge, answered_by, examined.shown.chars().count());
        let (runs, left_out) = ask(&judge, &task, &examined.shown, &attempt);
        Grading { judge, task, examined, attempt, left_out, runs, n_ended: 0 }
    }

    /// The channel of events. It is another one after a [`take`](Grading::take) that had to ask anew: look here before every
    /// wait.
    pub fn events(&self) -> &Receiver<GenerationEvent> {
        self.runs[self.n_ended].events()
    }

    /// Takes in what the channel gave. Returns the grade when it is certain.
    pub fn take(&mut self, event: Result<GenerationEvent, RecvError>) -> Option<Grade> {
        let next = match self.runs[self.n_ended].take(event) {
            Progress::Running => return None,
            Progress::Ended if self.n_ended + 1 == self.runs.len() => return Some(self.conclude()),
            Progress::Ended => {
                self.n_ended += 1;
                return None;
            }
            Progress::TooLong(overflow) => self.attempt.shorten(overflow),
            Progress::Failed(error) => self.attempt.fall_back(&error),
        };
        match next {
            Ok(()) => {
                self.runs.iter().for_each(|run| self.attempt.count(run));
                (self.runs, self.left_out) = ask(&self.judge, &self.task, &self.examined.shown, &self.attempt);
                self.n_ended = 0;
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
        let samples: Vec<Sample<'_>> = self.runs.iter().filter_map(sample_of).collect();
        let distributions: Vec<ScoreDistribution> = samples.iter().filter_map(|sample| sample.distribution).collect();
        let distribution = ScoreDistribution::mean(&distributions);
        let Some(chosen) = most_frequent(&samples) else {
            let feedback = self.feedback(&self.runs[0].completion().text);
            return self.failed("the judge wrote no verdict".to_owned(), feedback);
        };
        Grade {
            score: Some(chosen.score),
            feedback: self.feedback(chosen.feedback),
            expected_score: distribution.map(|distribution| distribution.expected_score()),
            entropy: distribution.map(|distribution| distribution.entropy()),
            rubric: self.judge.rubric().name.clone(),
            suspicious: self.examined.suspicion.clone(),
            judging: self.attempt.judging(&self.runs, None),
        }
    }

    fn failed(&self, failure: String, feedback: String) -> Grade {
        Grade {
            feedback,
            rubric: self.judge.rubric().name.clone(),
            suspicious: self.examined.suspicion.clone(),
            judging: self.attempt.judging(&self.runs, Some(failure)),
            ..Grade::default()
        }
    }

    fn feedback(&self, text: &str) -> String {
        with_remark(without_label(text.trim()), self.left_out, "answer")
    }
}

fn sample_of(run: &Run) -> Option<Sample<'_>> {
    let completion = run.completion();
    let found = score_at_end(&completion.text)?;
    let distribution = score_distribution(&completion.logprobs, found.verdict);
    Some(Sample { score: found.verdict, feedback: &completion.text[..found.place.start], distribution })
}

/// The first sample of the score that most of them give; of several such scores, the one nearest to the mean.
fn most_frequent<'a>(samples: &'a [Sample<'a>]) -> Option<&'a Sample<'a>> {
    let mean = samples.iter().map(|sample| f64::from(sample.score)).sum::<f64>() / samples.len() as f64;
    let n_votes = |score: u8| samples.iter().filter(|sample| sample.score == score).count();
    let is_better = |best: &Sample<'_>, other: &Sample<'_>| {
        let distance = |sample: &Sample<'_>| (f64::from(sample.score) - mean).abs();
        let votes = n_votes(other.score).cmp(&n_votes(best.score));
        votes.is_gt() || votes.is_eq() && distance(other) < distance(best)
    };
    samples.iter().reduce(|best, other| if is_better(best, other) { other } else { best })
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

/// Asks for a grade of what the judge is shown of the answer; beside it, how many characters of that the judge is not shown.
fn ask(judge: &Judge, task: &GradeTask, answer: &str, attempt: &Attempt) -> (Vec<Run>, usize) {
    let feedback_tokens = judge.settings().feedback_tokens;
    let [answer] = shortened([answer], attempt.shown);
    let reference = task.reference.as_deref().map(neutralized);
    let turn = judge.absolute_turn(&neutralized(&task.query), &neutralized(&answer.text), reference.as_deref());
    let form = |seed| Form {
        seed,
        constraint: Constraint::FreeThenRegex {
            free_tokens: feedback_tokens,
            marker: MARKER.to_owned(),
            regex: " ?[1-5]".to_owned(),
        },
        max_tokens: feedback_tokens + TAIL_TOKENS,
        named: spellings(&["1", "2", "3", "4", "5"]),
    };
    let seeds = 0..judge.settings().samples as u64;
    (seeds.map(|seed| judge.ask(&attempt.model, turn.clone(), form(seed))).collect(), answer.left_out)
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
