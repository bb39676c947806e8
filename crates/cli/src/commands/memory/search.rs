//! `hone memory search`: answers that are similar to a question in meaning, or hold its words, best first.

use hone_app::describe::on_one_line;
use hone_memory::{Engram, Filters, Matching, MemoryStore, RecallQuestion, Whose};
use hone_protocol::{Embed, RecalledEngram};

use super::describe::{EngramLine, print_lines};
use crate::arguments::MemorySearchArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// Maximum number of vectors that a search computes before it answers; a chat computes more of them in the background.
const MOST_MADE: usize = 200;

/// Vectors computed at once.
const MADE_AT_ONCE: usize = 8;

pub(super) fn run(app: &Invocation, store: &MemoryStore, arguments: &MemorySearchArguments) -> anyhow::Result<Outcome> {
    let embedder = app.embedder()?;
    let matching = app.config.memory.settings.matching(&arguments.query);
    let question = RecallQuestion {
        text: arguments.query.clone(),
        vector: embedder.embed_query(&arguments.query)?,
        known: Vec::new(),
        matching: Matching { threshold: -1.0, nearness: 0.0, least_words: 0.0, ..matching.clone() },
        keeps_all: true,
    };
    let filters = Filters { min_similarity: arguments.min_similarity, ..arguments.filters.filters() };
    let mut found = store.recall(question.clone(), arguments.n, &filters)?;
    // The search has determined which vectors are missing.
    if make_lacking_vectors(app, store, &*embedder)? {
        found = store.recall(question, arguments.n, &filters)?;
    }
    if arguments.json.json {
        app.output.print_json(&found)?;
        return Ok(Outcome::Done);
    }
    if let Some(note) = note_on(&found, &matching) {
        app.output.note(&note);
    }
    let lines = found.into_iter().map(|recalled| line(store, recalled)).collect::<anyhow::Result<_>>()?;
    print_lines(app, store, lines)?;
    Ok(Outcome::Done)
}

/// A note on results that a chat would not recall.
fn note_on(found: &[RecalledEngram], matching: &Matching) -> Option<String> {
    let is_similar = |recalled: &RecalledEngram| {
        let is_near = recalled.similarity >= matching.threshold && recalled.words >= matching.least_words;
        is_near || recalled.words >= matching.words_threshold
    };
    match found {
        [] => Some("nothing similar is remembered".to_owned()),
        found if found.iter().any(is_similar) => None,
        _ => Some(format!(
            "nothing is similar enough for a chat to recall it, which takes a similarity of {:.2}; these are the closest",
            matching.threshold
        )),
    }
}

/// Computes the missing vectors, if they are few; otherwise says how many answers cannot be found.
pub(in crate::commands) fn make_lacking_vectors(
    app: &Invocation,
    store: &MemoryStore,
    embedder: &dyn Embed,
) -> anyhow::Result<bool> {
    let model = &app.config.memory.embedder;
    let lacking = store.engrams_without_vector(model, MOST_MADE + 1)?;
    if lacking.len() > MOST_MADE {
        let n_lacking = store.statistics(Whose::Everyones)?.without_vector(model);
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

fn make_vectors(app: &Invocation, store: &MemoryStore, embedder: &dyn Embed, lacking: &[Engram]) -> anyhow::Result<()> {
    let steps = Steps::new(app.output, "answers");
    for (n_done, engrams) in (0..).step_by(MADE_AT_ONCE).zip(lacking.chunks(MADE_AT_ONCE)) {
        steps.show(n_done, lacking.len(), "");
        let texts: Vec<String> = engrams.iter().map(Engram::text).collect();
        let vectors = embedder.embed(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (engram, vector) in engrams.iter().zip(vectors) {
            store.set_vector(engram.query_id, vector)?;
        }
    }
    steps.clear();
    Ok(())
}

fn line(store: &MemoryStore, recalled: RecalledEngram) -> anyhow::Result<EngramLine> {
    let grade = store.get(recalled.query_id)?.and_then(|engram| engram.grade);
    let (asked, answered) = match recalled.is_fact {
        true => ("stated", String::new()),
        false => ("asked", format!("answered: {}", on_one_line(&recalled.answer))),
    };
    Ok(EngramLine {
        query_id: recalled.query_id,
        grade,
        cells: vec![
            labelled("similarity", recalled.similarity),
            labelled("words", recalled.words),
            labelled("relevance", recalled.relevance),
            format!("{asked}: {}", on_one_line(&recalled.query)),
            answered,
        ],
    })
}

/// A score with its name.
pub(super) fn labelled(name: &str, score: f32) -> String {
    format!("{name} {score:.2}")
}
