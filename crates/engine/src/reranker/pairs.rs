//! The tokens of a query and a text.

use std::ops::Range;

use hone_protocol::{Message, Role, with_causes};

use crate::gguf::Gguf;
use crate::heads::{CHAT_TEMPLATES, PAIR_TEMPLATE};
use crate::template::{Chat, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// The placeholders of the two in a template.
const QUERY: &str = "{query}";
const TEXT: &str = "{document}";

/// The form in which a query and a text become one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PairForm {
    /// In the placeholders of a template from the file.
    Template(String),
    /// As a question and its answer, in the file's chat template.
    Conversation,
    /// One after the other, with the special tokens that the vocabulary wants.
    Joined,
}

impl PairForm {
    /// The form that a model expects; only a reward model reads conversations.
    ///
    /// # Errors
    /// When the metadata is broken.
    pub(super) fn of(gguf: &Gguf, is_reward_model: bool) -> Result<PairForm, String> {
        let text = |key: &str| gguf.string(key).map_err(|error| with_causes(&error));
        if let Some(template) = text(PAIR_TEMPLATE)? {
            return match template.contains(QUERY) && template.contains(TEXT) {
                true => Ok(PairForm::Template(template.to_owned())),
                false => Err(format!("{PAIR_TEMPLATE} lacks {QUERY} or {TEXT}")),
            };
        }
        for key in CHAT_TEMPLATES {
            if is_reward_model && text(key)?.is_some() {
                return Ok(PairForm::Conversation);
            }
        }
        Ok(PairForm::Joined)
    }
}

/// The form and the tokenizer that turn a query and a text into tokens.
pub(super) struct Pairs<'a> {
    pub(super) form: &'a PairForm,
    pub(super) tokenizer: &'a Tokenizer,
    /// For conversations.
    pub(super) chat: Option<&'a ChatTemplate>,
    /// Maximum number of tokens of a pair.
    pub(super) most: usize,
}

impl Pairs<'_> {
    /// The tokens of a pair, and whether they hold only the beginning of the text.
    ///
    /// # Errors
    /// When the query alone is too long, or the template fails.
    pub(super) fn fitted(&self, query: &str, text: &str) -> Result<(Vec<u32>, bool), String> {
        let mut tokens = self.tokens(query, text)?;
        if tokens.len() <= self.most {
            return if tokens.is_empty() { Err("an empty text has no tokens".to_owned()) } else { Ok((tokens, false)) };
        }
        let n_fixed = self.tokens(query, "")?.len();
        let mut kept = text;
        while tokens.len() > self.most {
            if n_fixed >= self.most || kept.is_empty() {
                return Err(format!(
                    "the query and what surrounds it have {n_fixed} tokens: the model takes {}, with the text",
                    self.most
                ));
            }
            // Tokens of different parts of a text differ in length.
            let share = (self.most - n_fixed) as f64 / (tokens.len() - n_fixed).max(1) as f64;
            let n_bytes = ((kept.len() as f64 * share * 0.99) as usize).min(kept.len() - 1);
            kept = &kept[..kept.floor_char_boundary(n_bytes)];
            tokens = self.tokens(query, kept)?;
        }
        Ok((tokens, true))
    }

    fn tokens(&self, query: &str, text: &str) -> Result<Vec<u32>, String> {
        let failed = |error| with_causes(&error);
        match (self.form, self.chat) {
            (PairForm::Template(template), _) => {
                let (prompt, literal) = filled(template, query, text);
                self.tokenizer.encode_template(&prompt, &literal).map_err(failed)
            }
            (PairForm::Conversation, Some(template)) => {
                let turns = [Message::new(Role::User, query), Message::new(Role::Assistant, text)];
                template.encode_chat(self.tokenizer, Chat::finished(&turns)).map_err(|error| with_causes(&error))
            }
            (PairForm::Conversation | PairForm::Joined, _) => self.tokenizer.encode_pair(query, text).map_err(failed),
        }
    }
}

/// The template with both filled in, and their ranges. The filled-in text stays text, even if it looks like a
/// placeholder.
fn filled(template: &str, query: &str, text: &str) -> (String, Vec<Range<usize>>) {
    let (mut prompt, mut literal, mut rest) = (String::new(), Vec::new(), template);
    loop {
        let places = [(QUERY, query), (TEXT, text)].map(|(place, value)| Some((rest.find(place)?, place, value)));
        let Some((start, place, value)) = places.into_iter().flatten().min_by_key(|(start, ..)| *start) else { break };
        prompt.push_str(&rest[..start]);
        literal.push(prompt.len()..prompt.len() + value.len());
        prompt.push_str(value);
        rest = &rest[start + place.len()..];
    }
    prompt.push_str(rest);
    literal.retain(|range| !range.is_empty());
    (prompt, literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_template_is_text() {
        let check = |query: &str, text: &str, expected: &str, places: &[&str]| {
            let (prompt, literal) = filled("Q {query}\nD {document}.", query, text);
            let found: Vec<&str> = literal.iter().map(|range| &prompt[range.clone()]).collect();
            assert_eq!((prompt.as_str(), found.as_slice()), (expected, places));
        };
        check("one", "two", "Q one\nD two.", &["one", "two"]);
        check("{document}", "{query}", "Q {document}\nD {query}.", &["{document}", "{query}"]);
        check("one", "", "Q one\nD .", &["one"]);
    }
}
