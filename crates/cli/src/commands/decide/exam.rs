//! `hone decide --exam`: how far a model's decisions can be trusted.

use hone_app::decisions::{ExaminedDecisions, ExaminedPurposes};
use hone_judging::{DecisionMarks, Estimate, Purpose, PurposeMarks, Share};
use hone_protocol::{DecisionForm, DecisionType};
use serde::Serialize;

use super::is_pressed;
use crate::arguments::DecideArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// The output of `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    examined: &'a ExaminedDecisions,
    purposes: &'a [(Purpose, PurposeMarks)],
}

/// Prints the model's marks; examines it first if they are not known, or not wanted.
pub(super) fn run(app: &Invocation, arguments: &DecideArguments) -> anyhow::Result<Outcome> {
    let model = &app.config.engine.model;
    app.installed(model)?;
    let known = ExaminedDecisions::find(app, model).zip(ExaminedPurposes::find(app, model));
    let marks = match known.filter(|_| !arguments.no_cache) {
        Some(known) => {
            app.output.note("examined before: --no-cache examines the model anew");
            Some(known)
        }
        None => examine(app, model)?,
    };
    let Some((examined, purposes)) = marks else { return Ok(Outcome::Interrupted) };
    print(app, arguments, &examined, &purposes)?;
    let is_trusted = DecisionType::ALL.into_iter().all(|kind| examined.is_above_chance(kind));
    Ok(if is_trusted { Outcome::Done } else { Outcome::BelowThreshold })
}

/// Examines the model, and keeps the marks; `None` if the user stopped it.
fn examine(app: &Invocation, model: &str) -> anyhow::Result<Option<(ExaminedDecisions, ExaminedPurposes)>> {
    let interrupt = interrupt::install()?;
    let listening = interrupt.listen();
    let generator = app.generator()?;
    let steps = Steps::new(app.output, "questions");
    let is_over = || is_pressed(&listening);
    let examined = ExaminedDecisions::of(&*generator, model, &steps, &is_over);
    let examined = examined.map_err(anyhow::Error::from).and_then(|examined| {
        // Kept at once: the second part may be stopped.
        examined.keep(app)?;
        let purposes = ExaminedPurposes::of(&generator, model, &steps, &is_over)?;
        purposes.keep(app)?;
        Ok((examined, purposes))
    });
    steps.clear();
    if examined.is_err() && is_over() {
        return Ok(None);
    }
    examined.map(Some)
}

fn print(
    app: &Invocation,
    arguments: &DecideArguments,
    examined: &ExaminedDecisions,
    purposes: &ExaminedPurposes,
) -> anyhow::Result<()> {
    if arguments.json.json {
        return app.output.print_json(&Printed { examined, purposes: &purposes.marks });
    }
    let heading =
        ["KIND", "FORM", "RIGHT", "CHANCE", "AUC OR ERROR", "BRIER", "CALIBRATION", "TEMPERATURE", "FIRST OPTION", ""];
    let rows = examined.marks.iter().map(|(kind, marks)| row(*kind, marks));
    app.output.print_titled(&heading, rows)?;
    let heading = ["HONE'S OWN DECISIONS", "RIGHT", "AUC", "WRONGLY YES", "WRONGLY NO", ""];
    let rows = purposes.marks.iter().map(|(purpose, marks)| row_of_purpose(*purpose, marks));
    app.output.print_line("")?;
    app.output.print_titled(&heading, rows)
}

fn share(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn with_interval(of: &Share) -> String {
    let [low, high] = of.interval.unwrap_or_default();
    format!("{} ({} to {})", share(of.share.unwrap_or_default()), share(low), share(high))
}

fn row_of_purpose(purpose: Purpose, marks: &PurposeMarks) -> Vec<String> {
    vec![
        purpose.name().to_owned(),
        with_interval(&marks.right),
        marks.auc.to_string(),
        share(marks.wrongly_yes.share.unwrap_or_default()),
        share(marks.wrongly_no.share.unwrap_or_default()),
        if marks.passes() { "decides" } else { "does not decide" }.to_owned(),
    ]
}

fn row(kind: DecisionType, marks: &DecisionMarks) -> Vec<String> {
    let estimate = |of: &Estimate| format!("{:.2} ({:.2} to {:.2})", of.value, of.interval[0], of.interval[1]);
    let auc = marks.auc.map(|auc| auc.to_string());
    let error = marks.mean_error.as_ref().map(estimate);
    vec![
        kind.name().to_owned(),
        match marks.form {
            DecisionForm::Labels => "labels",
            DecisionForm::Texts => "texts",
        }
        .to_owned(),
        with_interval(&marks.accuracy),
        share(marks.chance),
        auc.or(error).unwrap_or_else(|| "-".to_owned()),
        estimate(&marks.brier),
        format!("{}, {:.2} at best", estimate(&marks.calibration_error), marks.least_calibration_error),
        format!("{:.1}", marks.temperature),
        marks.order_bias.as_ref().map_or("-".to_owned(), |bias| {
            format!("{:+.2}, averaged {:+.2}", bias.one_order.value, bias.averaged.value)
        }),
        if marks.is_above_chance() { "better than chance" } else { "no better than chance" }.to_owned(),
    ]
}
