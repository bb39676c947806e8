//! `hone critic vet`: the review of remembered answers.

use hone_agents::{Decided, Vetter};
use hone_app::describe::on_one_line;
use hone_memory::Engram;
use hone_protocol::{ContentType, CriticMode, Lane, QueryId, VettingState};
use serde::Serialize;

use super::super::gates::{Gate, said, wait_until_idle};
use crate::arguments::CriticVetArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

#[derive(Serialize)]
struct Vetted<'a> {
    query_id: QueryId,
    state: VettingState,
    reason: Option<&'a str>,
    critique: Option<&'a hone_protocol::CritiqueResult>,
}

pub(super) fn run(app: &Invocation, arguments: &CriticVetArguments) -> anyhow::Result<Outcome> {
    let gate = Gate::open(app, Lane::Batch)?;
    let listening = gate.interrupt.listen();
    let is_stopped = || !listening.pressed().is_empty();
    let vetter = Vetter { gatekeeper: gate.keeper() };
    let pending = vetter.pending(if arguments.n == 0 { usize::MAX } else { arguments.n })?;
    let (mut counts, mut stopped) = ([0_usize; 3], None);
    let steps = Steps::new(app.output, "answers");
    for (done, engram) in pending.iter().enumerate() {
        steps.show(done, pending.len(), "");
        let goes_on = match arguments.idle.when_idle {
            true => wait_until_idle(&vetter.gatekeeper, ContentType::General, &app.config.notes, &is_stopped)?,
            false => !is_stopped(),
        };
        if !goes_on {
            break;
        }
        // The verdict of an unproven critic would be kept, and the text would count as reviewed.
        if let Some(reason) = vetter.unproven(engram)? {
            stopped = Some(reason);
            break;
        }
        let decided = vetter.decide(engram)?;
        steps.clear();
        print(app, engram, &decided, arguments.json.json)?;
        counts[decided.state as usize] += 1;
        if decided.is_critics_fault() && decided.mode != CriticMode::Soft {
            stopped = decided.reason;
            break;
        }
    }
    steps.clear();
    gate.write_statistics()?;
    let [unreviewed, reviewed, blocked] = counts;
    let left = pending.len() - unreviewed - reviewed - blocked;
    app.output.note(&format!("{reviewed} reviewed, {blocked} blocked, {unreviewed} without a verdict, {left} left"));
    if let Some(reason) = &stopped {
        app.output.error(&format!("the rest is left for another run: {reason}"));
    }
    Ok(match () {
        () if is_stopped() => Outcome::Interrupted,
        () if stopped.is_some() => Outcome::Failed,
        () if blocked > 0 => Outcome::BelowThreshold,
        () => Outcome::Done,
    })
}

fn print(app: &Invocation, engram: &Engram, decided: &Decided, json: bool) -> anyhow::Result<()> {
    if json {
        let (query_id, state, reason) = (engram.query_id, decided.state, decided.reason.as_deref());
        return app.output.print_json(&Vetted { query_id, state, reason, critique: decided.critique.as_ref() });
    }
    app.output.print_line(&format!("{}\n  {}", on_one_line(&engram.query), said(decided)))
}
