//! `hone decide`: questions about a text are answered with probabilities.

mod batch;
mod exam;
mod questions;

use std::iter::zip;
use std::path::Path;

use anyhow::Context;
use hone_app::Listening;
use hone_app::decisions::{ExaminedDecisions, Question, content};
use hone_judging::Decider;
use hone_protocol::{Decision, DecisionRequest, DecisionType};
use serde_json::{Map, Value, json};

use self::batch::Batch;
use self::questions::{Threshold, named_questions};
use super::generate::read_stdin;
use crate::arguments::DecideArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::interrupt;

/// The longest bar, in characters.
const BAR: f64 = 20.0;

/// Answers the questions, or examines the model.
///
/// # Errors
/// When the text or a question cannot be read, or the model cannot be run.
pub(crate) fn run(app: &Invocation, arguments: &DecideArguments) -> anyhow::Result<Outcome> {
    if arguments.exam {
        return exam::run(app, arguments);
    }
    let questions = named_questions(arguments)?;
    let thresholds =
        arguments.at_least.iter().map(|text| Threshold::read(text, &questions)).collect::<Result<Vec<_>, _>>()?;
    let asked = |(name, question): &(String, Question)| {
        question.asked().map_err(|reason| usage(format!("the question {name:?}: {reason}")))
    };
    let asked = questions.iter().map(asked).collect::<Result<Vec<_>, _>>()?;
    if let Some((input, output)) = arguments.lines.files() {
        return batch::run(app, arguments, Batch { questions: &questions, asked, input, output });
    }
    app.obtain(&app.config.engine.model)?;
    let examined = ExaminedDecisions::find(app, &app.config.engine.model);
    let request = DecisionRequest {
        orders: arguments.orders,
        tunings: examined.as_ref().map(ExaminedDecisions::tunings).unwrap_or_default(),
        ..DecisionRequest::new(app.config.engine.model.clone(), text(arguments.file.as_deref())?, asked)
    };
    let interrupt = interrupt::install()?;
    let listening = interrupt.listen();
    let generator = app.generator()?;
    let decided = Decider::default().decide(&*generator, &request, &|| is_pressed(&listening));
    if decided.is_err() && is_pressed(&listening) {
        return Ok(Outcome::Interrupted);
    }
    let decisions = decided?.answers;
    if arguments.json.json {
        app.output.print_json(&json!({"model": request.model, "answers": answers(&questions, &decisions)}))?;
    } else {
        app.output.print_table(&table(&request, examined.as_ref(), &questions, &decisions))?;
    }
    for remark in remarks(&request, examined.as_ref()) {
        app.output.note(&remark);
    }
    let mut outcome = Outcome::Done;
    for (threshold, decision) in thresholds.iter().map(|threshold| (threshold, &decisions[threshold.question])) {
        let probability = decision.probabilities[threshold.option];
        if probability < threshold.least {
            app.output.note(&format!("{}: {probability:.2} is less than {}", threshold.name, threshold.least));
            outcome = Outcome::BelowThreshold;
        }
    }
    Ok(outcome)
}

/// A row for each option; the answers of a model that guesses have no bars.
fn table(
    request: &DecisionRequest,
    examined: Option<&ExaminedDecisions>,
    questions: &[(String, Question)],
    decisions: &[Decision],
) -> Vec<Vec<String>> {
    let mut table = Vec::new();
    for ((name, question), (asked, decision)) in zip(questions, zip(&request.questions, decisions)) {
        let mut rows = rows(name, question, decision);
        if examined.is_some_and(|examined| !examined.is_above_chance(asked.kind.kind())) {
            let remarks = std::iter::once("guessed").chain(std::iter::repeat(""));
            for (row, remark) in zip(&mut rows, remarks) {
                row.pop();
                row.push(remark.to_owned());
            }
        }
        table.extend(rows);
    }
    table
}

/// The answers under the names of their questions.
fn answers(questions: &[(String, Question)], decisions: &[Decision]) -> Map<String, Value> {
    zip(questions, decisions).map(|((name, question), decision)| (name.clone(), question.answer(decision))).collect()
}

/// Remarks about the model's reliability.
fn remarks(request: &DecisionRequest, examined: Option<&ExaminedDecisions>) -> Vec<String> {
    let model = &request.model;
    let Some(examined) = examined else {
        return vec![format!(
            "{model} has not been examined: `hone decide --exam --model {model}` says how far its answers can be trusted"
        )];
    };
    let is_asked = |kind: &DecisionType| request.questions.iter().any(|question| question.kind.kind() == *kind);
    let poor = DecisionType::ALL.into_iter().filter(is_asked).filter(|kind| !examined.is_above_chance(*kind));
    poor.map(|kind| format!("{model} is no better than chance at questions of this kind: {}", kind.name())).collect()
}

/// Whether Ctrl-C was pressed; the press stays in its channel.
fn is_pressed(listening: &Listening<'_>) -> bool {
    !listening.pressed().is_empty()
}

fn text(file: Option<&Path>) -> anyhow::Result<String> {
    match file {
        None => read_stdin(),
        Some(file) if file == Path::new("-") => read_stdin(),
        Some(file) => {
            let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            String::from_utf8(bytes).map_err(|_| usage(format!("{} is not UTF-8 text", file.display())))
        }
    }
}

/// The rows of a question: its options with their probabilities, the first preceded by the result.
fn rows(name: &str, question: &Question, decision: &Decision) -> Vec<Vec<String>> {
    let mut options = question.option_names();
    let said = match question {
        Question::Score { criteria, .. } => {
            for (option, level) in options.iter_mut().zip(criteria) {
                *option = format!("{option} {}", content(level).unwrap_or_default());
            }
            format!("{:.2}", decision.score())
        }
        _ => options[decision.likeliest()].clone(),
    };
    let mut shown: Vec<(String, f64)> = options.into_iter().zip(decision.probabilities.iter().copied()).collect();
    match question {
        Question::Noul { .. } => shown.retain(|(option, _)| option == "yes"),
        Question::Choice { .. } => shown.sort_by(|one, other| other.1.total_cmp(&one.1)),
        Question::Score { .. } => {}
    }
    let row = |(place, (option, probability)): (usize, (String, f64))| {
        let [name, said] = if place == 0 { [name, &said] } else { ["", ""] };
        let bar = "█".repeat((probability * BAR).round() as usize);
        vec![name.to_owned(), said.to_owned(), option, format!("{:3.0} %", 100.0 * probability), bar]
    };
    shown.into_iter().enumerate().map(row).collect()
}
