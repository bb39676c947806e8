//! `hone judge calibrate`: fits a judge's scores to `/good` and `/bad` ratings and to data sets judged by people.

use std::collections::HashMap;

use anyhow::bail;
use hone_app::judge::calibration::Calibrated;
use hone_app::judge::marks::JudgeSetup;
use hone_app::judging::dataset::{DataSet, ScoredAnswer};
use hone_app::judging::{Completed, JudgeSession};
use hone_judging::{
    Calibration, GOOD, GradeTask, HeldOut, LEAST_RATINGS, LEAST_RATINGS_OF_EACH_KIND, LIKELIHOOD, RatedAnswer,
    TooFewRatings, check_number_of_ratings, cross_validated_calibration,
};
use hone_memory::{Engram, Filters};
use hone_protocol::{Grade, Rating};
use serde::Serialize;

use crate::arguments::JudgeCalibrateArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// An answer and a person's rating of it.
struct Rated {
    task: GradeTask,
    is_good: bool,
}

/// The result of a calibration.
#[derive(Serialize)]
struct CalibrationReport {
    judge: String,
    rubric: String,
    /// Answers that were rated with `/good` or `/bad`.
    from_memory: usize,
    /// Answers from data sets.
    from_files: usize,
    /// Answers that the judge gave no grade.
    ungraded: usize,
    #[serde(flatten)]
    held_out: HeldOut,
    /// Whether the map predicts better than the expected score, and than no judge at all.
    helps: bool,
    /// The probability that a person finds an answer good, for the expected scores 1, 2, 3, 4 and 5.
    agreement: [f64; 5],
}

pub(super) fn run(app: &Invocation, arguments: &JudgeCalibrateArguments) -> anyhow::Result<Outcome> {
    if app.config.judge.model == LIKELIHOOD {
        return Err(usage("the likelihood judge gives no scores: name another judge"));
    }
    let mut rated = from_memory(app)?;
    let from_memory = rated.len();
    for path in &arguments.data {
        rated.extend(from_set(app, &DataSet::read(path)?)?);
    }
    refuse_too_few(&labels(&rated))?;
    let session = JudgeSession::open_for_examination(app, interrupt::install()?)?;
    let Some(grades) = graded(app, &session, &rated)? else {
        app.output.note("stopped: the same command continues from here");
        return Ok(Outcome::Interrupted);
    };
    let answers = answers(&rated, &grades);
    let ungraded = grades.len() - answers.len();
    if let Some(failure) = grades.iter().rev().find_map(|grade| grade.judging.failure.as_ref()) {
        app.output.error(&format!("{ungraded} answers have no grade, the last one: {failure}"));
    }
    refuse_too_few(&answers)?;
    let calibrated = kept(app, &session, &answers)?;
    let report = CalibrationReport::new(calibrated, [from_memory, rated.len() - from_memory, ungraded]);
    match arguments.json.json {
        true => app.output.print_json(&report)?,
        false => report.print(app)?,
    }
    Ok(Outcome::Done)
}

/// Fits a map and keeps it for the judge.
fn kept(app: &Invocation, session: &JudgeSession, answers: &[RatedAnswer]) -> anyhow::Result<Calibrated> {
    let judge = session.judge();
    let (settings, profile, rubric) = (judge.settings(), judge.profile(), judge.rubric());
    let setup = JudgeSetup { model: &settings.model, settings, profile, rubric };
    let calibrated = Calibrated::new(&setup, cross_validated_calibration(answers), Calibration::fit(answers));
    calibrated.keep(app.data_folder(), &app.store, &setup)?;
    Ok(calibrated)
}

/// The answers that were rated in a chat.
fn from_memory(app: &Invocation) -> anyhow::Result<Vec<Rated>> {
    let engrams = app.memory_to_read()?.list(&Filters::default(), usize::MAX)?;
    let rated = |engram: Engram| {
        let is_good = engram.user_feedback? == Rating::Good;
        Some(Rated { task: GradeTask { query: engram.query, answer: engram.answer, reference: None }, is_good })
    };
    Ok(engrams.into_iter().filter_map(rated).collect())
}

/// The scored answers of a data set, whose scores must be on the judge's scale. They are graded like those of a chat:
/// by the judge's rubric and without a reference answer.
fn from_set(app: &Invocation, set: &DataSet) -> anyhow::Result<Vec<Rated>> {
    let path = &set.name;
    if set.answers.is_empty() {
        return Err(usage(format!("{path} has pairs only: a calibration needs answers with scores from 1 to 5")));
    }
    if let Some(answer) = set.answers.iter().find(|answer| !(1.0..=5.0).contains(&answer.reference)) {
        return Err(usage(format!(
            "{path} has the score {}: a calibration needs scores from 1 to 5",
            answer.reference
        )));
    }
    if !set.pairs.is_empty() {
        app.output.note(&format!("the {} pairs of {path} are left out: they have no scores", set.pairs.len()));
    }
    let rated = |answer: &ScoredAnswer| Rated {
        task: GradeTask { reference: None, ..answer.task.task.clone() },
        is_good: answer.reference >= GOOD,
    };
    Ok(set.answers.iter().map(rated).collect())
}

/// The ratings before anything is graded.
fn labels(rated: &[Rated]) -> Vec<RatedAnswer> {
    rated.iter().map(|rated| RatedAnswer { question: 0, expected_score: 3.0, is_good: rated.is_good }).collect()
}

fn refuse_too_few(answers: &[RatedAnswer]) -> anyhow::Result<()> {
    let Err(TooFewRatings { missing, missing_good, missing_bad }) = check_number_of_ratings(answers) else {
        return Ok(());
    };
    let among = match (missing_good, missing_bad) {
        (0, 0) => String::new(),
        (good, 0) => format!(", at least {good} of them good"),
        (0, bad) => format!(", at least {bad} of them bad"),
        (good, bad) => format!(", at least {good} of them good and {bad} bad"),
    };
    bail!(
        "{missing} more ratings are needed{among}: a calibration takes {LEAST_RATINGS}, of which \
         {LEAST_RATINGS_OF_EACH_KIND} are good and {LEAST_RATINGS_OF_EACH_KIND} bad; rate answers with /good and /bad, or give a judged data set with --data"
    )
}

/// The judge's grades; `None` if the user stopped it.
fn graded(app: &Invocation, session: &JudgeSession, rated: &[Rated]) -> anyhow::Result<Option<Vec<Grade>>> {
    let tasks: Vec<GradeTask> = rated.iter().map(|rated| rated.task.clone()).collect();
    let steps = Steps::new(app.output, "gradings");
    let mut grades = Vec::new();
    let completed = session.judge_all(&tasks, "", &steps, |_, grade| {
        grades.push(grade);
        steps.show(grades.len(), tasks.len(), "");
        Ok(())
    })?;
    steps.clear();
    Ok((completed == Completed::All).then_some(grades))
}

/// The answers that have a grade.
fn answers(rated: &[Rated], grades: &[Grade]) -> Vec<RatedAnswer> {
    let mut questions: HashMap<&str, usize> = HashMap::new();
    let mut answers = Vec::new();
    for (rated, grade) in rated.iter().zip(grades) {
        let n_before = questions.len();
        let question = *questions.entry(&rated.task.query).or_insert(n_before);
        let score = grade.expected_score.or(grade.score.map(f64::from));
        answers.extend(score.map(|expected_score| RatedAnswer { question, expected_score, is_good: rated.is_good }));
    }
    answers
}

impl CalibrationReport {
    fn new(calibrated: Calibrated, [from_memory, from_files, ungraded]: [usize; 3]) -> CalibrationReport {
        let agreement = [1.0, 2.0, 3.0, 4.0, 5.0].map(|score| calibrated.probability(score));
        let Calibrated { model: judge, rubric, held_out, .. } = calibrated;
        CalibrationReport {
            judge,
            rubric,
            from_memory,
            from_files,
            ungraded,
            held_out,
            helps: held_out.helps(),
            agreement,
        }
    }

    fn print(&self, app: &Invocation) -> anyhow::Result<()> {
        let HeldOut { n, n_good, brier, brier_uncalibrated, brier_base_rate, auc } = self.held_out;
        let percent = |probability: f64| format!("{:.0} %", 100.0 * probability);
        let agreement =
            (1..).zip(self.agreement).map(|(score, share): (usize, f64)| format!("{score}: {}", percent(share)));
        let verdict = match self.helps {
            true => "helps: judge.calibrated = true shows it in the badge",
            false => "does not help, and is not shown: more ratings may change that",
        };
        let rows = [
            ("judge", format!("{}, rubric {}", self.judge, self.rubric)),
            (
                "ratings",
                format!("{n}, {n_good} of them good; {} from memory, {} from files", self.from_memory, self.from_files),
            ),
            ("agreement by score", agreement.collect::<Vec<_>>().join(", ")),
            ("Brier score, held out", format!("{brier:.3}; less is better")),
            ("of the scores alone", format!("{brier_uncalibrated:.3}")),
            ("without a judge", format!("{brier_base_rate:.3}")),
            ("AUC of the scores", format!("{auc:.2}")),
            ("calibration", verdict.to_owned()),
        ];
        app.output.print_table(&rows.map(|(name, text)| vec![name.to_owned(), text]))
    }
}
