//! `hone embed`: texts as vectors, a line each, in the order of the texts.

use std::io::BufRead;

use anyhow::Context;
use hone_protocol::Embed;
use serde_json::json;

use super::texts::Text;
use crate::arguments::EmbedArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Number of texts embedded at once.
const BATCH: usize = 32;

/// Embeds texts. They are printed as they are embedded, so that a pipe of any length works.
///
/// # Errors
/// When stdin cannot be read, a line is malformed, or the model is unavailable.
pub(crate) fn run(app: &Invocation, arguments: &EmbedArguments) -> anyhow::Result<Outcome> {
    app.obtain_embedder()?;
    let embedder = app.embedder()?;
    let mut batch = Vec::with_capacity(BATCH);
    let mut add = |text: Text| -> anyhow::Result<()> {
        batch.push(text);
        if batch.len() < BATCH { Ok(()) } else { print(app, &*embedder, std::mem::take(&mut batch), arguments) }
    };
    if arguments.texts.is_empty() {
        for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
            let line = line.context("cannot read the texts from stdin")?;
            let line = if number == 1 { line.trim_start_matches('\u{feff}').to_owned() } else { line };
            add(if arguments.json_lines { Text::of_json("stdin", number, &line)? } else { Text::plain(line) })?;
        }
    } else {
        arguments.texts.iter().try_for_each(|text| add(Text::plain(text.clone())))?;
    }
    print(app, &*embedder, batch, arguments)?;
    Ok(Outcome::Done)
}

fn print(app: &Invocation, embedder: &dyn Embed, batch: Vec<Text>, arguments: &EmbedArguments) -> anyhow::Result<()> {
    let texts: Vec<&str> = batch.iter().map(|text| text.text.as_str()).collect();
    let vectors = match arguments.query {
        true => texts.iter().map(|text| embedder.embed_query(text)).collect::<Result<Vec<_>, _>>()?,
        false => embedder.embed(&texts)?,
    };
    let lengths = if arguments.json.json { embedder.lengths(&texts)? } else { Vec::new() };
    for (place, (Text { text, others }, vector)) in batch.into_iter().zip(vectors).enumerate() {
        match lengths.get(place) {
            Some(length) => {
                let mut object = others;
                let known = json!({
                    "text": text,
                    "model": embedder.model(),
                    "tokens": length.tokens,
                    "is_cut": length.is_cut,
                    "embedding": vector,
                });
                object.extend(known.as_object().cloned().unwrap_or_default());
                app.output.print_json(&object)?;
            }
            None => {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                app.output.print_line(&numbers.join(" "))?;
            }
        }
    }
    Ok(())
}
