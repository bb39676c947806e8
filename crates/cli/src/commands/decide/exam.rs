//! `hone decide --exam`: how far a model's decisions can be trusted.

use hone_app::decisions::ExaminedDecisions;
use hone_judging::{DecisionMarks, Estimate};
use hone_protocol::{DecisionForm, DecisionType};

use super::is_pressed;
use crate::arguments::DecideArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// Examines the model, keeps the result, and prints it.
pub(super) fn run(app: &Invocation, arguments: &DecideArguments) -> anyhow::Result<Outcome> {
    let model = &app.config.engine.model;
    app.installed(model)?;
    let interrupt = interrupt::install()?;
    let listening = interrupt.listen();
    let generator = app.generator()?;
    let steps = Steps::new(app.output, "questions");
    let examined = ExaminedDecisions::of(&*generator, model, &steps, &|| is_pressed(&listening));
    steps.clear();
    if examined.is_err() && is_pressed(&listening) {
        return Ok(Outcome::Interrupted);
    }
    let examined = examined?;
    examined.keep(app)?;
    if arguments.json.json {
        app.output.print_json(&examined)?;
    } else {
        let heading = [
            "KIND",
            "FORM",
            "RIGHT",
            "CHANCE",
            "AUC OR ERROR",
            "BRIER",
            "CALIBRATION",
            "TEMPERATURE",
            "FIRST OPTION",
            "",
        ];
        let rows = examined.marks.iter().map(|(kind, marks)| row(*kind, marks));
        app.output
            .print_table(&std::iter::once(heading.map(str::to_owned).to_vec()).chain(rows).collect::<Vec<_>>())?;
    }
    let is_trusted = DecisionType::ALL.into_iter().all(|kind| examined.is_above_chance(kind));
    Ok(if is_trusted { Outcome::Done } else { Outcome::BelowThreshold })
}

fn row(kind: DecisionType, marks: &DecisionMarks) -> Vec<String> {
    let share = |share: f64| format!("{:.0} %", 100.0 * share);
    let estimate = |of: &Estimate| format!("{:.2} ({:.2} to {:.2})", of.value, of.interval[0], of.interval[1]);
    let [low, high] = marks.accuracy.interval.unwrap_or_default();
    let auc = marks.auc.map(|auc| auc.to_string());
    let error = marks.mean_error.as_ref().map(estimate);
    vec![
        kind.name().to_owned(),
        match marks.form {
            DecisionForm::Labels => "labels",
            DecisionForm::Texts => "texts",
        }
        .to_owned(),
        format!("{} ({} to {})", share(marks.accuracy.share.unwrap_or_default()), share(low), share(high)),
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
