//! `hone consolidate`: summaries of related memories, each challenged by the critic.

use hone_agents::{Consolidated, Consolidator};
use hone_app::decisions::decider_for;
use hone_judging::Purpose;
use hone_protocol::{ContentType, Lane};

use super::gates::{Gate, wait_until_idle};
use super::memory::search::make_lacking_vectors;
use crate::arguments::ConsolidateArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::terminal::progress::Steps;

/// Consolidates memories not consolidated before.
///
/// # Errors
/// When memory fails, or another process consolidates.
pub(crate) fn run(app: &Invocation, arguments: &ConsolidateArguments) -> anyhow::Result<Outcome> {
    let gate = Gate::open(app, Lane::Batch)?;
    make_lacking_vectors(app, &gate.store, &*app.embedder()?)?;
    let rememberer = gate.rememberer();
    let listening = gate.interrupt.listen();
    let is_stopped = || !listening.pressed().is_empty();
    let notes = &app.config.notes;
    let consolidator = Consolidator {
        rememberer: &rememberer,
        writer: gate.writer(&is_stopped),
        gatekeeper: gate.keeper(),
        settings: notes,
        memory: &app.config.memory.settings,
        decider: decider_for(app, &gate.generator, Purpose::Contradiction, Lane::Batch, |_| true),
    };
    let steps = Steps::new(app.output, "groups");
    let mut waiting = Ok(true);
    let consolidated = consolidator.run(&mut |done, total| {
        steps.show(done, total, "");
        if arguments.idle.when_idle {
            waiting = wait_until_idle(&gate.keeper(), ContentType::Consolidation, notes, &is_stopped);
        }
        !is_stopped() && waiting.as_ref().is_ok_and(|goes_on| *goes_on)
    });
    steps.clear();
    waiting?;
    let consolidated = consolidated?;
    gate.write_statistics()?;
    match arguments.json.json {
        true => app.output.print_json(&consolidated)?,
        false => print(app.output, &consolidated)?,
    }
    Ok(match &consolidated {
        _ if is_stopped() => Outcome::Interrupted,
        Consolidated { stopped: Some(_), .. } => Outcome::Failed,
        Consolidated { blocked: 1.., .. } => Outcome::BelowThreshold,
        _ => Outcome::Done,
    })
}

fn print(output: Output, consolidated: &Consolidated) -> anyhow::Result<()> {
    let Consolidated { exchanges, clusters, written, reviewed, blocked, unreviewed, failed, duplicates, .. } =
        consolidated;
    output.print_line(&format!(
        "{exchanges} answers that were not consolidated, {clusters} groups; {written} summaries: {reviewed} reviewed, \
         {blocked} blocked, {unreviewed} not reviewed; {failed} groups without one; {duplicates} duplicates"
    ))?;
    for contradiction in &consolidated.contradictions {
        output.print_line(&format!("changed: \"{}\" → \"{}\"", contradiction.earlier, contradiction.later))?;
    }
    if let Some(reason) = &consolidated.stopped {
        output.error(&format!("the rest is left for another run: {reason}"));
    }
    Ok(())
}
