//! Text embeddings, for the APIs that offer them.

use std::sync::Arc;

use hone_protocol::{Embed, EmbedError, TextLength};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::threads::apart;
use crate::{Shared, failed};

/// Maximum number of texts per request.
const MOST_TEXTS: usize = 2048;
/// Texts per batch; between batches, the work stops if the client is gone.
const BATCH: usize = 64;

/// The texts to embed, and the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) texts: Vec<String>,
    /// Model name; empty selects the default.
    pub(crate) model: String,
    /// The number of dimensions, if fewer than the model's.
    pub(crate) dimensions: Option<usize>,
    /// Whether a text that is too long is truncated; otherwise it is refused.
    pub(crate) truncates: bool,
}

/// Vectors, and their token count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vectors {
    pub(crate) model: String,
    pub(crate) vectors: Vec<Vec<f32>>,
    /// The number of tokens in all texts.
    pub(crate) tokens: usize,
}

impl Texts {
    /// Reads the field `input` of a request: a text, or a list of texts.
    ///
    /// # Errors
    /// When it is anything else.
    pub(crate) fn read(input: Value) -> Result<Vec<String>, ApiError> {
        let texts = match input {
            Value::String(text) => vec![text],
            Value::Array(values) => values.into_iter().map(text).collect::<Result<_, _>>()?,
            other => return Err(invalid_input(format!("input is {}: {EXPECTED}", kind(&other)))),
        };
        match texts.len() {
            0..=MOST_TEXTS => Ok(texts),
            many => Err(invalid_input(format!("input has {many} texts: at most {MOST_TEXTS} are embedded at once"))),
        }
    }

    /// Embeds the texts, taking a place among the questions in progress.
    ///
    /// # Errors
    /// When the model is not installed or not an embedder, a text is too long, or there is no room.
    pub(crate) async fn embed(self, shared: &Shared) -> Result<Vectors, ApiError> {
        let _room = shared.take_room()?;
        let name = self.model.clone();
        let embedder = shared.on_models(move |models| models.embedder()).await?;
        if !name.is_empty() && name != embedder.model() {
            let reason = format!("the model {name:?} does not embed texts here: {:?} does", embedder.model());
            return Err(ApiError::no_such_model(reason));
        }
        let mut vectors = Vectors { model: embedder.model().to_owned(), vectors: Vec::new(), tokens: 0 };
        for batch in self.texts.chunks(BATCH) {
            let turn = shared.embedding_turn().await?;
            let (lengths, computed) = run(&embedder, batch.to_vec(), turn, self.truncates).await?;
            vectors.tokens += lengths.iter().map(|length| length.tokens).sum::<usize>();
            for vector in computed {
                vectors.vectors.push(shortened(vector, self.dimensions)?);
            }
        }
        Ok(vectors)
    }
}

const EXPECTED: &str = "it must be a text or a list of texts";

fn invalid_input(reason: impl Into<String>) -> ApiError {
    ApiError::bad_request(reason).about("input")
}

fn text(value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Array(_) => {
            Err(invalid_input("input is a list of tokens, which are not supported: send the texts"))
        }
        other => Err(invalid_input(format!("input holds {}: {EXPECTED}", kind(&other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Embeds a batch on a thread that may block.
async fn run(
    embedder: &Arc<dyn Embed>,
    texts: Vec<String>,
    turn: OwnedSemaphorePermit,
    truncates: bool,
) -> Result<(Vec<TextLength>, Vec<Vec<f32>>), ApiError> {
    let embedder = Arc::clone(embedder);
    let work = move || {
        // The turn ends with the work, even if no caller waits for it.
        let _turn = turn;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let lengths = embedder.lengths(&texts)?;
        match lengths.iter().find(|length| length.is_cut && !truncates) {
            Some(longest) => Ok(Err(longest.tokens)),
            None => Ok(Ok((lengths, embedder.embed(&texts)?))),
        }
    };
    let computed: Result<_, EmbedError> = apart(work).await?;
    let too_long = |most| invalid_input(format!("a text is longer than the {most} tokens that the model reads"));
    computed.map_err(failed)?.map_err(too_long)
}

/// The first dimensions of a vector, scaled to length 1.
fn shortened(mut vector: Vec<f32>, dimensions: Option<usize>) -> Result<Vec<f32>, ApiError> {
    let all = vector.len();
    match dimensions {
        None => return Ok(vector),
        Some(wanted) if wanted == all => return Ok(vector),
        Some(wanted) if wanted == 0 || wanted > all => {
            let reason = format!("dimensions is {wanted}: the model has 1 to {all}");
            return Err(ApiError::bad_request(reason).about("dimensions"));
        }
        Some(wanted) => vector.truncate(wanted),
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn inputs_are_texts() {
        let check = |input: Value, expected: Result<&[&str], &str>| {
            let read = Texts::read(input).map_err(|error| error.message);
            let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            assert_eq!(read, expected.map_err(str::to_owned));
        };
        let tokens = "input is a list of tokens, which are not supported: send the texts";
        check(json!("a"), Ok(&["a"]));
        check(json!(["a", "b"]), Ok(&["a", "b"]));
        check(json!([]), Ok(&[]));
        check(json!([1, 2]), Err(tokens));
        check(json!([[1, 2]]), Err(tokens));
        check(json!(["a", null]), Err("input holds null: it must be a text or a list of texts"));
        check(json!({}), Err("input is an object: it must be a text or a list of texts"));
        let many = vec!["a"; MOST_TEXTS + 1];
        check(json!(many), Err("input has 2049 texts: at most 2048 are embedded at once"));
    }

    #[test]
    fn a_shortened_vector_has_the_length_1_again() {
        let short = shortened(vec![0.6, 0.0, 0.8], Some(2)).unwrap();
        assert_eq!(short, [1.0, 0.0]);
        assert_eq!(shortened(vec![0.6, 0.8], Some(2)).unwrap(), [0.6, 0.8]);
        assert_eq!(shortened(vec![0.0, 1.0], Some(1)).unwrap(), [0.0]);
        for wrong in [0, 3] {
            let error = shortened(vec![0.6, 0.8], Some(wrong)).unwrap_err();
            assert_eq!(error.message, format!("dimensions is {wrong}: the model has 1 to 2"));
        }
    }
}
