//! `hone import`: models that other programs on this machine have fetched.

use anyhow::bail;
use hone_app::describe::bytes;
use hone_engine::check_file;
use hone_models::{Found, Places, Program, Pulled, find_elsewhere};
use hone_protocol::with_causes;
use serde::Serialize;

use super::pulled::{check_runs, report};
use crate::arguments::ImportArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::progress::Transfers;

/// Lists the models of other programs, or makes one available.
///
/// # Errors
/// When the model is not there, is not clearly named, or cannot be run or linked.
pub(crate) fn run(app: &Invocation, arguments: &ImportArguments) -> anyhow::Result<Outcome> {
    let program = arguments.from.map(Program::from);
    match &arguments.model {
        Some(model) => {
            let pulled = adopt(app, model, program, arguments.name.as_deref())?;
            report(app, &pulled, arguments.json.json)?;
        }
        None => list(app, program, arguments.json.json)?,
    }
    Ok(Outcome::Done)
}

/// Makes another program's model available here.
///
/// # Errors
/// See [`run`].
pub(super) fn adopt(
    app: &Invocation,
    model: &str,
    program: Option<Program>,
    name: Option<&str>,
) -> anyhow::Result<Pulled> {
    let all = find(program);
    let exactly: Vec<&Found> = all.iter().filter(|found| found.name.eq_ignore_ascii_case(model)).collect();
    let called = if exactly.len() == 1 { exactly } else { all.iter().filter(|found| found.is_called(model)).collect() };
    let found = match called[..] {
        [found] => found,
        [] => bail!("{}", missing(model, program)),
        _ => {
            let names: Vec<String> = called.iter().map(|found| described(found)).collect();
            bail!("`{model}` may be {}: write the whole name, or choose with --from", names.join(" or "));
        }
    };
    if found.obstacle.is_none() {
        check_runs(app, &found.file, &found.name)?;
    }
    let mut transfers = Transfers::new(app.output);
    Ok(app.store.adopt(found, name, &mut |event| transfers.show(event))?)
}

fn find(program: Option<Program>) -> Vec<Found> {
    let mut all = find_elsewhere(&Places::from_environment());
    all.retain(|found| program.is_none_or(|program| found.program == program));
    all
}

fn missing(model: &str, program: Option<Program>) -> String {
    let places = Places::from_environment();
    let programs = program.map_or(Program::ALL.to_vec(), |program| vec![program]);
    let looked: Vec<String> =
        programs.iter().flat_map(|one| places.of(*one)).map(|at| at.display().to_string()).collect();
    format!("no program has fetched a model `{model}`: `hone import` lists what is in {}", looked.join(", "))
}

fn described(found: &Found) -> String {
    format!("{} of {}", found.name, found.program.name())
}

/// A model of another program, as JSON.
#[derive(Debug, Serialize)]
struct JsonFound<'a> {
    program: &'static str,
    name: &'a str,
    size: u64,
    path: String,
    /// Why hone cannot run it.
    problem: Option<String>,
}

fn list(app: &Invocation, program: Option<Program>, as_json: bool) -> anyhow::Result<()> {
    let all = find(program);
    let host = hone_app::workers::templates::host()?;
    let models: Vec<JsonFound<'_>> = all
        .iter()
        .map(|found| JsonFound {
            program: found.program.name(),
            name: &found.name,
            size: found.file.size(),
            path: found.file.path.display().to_string(),
            problem: found
                .obstacle
                .clone()
                .or_else(|| check_file(&found.file, &host).err().map(|error| with_causes(&error))),
        })
        .collect();
    if as_json {
        app.output.print_json(&models)?;
        return Ok(());
    }
    if models.is_empty() {
        app.output.note("no model of Ollama, LM Studio, llama.cpp or the hub's tools was found on this machine");
        return Ok(());
    }
    let rows = models.iter().map(|model| {
        let runs = model.problem.as_ref().map_or("yes".to_owned(), |problem| format!("no: {problem}"));
        vec![model.program.to_owned(), model.name.to_owned(), bytes(model.size), runs]
    });
    app.output.print_titled(&["program", "name", "size", "runs"], rows)?;
    app.output.note("`hone import NAME` makes one available here without copying it");
    Ok(())
}
