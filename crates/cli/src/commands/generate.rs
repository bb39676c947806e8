//! `hone generate`: continues the text on stdin, byte for byte, for scripts.

mod score;

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use hone_app::answering::{CONTEXT_FULL, REPEATS};
use hone_protocol::{
    Completion, Constraint, FinishReason, GenerateError, GenerateRequest, Generation, GenerationEvent, LogprobOptions,
    Message, Prompt, Role,
};

use crate::arguments::GenerateArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::terminal::progress::Loading;

/// Reads the prompt and prints the model's continuation.
///
/// # Errors
/// When the prompt cannot be read, or the model cannot be run.
pub(crate) fn run(app: &Invocation, arguments: &GenerateArguments) -> anyhow::Result<Outcome> {
    if arguments.score {
        return score::run(app, arguments);
    }
    if arguments.lines.input.is_some() {
        return Err(usage("--input holds texts to score: give --score with it"));
    }
    let request = request(app, arguments)?;
    app.obtain(&request.model)?;
    // This handle outlives the answer, because an engine ends with its last handle.
    let generator = app.generator()?;
    let generation = generator.generate(request)?;
    let prints_text = !arguments.json.json && arguments.logprobs.is_none();
    let completion = completion(app.output, &generation, prints_text)?;
    if arguments.json.json {
        app.output.print_json(&completion)?;
    } else if arguments.logprobs.is_some() {
        app.output.print_titled(&["token", "logprob", "likeliest"], logprob_rows(&completion))?;
    }
    Ok(ending(app.output, &completion, arguments.is_constrained()))
}

/// Says that the text was cut, which leaves a constraint unmet.
fn ending(output: Output, completion: &Completion, is_constrained: bool) -> Outcome {
    let is_cut = matches!(completion.finish_reason, Some(FinishReason::Length | FinishReason::ContextFull));
    match completion.finish_reason {
        Some(FinishReason::ContextFull) => output.note(CONTEXT_FULL),
        Some(FinishReason::Repetition) => output.note(REPEATS),
        _ => {}
    }
    if !(is_cut && is_constrained) {
        return Outcome::Done;
    }
    let n_tokens = completion.timings.generation_tokens;
    output.error(&format!(
        "the text was cut after {n_tokens} tokens, before it met the constraint: --max-tokens allows more (0: no limit)"
    ));
    Outcome::Failed
}

/// A row for each token: its text, its log-probability, and the likeliest tokens with theirs.
fn logprob_rows(completion: &Completion) -> impl Iterator<Item = Vec<String>> + '_ {
    completion.logprobs.iter().map(|row| {
        let likeliest = row.top.iter().map(|token| format!("{:?} {:.3}", token.text, token.logprob));
        let likeliest = likeliest.collect::<Vec<_>>().join("  ");
        vec![format!("{:?}", row.text), format!("{:.3}", row.logprob), likeliest]
    })
}

fn request(app: &Invocation, arguments: &GenerateArguments) -> anyhow::Result<GenerateRequest> {
    let sampling = &app.config.sampling;
    Ok(GenerateRequest {
        sampling: sampling.options(),
        max_tokens: sampling.max_tokens,
        stop: sampling.stop.clone(),
        thinking: sampling.thinking(),
        constraint: constraint(arguments)?,
        completes_json: true,
        logprobs: LogprobOptions { top: arguments.logprobs, named: Vec::new(), state: false, of_prompt: false },
        ..GenerateRequest::new(app.config.engine.model.clone(), prompt(arguments)?)
    })
}

fn prompt(arguments: &GenerateArguments) -> anyhow::Result<Prompt> {
    let text = read_stdin()?;
    if arguments.raw {
        let (parse_special, add_special) = (arguments.parse_special, !arguments.no_bos);
        return Ok(Prompt::Text { text, parse_special, add_special });
    }
    if text.trim().is_empty() {
        return Err(usage("stdin holds no prompt: give one there"));
    }
    Ok(Prompt::Chat(vec![Message::new(Role::User, text)]))
}

/// All of stdin, unchanged.
///
/// # Errors
/// When it cannot be read, or is not UTF-8.
pub(super) fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("cannot read stdin")?;
    String::from_utf8(bytes).map_err(|error| usage(format!("stdin is not UTF-8 text: {}", error.utf8_error())))
}

fn constraint(arguments: &GenerateArguments) -> anyhow::Result<Option<Constraint>> {
    if let Some(file) = &arguments.schema {
        return Ok(Some(Constraint::JsonSchema(read_schema(file)?)));
    }
    if let Some(regex) = &arguments.regex {
        return Ok(Some(Constraint::Regex(regex.clone())));
    }
    Ok((!arguments.choice.is_empty()).then(|| Constraint::Choice(arguments.choice.clone())))
}

fn read_schema(file: &Path) -> anyhow::Result<serde_json::Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the schema {}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| usage(format!("the schema {} is not JSON: {error}", file.display())))
}

/// The completion, whose text is printed as it arrives if `prints_text`.
fn completion(output: Output, generation: &Generation, prints_text: bool) -> anyhow::Result<Completion> {
    let mut completion = Completion::default();
    let mut loading = Some(Loading::begin(output));
    for event in generation.events() {
        match &event {
            GenerationEvent::Loading { done, total } => loading.iter_mut().for_each(|bar| bar.show(*done, *total)),
            GenerationEvent::Token { text, .. } | GenerationEvent::Finished { text, .. } if prints_text => {
                loading = None;
                output.print_piece(text)?;
            }
            _ => loading = None,
        }
        if completion.take(event)? {
            return Ok(completion);
        }
    }
    Err(GenerateError::Stopped.into())
}
