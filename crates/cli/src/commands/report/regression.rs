//! `hone report --compare`: past questions, answered by another model and judged against the answers given then.
//!
//! The model answers all questions before the judge compares, so that two models that do not fit into memory together are
//! each loaded once. Answers and verdicts are kept as they come, and a later run with the same arguments finds them.

mod history;
mod replay;

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use hone_app::describe::on_one_line;
use hone_app::judging::{Completed, JudgeSession};
use hone_judging::{CompareTask, Conclusion, Contender, PairOutcome, PairRow, Regression, sample};
use hone_memory::Engram;
use hone_protocol::{Judging, Lane, Preference, QueryId};
use serde::Serialize;

use self::history::{History, Reason};
use self::replay::{Answer, Replay};
use super::{CHAT, outcome, percent, percents};
use crate::arguments::ReportArguments;
use crate::badge::judge_name;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// Default number of questions asked again.
const SAMPLE: usize = 50;
/// Number of the clearest losses that are named.
const NAMED_LOSSES: usize = 3;

/// The printed report.
#[derive(Serialize)]
struct RegressionReport<'a> {
    model: &'a str,
    /// The judge; `None` if there is no verdict.
    judge: Option<String>,
    /// Whether it also gave some of the answers.
    self_graded: bool,
    /// The seed of the sample of questions.
    seed: u64,
    #[serde(flatten)]
    regression: Regression,
    /// The questions without an answer of the model, or without a verdict.
    unjudged: usize,
    /// Why the last one has none.
    failure: Option<String>,
    /// The regression for each model that answered in the past.
    against: BTreeMap<&'a str, Regression>,
    /// The number of questions left out, by reason.
    left_out: BTreeMap<Reason, usize>,
    compared: Vec<Compared<'a>>,
}

/// A question with the answers to it.
#[derive(Serialize)]
struct Compared<'a> {
    query_id: QueryId,
    question: &'a str,
    /// The model that answered then.
    model_then: &'a str,
    answer_then: &'a str,
    /// The model's answer; `None` if it gave none.
    answer: Option<&'a str>,
    /// `None` if there is no verdict.
    outcome: Option<PairOutcome>,
    /// Logarithm of the odds of the model's answer being better.
    log_odds: Option<f64>,
    reason: Option<&'a str>,
    failure: Option<&'a str>,
}

/// Compares.
///
/// # Errors
/// When the model is not installed, nothing or too little can be asked again, no judge may judge, or a model cannot be run.
pub(super) fn run(app: &Invocation, arguments: &ReportArguments, model: &str) -> anyhow::Result<Outcome> {
    app.store.show(model).with_context(|| format!("cannot compare with {model:?}"))?;
    let History { questions, left_out } = past(app, arguments, model)?;
    let generator = app.generator()?;
    let session = JudgeSession::open_on(app, generator.clone(), Lane::Batch, interrupt::install()?)?;
    let interrupt = session.interrupt().clone();
    let _throughout = interrupt.listen();
    let replay = Replay::new(app, model, &*generator)?;
    let Some(said) = ask(app, &session, &replay, &questions)? else {
        app.output.note("stopped: the same command continues from here");
        return Ok(Outcome::Interrupted);
    };
    let pairs: Vec<Pair<'_>> = questions.iter().zip(&said).map(|(then, said)| Pair::new(model, then, said)).collect();
    let report = RegressionReport::new(model, arguments.comparison.seed, left_out, &pairs);
    if report.self_graded {
        app.output.note("do not rely on this: the judge gave some of the answers itself; --judge names another one");
    }
    match arguments.form.json {
        true => app.output.print_json(&report)?,
        false => report.print(app)?,
    }
    match (&report.failure, report.regression.pairs) {
        (Some(failure), 0) => bail!("there is no verdict: {failure}"),
        _ => Ok(outcome(report.regression.win_rate.share, arguments.fail_under)),
    }
}

/// The questions to ask again: a sample of those that may be.
fn past(app: &Invocation, arguments: &ReportArguments, model: &str) -> anyhow::Result<History> {
    if let Some(kind) = arguments.task_type.as_ref().filter(|kind| *kind != CHAT) {
        return Err(usage(format!("--compare asks the questions of chats, whose type is {CHAT}, not {kind:?}")));
    }
    let history = match app.has_memory() {
        true => History::read(app, &app.memory_to_read()?, model, arguments)?,
        false => History::default(),
    };
    let (n_found, wanted) = (history.questions.len(), arguments.comparison.sample.map(|n| n as usize));
    let left_out = left_out_in_words(&history.left_out);
    let left_out = if left_out.is_empty() { left_out } else { format!("; left out are {left_out}") };
    match wanted {
        _ if n_found == 0 => bail!("memory has no answers that {model} can be compared with{left_out}"),
        Some(wanted) if wanted > n_found => Err(usage(format!(
            "--sample is {wanted}, and {n_found} past questions can be asked again: give a lower number{left_out}"
        ))),
        _ => {
            let n = wanted.unwrap_or(SAMPLE);
            let id = |engram: &Engram| u128::from_be_bytes(*engram.query_id.as_bytes());
            Ok(History { questions: sample(history.questions, id, arguments.comparison.seed, n), ..history })
        }
    }
}

/// The number of questions left out for each reason; empty for none.
fn left_out_in_words(left_out: &BTreeMap<Reason, usize>) -> String {
    let parts = left_out.iter().map(|(reason, count)| format!("{count} {}", reason.in_words()));
    parts.collect::<Vec<_>>().join(", ")
}

/// A model's answer to a question and the judge's verdict on it; without an answer there is no verdict.
struct NewAnswer {
    answer: Answer,
    preference: Option<Preference>,
}

/// Has the model answer, and the judge compare; `None` if the user stopped it.
fn ask(
    app: &Invocation,
    session: &JudgeSession,
    replay: &Replay<'_>,
    questions: &[Engram],
) -> anyhow::Result<Option<Vec<NewAnswer>>> {
    let steps = Steps::new(app.output, "answers");
    let show = |done| steps.show(done, questions.len(), "");
    let answers = replay.answers(questions, session.interrupt(), show);
    steps.clear();
    let Some(answers) = answers? else { return Ok(None) };
    let mut said: Vec<NewAnswer> = answers.into_iter().map(|answer| NewAnswer { answer, preference: None }).collect();
    let (places, tasks) = tasks(questions, &said);
    let steps = Steps::new(app.output, "verdicts");
    let completed = session.judge_all(&tasks, &app.config.engine.model, &steps, |index, preference: Preference| {
        steps.show(index + 1, tasks.len(), &preference.judging.judge);
        said[places[index]].preference = Some(preference);
        Ok(())
    });
    steps.clear();
    Ok((completed? == Completed::All).then_some(said))
}

/// The comparisons to judge: the places of the answered questions, and for each the past answer and the new one.
fn tasks(questions: &[Engram], said: &[NewAnswer]) -> (Vec<usize>, Vec<CompareTask>) {
    let task = |(place, (then, said)): (usize, (&Engram, &NewAnswer))| {
        let answer_b = said.answer.clone().ok()?;
        Some((place, CompareTask { query: then.query.clone(), answer_a: then.answer.clone(), answer_b }))
    };
    questions.iter().zip(said).enumerate().filter_map(task).unzip()
}

/// A question, both answers to it, and the verdict.
struct Pair<'a> {
    then: &'a Engram,
    said: &'a NewAnswer,
    /// `None` without a verdict.
    row: Option<PairRow>,
    /// Whether the judge also gave one of the answers.
    is_by_contender: bool,
}

impl<'a> Pair<'a> {
    fn new(model: &str, then: &'a Engram, said: &'a NewAnswer) -> Pair<'a> {
        let judged = said.answer.as_ref().ok().zip(said.preference.as_ref());
        let judged = judged.filter(|(_, preference)| preference.judging.failure.is_none());
        let judge = judged.map_or("", |(_, preference)| preference.judging.judge.as_str());
        let is_by_contender = !judge.is_empty() && [model, &then.model].contains(&judge);
        let contender = |model: &str, answer: &str| Contender {
            respondent: then.respondent_id.to_string(),
            model: model.to_owned(),
            n_characters: answer.chars().count(),
        };
        let row = judged.map(|(answer, preference)| {
            let judge = judge_name(&Judging { self_graded: is_by_contender, ..preference.judging.clone() });
            PairRow::new(judge, preference, [contender(&then.model, &then.answer), contender(model, answer)])
        });
        Pair { then, said, row, is_by_contender }
    }

    /// Why there is no verdict.
    fn failure(&self) -> Option<&'a str> {
        let of_judge = || self.said.preference.as_ref()?.judging.failure.as_deref();
        self.said.answer.as_ref().err().map(String::as_str).or_else(of_judge)
    }
}

impl<'a> Compared<'a> {
    fn new(pair: &Pair<'a>) -> Compared<'a> {
        let verdict = pair.said.preference.as_ref().filter(|_| pair.row.is_some());
        Compared {
            query_id: pair.then.query_id,
            question: &pair.then.query,
            model_then: &pair.then.model,
            answer_then: &pair.then.answer,
            answer: pair.said.answer.as_ref().ok().map(String::as_str),
            outcome: pair.row.as_ref().map(PairRow::outcome),
            // The answer of the past is the judge's A.
            log_odds: verdict.map(|preference| -preference.log_odds),
            reason: verdict.map(|preference| preference.reason.as_str()),
            failure: pair.failure(),
        }
    }
}

impl<'a> RegressionReport<'a> {
    fn new(model: &'a str, seed: u64, left_out: BTreeMap<Reason, usize>, pairs: &[Pair<'a>]) -> RegressionReport<'a> {
        let mut rows: BTreeMap<&str, Vec<&PairRow>> = BTreeMap::new();
        for pair in pairs {
            rows.entry(&pair.then.model).or_default().extend(&pair.row);
        }
        let all = || pairs.iter().filter_map(|pair| pair.row.as_ref());
        RegressionReport {
            model,
            judge: all().next().map(|row| row.judge.clone()),
            self_graded: pairs.iter().any(|pair| pair.is_by_contender),
            seed,
            regression: Regression::of(all()),
            unjudged: pairs.len() - all().count(),
            failure: pairs.iter().filter_map(Pair::failure).next_back().map(str::to_owned),
            against: rows.into_iter().map(|(model, rows)| (model, Regression::of(rows))).collect(),
            left_out,
            compared: pairs.iter().map(Compared::new).collect(),
        }
    }

    fn print(&self, app: &Invocation) -> anyhow::Result<()> {
        app.output.print_line(&self.summary())?;
        let titles = ["against", "pairs", "won", "lost", "ties", "order decides", "win rate", "95 %", "longer won"];
        let mut rows = vec![cells("all", &self.regression)];
        if self.against.len() > 1 {
            rows.extend(self.against.iter().map(|(model, regression)| cells(model, regression)));
        }
        app.output.print_titled(&titles, rows)?;
        if let Some(failure) = &self.failure {
            app.output.print_line(&format!("{} without a verdict, the last one: {failure}", self.unjudged))?;
        }
        if !self.left_out.is_empty() {
            app.output.print_line(&format!("not asked: {}", left_out_in_words(&self.left_out)))?;
        }
        self.print_losses(app)
    }

    fn summary(&self) -> String {
        let RegressionReport { model, regression, .. } = self;
        let judge = self.judge.as_deref().unwrap_or("nobody");
        let (won, of) = (regression.won, regression.win_rate.of);
        match regression.conclusion {
            Conclusion::Undecided => {
                format!("no difference can be told: {model} won {won} of {of} pairs with a winner, judged by {judge}")
            }
            conclusion => format!(
                "{model} is {} than what was said then: it won {won} of {of} pairs with a winner, judged by {judge}",
                conclusion.in_words()
            ),
        }
    }

    /// The questions that the model answers clearly worse.
    fn print_losses(&self, app: &Invocation) -> anyhow::Result<()> {
        let lost = self.compared.iter().filter(|compared| compared.outcome == Some(PairOutcome::Lost));
        let mut lost: Vec<&Compared<'_>> = lost.collect();
        lost.sort_by(|a, b| a.log_odds.unwrap_or_default().total_cmp(&b.log_odds.unwrap_or_default()));
        if !lost.is_empty() {
            app.output.print_line("lost most clearly (`hone memory show ID` shows what was said then):")?;
        }
        lost.iter().take(NAMED_LOSSES).try_for_each(|compared| {
            app.output.print_line(&format!("  {}  {}", compared.query_id, on_one_line(compared.question)))
        })
    }
}

fn cells(name: &str, regression: &Regression) -> Vec<String> {
    let Regression { pairs, won, lost, ties, inconsistent, win_rate, longer_won, .. } = regression;
    let counts = [pairs, won, lost, ties].map(u64::to_string);
    let shares = [percent(inconsistent.share), percent(win_rate.share), percents(win_rate.interval)];
    let bias = format!("{} of {}", percent(longer_won.share), longer_won.of);
    std::iter::once(name.to_owned()).chain(counts).chain(shares).chain([bias]).collect()
}
