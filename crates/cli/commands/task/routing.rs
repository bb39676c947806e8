//! `best:TYPE` in place of a model: the one that did best on past tasks of that type.

use hone_agents::TaskRecord;
use hone_models::Role;
use hone_quality::{Arm, choose};

use super::store;
use crate::app::App;
use crate::config::Source;
use crate::failure::usage;

/// What stands before the type of tasks.
const PREFIX: &str = "best:";

/// The same app, in which models stand in the places of `best:TYPE` in `engine.model` and `gate.ladder`. No model comes
/// twice by choice. The same task with the same history gets the same models.
///
/// # Errors
/// When no model is left to choose from.
pub(super) fn routed(app: &App, record: &TaskRecord) -> anyhow::Result<App> {
    let mut config = app.config.clone();
    let past = past(app, record);
    let mut chosen: Vec<String> = config.gate.ladder.iter().filter(|name| !name.starts_with(PREFIX)).cloned().collect();
    let mut seed = seed_of(record);
    for place in 0..config.gate.ladder.len() {
        let Some(kind) = config.gate.ladder[place].strip_prefix(PREFIX).map(str::to_owned) else { continue };
        let model = best(app, &past, &kind, &chosen, seed)?;
        config.gate.ladder[place] = model.clone();
        chosen.push(model);
        seed = seed.wrapping_add(1);
    }
    if let Some(kind) = config.engine.model.strip_prefix(PREFIX).map(str::to_owned) {
        let model = match config.gate.ladder.first() {
            // The ladder decides who works.
            Some(first) => first.clone(),
            None => best(app, &past, &kind, &[], seed)?,
        };
        config.set_text("engine.model", &model, Source::Chosen)?;
    }
    Ok(app.with_config(config))
}

/// An attempt of the past.
struct Past {
    model: String,
    kind: String,
    score: f64,
}

/// The gate's scores of all attempts at other tasks.
fn past(app: &App, record: &TaskRecord) -> Vec<Past> {
    let (records, errors) = store(app).list();
    errors.iter().for_each(|error| app.output.error(&error.to_string()));
    let others = records.iter().filter(|other| other.id != record.id);
    let scored = others.flat_map(|other| {
        other.attempts.iter().filter_map(|attempt| {
            let score = attempt.decision.as_ref()?.score?;
            Some(Past { model: attempt.agent.clone(), kind: other.assignment.kind.clone(), score })
        })
    });
    scored.collect()
}

/// Chooses among the installed models that write texts, without those that have a place already, and says why.
fn best(app: &App, past: &[Past], kind: &str, taken: &[String], seed: u64) -> anyhow::Result<String> {
    let role = |name: &str| app.store.catalog().find(name).map(|model| model.role);
    let installed = app.store.list()?.models.into_iter().map(|model| model.name);
    let writes = |name: &String| role(name).is_none_or(|role| role == Role::Generator);
    let arms: Vec<Arm> = installed
        .filter(|name| writes(name) && !taken.contains(name))
        .map(|model| {
            let scores = past.iter().filter(|one| one.model == model && one.kind == kind).map(|one| one.score);
            Arm { scores: scores.collect(), model: model.clone() }
        })
        .collect();
    let none = || usage(format!("{PREFIX}{kind} has no installed model to choose: hone list shows what is installed"));
    let choice = choose(&arms, seed).ok_or_else(none)?;
    app.output.note(&format!("{PREFIX}{kind} is {}: {}", choice.model, choice.reason));
    Ok(choice.model)
}

fn seed_of(record: &TaskRecord) -> u64 {
    let bytes = record.id.as_bytes();
    bytes.iter().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}
