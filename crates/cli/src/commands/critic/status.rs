//! `hone critic status`: the modes, the limits, and the number of unreviewed texts.

use std::collections::BTreeMap;

use hone_agents::Gatekeeper;
use hone_app::describe::moment;
use hone_app::judging::{Critic, CriticStanding};
use hone_memory::{MemoryStore, Whose};
use hone_protocol::{ContentType, CriticMode, Lane, Timestamp};
use serde::Serialize;

use super::exam::describe;
use crate::failure::Outcome;
use crate::invocation::Invocation;

#[derive(Serialize)]
struct Status {
    critic: CriticStanding,
    /// The mode that a person has set for every gate.
    r#override: Option<CriticMode>,
    gates: BTreeMap<&'static str, GateStatus>,
    unreviewed: u64,
    reviewed: u64,
    blocked: u64,
}

#[derive(Serialize)]
struct GateStatus {
    mode: CriticMode,
    /// Why the critic is not asked now.
    refused: Option<String>,
    until: Option<Timestamp>,
}

pub(super) fn run(app: &Invocation, store: &MemoryStore, json: bool) -> anyhow::Result<Outcome> {
    let settings = &app.config.critique;
    let critic = Critic::new(app, None, Lane::Background, None);
    let keeper = Gatekeeper { store, critic: &critic, settings, is_batch: false, clock: &Timestamp::now };
    let mut gates = BTreeMap::new();
    for kind in ContentType::ALL {
        let refusal = keeper.refusal(kind)?;
        let (refused, until) = refusal.map(|refusal| (refusal.reason, refusal.until)).unzip();
        gates.insert(kind.name(), GateStatus { mode: keeper.mode(kind)?, refused, until });
    }
    let figures = store.statistics(Whose::Everyones)?;
    let (reviewed, blocked) = (figures.reviewed, figures.blocked);
    let unreviewed = (figures.all.engrams + figures.notes).saturating_sub(reviewed + blocked);
    let status = Status {
        critic: CriticStanding::of(app),
        r#override: store.critic_override()?,
        gates,
        unreviewed,
        reviewed,
        blocked,
    };
    if json {
        app.output.print_json(&status)?;
        return Ok(Outcome::Done);
    }
    app.output.print_line(&match &status.critic.obstacle {
        None => format!("critic: {}", status.critic.model),
        Some(obstacle) => format!("critic: none ({obstacle}): nothing is reviewed"),
    })?;
    app.output.print_line(&match status.r#override {
        Some(mode) => format!("every gate is {mode}, as a person has set it (`hone critic configured` ends that)"),
        None => "every gate has the mode of the configuration".to_owned(),
    })?;
    let row = |(name, gate): (&&str, &GateStatus)| {
        let until = gate.until.map(|until| format!(", until {} UTC", moment(until))).unwrap_or_default();
        let refused = gate.refused.as_ref().map(|reason| format!("not asked now: {reason}{until}"));
        let examination = &status.critic.examinations[*name];
        let mode = match (gate.mode, &examination.unproven) {
            (CriticMode::Hard, Some(_)) => "soft until it passes".to_owned(),
            (mode, _) => mode.to_string(),
        };
        vec![(*name).to_owned(), mode, describe(examination), refused.unwrap_or_default()]
    };
    app.output.print_titled(&["gate", "mode", "examination", ""], status.gates.iter().map(row))?;
    app.output.print_line(&format!("memory: {reviewed} reviewed, {unreviewed} unreviewed, {blocked} blocked"))?;
    Ok(Outcome::Done)
}
