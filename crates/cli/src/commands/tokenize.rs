//! `hone tokenize`: converts the text on stdin to token ids, or back.

use anyhow::Context;
use hone_engine::gguf::Gguf;
use hone_engine::{EncodeOptions, Tokenizer};

use super::generate::read_stdin;
use crate::arguments::TokenizeArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Prints ids, or with `--decode` the text of the ids on stdin.
///
/// # Errors
/// When the model has no supported tokenizer, or stdin is not valid.
pub(crate) fn run(app: &Invocation, arguments: &TokenizeArguments) -> anyhow::Result<Outcome> {
    let name = &app.config.engine.model;
    let model = app.model_file(name)?;
    let read = || Ok::<_, anyhow::Error>(Tokenizer::from_gguf(&Gguf::open_region(&model)?)?);
    let tokenizer = read().with_context(|| format!("cannot read the tokenizer of {name:?}"))?;
    let input = read_stdin()?;
    if arguments.decode {
        decode(app, &tokenizer, &input, arguments)
    } else {
        encode(app, &tokenizer, &input, arguments)
    }
}

fn encode(
    app: &Invocation,
    tokenizer: &Tokenizer,
    text: &str,
    arguments: &TokenizeArguments,
) -> anyhow::Result<Outcome> {
    let options = EncodeOptions { parse_special: arguments.parse_special, add_special: !arguments.no_bos };
    let tokens = tokenizer.encode(text, options)?;
    if arguments.json.json {
        app.output.print_json(&tokens)?;
    } else {
        app.output.print_line(&tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?;
    }
    Ok(Outcome::Done)
}

fn decode(
    app: &Invocation,
    tokenizer: &Tokenizer,
    input: &str,
    arguments: &TokenizeArguments,
) -> anyhow::Result<Outcome> {
    let tokens = parse_ids(input, tokenizer.n_tokens())?;
    let text = tokenizer.decode(&tokens, true);
    if arguments.json.json {
        app.output.print_json(&text)?;
    } else {
        app.output.print_piece(&text)?;
    }
    Ok(Outcome::Done)
}

/// Parses ids separated by spaces, commas, line breaks and brackets, as `hone tokenize` prints them with and without
/// `--json`.
fn parse_ids(input: &str, n_tokens: usize) -> anyhow::Result<Vec<u32>> {
    let words = input.split(|character: char| character.is_whitespace() || "[],".contains(character));
    let id = |word: &str| match word.parse::<u32>() {
        Ok(id) if (id as usize) < n_tokens => Ok(id),
        Ok(id) => Err(usage(format!("token id {id} is not in the vocabulary of {n_tokens}"))),
        Err(_) => Err(usage(format!("{word:?} is not a token id: stdin must hold numbers"))),
    };
    words.filter(|word| !word.is_empty()).map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_printed() {
        for input in ["1 2 3", "[1,2,3]", "1\n2\n3\n", " [1, 2, 3] "] {
            assert_eq!(parse_ids(input, 4).unwrap(), [1, 2, 3], "{input:?}");
        }
        assert_eq!(parse_ids("", 4).unwrap(), [] as [u32; 0]);
        assert!(parse_ids("4", 4).unwrap_err().to_string().contains("vocabulary of 4"));
        assert!(parse_ids("-1", 4).unwrap_err().to_string().contains("\"-1\""));
    }
}
