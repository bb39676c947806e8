//! Prompts that the model alone computes, as they are: token ids, and texts whose own log-probabilities are requested.
//! They are not questions, so they are neither graded nor remembered.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response as HttpResponse};
use futures_util::stream::iter;
use hone_app::models::ModelText;
use hone_protocol::{
    Completion, Generate, GenerateError, GenerateRequest, Generation, LogprobOptions, Prompt, Query, QueryId, Timestamp,
};
use serde_json::{Value, json};

use super::choices::Streaming;
use super::logprobs::{EchoedPrompt, of_echoed_text};
use crate::answering::was_cut;
use crate::clients::Client;
use crate::error::ApiError;
use crate::{Shared, streams};

/// Maximum number of a request's prompts computed concurrently; each takes a place among the questions in progress.
const MOST_AT_ONCE: usize = 16;

/// The prompts to compute, and the options.
pub(super) struct Scoring {
    /// The prompts.
    pub(super) prompts: Vec<Prompt>,
    /// The options for each continuation; the query's text does not matter.
    pub(super) query: Query,
    /// The number of continuations of each prompt.
    pub(super) n: usize,
    /// Whether a choice begins with its prompt.
    pub(super) echo: bool,
}

impl Scoring {
    /// Computes the prompts and answers the request. A stream has one event for all choices.
    ///
    /// # Errors
    /// When the model is not installed, there is no room, or a prompt cannot be computed.
    pub(super) async fn respond(
        self,
        shared: &Arc<Shared>,
        client: Client,
        stream: Streaming,
    ) -> Result<HttpResponse, ApiError> {
        shared.check_model(&self.query.model)?;
        if self.n > 1 && self.is_scored() {
            return Err(ApiError::bad_request("a prompt has one score: with echo and logprobs, n must be 1").about("n"));
        }
        let slot = stream.is_on.then(|| shared.streams.take(client)).transpose()?;
        let text = match self.echo {
            true => {
                let name = self.query.model.clone();
                Some(shared.on_models(move |models| models.text(&name)).await?)
            }
            false => None,
        };
        let requests = self.requests(client, shared.parts.max_tokens);
        let whole = completed(shared, requests, move |completions| self.object(text.as_deref(), completions)).await?;
        let Some(slot) = slot else { return Ok(Json(whole).into_response()) };
        let mut choices = whole.clone();
        choices.as_object_mut().into_iter().for_each(|fields| drop(fields.remove("usage")));
        let mut events = vec![choices];
        if stream.include_usage {
            let mut usage = whole;
            usage["choices"] = json!([]);
            events.push(usage);
        }
        let texts: Vec<String> = events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect();
        Ok(streams::events(slot, iter(texts)).into_response())
    }

    /// Whether the log-probabilities of the prompts are requested.
    fn is_scored(&self) -> bool {
        self.echo && self.query.options.logprobs.is_some()
    }

    fn requests(&self, client: Client, most_tokens: Option<usize>) -> Vec<GenerateRequest> {
        let query = &self.query;
        let (top, of_prompt) = (query.options.logprobs, self.is_scored());
        let request = |(prompt, number): (&Prompt, usize)| {
            let mut sampling = query.sampling.clone();
            sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(number as u64));
            GenerateRequest {
                sampling,
                max_tokens: query.max_tokens.or(most_tokens),
                stop: query.stop.clone(),
                logprobs: LogprobOptions { top, of_prompt, ..LogprobOptions::default() },
                owner: client.owner(),
                ..GenerateRequest::new(query.model.clone(), prompt.clone())
            }
        };
        self.prompts.iter().flat_map(|prompt| (0..self.n).map(move |number| (prompt, number))).map(request).collect()
    }

    fn object(&self, text: Option<&ModelText>, completions: &[Completion]) -> Result<Value, ApiError> {
        let choices: Result<Vec<Value>, ApiError> =
            completions.iter().enumerate().map(|(index, completion)| self.choice(index, text, completion)).collect();
        let generated: usize = completions.iter().map(|completion| completion.token_ids.len()).sum();
        // The continuations of a prompt share it.
        let prompts = || completions.iter().step_by(self.n);
        let prompt: usize = prompts().map(|completion| completion.prompt_token_ids.len()).sum();
        let cached: usize = prompts().map(|completion| completion.timings.cached_tokens).sum();
        Ok(json!({
            "id": format!("cmpl-{}", QueryId::fresh()),
            "object": "text_completion",
            "created": Timestamp::now().0 / 1000,
            "model": self.query.model,
            "choices": choices?,
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": generated,
                "total_tokens": prompt + generated,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }))
    }

    fn choice(&self, index: usize, text: Option<&ModelText>, completion: &Completion) -> Result<Value, ApiError> {
        let echoed = match (&self.prompts[index / self.n], text) {
            (_, None) => String::new(),
            (Prompt::Text { text, .. }, Some(_)) => text.clone(),
            (_, Some(text)) => text.text(&completion.prompt_token_ids)?,
        };
        let first = text.zip(completion.prompt_token_ids.first());
        let first = first.map(|(text, id)| text.piece(*id));
        let logprobs = self.query.options.logprobs.map(|_| {
            let of_prompt = EchoedPrompt { text: &echoed, first, rest: &completion.prompt_logprobs };
            of_echoed_text(&of_prompt, &completion.logprobs)
        });
        Ok(json!({
            "index": index,
            "text": echoed + &completion.text,
            "logprobs": logprobs,
            "finish_reason": if was_cut(completion.finish_reason) { "length" } else { "stop" },
        }))
    }
}

/// Computes the requests, several at a time, and makes a response of the results. The work ends early if the client is
/// gone or the server stops.
async fn completed(
    shared: &Arc<Shared>,
    requests: Vec<GenerateRequest>,
    respond: impl FnOnce(&[Completion]) -> Result<Value, ApiError> + Send + 'static,
) -> Result<Value, ApiError> {
    let n_at_once = requests.len().clamp(1, MOST_AT_ONCE);
    let work = move |generator: &dyn Generate, is_over: &dyn Fn() -> bool| {
        let mut completions = Vec::with_capacity(requests.len());
        for batch in requests.chunks(n_at_once) {
            completions.extend(complete(generator, batch, is_over)?);
        }
        respond(&completions)
    };
    shared.generated(n_at_once, work).await
}

fn complete(
    generator: &dyn Generate,
    requests: &[GenerateRequest],
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Completion>, GenerateError> {
    let generations: Vec<Generation> =
        requests.iter().map(|request| Generation::start(generator, request.clone())).collect();
    generations.into_iter().map(|generation| generation.complete_unless(is_over)).collect()
}
