//! `hone preset`: named settings for a chat.

use std::path::Path;

use anyhow::Context;
use hone_app::config::{Override, Places, check_preset};
use hone_app::describe::on_one_line;
use hone_app::presets::Presets;
use hone_app::presets::modelfile::Modelfile;
use serde::Serialize;
use toml::{Table, Value};

use crate::arguments::{
    PresetArguments, PresetCommand, PresetCreateArguments, PresetListArguments, PresetNameArguments,
};
use crate::failure::{Outcome, usage};
use crate::terminal::Output;

/// Runs the subcommand.
///
/// # Errors
/// When a preset does not exist, is not valid, or cannot be written.
pub(crate) fn run(arguments: &PresetArguments, places: &Places, output: Output) -> anyhow::Result<Outcome> {
    let presets = Presets::of(places.folder())?;
    match &arguments.command {
        PresetCommand::Create(arguments) => create(&presets, arguments, output)?,
        PresetCommand::List(arguments) => list(&presets, arguments, output)?,
        PresetCommand::Show(arguments) => show(&presets, arguments, output)?,
        PresetCommand::Delete(arguments) => delete(&presets, arguments, output)?,
    }
    Ok(Outcome::Done)
}

fn create(presets: &Presets, arguments: &PresetCreateArguments, output: Output) -> anyhow::Result<()> {
    let mut keys = match &arguments.modelfile {
        Some(path) => read(path, output)?,
        None => Vec::new(),
    };
    for Override { key, value, .. } in arguments.overrides() {
        keys.retain(|(known, _)| known != key);
        keys.push((key.to_owned(), value));
    }
    if keys.is_empty() {
        return Err(usage("a preset needs a setting: --from MODEL, --system TEXT, -f MODELFILE or a flag of sampling"));
    }
    let name = &arguments.name;
    check_preset(name, &keys)?;
    let path = match arguments.force {
        true => Some(presets.replace(name, keys)?),
        false => presets.create(name, keys)?,
    };
    let path = path.with_context(|| format!("a preset {name:?} exists already: --force replaces it"))?;
    if arguments.json.json {
        return output.print_json(&json(presets, name)?);
    }
    output.print_line(&format!("{name} is in {}: `hone chat -p {name}` uses it", path.display()))
}

fn read(path: &Path, output: Output) -> anyhow::Result<Vec<(String, Value)>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let wrong = |wrong| usage(format!("{}: {wrong}", path.display()));
    let text = Modelfile::decode(&bytes).map_err(wrong)?;
    let Modelfile { keys, remarks } = Modelfile::read(&text, folder).map_err(wrong)?;
    remarks.iter().for_each(|remark| output.note(remark));
    Ok(keys)
}

/// The output of `--json` for a preset.
#[derive(Serialize)]
struct JsonPreset {
    name: String,
    settings: Table,
}

fn json(presets: &Presets, name: &str) -> anyhow::Result<JsonPreset> {
    let settings = presets.keys(name)?.into_iter().collect();
    Ok(JsonPreset { name: name.to_owned(), settings })
}

fn list(presets: &Presets, arguments: &PresetListArguments, output: Output) -> anyhow::Result<()> {
    let all = presets.names()?.iter().map(|name| json(presets, name)).collect::<anyhow::Result<Vec<_>>>()?;
    if arguments.json.json {
        return output.print_json(&all);
    }
    if all.is_empty() {
        output.note("there are no presets: `hone preset create NAME --from MODEL` makes one");
        return Ok(());
    }
    let text = |preset: &JsonPreset, key: &str| {
        preset.settings.get(key).and_then(Value::as_str).map(on_one_line).unwrap_or_default()
    };
    let rows =
        all.iter().map(|preset| vec![preset.name.clone(), text(preset, "engine.model"), text(preset, "chat.system")]);
    output.print_titled(&["name", "model", "system"], rows)
}

fn show(presets: &Presets, arguments: &PresetNameArguments, output: Output) -> anyhow::Result<()> {
    match arguments.json.json {
        true => output.print_json(&json(presets, &arguments.name)?),
        false => output.print_piece(&presets.text(&arguments.name)?),
    }
}

fn delete(presets: &Presets, arguments: &PresetNameArguments, output: Output) -> anyhow::Result<()> {
    presets.delete(&arguments.name)?;
    match arguments.json.json {
        true => output.print_json(&[&arguments.name]),
        false => output.print_line(&format!("{} is deleted", arguments.name)),
    }
}
