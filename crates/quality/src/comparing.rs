//! One comparison while it runs.
//!
//! Judges prefer what stands first, or second. So two requests run at once, one for each order, and the winner comes from
//! the mean of what both say.

use crossbeam_channel::{Receiver, RecvError, never, select};
use hone_protocol::{Completion, Constraint, GenerationEvent, Preference, RespondentId};

use crate::grading::with_remark;
use crate::judge::{CompareTask, Form, Judge};
use crate::neutralize::neutralized;
use crate::probabilities::{log_odds_of_a, spellings};
use crate::run::{Attempt, Progress, Run};
use crate::shorten::shortened;
use crate::suspicion::Examined;
use crate::verdict::winner_of;

/// The letter, and one sentence of reason.
const VERDICT: &str = " ?[AB][.:] [^\\n]{1,200}";
/// Tokens of the letter and the sentence.
const VERDICT_TOKENS: usize = 64;
/// Follows on a reason that was written where B stood first.
const SWAPPED: &str = "[The judge was shown the answers the other way round: its A is B, and its B is A.]";

/// A comparison while it runs. Whoever holds it takes events from both channels of [`events`](Comparing::events) and hands
/// them to [`take`](Comparing::take), until that returns the preference. Dropping it cancels both requests within one token.
#[derive(Debug)]
pub struct Comparing {
    judge: Judge,
    task: CompareTask,
    /// What the judge may be shown of A's answer and of B's.
    answers: [String; 2],
    attempt: Attempt,
    left_out: usize,
    /// A first, B first.
    runs: [Run; 2],
    verdicts: [Option<OrderVerdict>; 2],
    silence: Receiver<GenerationEvent>,
}

/// What the judge said in one of the orders.
#[derive(Clone, Debug)]
struct OrderVerdict {
    /// Log-odds of the answer that stood first.
    log_odds_of_first: f64,
    reason: String,
}

impl Comparing {
    pub(crate) fn start(judge: Judge, task: CompareTask, answered_by: &str) -> Comparing {
        let leaves_out = judge.settings().leave_out_suspicious;
        let answers =
            [&task.answer_a, &task.answer_b].map(|answer| Examined::of(&task.query, answer, leaves_out).shown);
        let characters = answers.iter().map(|answer| answer.chars().count()).sum();
        let attempt = Attempt::first(&judge, answered_by, characters);
        let (runs, left_out) = ask(&judge, &task, &answers, &attempt);
        Comparing { judge, task, answers, attempt, left_out, runs, verdicts: [None, None], silence: never() }
    }

    /// The channels of events; that of an order which has come to its end stays silent. They are others after a
    /// [`take`](Comparing::take) that had to ask anew: look here before every wait.
    pub fn events(&self) -> [&Receiver<GenerationEvent>; 2] {
        let events = |index: usize| match self.verdicts[index] {
            Some(_) => &self.silence,
            None => self.runs[index].events(),
        };
        [events(0), events(1)]
    }

    /// Takes in what the channel of this index (0 or 1) gave. Returns the preference when it is certain.
    pub fn take(&mut self, index: usize, event: Result<GenerationEvent, RecvError>) -> Option<Preference> {
        if self.verdicts[index].is_some() {
            return None;
        }
        let next = match self.runs[index].take(event) {
            Progress::Running => return None,
            Progress::Ended => return self.take_verdict(index),
            Progress::TooLong(overflow) => self.attempt.shorten(overflow),
            Progress::Failed(error) => self.attempt.fall_back(&error),
        };
        match next {
            Ok(()) => {
                self.ask_anew();
                None
            }
            Err(failure) => Some(self.failed(failure)),
        }
    }

    /// Ends the comparison without a winner, and says why.
    pub fn give_up(self, reason: &str) -> Preference {
        self.failed(reason.to_owned())
    }

    /// Waits for the preference.
    pub(crate) fn wait(mut self) -> Preference {
        loop {
            let [a_first, b_first] = self.events();
            let (index, event) = select! {
                recv(a_first) -> event => (0, event),
                recv(b_first) -> event => (1, event),
            };
            if let Some(preference) = self.take(index, event) {
                return preference;
            }
        }
    }

    /// Both orders start again: they are to be judged by the same model on the same texts.
    fn ask_anew(&mut self) {
        self.runs.iter().for_each(|run| self.attempt.count(run));
        self.verdicts = [None, None];
        (self.runs, self.left_out) = ask(&self.judge, &self.task, &self.answers, &self.attempt);
    }

    fn take_verdict(&mut self, index: usize) -> Option<Preference> {
        match order_verdict(self.runs[index].completion()) {
            Some(verdict) => self.verdicts[index] = Some(verdict),
            None => return Some(self.failed("the judge wrote no verdict".to_owned())),
        }
        match &self.verdicts {
            [Some(a_first), Some(b_first)] => Some(self.conclude(a_first, b_first)),
            _ => None,
        }
    }

    fn conclude(&self, a_first: &OrderVerdict, b_first: &OrderVerdict) -> Preference {
        let orders = [a_first.log_odds_of_first, -b_first.log_odds_of_first];
        let log_odds = (orders[0] + orders[1]) / 2.0;
        let winner = winner(log_odds, self.judge.settings().tie_margin);
        Preference {
            winner,
            log_odds,
            consistent: orders[0] * orders[1] > 0.0,
            reason: with_remark(&reason(winner, a_first, b_first), self.left_out, "answers"),
            judging: self.attempt.judging(&self.runs, None),
        }
    }

    fn failed(&self, failure: String) -> Preference {
        Preference { judging: self.attempt.judging(&self.runs, Some(failure)), ..Preference::default() }
    }
}

/// The reason of the order that chose the winner: the one in which A stood first where both did, or neither answer won.
/// The letters of the other order are the wrong way round, which is said behind its reason.
fn reason(winner: Option<RespondentId>, a_first: &OrderVerdict, b_first: &OrderVerdict) -> String {
    let was_chosen_a_first = match winner {
        Some(RespondentId::A) => a_first.log_odds_of_first > 0.0,
        Some(RespondentId::B) => a_first.log_odds_of_first < 0.0,
        None => true,
    };
    match was_chosen_a_first {
        true => a_first.reason.clone(),
        false if b_first.reason.is_empty() => String::new(),
        false => format!("{}\n{SWAPPED}", b_first.reason),
    }
}

/// The better answer by the odds of A; `None` where they are too even.
fn winner(log_odds: f64, tie_margin: f64) -> Option<RespondentId> {
    match log_odds {
        _ if log_odds.abs() < tie_margin => None,
        _ if log_odds > 0.0 => Some(RespondentId::A),
        _ if log_odds < 0.0 => Some(RespondentId::B),
        _ => None,
    }
}

/// Asks in both orders; beside it, how many characters of the answers the judge is not shown.
fn ask(judge: &Judge, task: &CompareTask, answers: &[String; 2], attempt: &Attempt) -> ([Run; 2], usize) {
    let query = neutralized(&task.query);
    let answers = shortened([&answers[0], &answers[1]], attempt.shown);
    let left_out = answers.iter().map(|answer| answer.left_out).sum();
    let [a, b] = answers.map(|answer| neutralized(&answer.text));
    let ask = |first: &str, second: &str| {
        let form = Form {
            seed: 0,
            constraint: Constraint::Regex(VERDICT.to_owned()),
            max_tokens: VERDICT_TOKENS,
            named: spellings(&["A", "B"]),
        };
        judge.ask(&attempt.model, judge.pairwise_turn(&query, first, second), form)
    };
    ([ask(&a, &b), ask(&b, &a)], left_out)
}

fn order_verdict(completion: &Completion) -> Option<OrderVerdict> {
    let text = completion.text.trim();
    let (letter, reason) = in_form(text).or_else(|| parsed(text))?;
    Some(OrderVerdict {
        log_odds_of_first: log_odds_of_a(&completion.logprobs, letter),
        reason: reason
            .trim_start_matches(|mark: char| mark.is_whitespace() || "*.:,;-–—".contains(mark))
            .trim()
            .to_owned(),
    })
}

/// The letter and the reason of a text that has the form it was held to.
fn in_form(text: &str) -> Option<(&'static str, &str)> {
    let (letter, reason) =
        text.strip_prefix('A').map(|reason| ("A", reason)).or(text.strip_prefix('B').map(|reason| ("B", reason)))?;
    let has_form = reason.is_empty() || reason.starts_with(". ") || reason.starts_with(": ");
    (has_form && !reason.contains('\n')).then_some((letter, reason))
}

/// The letter and the reason of a text that was not held to a form.
fn parsed(text: &str) -> Option<(&'static str, &str)> {
    let found = winner_of(text)?;
    let letter = match found.verdict {
        RespondentId::A => "A",
        RespondentId::B => "B",
    };
    let (before, after) = (&text[..found.place.start], &text[found.place.end..]);
    Some((letter, if before.is_empty() { after } else { before }))
}
