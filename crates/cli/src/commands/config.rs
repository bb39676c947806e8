//! `hone config`: every key with its effective value and its source; or the agents' state machines.

use std::collections::BTreeMap;

use hone_app::describe::on_one_line;

use crate::arguments::ConfigArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Prints the configuration.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &ConfigArguments) -> anyhow::Result<Outcome> {
    if arguments.agents {
        return print_agents(app, arguments.json.json);
    }
    let entries = app.config.entries();
    if arguments.json.json {
        app.output.print_json(entries)?;
    } else {
        let row = |(key, entry): (&String, &hone_app::config::Entry)| {
            vec![key.clone(), on_one_line(&entry.value.to_string()), entry.source.to_string()]
        };
        app.output.print_table(&entries.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(Outcome::Done)
}

/// Prints each agent's states and transitions.
fn print_agents(app: &Invocation, json: bool) -> anyhow::Result<Outcome> {
    let diagrams: BTreeMap<&str, String> =
        hone_agents::tables().iter().map(|table| (table.agent, table.mermaid())).collect();
    if json {
        app.output.print_json(&diagrams)?;
        return Ok(Outcome::Done);
    }
    for (agent, diagram) in diagrams {
        app.output.print_line(&format!("# {agent}\n\n```mermaid\n{diagram}```\n"))?;
    }
    Ok(Outcome::Done)
}
