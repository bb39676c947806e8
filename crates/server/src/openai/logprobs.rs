//! Log-probabilities in OpenAI's format.

use hone_protocol::TokenLogprobs;
use serde_json::{Map, Value, json};

/// Maximum number of likeliest tokens listed with a token.
pub(super) const MOST_TOP: usize = 20;

/// The log-probabilities of a chat.
pub(super) fn of_chat(tokens: &[TokenLogprobs]) -> Value {
    let token = |token: &TokenLogprobs| {
        let mut object = one(&token.text, token.logprob);
        if !token.bytes.is_empty() {
            object.insert("bytes".to_owned(), json!(token.bytes));
        }
        let top = token.top.iter().map(|top| Value::Object(one(&top.text, top.logprob))).collect();
        object.insert("top_logprobs".to_owned(), Value::Array(top));
        object
    };
    json!({"content": tokens.iter().map(token).collect::<Vec<_>>(), "refusal": null})
}

/// A prompt at the beginning of a text.
pub(super) struct EchoedPrompt<'a> {
    /// The prompt as in the text, without the tokenizer's additions.
    pub(super) text: &'a str,
    /// The bytes of its first token, which nothing predicts.
    pub(super) first: Option<&'a [u8]>,
    /// Its other tokens.
    pub(super) rest: &'a [TokenLogprobs],
}

/// The log-probabilities of a text that begins with its prompt.
pub(super) fn of_echoed_text(prompt: &EchoedPrompt<'_>, answer: &[TokenLogprobs]) -> Value {
    let first = prompt.first.map(|bytes| TokenLogprobs {
        text: String::from_utf8_lossy(bytes).into_owned(),
        bytes: bytes.to_vec(),
        ..TokenLogprobs::default()
    });
    let has_first = first.is_some();
    let of_prompt: Vec<TokenLogprobs> = first.into_iter().chain(prompt.rest.iter().cloned()).collect();
    let n_characters: usize = of_prompt.iter().map(|token| n_begun(bytes_of(token))).sum();
    let surplus = n_characters.saturating_sub(prompt.text.chars().count());
    let tokens: Vec<TokenLogprobs> = of_prompt.into_iter().chain(answer.iter().cloned()).collect();
    let mut written = of_text(&tokens, 0);
    // Tokens that the tokenizer adds before the text take no place in it.
    for offset in written["text_offset"].as_array_mut().into_iter().flatten() {
        *offset = json!(offset.as_u64().unwrap_or_default().saturating_sub(surplus as u64));
    }
    if has_first {
        written["token_logprobs"][0] = Value::Null;
        written["top_logprobs"][0] = Value::Null;
    }
    written
}

/// The log-probabilities of a completion that begins at the character `start` of the whole text.
pub(super) fn of_text(tokens: &[TokenLogprobs], start: usize) -> Value {
    let mut offset = start;
    let offsets: Vec<usize> = tokens
        .iter()
        .map(|token| {
            let bytes = bytes_of(token);
            // A token that goes on with a character is at its place.
            let begins_before = bytes.first().is_some_and(|first| !begins_character(*first));
            let place = offset - usize::from(begins_before && offset > start);
            offset += n_begun(bytes);
            place
        })
        .collect();
    // Of partial characters with the same text, the likelier one counts.
    let likeliest = |token: &TokenLogprobs| {
        token.top.iter().rev().map(|top| (top.text.clone(), json!(top.logprob))).collect::<Map<_, _>>()
    };
    json!({
        "tokens": tokens.iter().map(|token| &token.text).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(likeliest).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

fn bytes_of(token: &TokenLogprobs) -> &[u8] {
    if token.bytes.is_empty() { token.text.as_bytes() } else { &token.bytes }
}

/// The number of characters that begin in these bytes of a text in UTF-8.
fn n_begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins_character(**byte)).count()
}

fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

fn one(text: &str, logprob: f32) -> Map<String, Value> {
    // The bytes of a partial character are unknown.
    let bytes = (!text.contains('\u{fffd}')).then_some(text.as_bytes());
    let fields = [("token", json!(text)), ("logprob", json!(logprob)), ("bytes", json!(bytes))];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use hone_protocol::TokenLogprob;

    use super::*;

    fn tokens() -> Vec<TokenLogprobs> {
        let token = |text: &str, logprob: f32| TokenLogprobs {
            id: 1,
            text: text.to_owned(),
            logprob,
            top: vec![TokenLogprob { id: 2, logprob: -0.5, text: "é".to_owned() }],
            ..TokenLogprobs::default()
        };
        vec![token("né", -1.0), token("\u{fffd}", -2.0)]
    }

    #[test]
    fn tokens_of_a_chat_have_their_bytes() {
        let written = of_chat(&tokens());
        let first = &written["content"][0];
        assert_eq!((&first["token"], &first["bytes"]), (&json!("né"), &json!([110, 195, 169])));
        assert_eq!(first["top_logprobs"][0], json!({"token": "é", "logprob": -0.5, "bytes": [195, 169]}));
        assert_eq!(written["content"][1]["bytes"], Value::Null);
    }

    #[test]
    fn tokens_of_a_text_have_their_places() {
        let written = of_text(&tokens(), 3);
        assert_eq!(written["text_offset"], json!([3, 5]));
        assert_eq!(written["token_logprobs"], json!([-1.0, -2.0]));
        assert_eq!(written["top_logprobs"][1], json!({"é": -0.5}));
        let echo = |text, first| {
            let rest = &tokens()[..1];
            of_echoed_text(&EchoedPrompt { text, first: Some(str::as_bytes(first)), rest }, &tokens()[1..])
        };
        let echoed = echo("aéné", "aé");
        assert_eq!(echoed["tokens"], json!(["aé", "né", "\u{fffd}"]));
        assert_eq!(echoed["token_logprobs"], json!([null, -1.0, -2.0]));
        assert_eq!((&echoed["top_logprobs"][0], &echoed["text_offset"]), (&Value::Null, &json!([0, 2, 4])));
        assert_eq!(echo("né", "<s>")["text_offset"], json!([0, 0, 2]), "the tokenizer adds the first token");

        let part = |bytes: &[u8]| TokenLogprobs {
            text: String::from_utf8_lossy(bytes).into_owned(),
            bytes: bytes.to_vec(),
            ..TokenLogprobs::default()
        };
        let split =
            [part(b"h"), part(&[0xf0, 0x9f]), part(&[0x99, 0x82]), part(&[0xc3]), part(&[0xbc, b'!']), part(b"?")];
        assert_eq!(of_text(&split, 0)["text_offset"], json!([0, 1, 1, 2, 2, 4]), "characters of several tokens");
        assert_eq!(of_chat(&split)["content"][1]["bytes"], json!([0xf0, 0x9f]));
    }
}
