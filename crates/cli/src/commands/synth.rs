//! `hone synth`: writes a model file with a real model's shape and random weights, to measure speed and memory.

use anyhow::Context;
use hone_app::describe::bytes;
use hone_engine::gguf::Gguf;
use hone_engine::synth::{self, Quantization, Shape};
use serde::Serialize;

use crate::arguments::SynthArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// The output of `--json`.
#[derive(Serialize)]
struct JsonSynth {
    path: String,
    size: u64,
    parameters: u64,
}

/// Writes the file.
///
/// # Errors
/// When shape or quantization are unknown, the tokenizer cannot be read, or the file cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &SynthArguments) -> anyhow::Result<Outcome> {
    let shape = Shape::named(&arguments.shape).map_err(|error| usage(error.to_string()))?;
    let context_length = arguments.context.map(usize::try_from).transpose()?.unwrap_or(shape.context_length);
    let shape = Shape { context_length, ..shape };
    let quantization = Quantization::named(&arguments.quant).map_err(|error| usage(error.to_string()))?;
    let tokenizer = arguments.tokenizer.as_ref().unwrap_or(&app.config.engine.model);
    let vocabulary = Gguf::open_region(&app.model_file(tokenizer)?)
        .with_context(|| format!("cannot take the tokenizer from {tokenizer:?}"))?;
    let steps = Steps::new(app.output, "MB");
    let summary =
        synth::write(&shape, quantization, &vocabulary, arguments.seed, &arguments.output, &mut |progress| {
            let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
            steps.show(megabytes(progress.written_bytes), megabytes(progress.total_bytes), "written");
        })?;
    steps.clear();
    if arguments.json.json {
        let path = arguments.output.display().to_string();
        app.output.print_json(&JsonSynth { path, size: summary.n_bytes, parameters: summary.n_parameters })?;
        return Ok(Outcome::Done);
    }
    let millions = summary.n_parameters as f64 / 1e6;
    let size = bytes(summary.n_bytes);
    app.output.print_line(&format!("{}: {millions:.1} million parameters, {size}", arguments.output.display()))?;
    Ok(Outcome::Done)
}
