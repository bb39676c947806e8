//! `best:TYPE` in place of a model: the one that did best on past work of that type. Tasks have the type that their
//! file names. Answers have the type of their question, and also the type `chat`.

use std::collections::BTreeMap;

use hone_judging::{Arm, choose};
use hone_memory::{GradeOutline, Outline, Whose};
use hone_models::Role;
use hone_protocol::{Likely, Rating};
use hone_work::TaskRecord;

use crate::app::App;
use crate::config::{Config, Source};
use crate::usage;

/// The prefix of a type of work.
const PREFIX: &str = "best:";

/// The type of all answers.
const CHAT: &str = "chat";

/// The app with `best:TYPE` in `engine.model` replaced by a model; `None` if there is nothing to choose. An equal seed
/// with an equal history gives the same model.
///
/// # Errors
/// When no installed model can be chosen, or the past cannot be read.
pub fn routed(app: &App) -> anyhow::Result<Option<App>> {
    let mut config = app.config.clone();
    let Some(kind) = config.engine.model.strip_prefix(PREFIX).map(str::to_owned) else { return Ok(None) };
    let model = best(app, &past(app, None, &[&kind])?, &kind, &[], seed(&config, fresh_seed))?;
    // A model from the command line takes precedence over a resumed conversation's, however it was named.
    let source = match config.source_of("engine.model") {
        Some(flag @ Source::Flag(_)) => flag.clone(),
        _ => Source::Chosen,
    };
    config.set_text("engine.model", &model, source)?;
    Ok(Some(app.with_config(config)))
}

/// The app with each `best:TYPE` in `engine.model` and `gate.ladder` replaced by a model. No model is chosen twice. An
/// equal task with an equal history gives the same models.
///
/// # Errors
/// When no model is left to choose from, or the past cannot be read.
pub fn routed_for(app: &App, record: &TaskRecord) -> anyhow::Result<App> {
    let mut config = app.config.clone();
    let named = config.gate.ladder.iter().chain([&config.engine.model]);
    let kinds: Vec<&str> = named.filter_map(|name| name.strip_prefix(PREFIX)).collect();
    let past = past(app, Some(record), &kinds)?;
    let mut chosen: Vec<String> = config.gate.ladder.iter().filter(|name| !name.starts_with(PREFIX)).cloned().collect();
    let mut seed = seed(&config, || seed_of(record));
    for place in 0..config.gate.ladder.len() {
        let Some(kind) = config.gate.ladder[place].strip_prefix(PREFIX).map(str::to_owned) else { continue };
        let model = best(app, &past, &kind, &chosen, seed)?;
        config.gate.ladder[place] = model.clone();
        chosen.push(model);
        seed = seed.wrapping_add(1);
    }
    if let Some(kind) = config.engine.model.strip_prefix(PREFIX).map(str::to_owned) {
        let model = match config.gate.ladder.first() {
            // The ladder determines the model.
            Some(first) => first.clone(),
            None => best(app, &past, &kind, &[], seed)?,
        };
        config.set_text("engine.model", &model, Source::Chosen)?;
    }
    Ok(app.with_config(config))
}

/// The configured seed, or another one.
fn seed(config: &Config, otherwise: impl FnOnce() -> u64) -> u64 {
    config.sampling.seed.unwrap_or_else(otherwise)
}

/// A seed that no earlier choice had, so that choices explore.
fn fresh_seed() -> u64 {
    let id = hone_protocol::QueryId::fresh();
    folded(id.as_bytes())
}

/// A past score.
struct Past {
    model: String,
    kind: String,
    score: f64,
}

/// The outcomes of tasks other than `record`, and the scores of answers. An answer has the type of its question and the
/// type `chat`.
fn past(app: &App, record: Option<&TaskRecord>, kinds: &[&str]) -> anyhow::Result<Vec<Past>> {
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let (records, errors) = app.tasks().list();
    errors.iter().for_each(|error| app.progress.error(&error.to_string()));
    let others = records.iter().filter(|other| record.is_none_or(|record| record.id != other.id));
    let phases = if records.is_empty() { Vec::new() } else { app.phases()? };
    let scored = others.flat_map(|other| {
        let outcomes = other.outcomes(&phases).into_iter();
        outcomes.map(|it| Past { score: it.score(), model: it.agent, kind: other.assignment.kind.clone() })
    });
    let mut past: Vec<Past> = scored.collect();
    if app.has_memory() {
        past.extend(answers(app)?);
    }
    Ok(past)
}

/// The scores of answers: a person's rating, or else a judge's grade. Grades of different judges cannot be compared, so
/// only those of the judge that has graded most count; of two that have graded as many, the one that gives scores.
fn answers(app: &App) -> anyhow::Result<Vec<Past>> {
    let outlines = app.memory_to_read()?.outlines(Whose::Everyones, false)?;
    let mut past: Vec<Past> = Vec::new();
    let mut by_judge: BTreeMap<(&str, &str, bool, bool), Vec<Past>> = BTreeMap::new();
    for outline in &outlines {
        match (outline.rating, &outline.grade) {
            (Some(rating), _) => past.extend(scored(outline, f64::from(u8::from(rating == Rating::Good)))),
            (None, Some(grade)) => {
                let Some(score) = score_of(grade) else { continue };
                let judge = (&*grade.judge, &*grade.rubric, grade.self_graded, grade.method.is_prompted());
                by_judge.entry(judge).or_default().extend(scored(outline, score));
            }
            (None, None) => {}
        }
    }
    let most = by_judge.into_iter().max_by_key(|((.., is_prompted), graded)| (graded.len(), *is_prompted));
    past.extend(most.map(|(_, graded)| graded).unwrap_or_default());
    Ok(past)
}

/// A grade from 0 to 1. Scores that a model gave its own answers do not count. The likelihood judge gives marks: likely
/// right is 1, likely wrong 0, and no mark one half. It judges the answers of its own model in another way than those of
/// others, so it counts as two judges.
fn score_of(grade: &GradeOutline) -> Option<f64> {
    match (grade.score, grade.probability) {
        (Some(_), _) if grade.self_graded => None,
        (Some(score), _) => Some(f64::from(score.saturating_sub(1)) / 4.0),
        (None, Some(_)) => Some(match grade.likely {
            Some(Likely::Right) => 1.0,
            Some(Likely::Wrong) => 0.0,
            None => 0.5,
        }),
        (None, None) => None,
    }
}

/// An answer's score, under both of its types.
fn scored(outline: &Outline, score: f64) -> [Past; 2] {
    let kinds = [CHAT, outline.question_type.as_str()];
    kinds.map(|kind| Past { model: outline.model.clone(), kind: kind.to_owned(), score })
}

/// Chooses among the installed models that write texts, without those already chosen, and says why.
fn best(app: &App, past: &[Past], kind: &str, taken: &[String], seed: u64) -> anyhow::Result<String> {
    let role = |name: &str| app.store.catalog().about(name).map(|model| model.role);
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
    app.progress.note(&format!("{PREFIX}{kind} is {}: {}", choice.model, choice.reason));
    Ok(choice.model)
}

fn seed_of(record: &TaskRecord) -> u64 {
    folded(record.id.as_bytes())
}

fn folded(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}
