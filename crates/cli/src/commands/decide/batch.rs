//! `hone decide --input`: one set of questions about every line of a file.

use std::path::Path;

use hone_app::decisions::{ExaminedDecisions, Question, content, identity_of};
use hone_app::judging::UnansweredLines;
use hone_judging::Decider;
use hone_protocol::{DecisionQuestion, DecisionRequest};
use serde_json::{Map, Value, json};

use super::{answers, is_pressed, remarks};
use crate::arguments::DecideArguments;
use crate::commands::lines::conclude;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// The key of the text.
const STATE: &str = "state";
/// The key of the answers.
const ANSWERS: &str = "answers";

/// The questions, and where the answers go.
pub(super) struct Batch<'a> {
    pub(super) questions: &'a [(String, Question)],
    /// The questions in the form that the model gets.
    pub(super) asked: Vec<DecisionQuestion>,
    pub(super) input: &'a Path,
    pub(super) output: &'a Path,
}

/// Answers the questions about every line.
pub(super) fn run(app: &Invocation, arguments: &DecideArguments, batch: Batch<'_>) -> anyhow::Result<Outcome> {
    let Batch { questions, asked, input, output } = batch;
    let model = &app.config.engine.model;
    app.installed(model)?;
    let examined = ExaminedDecisions::find(app, model);
    let identity = identity_of(app, model).unwrap_or_default();
    let tunings = examined.as_ref().map(ExaminedDecisions::tunings).unwrap_or_default();
    let template = DecisionRequest {
        orders: arguments.orders,
        tunings,
        identity: identity.clone(),
        ..DecisionRequest::new(model.clone(), String::new(), asked)
    };
    let setting = json!([
        identity,
        Decider::digest(),
        format!("{:?}", (&template.questions, template.orders, &template.tunings))
    ]);
    let lines = UnansweredLines::open(input, output, &[ANSWERS], &setting, state)?;
    let interrupt = interrupt::install()?;
    let listening = interrupt.listen();
    let generator = app.generator()?;
    let decider = Decider::default();
    let answer = |states: &[String]| {
        let mut found = Vec::with_capacity(states.len());
        for state in states {
            let request = DecisionRequest { state: state.clone(), ..template.clone() };
            let decided = decider.decide(&*generator, &request, &|| is_pressed(&listening));
            if decided.is_err() && is_pressed(&listening) {
                return Ok(None);
            }
            let answers = decided.map(|decided| answers(questions, &decided.answers));
            found.push(
                answers
                    .map(|answers| Map::from_iter([(ANSWERS.to_owned(), Value::Object(answers))]))
                    .map_err(Into::into),
            );
        }
        Ok(Some(found))
    };
    let steps = Steps::new(app.output, "texts");
    let answered = lines.answer(1, &steps, answer, |line| app.output.print_json(line));
    steps.clear();
    let outcome = conclude(app, answered?, output, arguments.json.json)?;
    for remark in remarks(&template, examined.as_ref()) {
        app.output.note(&remark);
    }
    Ok(outcome)
}

/// The text of a line.
fn state(line: &Map<String, Value>) -> Result<String, String> {
    line.get(STATE).and_then(content).ok_or_else(|| format!("has no {STATE:?}"))
}
