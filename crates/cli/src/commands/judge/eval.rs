//! `hone judge eval`: how well judges agree with a data set that people have judged.

mod diagram;
mod evaluation;
mod report;

use anyhow::Context;
use hone_app::App;
use hone_app::config::Source;
use hone_app::judging::dataset::DataSet;
use hone_app::judging::{Completed, JudgeSession};
use hone_judging::LIKELIHOOD;
use hone_protocol::{Grade, Preference};

use self::evaluation::{Evaluation, Verdicts};
use self::report::JudgeReport;
use crate::arguments::JudgeEvalArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

pub(super) fn run(app: &Invocation, arguments: &JudgeEvalArguments) -> anyhow::Result<Outcome> {
    let set = arguments.file.as_deref().map_or_else(|| Ok(DataSet::examination()), DataSet::read)?;
    let judges = match arguments.judge.as_slice() {
        [] => vec![app.config.judge.model.clone()],
        named => named.to_vec(),
    };
    for judge in judges.iter().filter(|judge| *judge != LIKELIHOOD) {
        app.store.show(judge).with_context(|| format!("cannot judge with {judge:?}"))?;
    }
    let interrupt = interrupt::install()?;
    let mut evaluations = Vec::new();
    for judge in &judges {
        let session = JudgeSession::open_for_examination(&asking(app, judge)?, interrupt.clone())?;
        let Some(verdicts) = judged(app, &session, &set)? else {
            app.output.note("stopped: the same command continues from here");
            return Ok(Outcome::Interrupted);
        };
        evaluations.push(Evaluation::new(judge, &session, &set, verdicts));
    }
    let report = JudgeReport::new(&set, &evaluations);
    match (arguments.json.json, arguments.csv) {
        (true, _) => app.output.print_json(&report)?,
        (false, true) => app.output.print_line(&report.csv())?,
        (false, false) => report.print(app)?,
    }
    if let Some(file) = &arguments.diagram {
        let drawn = diagram::of(&evaluations).with_context(|| format!("{} has no scores to draw", set.name))?;
        std::fs::write(file, drawn).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(outcome(app, &evaluations))
}

/// A copy of the app with this judge.
fn asking(app: &App, judge: &str) -> anyhow::Result<App> {
    let mut config = app.config.clone();
    config.set_text("judge.model", judge, Source::Flag("--judge"))?;
    Ok(app.with_config(config))
}

/// The judge's verdicts on everything in the set; `None` if the user stopped it.
fn judged(app: &Invocation, session: &JudgeSession, set: &DataSet) -> anyhow::Result<Option<Verdicts>> {
    let steps = Steps::new(app.output, "verdicts");
    let judge = session.judge().settings().model.clone();
    let (mut grades, mut preferences): (Vec<Grade>, Vec<Preference>) = (Vec::new(), Vec::new());
    let answers: Vec<_> = set.answers.iter().map(|answer| answer.task.clone()).collect();
    let mut completed = session.judge_all(&answers, "", &steps, |_, grade| {
        grades.push(grade);
        steps.show(grades.len(), set.n_verdicts(), &judge);
        Ok(())
    })?;
    if completed == Completed::All {
        let pairs: Vec<_> = set.pairs.iter().map(|pair| pair.task.clone()).collect();
        completed = session.judge_all(&pairs, "", &steps, |_, preference| {
            preferences.push(preference);
            steps.show(grades.len() + preferences.len(), set.n_verdicts(), &judge);
            Ok(())
        })?;
    }
    steps.clear();
    Ok((completed == Completed::All).then_some(Verdicts { grades, preferences }))
}

/// Every verdict of a judge should parse, and be given in time.
fn outcome(app: &Invocation, evaluations: &[Evaluation]) -> Outcome {
    for Evaluation { judge, unparsed, failed, failure, .. } in evaluations {
        if let Some(failure) = failure {
            let n_missing = unparsed + failed;
            app.output.error(&format!("{n_missing} without a verdict of {judge}, the last one: {failure}"));
        }
    }
    let is_complete = |evaluation: &Evaluation| evaluation.failure.is_none();
    if evaluations.iter().all(is_complete) { Outcome::Done } else { Outcome::Failed }
}
