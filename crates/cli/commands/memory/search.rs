//! `hone memory search`: answers to similar questions, best first.

use anyhow::Context;
use hone_agents::text_to_embed;
use hone_memory::{Engram, Filters, MemoryStore};
use hone_protocol::{Embed, RecalledEngram};

use super::describe::{Line, print_lines};
use crate::app::App;
use crate::arguments::MemorySearchArguments;
use crate::describe::on_one_line;
use crate::failure::Outcome;
use crate::terminal::progress::Steps;

/// The most vectors that a search computes before it answers; a chat computes more of them in the background.
const MOST_MADE: usize = 200;

/// Vectors computed at once.
const MADE_AT_ONCE: usize = 8;

pub(super) fn run(app: &App, store: &MemoryStore, arguments: &MemorySearchArguments) -> anyhow::Result<Outcome> {
    let embedder = app.embedder()?;
    let vectors = embedder.embed(&[&arguments.query])?;
    let vector = vectors.first().context("the embedding model gave no vector")?;
    let filters = Filters { min_similarity: arguments.min_similarity, ..arguments.filters.filters() };
    let mut found = store.search(vector, arguments.n, &filters)?;
    // The search has determined which vectors are missing.
    if make_lacking_vectors(app, store, &*embedder)? {
        found = store.search(vector, arguments.n, &filters)?;
    }
    if arguments.json.json {
        app.output.print_json(&found)?;
        return Ok(Outcome::Done);
    }
    if found.is_empty() {
        app.output.note("nothing similar is remembered");
    }
    let lines = found.into_iter().map(|recalled| line(store, recalled)).collect::<anyhow::Result<_>>()?;
    print_lines(app, store, lines)?;
    Ok(Outcome::Done)
}

/// Computes the missing vectors, if they are few; otherwise says how many answers cannot be found.
fn make_lacking_vectors(app: &App, store: &MemoryStore, embedder: &dyn Embed) -> anyhow::Result<bool> {
    let model = &app.config.memory.embedder;
    let lacking = store.engrams_without_vector(model, MOST_MADE + 1)?;
    if lacking.len() > MOST_MADE {
        let n_lacking = store.statistics()?.without_vector(model);
        app.output.note(&format!(
            "{n_lacking} answers have no vector of {model} yet and cannot be found: a chat computes them while it is idle"
        ));
    } else if !lacking.is_empty() {
        app.output.note(&format!("computing {model} vectors for {} answers that lack them", lacking.len()));
        if let Err(error) = make_vectors(app, store, embedder, &lacking) {
            app.output.note(&format!("some answers cannot be found: {error:#}"));
        }
        return Ok(true);
    }
    Ok(false)
}

fn make_vectors(app: &App, store: &MemoryStore, embedder: &dyn Embed, lacking: &[Engram]) -> anyhow::Result<()> {
    let mut steps = Steps::new(app.output, "answers");
    for (n_done, engrams) in (0..).step_by(MADE_AT_ONCE).zip(lacking.chunks(MADE_AT_ONCE)) {
        steps.show(n_done, lacking.len(), "");
        let texts: Vec<String> = engrams.iter().map(|engram| text_to_embed(&engram.query, &engram.answer)).collect();
        let vectors = embedder.embed(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (engram, vector) in engrams.iter().zip(vectors) {
            store.set_vector(engram.query_id, vector)?;
        }
    }
    steps.clear();
    Ok(())
}

fn line(store: &MemoryStore, recalled: RecalledEngram) -> anyhow::Result<Line> {
    let grade = store.get(recalled.query_id)?.and_then(|engram| engram.grade);
    let number = |number: f32| format!("{number:.3}");
    Ok(Line {
        query_id: recalled.query_id,
        score: recalled.score,
        judging: grade.map(|grade| grade.judging),
        cells: vec![number(recalled.relevance), number(recalled.similarity), on_one_line(&recalled.query)],
    })
}
