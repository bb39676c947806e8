//! `hone task check`: evaluates a workspace as it is.

use hone_app::evaluation::{Evaluation, read_assignment};
use hone_app::judging::reviewers;
use hone_protocol::{CriticScore, EvaluationResult, GateAction, GateDecision};
use hone_work::{Assignment, DirectoryFiles, EvaluationContext, Reviewers, criticize, decide};
use serde::Serialize;

use crate::arguments::TaskCheckArguments;
use crate::evaluation::{critic_line, decision_line, print_result};
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The result as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    results: &'a [EvaluationResult],
    /// The issues to fix before the work can be accepted.
    blocking_issues: Vec<&'a str>,
    critics: &'a [CriticScore],
    decision: &'a GateDecision,
}

/// Evaluates, and exits with 3 if the gate does not accept the work.
///
/// # Errors
/// When the task or the configuration is not valid, the workspace does not exist, or it cannot be contained as required.
pub(crate) fn run(app: &Invocation, arguments: &TaskCheckArguments) -> anyhow::Result<Outcome> {
    let assignment = match &arguments.task {
        Some(path) => read_assignment(path)?,
        None => Assignment::default(),
    };
    let reviewers = match arguments.deterministic {
        true => Reviewers::default(),
        false => reviewers(app, None),
    };
    let evaluation = Evaluation::open(arguments.workspace.workspace(), reviewers)?;
    let files = DirectoryFiles::new(&evaluation.workspace);
    let context = EvaluationContext {
        phase: &arguments.phase,
        output: "",
        assignment: &assignment,
        workspace: &files,
        changed: None,
        diff: "",
        plans: None,
    };
    let prints = !arguments.json.json;
    let mut printed = Ok(());
    let results = evaluation.evaluators.evaluate(&context, None, &mut |result| {
        if prints && printed.is_ok() {
            printed = print_result(app.output, result);
        }
    });
    printed?;
    let gate = &app.config.gate;
    let critics = criticize(gate, &results, &context, evaluation.evaluators.reviewers());
    let decision = decide(gate, &results, &critics, &[app.config.engine.model.as_str()]);
    if arguments.json.json {
        let blocking_issues = results.iter().flat_map(EvaluationResult::blocking_issues).collect();
        app.output.print_json(&Checked {
            results: &results,
            blocking_issues,
            critics: &critics,
            decision: &decision,
        })?;
    } else {
        for critic in &critics {
            app.output.print_line(&critic_line(critic))?;
        }
        app.output.print_marked_line(&decision_line(&decision))?;
    }
    Ok(match decision.action {
        GateAction::Accept => Outcome::Done,
        GateAction::Retry | GateAction::Reassign | GateAction::Escalate => Outcome::BelowThreshold,
    })
}
