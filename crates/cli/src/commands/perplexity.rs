//! `hone perplexity`: how well a model predicts a text.

use anyhow::Context;
use hone_engine::{Perplexity, perplexity};
use serde::Serialize;

use crate::arguments::PerplexityArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// The shortest chunk in which a token is scored.
const LEAST_CONTEXT: usize = 4;

#[derive(Serialize)]
struct JsonPerplexity<'a> {
    model: &'a str,
    perplexity: f64,
    standard_error: f64,
    context: usize,
    chunks: usize,
    scored_tokens: usize,
}

/// Prints the perplexity; the last line is `perplexity = X`.
///
/// # Errors
/// When the text cannot be read, is too short, or the model cannot be run.
pub(crate) fn run(app: &Invocation, arguments: &PerplexityArguments) -> anyhow::Result<Outcome> {
    if arguments.context < LEAST_CONTEXT {
        let context = arguments.context;
        return Err(usage(format!(
            "--context is {context}, expected {LEAST_CONTEXT} or more: a chunk needs that many tokens"
        )));
    }
    let bytes = std::fs::read(&arguments.file).with_context(|| format!("cannot read {}", arguments.file.display()))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8 text", arguments.file.display()))?;
    let mut model = app.load_model(Some(arguments.context))?;
    let steps = Steps::new(app.output, "chunks");
    let result = perplexity(&mut model, &text, arguments.context, |so_far| {
        steps.show(so_far.n_chunks, so_far.total_chunks, &format!("perplexity {:.4}", so_far.value));
    })?;
    steps.clear();
    if arguments.json.json {
        app.output.print_json(&as_json(app, arguments, &result))?
    } else {
        print_text(app, &result)?
    }
    Ok(Outcome::Done)
}

fn as_json<'a>(app: &'a Invocation, arguments: &PerplexityArguments, result: &Perplexity) -> JsonPerplexity<'a> {
    JsonPerplexity {
        model: &app.config.engine.model,
        perplexity: result.value,
        standard_error: result.standard_error,
        context: arguments.context,
        chunks: result.n_chunks,
        scored_tokens: result.n_scored,
    }
}

fn print_text(app: &Invocation, result: &Perplexity) -> anyhow::Result<()> {
    app.output.print_line(&format!("{} tokens scored in {} chunks", result.n_scored, result.n_chunks))?;
    app.output.print_line(&format!("standard error = {:.4}", result.standard_error))?;
    app.output.print_line(&format!("perplexity = {:.4}", result.value))
}
