//! Asks a model for an answer in claims that cite numbered passages.

use hone_judging::{FenceKey, fill, neutralized};
use hone_protocol::{
    Constraint, FinishReason, GenerateError, GenerateRequest, Message, Prompt, Role, ThinkingOptions, Timings,
};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::document::Passage;
use super::settings::ResearchSettings;
use crate::notes::ModelWriter;

/// The most characters of a claim.
const MOST_CHARACTERS: usize = 400;
/// The most passages that a claim cites.
const MOST_CITATIONS: usize = 4;

/// The answering model, and its prompts.
#[derive(Clone, Copy)]
pub struct ResearchWriter<'a> {
    /// The model.
    pub writer: &'a ModelWriter<'a>,
    /// The key of the fences around passages.
    pub key: &'a FenceKey,
    /// The fence, with placeholders for `text` and `boundary`.
    pub fence: &'a str,
}

/// The error of a draft.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The model failed.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Its answer was cut off.
    #[error(
        "the model's answer was cut after {tokens} tokens: raise research.max_tokens, or name another model with --model"
    )]
    Cut {
        /// The tokens of the answer.
        tokens: usize,
    },
    /// The person has stopped it.
    #[error("stopped")]
    Stopped,
    /// The answer has another form, which the constraint excludes.
    #[error("the model's answer is not in its form: {0}")]
    Form(#[from] serde_json::Error),
}

/// An answer as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AnswerDraft {
    /// Its claims.
    pub(super) claims: Vec<Claim>,
    /// The number of passages that the model was shown, from the first on.
    pub(super) n_shown: usize,
    /// The cost.
    pub(super) timings: Timings,
}

/// A claim and its citations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Claim {
    /// The claim.
    pub(super) text: String,
    /// Numbers of passages, from 1.
    pub(super) citations: Vec<usize>,
}

#[derive(Deserialize)]
struct SaidClaims {
    claims: Vec<Claim>,
}

/// The model's answer to a question from these passages, or from as many of the first ones as fit into its context.
pub(super) fn draft(
    author: ResearchWriter<'_>,
    settings: &ResearchSettings,
    question: &str,
    passages: &[Passage],
) -> Result<AnswerDraft, AnswerError> {
    let mut n_shown = passages.len();
    let mut timings = Timings::default();
    loop {
        let request = request(author, settings, question, &passages[..n_shown]);
        let completion = match author.writer.complete(request) {
            Err(GenerateError::ContextOverflow { .. }) if n_shown > 1 => {
                n_shown /= 2;
                continue;
            }
            completed => completed?.ok_or(AnswerError::Stopped)?,
        };
        timings.add(&completion.timings);
        match completion.finish_reason {
            Some(FinishReason::ContextFull) if n_shown > 1 => n_shown /= 2,
            Some(reason) if !reason.is_complete() => {
                return Err(AnswerError::Cut { tokens: completion.timings.generation_tokens });
            }
            _ => {
                let SaidClaims { claims } = serde_json::from_str(&completion.text)?;
                return Ok(AnswerDraft { claims, n_shown, timings });
            }
        }
    }
}

fn request(
    author: ResearchWriter<'_>,
    settings: &ResearchSettings,
    question: &str,
    passages: &[Passage],
) -> GenerateRequest {
    let texts: Vec<String> =
        [question].into_iter().chain(passages.iter().map(|passage| passage.text.as_str())).map(neutralized).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (fenced, boundary) = author.key.fenced(author.fence, &texts);
    let numbered = fenced.iter().skip(1).enumerate().map(|(index, text)| format!("[{}]\n{}", index + 1, text.trim()));
    let numbered = numbered.collect::<Vec<_>>().join("\n\n");
    let values = [("question", fenced[0].trim()), ("passages", numbered.as_str()), ("boundary", boundary.as_str())];
    let text = fill(settings.answer_prompt.trim(), &values);
    GenerateRequest {
        sampling: author.writer.sampling.clone(),
        max_tokens: Some(settings.max_tokens),
        constraint: Some(Constraint::JsonSchema(schema(passages.len(), settings.most_claims))),
        thinking: ThinkingOptions { is_on: Some(false), ..ThinkingOptions::default() },
        lane: author.writer.lane,
        ..GenerateRequest::new(&author.writer.model, Prompt::Chat(vec![Message::new(Role::User, text)]))
    }
}

/// The form of an answer from `n_passages` passages. All texts and lists are bounded, so the answer ends.
fn schema(n_passages: usize, most_claims: usize) -> Value {
    let citation = json!({"type": "integer", "enum": (1..=n_passages).collect::<Vec<_>>()});
    let claim = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS},
            "citations": {"type": "array", "items": citation, "maxItems": MOST_CITATIONS},
        },
        "required": ["text", "citations"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {"claims": {"type": "array", "items": claim, "maxItems": most_claims}},
        "required": ["claims"],
        "additionalProperties": false,
    })
}
