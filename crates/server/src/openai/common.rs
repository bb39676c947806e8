//! The fields that chat and completion requests share.

use std::collections::BTreeMap;

use hone_protocol::{AnswerOptions, Query, SamplingOptions, SecondAnswer};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::Shared;
use crate::error::ApiError;
use crate::requests::or_default;
use crate::sampling::{Samplers, Stop, TokenLimit};

/// Maximum number of answers to one request.
const MOST_CHOICES: usize = 16;

/// The shared fields. Unknown keys are ignored: clients send many.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenAiCommon)]
pub(super) struct Common {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    pub(super) stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub(super) max_tokens: Option<TokenLimit>,
    #[serde(flatten)]
    samplers: Samplers,
    #[serde(default)]
    logit_bias: Option<BTreeMap<String, f32>>,
    #[serde(default)]
    n: Option<usize>,
    #[serde(default)]
    stop: Option<Stop>,
    /// A llama.cpp grammar, which is refused.
    #[serde(default)]
    grammar: Option<Value>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenAiStreamOptions)]
struct StreamOptions {
    #[serde(default, deserialize_with = "or_default")]
    #[schema(nullable)]
    include_usage: bool,
}

/// The defaults for a request.
pub(super) struct Defaults<'a> {
    pub(super) model: String,
    pub(super) sampling: &'a SamplingOptions,
}

impl Defaults<'_> {
    pub(super) fn of(shared: &Shared) -> Defaults<'_> {
        Defaults { model: shared.parts.models.default_name(), sampling: &shared.parts.sampling }
    }
}

impl Common {
    /// Whether a stream ends with the usage.
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// The question without its text.
    ///
    /// # Errors
    /// When a value is out of range.
    pub(super) fn query(self, defaults: Defaults<'_>) -> Result<Query, ApiError> {
        if self.grammar.as_ref().is_some_and(|grammar| grammar.as_str() != Some("")) {
            return Err(ApiError::bad_request("grammar is not supported: use response_format").about("grammar"));
        }
        let sampling = self.sampling(defaults.sampling)?;
        let model = if self.model.is_empty() { defaults.model } else { self.model };
        Ok(Query {
            sampling,
            max_tokens: self.max_tokens.and_then(TokenLimit::tokens),
            stop: self.stop.map(Stop::texts).unwrap_or_default(),
            options: AnswerOptions { is_of_client: true, second: SecondAnswer::Unwanted, ..AnswerOptions::default() },
            ..Query::new("", model)
        })
    }

    /// The number of answers wanted.
    ///
    /// # Errors
    /// When the number is out of range.
    pub(super) fn n_choices(&self) -> Result<u64, ApiError> {
        match self.n.unwrap_or(1) {
            n @ 1..=MOST_CHOICES => Ok(n as u64),
            n => Err(ApiError::bad_request(format!("n is {n}: it must be 1 to {MOST_CHOICES}")).about("n")),
        }
    }

    fn sampling(&self, defaults: &SamplingOptions) -> Result<SamplingOptions, ApiError> {
        let id = |text: &String| {
            text.parse().map_err(|_| {
                ApiError::bad_request(format!("logit_bias names {text:?}, which is no token id")).about("logit_bias")
            })
        };
        let biases = self.logit_bias.iter().flatten().map(|(text, bias)| Ok((id(text)?, *bias)));
        let logit_bias = biases.collect::<Result<_, ApiError>>()?;
        self.samplers.options(&SamplingOptions { logit_bias, ..defaults.clone() })
    }
}

/// The questions for several answers to one: their seeds differ, so that sampled answers differ.
pub(super) fn several(query: &Query, n: u64) -> impl Iterator<Item = Query> {
    (0..n).map(|number| {
        let mut query = query.clone();
        query.sampling.seed = query.sampling.seed.map(|seed| seed.wrapping_add(number));
        query
    })
}
