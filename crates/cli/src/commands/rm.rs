//! `hone rm`: removes models from the store, and the saved KV caches of conversations.

use std::io::{IsTerminal, stdin};

use anyhow::{Context, bail};
use hone_app::SavedPrefixes;
use hone_app::describe::bytes;
use hone_app::running::{RunningProcess, processes};
use serde::Serialize;

use crate::arguments::RmArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The JSON of each removed model, and finally of the removed caches.
#[derive(Serialize)]
#[serde(untagged)]
enum JsonRemoved<'a> {
    Model { name: &'a str, freed_bytes: u64 },
    KvCache { kv_cache: SavedPrefixes },
}

/// Removes the models, in the order in which they are named, and then the saved caches.
///
/// # Errors
/// At the first that cannot be removed.
pub(crate) fn run(app: &Invocation, arguments: &RmArguments) -> anyhow::Result<Outcome> {
    let mut removed = Vec::new();
    let running = if arguments.force { Vec::new() } else { processes(app.data_folder()) };
    for name in &arguments.names {
        confirm(app, name, &running)?;
        let freed_bytes = app.store.remove(name)?;
        if !arguments.json.json {
            app.output.print_line(&format!("{name} is removed ({} freed)", bytes(freed_bytes)))?;
        }
        removed.push(JsonRemoved::Model { name, freed_bytes });
    }
    if arguments.kv {
        let folder = app.prefix_folder();
        let kv_cache = SavedPrefixes::remove(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        if !arguments.json.json {
            app.output.print_line(&format!("the kept KV cache is removed ({} freed)", bytes(kv_cache.bytes)))?;
        }
        removed.push(JsonRemoved::KvCache { kv_cache });
    }
    if arguments.json.json {
        app.output.print_json(&removed)?;
    }
    Ok(Outcome::Done)
}

/// Asks whether to remove a model used by running processes; without a terminal, refuses.
fn confirm(app: &Invocation, name: &str, running: &[RunningProcess]) -> anyhow::Result<()> {
    let removed = app.store.installed_name(name);
    let uses = |process: &&RunningProcess| {
        process.status.models.iter().any(|model| app.store.installed_name(&model.name) == removed)
    };
    let users: Vec<String> = running
        .iter()
        .filter(uses)
        .map(|process| format!("`hone {}` (process {})", process.command, process.process))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    let users = users.join(" and ");
    if !(stdin().is_terminal() && app.output.stderr_is_terminal) {
        bail!("model `{name}` is used by {users}: stop it first, or use --force to remove the model anyway");
    }
    app.output.note_piece(&format!("model `{name}` is used by {users}. Remove it anyway? [y/N] "));
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => bail!("model `{name}` was not removed"),
    }
}
