//! `hone memory list`: answers, latest first.

use hone_app::describe::{moment, on_one_line};
use hone_memory::{Engram, EngramKind, MemoryStore};

use super::describe::{EngramLine, print_lines};
use crate::arguments::MemoryListArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

pub(super) fn run(app: &Invocation, store: &MemoryStore, arguments: &MemoryListArguments) -> anyhow::Result<Outcome> {
    let n = if arguments.n == 0 { usize::MAX } else { arguments.n };
    let engrams = store.list(&arguments.filters.filters(), n)?;
    if arguments.json.json {
        app.output.print_json(&engrams)?;
        return Ok(Outcome::Done);
    }
    if engrams.is_empty() {
        app.output.note("no remembered answer matches these filters");
    }
    print_lines(app, store, engrams.into_iter().map(line).collect())?;
    Ok(Outcome::Done)
}

fn line(engram: Engram) -> EngramLine {
    let respondent = engram.respondent_id.to_string();
    let text = match engram.kind {
        EngramKind::Episodic => on_one_line(&engram.query),
        kind => format!("[{}] {}", kind.name(), on_one_line(&engram.query)),
    };
    EngramLine {
        query_id: engram.query_id,
        grade: engram.grade,
        cells: vec![moment(engram.at), respondent, engram.model, text],
    }
}
