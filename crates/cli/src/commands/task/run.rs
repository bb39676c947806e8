//! `hone task run`: has models work on a task.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use hone_agents::Load;
use hone_app::StackOptions;
use hone_app::authoring::{EngineAuthor, context_tokens};
use hone_app::config::PHASES;
use hone_app::evaluation::{Tools, read_assignment};
use hone_app::judging::reviewers;
use hone_app::routing::routed_for;
use hone_bus::Bus;
use hone_protocol::{Envelope, GenerateRequest, Prompt};
use hone_work::{TaskPhase, TaskProgress, TaskRecord, TaskRunner, TaskState};

use super::list::{self, call_line};
use crate::arguments::TaskRunArguments;
use crate::evaluation::{decision_line, print_result};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Runs a task to its end, or until a person must decide; exits with 3 then.
///
/// # Errors
/// When the task or the configuration is not valid, a model fails, or a file cannot be used.
pub(crate) fn run(app: &Invocation, arguments: &TaskRunArguments) -> anyhow::Result<Outcome> {
    let store = app.tasks();
    let phases = app.phases()?;
    let Tools { tools, settings } = Tools::open(arguments.workspace.workspace())?;
    let record = match (&arguments.resume, &arguments.task) {
        (Some(id), _) => store.find(id)?,
        (None, Some(path)) => {
            let mut assignment = read_assignment(path)?;
            if let Some(unknown) = TaskPhase::missing(&phases, &assignment) {
                return Err(usage(format!("the task has the phase {unknown:?}, which {PHASES}.toml does not define")));
            }
            if assignment.phases.is_empty() {
                // Those of today: the task does not change with the configuration.
                assignment.phases = phases.iter().map(|phase| phase.name.clone()).collect();
            }
            store.create(assignment, settings.workspace.clone())?
        }
        (None, None) => return Err(usage("there is no task: name its file, or --resume one")),
    };
    let app = &Invocation::of(routed_for(app, &record)?, app.output);
    let stack = app.stack(StackOptions {
        grades: false,
        respondent_b: None,
        memory: None,
        grades_due: false,
        works_off_backlog: false,
        critic: None,
        keeps_prefix: false,
        load: Load::PERSON,
    })?;
    let mut contexts = HashMap::new();
    for agent in [&app.config.engine.model].into_iter().chain(&app.config.gate.ladder) {
        let tokens = context_tokens(app, agent).with_context(|| format!("cannot use the agent {agent}"))?;
        contexts.extend(tokens.map(|tokens| (agent.clone(), tokens)));
    }
    let sampling = &app.config.sampling;
    let runner = TaskRunner {
        author: Arc::new(EngineAuthor::new(stack.generator().clone(), contexts)),
        request: GenerateRequest {
            sampling: sampling.options(),
            thinking: sampling.thinking(),
            // The limit of a chat's answers is not that of work: each phase has its own.
            max_tokens: arguments.sampling.max_tokens.and(sampling.max_tokens),
            stop: sampling.stop.clone(),
            ..GenerateRequest::new("", Prompt::Chat(Vec::new()))
        },
        agent: app.config.engine.model.clone(),
        phases,
        tools,
        tool_settings: settings,
        reviewers: reviewers(app, Some(stack.generator())),
        gate: app.config.gate.clone(),
        publish: publishing(stack.bus().clone()),
        store,
    };
    app.output.note(&format!("task {}", record.id));
    let prints = !arguments.json.json;
    let mut printed = Ok(());
    let record = runner.run(record, &mut |progress| {
        if prints && printed.is_ok() {
            printed = print_progress(app, progress);
        }
    })?;
    printed?;
    finish(app, &record, prints)
}

fn print_progress(app: &Invocation, progress: TaskProgress<'_>) -> anyhow::Result<()> {
    match progress {
        TaskProgress::Attempt(attempt) => {
            app.output.print_line(&format!("{} attempt {} by {}", attempt.phase, attempt.number, attempt.agent))
        }
        TaskProgress::Called(call) => app.output.print_line(&call_line(call)),
        TaskProgress::Candidate { number, of } => app.output.print_line(&format!("candidate {number} of {of}")),
        TaskProgress::Evaluated(result) => print_result(app.output, result),
        TaskProgress::Decided(decision) => app.output.print_marked_line(&decision_line(decision)),
    }
}

/// Publishes the events of tasks. Messages lost by other mailboxes are only logged.
fn publishing(bus: Bus) -> Box<dyn Fn(Envelope) + Send + Sync> {
    Box::new(move |event| {
        if let Err(overloaded) = bus.publish(event) {
            tracing::warn!("{overloaded}");
        }
    })
}

/// Reports the outcome of the task.
fn finish(app: &Invocation, record: &TaskRecord, prints: bool) -> anyhow::Result<Outcome> {
    if prints {
        list::print_summary(app, record)?;
    } else {
        app.output.print_json(record)?;
    }
    Ok(match record.state {
        TaskState::Accepted => Outcome::Done,
        TaskState::Working | TaskState::Waiting | TaskState::Delivering | TaskState::Rejected => {
            Outcome::BelowThreshold
        }
    })
}
