//! `hone config`: every key with its effective value and its source, changes of the user's files, and the agents' state
//! machines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use hone_app::config::{Config, Entry, Places, Source, description, editing};
use hone_app::describe::on_one_line;
use serde::Serialize;

use crate::arguments::{ConfigArguments, ConfigChange, ConfigCommand};
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::Output;

/// Prints the configuration, or the requested part.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &ConfigArguments) -> anyhow::Result<Outcome> {
    let (entries, json) = (app.config.entries(), arguments.json.json);
    match &arguments.command {
        Some(ConfigCommand::Get(get)) => print_value(&app.config, &get.key, get.json.json, app.output)?,
        Some(ConfigCommand::Grep(grep)) => print_matching(&app.config, &grep.text, grep.json.json, app.output)?,
        _ if arguments.agents => print_agents(json, app.output)?,
        _ if json => app.output.print_json(entries)?,
        _ => app.output.print_table(&entries.iter().map(|(key, entry)| row(key, entry)).collect::<Vec<_>>())?,
    }
    Ok(Outcome::Done)
}

/// Changes the user's files, even if they are not valid.
///
/// # Errors
/// When the key or its value is not valid, or a file cannot be written.
pub(crate) fn change(change: &ConfigChange, places: &Places, output: Output) -> anyhow::Result<Outcome> {
    match change {
        ConfigChange::Set(set) => tell_set(&set.key, &editing::set(places, &set.key, &set.value)?, places, output)?,
        ConfigChange::Unset(unset) => match editing::unset(places, &unset.key)? {
            Some(file) => output.note(&format!("{} is removed from {}", unset.key, file.display())),
            None => output.note(&format!("{} is not set in your configuration files", unset.key)),
        },
    }
    Ok(Outcome::Done)
}

/// Says where a key was written, and what overrides it there.
fn tell_set(key: &str, file: &Path, places: &Places, output: Output) -> anyhow::Result<()> {
    output.note(&format!("written to {}", file.display()));
    let config = match Config::load(places, None, Vec::new()) {
        Ok((config, _)) => config,
        Err(error) => {
            output.note(&format!("the configuration is still not valid: {error:#}"));
            return Ok(());
        }
    };
    let Some(entry) = config.entries().get(key) else { return Ok(()) };
    output.print_table(&[row(key, entry)])?;
    if !matches!(&entry.source, Source::File(_)) {
        output.note(&format!("{} overrides the file", entry.source));
    }
    Ok(())
}

fn row(key: &str, entry: &Entry) -> Vec<String> {
    vec![key.to_owned(), on_one_line(&entry.value.to_string()), entry.source.to_string()]
}

/// Prints the value of a key: a string without quotes, as scripts want it, or with `--json` the value and its source.
fn print_value(config: &Config, key: &str, json: bool, output: Output) -> anyhow::Result<()> {
    let key = config.known(key)?;
    let entry = config.entries().get(&*key).with_context(|| format!("{key} is not set"))?;
    match (json, entry.value.as_str()) {
        (true, _) => output.print_json(entry),
        (false, Some(text)) => output.print_line(text),
        (false, None) => output.print_line(&entry.value.to_string()),
    }
}

/// A key as `hone config grep --json` prints it.
#[derive(Serialize)]
struct Described<'a> {
    key: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
    description: String,
}

fn print_matching(config: &Config, text: &str, json: bool, output: Output) -> anyhow::Result<()> {
    let wanted = text.to_lowercase();
    let described = config.entries().iter().map(|(key, entry)| Described { key, entry, description: description(key) });
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let found: Vec<Described<'_>> =
        described.filter(|it| has(it.key) || has(&it.description) || has(&it.entry.value.to_string())).collect();
    if json {
        return output.print_json(&found);
    }
    if found.is_empty() {
        output.note(&format!("no key has {text:?} in its name, its value or its description"));
    }
    for Described { key, entry, description } in found {
        output.print_line(&row(key, entry).join("  "))?;
        output.print_prose(&format!("    {description}"))?;
    }
    Ok(())
}

/// Prints each agent's states and transitions.
fn print_agents(json: bool, output: Output) -> anyhow::Result<()> {
    let diagrams: BTreeMap<&str, String> =
        hone_agents::tables().iter().map(|table| (table.agent, table.mermaid())).collect();
    if json {
        return output.print_json(&diagrams);
    }
    for (agent, diagram) in diagrams {
        output.print_line(&format!("# {agent}\n\n```mermaid\n{diagram}```\n"))?;
    }
    Ok(())
}
