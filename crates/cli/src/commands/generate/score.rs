//! `hone generate --score`: how likely texts are after their prefixes.

use std::path::Path;

use anyhow::Context;
use hone_app::Listening;
use hone_app::decisions::identity_of;
use hone_app::judging::UnansweredLines;
use hone_app::judging::lines::PIPE;
use hone_engine::gguf::Gguf;
use hone_engine::{EncodeOptions, Tokenizer};
use hone_protocol::{Completion, Generate, GenerateRequest, Generation, LogprobOptions, Prompt, TokenLogprobs};
use serde_json::{Map, Value, json};

use crate::arguments::GenerateArguments;
use crate::commands::lines::conclude;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// Texts that are scored at once.
const BATCH: usize = 16;

/// The keys of a score.
const KEYS: [&str; 3] = ["logprob", "tokens", "is_greedy"];

/// The keys of a score with their values, or the error that prevented it.
type Score = anyhow::Result<Map<String, Value>>;

/// A text and its prefix.
struct Text {
    prefix: String,
    text: String,
}

/// Scores the texts.
pub(super) fn run(app: &Invocation, arguments: &GenerateArguments) -> anyhow::Result<Outcome> {
    let (input, output) = arguments.lines.files().unwrap_or((Path::new(PIPE), Path::new(PIPE)));
    let model = &app.config.engine.model;
    app.installed(model)?;
    let lines = UnansweredLines::open(input, output, &KEYS, &json!(identity_of(app, model)), text)?;
    let file = app.model_file(model)?;
    let read = || Ok::<_, anyhow::Error>(Tokenizer::from_gguf(&Gguf::open_region(&file)?)?);
    let tokenizer = read().with_context(|| format!("cannot read the tokenizer of {model:?}"))?;
    let interrupt = interrupt::install()?;
    let listening = interrupt.listen();
    let generator = app.generator()?;
    let steps = Steps::new(app.output, "texts");
    let answer = |texts: &[Text]| scored(&*generator, model, &tokenizer, &listening, texts);
    let answered = lines.answer(BATCH, &steps, answer, |line| app.output.print_json(line));
    steps.clear();
    conclude(app, answered?, output, arguments.json.json)
}

fn text(line: &Map<String, Value>) -> Result<Text, String> {
    let string = |key: &str| match line.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("has {other} as {key:?}, expected a text")),
    };
    let (prefix, text) = (string("prefix")?, string("text")?);
    match text.is_empty() {
        true if line.contains_key("text") => Err("has an empty \"text\"".to_owned()),
        true => Err("has no \"text\"".to_owned()),
        false => Ok(Text { prefix, text }),
    }
}

/// The scores of several texts; `None` if the user stopped it.
fn scored(
    generator: &dyn Generate,
    model: &str,
    tokenizer: &Tokenizer,
    listening: &Listening<'_>,
    texts: &[Text],
) -> anyhow::Result<Option<Vec<Score>>> {
    let is_pressed = || !listening.pressed().is_empty();
    let mut started = Vec::with_capacity(texts.len());
    for text in texts {
        let (tokens, n_before) = text.tokens(tokenizer)?;
        let request = GenerateRequest {
            max_tokens: Some(0),
            logprobs: LogprobOptions { top: Some(1), of_prompt: true, ..LogprobOptions::default() },
            ..GenerateRequest::new(model, Prompt::Tokens(tokens))
        };
        started.push((Generation::start(generator, request), n_before));
    }
    let mut found = Vec::with_capacity(texts.len());
    for (generation, n_before) in started {
        let completion = generation.complete_unless(&is_pressed);
        if completion.is_err() && is_pressed() {
            return Ok(None);
        }
        found.push(completion.map(|completion| score(&completion, n_before)).map_err(Into::into));
    }
    Ok(Some(found))
}

impl Text {
    /// The tokens of both together, and the number of those in the prefix alone.
    fn tokens(&self, tokenizer: &Tokenizer) -> anyhow::Result<(Vec<u32>, usize)> {
        let options = EncodeOptions { parse_special: false, add_special: true };
        let whole = format!("{}{}", self.prefix, self.text);
        let mut tokens = tokenizer.encode(&whole, options)?;
        // Only the text itself is scored, without an end token or a space that the tokenizer adds in front.
        while tokens.last().is_some_and(|last| tokenizer.is_control(*last)) {
            tokens.pop();
        }
        let n_bytes = |token: &u32| if tokenizer.is_control(*token) { 0 } else { tokenizer.token_bytes(*token).len() };
        let n_added = tokens.iter().map(n_bytes).sum::<usize>().saturating_sub(whole.len());
        let ends = tokens.iter().scan(0, |end, token| {
            *end += n_bytes(token);
            Some(*end)
        });
        // A token that begins in the prefix and ends in the text is one of the text's.
        let mut n_before =
            ends.take_while(|end| *end <= self.prefix.len() + n_added * usize::from(!self.prefix.is_empty())).count();
        if n_before == 0 {
            // Something has to predict the first token.
            tokens.splice(0..0, tokenizer.bos().or(tokenizer.eos()));
            n_before = tokens.len().min(1);
        }
        Ok((tokens, n_before))
    }
}

/// The score of the tokens from `n_before` on.
fn score(completion: &Completion, n_before: usize) -> Map<String, Value> {
    let of_text = &completion.prompt_logprobs[n_before.saturating_sub(1).min(completion.prompt_logprobs.len())..];
    let is_likeliest = |token: &TokenLogprobs| token.top.first().is_some_and(|top| top.id == token.id);
    let values = [
        json!(of_text.iter().map(|token| f64::from(token.logprob)).fold(0.0, std::ops::Add::add)),
        json!(of_text.len()),
        json!(of_text.iter().all(is_likeliest)),
    ];
    KEYS.into_iter().map(str::to_owned).zip(values).collect()
}
