//! `hone rerank`: texts in the order in which they fit a query.

use std::path::Path;

use anyhow::Context;
use hone_protocol::{Relevance, Rerank};
use serde::Serialize;
use serde_json::{Map, Value};

use super::generate::read_stdin;
use super::texts::Text;
use crate::arguments::RerankArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// Texts that are scored at once.
const BATCH: usize = 16;

/// The keys added to an object.
const KEYS: [&str; 6] = ["index", "score", "outputs", "tokens", "is_cut", "labels"];

/// Maximum number of characters of a text in a table.
const MOST_SHOWN: usize = 100;

/// A text and how well it fits, as JSON.
#[derive(Serialize)]
struct JsonRanked<'a> {
    /// The keys in addition to the text.
    #[serde(flatten)]
    others: &'a Map<String, Value>,
    /// Its place in the input.
    index: usize,
    #[serde(flatten)]
    relevance: &'a Relevance,
    labels: &'a [String],
    text: &'a str,
}

/// Scores the texts, and prints them from the best to the worst.
///
/// # Errors
/// When the texts cannot be read, or the model is not installed or scores no texts.
pub(crate) fn run(app: &Invocation, arguments: &RerankArguments) -> anyhow::Result<Outcome> {
    let texts = match &arguments.documents {
        Some(file) => read(file)?,
        None => arguments.texts.iter().cloned().map(Text::plain).collect(),
    };
    let reranker = app.reranker(&arguments.model)?;
    let labels = reranker.labels()?;
    let scored = scored(app, &reranker, &arguments.query, &texts)?;
    let n_cut = scored.iter().filter(|relevance| relevance.is_cut).count();
    let mut ranked: Vec<(usize, (Text, Relevance))> = texts.into_iter().zip(scored).enumerate().collect();
    ranked.sort_by(|(_, (_, one)), (_, (_, other))| other.score.total_cmp(&one.score));
    ranked.truncate(arguments.top.map_or(usize::MAX, |top| top as usize));
    match arguments.json {
        true => {
            for (index, (Text { text, others }, relevance)) in &ranked {
                app.output.print_json(&JsonRanked { others, index: *index, relevance, labels: &labels, text })?;
            }
        }
        false => {
            let rows =
                ranked.iter().map(|(_, (text, relevance))| vec![format!("{:.4}", relevance.score), shown(&text.text)]);
            app.output.print_table(&rows.collect::<Vec<_>>())?;
        }
    }
    if n_cut > 0 {
        app.output.note(&format!("{n_cut} of the texts are longer than the model reads: only their beginnings count"));
    }
    Ok(Outcome::Done)
}

fn scored(app: &Invocation, reranker: &dyn Rerank, query: &str, texts: &[Text]) -> anyhow::Result<Vec<Relevance>> {
    let steps = Steps::new(app.output, "texts");
    let mut scored = Vec::with_capacity(texts.len());
    for batch in texts.chunks(BATCH) {
        let batch: Vec<&str> = batch.iter().map(|text| text.text.as_str()).collect();
        scored.extend(reranker.rerank(query, &batch, &|| false)?);
        steps.show(scored.len(), texts.len(), "");
    }
    steps.clear();
    Ok(scored)
}

/// The lines of a file of texts.
fn read(file: &Path) -> anyhow::Result<Vec<Text>> {
    let (content, source) = if file == Path::new("-") {
        (read_stdin()?, "stdin".to_owned())
    } else {
        let source = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {source}"))?;
        (String::from_utf8(bytes).map_err(|_| usage(format!("{source} is not UTF-8 text")))?, source)
    };
    let content = content.trim_start_matches('\u{feff}');
    let lines = (1..).zip(content.lines()).filter(|(_, line)| !line.trim().is_empty());
    let mut texts = lines.map(|(number, line)| Text::of_json(&source, number, line)).collect::<Result<Vec<_>, _>>()?;
    // The output has its own values for these keys.
    texts.iter_mut().for_each(|text| text.others.retain(|key, _| !KEYS.contains(&key.as_str())));
    if texts.is_empty() { Err(usage(format!("{source} has no texts"))) } else { Ok(texts) }
}

/// The beginning of a text, on one line.
fn shown(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}
