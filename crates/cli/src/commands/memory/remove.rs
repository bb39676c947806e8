//! `hone memory rm`: forgets answers.

use hone_memory::{MemoryStore, Update};
use hone_protocol::QueryId;
use serde::Serialize;

use crate::arguments::MemoryRmArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// The output of `--json` for each answer.
#[derive(Serialize)]
struct JsonRemoved {
    query_id: QueryId,
    removed: bool,
}

pub(super) fn run(app: &Invocation, store: &MemoryStore, arguments: &MemoryRmArguments) -> anyhow::Result<Outcome> {
    // Nothing is removed unless every id is valid.
    let mut ids = arguments.ids.iter().map(|id| store.resolve(id)).collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    let updates = store.remove(&ids)?;
    let removed = ids.into_iter().zip(updates);
    let removed: Vec<JsonRemoved> =
        removed.map(|(query_id, update)| JsonRemoved { query_id, removed: update == Update::Merged }).collect();
    if arguments.json.json {
        app.output.print_json(&removed)?;
        return Ok(Outcome::Done);
    }
    let is_any_removed = removed.iter().any(|answer| answer.removed);
    for JsonRemoved { query_id, removed } in removed {
        let end = if removed { "is forgotten" } else { "was forgotten already" };
        app.output.print_line(&format!("{query_id} {end}"))?;
    }
    if is_any_removed {
        let place = match app.config.memory.database() {
            Some(_) => "the database".to_owned(),
            None => app.conversations_folder().display().to_string(),
        };
        app.output.note(&format!(
            "the event log still shows that there was an answer, but not its text; saved conversations are \
             unchanged, in {place}"
        ));
    }
    Ok(Outcome::Done)
}
