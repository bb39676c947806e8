//! `/v1/decisions`.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use hone_protocol::{Decision, DecisionKind, DecisionOption, DecisionQuestion, Decisions, Message, Role};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::responses::{Input, turns};
use super::shapes::OpenAiDecision;
use crate::Shared;
use crate::clients::Client;
use crate::decisions::decide;
use crate::error::ApiError;
use crate::requests::{or_default, parsed};

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiDecisionsRequest)]
struct DecisionsRequest {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    input: Input,
    questions: Vec<Question>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schema(as = OpenAiQuestion)]
enum Question {
    Predicate {
        #[serde(default)]
        name: Option<String>,
        instructions: Instructions,
    },
    Choice {
        #[serde(default)]
        name: Option<String>,
        instructions: Instructions,
        choices: Vec<Choice>,
    },
    Score {
        #[serde(default)]
        name: Option<String>,
        instructions: Instructions,
        levels: Vec<Level>,
    },
}

/// A text, or parts of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiInstructions)]
enum Instructions {
    Text(String),
    Parts(Vec<InstructionPart>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = OpenAiInstructionPart)]
enum InstructionPart {
    InputText { text: String },
    InputJson { data: Value },
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiChoice)]
struct Choice {
    value: ChoiceValue,
    #[serde(default)]
    description: Option<String>,
}

/// A string and a boolean with the same text are distinct.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenAiChoiceValue)]
enum ChoiceValue {
    Flag(bool),
    Text(String),
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiLevel)]
struct Level {
    label: String,
    #[serde(default)]
    description: Option<String>,
}

/// Answers questions about an input with probabilities.
#[utoipa::path(
    post,
    path = "/v1/decisions",
    tag = "Decisions",
    request_body = DecisionsRequest,
    responses((status = OK, body = OpenAiDecision), (status = NOT_FOUND))
)]
pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    client: Client,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let DecisionsRequest { model, input, questions } = parsed(body).await?;
    let model = shared.named_or_default(model);
    let state = transcript(turns(&input.items()?)?);
    let asked = questions.iter().map(Question::asked).collect::<Result<Vec<_>, _>>()?;
    let decided = decide(&shared, client, model.clone(), state, asked).await?;
    let decisions = &decided.decisions;
    let answers: Vec<Value> =
        std::iter::zip(&questions, &decisions.answers).map(|(question, decision)| question.answer(decision)).collect();
    Ok(Json(json!({"model": model, "answers": answers, "usage": usage(decisions), "hone": decided.standing()})))
}

/// The turns of a conversation as one text; a single question as is.
fn transcript(mut turns: Vec<Message>) -> String {
    if let [Message { role: Role::User, content, .. }] = turns.as_mut_slice() {
        return std::mem::take(content);
    }
    let said = |turn: Message| {
        let calls = turn.tool_calls.iter().map(|call| format!("(calls {} with {})", call.name, call.arguments));
        let texts: Vec<String> = [turn.content].into_iter().filter(|text| !text.is_empty()).chain(calls).collect();
        let name = match turn.role {
            Role::System => "Instructions",
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => "Tool",
        };
        format!("{name}: {}", texts.join("\n"))
    };
    turns.into_iter().map(said).collect::<Vec<_>>().join("\n\n")
}

fn usage(decisions: &Decisions) -> Value {
    let Decisions { answers, prompt_tokens, cached_tokens } = decisions;
    json!({
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
        "output_tokens": answers.len(),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt_tokens + answers.len(),
    })
}

impl Instructions {
    fn text(&self) -> String {
        match self {
            Instructions::Text(text) => text.clone(),
            Instructions::Parts(parts) => {
                let text = |part: &InstructionPart| match part {
                    InstructionPart::InputText { text } => text.clone(),
                    InstructionPart::InputJson { data } => data.to_string(),
                };
                parts.iter().map(text).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl ChoiceValue {
    fn text(&self) -> String {
        match self {
            ChoiceValue::Flag(flag) => flag.to_string(),
            ChoiceValue::Text(text) => text.clone(),
        }
    }

    fn json(&self) -> Value {
        match self {
            ChoiceValue::Flag(flag) => json!(flag),
            ChoiceValue::Text(text) => json!(text),
        }
    }
}

impl Question {
    /// The question for a model.
    fn asked(&self) -> Result<DecisionQuestion, ApiError> {
        let (instructions, kind) = match self {
            Question::Predicate { instructions, .. } => (instructions, DecisionKind::YesNo { yes: None, no: None }),
            Question::Choice { instructions, choices, .. } => {
                let mut values = HashSet::new();
                if choices.len() <= DecisionKind::MOST_OPTIONS
                    && !choices.iter().all(|choice| values.insert(&choice.value))
                {
                    return Err(ApiError::bad_request("two choices of a question are the same").about("questions"));
                }
                let option = |choice: &Choice| DecisionOption {
                    name: choice.value.text(),
                    description: choice.description.clone(),
                };
                (instructions, DecisionKind::Choice(choices.iter().map(option).collect()))
            }
            Question::Score { instructions, levels, .. } => {
                let level = |level: &Level| match &level.description {
                    None => level.label.clone(),
                    Some(description) => format!("{}: {description}", level.label),
                };
                (instructions, DecisionKind::Score(levels.iter().map(level).collect()))
            }
        };
        Ok(DecisionQuestion { instructions: instructions.text(), kind })
    }

    /// The answer in the API's format.
    fn answer(&self, decision: &Decision) -> Value {
        let probability = |index: usize| decision.probabilities.get(index);
        match self {
            Question::Predicate { name, .. } => {
                json!({"type": "predicate", "name": name, "probability": decision.yes()})
            }
            Question::Choice { name, choices, .. } => {
                let probabilities: Vec<Value> = choices
                    .iter()
                    .enumerate()
                    .map(|(index, choice)| json!({"value": choice.value.json(), "probability": probability(index)}))
                    .collect();
                json!({
                    "type": "choice",
                    "name": name,
                    "choice": choices.get(decision.likeliest()).map(|choice| choice.value.json()),
                    "confidence": decision.confidence(),
                    "probabilities": probabilities,
                })
            }
            Question::Score { name, levels, .. } => {
                let level = |(value, level): (usize, &Level)| json!({"label": level.label, "value": value, "probability": probability(value)});
                let probabilities: Vec<Value> = levels.iter().enumerate().map(level).collect();
                json!({
                    "type": "score",
                    "name": name,
                    "score": decision.score(),
                    "confidence": decision.confidence(),
                    "probabilities": probabilities,
                })
            }
        }
    }
}
