//! `hone memory search`: answers to questions like one, best first.

use anyhow::Context;
use hone_memory::{Filters, MemoryStore};
use hone_protocol::RecalledEngram;

use super::describe::{Line, print_lines};
use crate::app::App;
use crate::arguments::MemorySearchArguments;
use crate::describe::on_one_line;
use crate::failure::Outcome;

pub(super) fn run(app: &App, store: &MemoryStore, arguments: &MemorySearchArguments) -> anyhow::Result<Outcome> {
    let vectors = app.embedder()?.embed(&[&arguments.query])?;
    let vector = vectors.first().context("the embedding model gave no vector")?;
    let filters = Filters { min_similarity: arguments.min_similarity, ..arguments.filters.filters() };
    let found = store.search(vector, arguments.n, &filters)?;
    if arguments.json.json {
        app.output.print_json(&found)?;
        return Ok(Outcome::Done);
    }
    if found.is_empty() {
        app.output.note("nothing like it is remembered");
    }
    let lines = found.into_iter().map(|recalled| line(store, recalled)).collect::<anyhow::Result<_>>()?;
    print_lines(app, store, lines)?;
    Ok(Outcome::Done)
}

fn line(store: &MemoryStore, recalled: RecalledEngram) -> anyhow::Result<Line> {
    let grade = store.get(recalled.query_id)?.and_then(|engram| engram.grade);
    let number = |number: f32| format!("{number:.3}");
    Ok(Line {
        query_id: recalled.query_id,
        score: recalled.score,
        self_graded: grade.is_some_and(|grade| grade.judging.self_graded),
        cells: vec![number(recalled.relevance), number(recalled.similarity), on_one_line(&recalled.query)],
    })
}
