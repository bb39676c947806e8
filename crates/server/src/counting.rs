//! Counts the tokens of a prompt.

use std::sync::Arc;

use hone_protocol::{GenerateError, GenerateRequest, Generation, GenerationEvent, Message, Prompt, Query, Role};

use crate::Shared;
use crate::error::ApiError;
use crate::threads::apart;

/// The number of tokens in the prompt for a question. The model is loaded if necessary: the question is asked, and
/// withdrawn as soon as its prompt is tokenized.
///
/// # Errors
/// When the model is not installed, or could not be asked.
pub(crate) async fn prompt_tokens(shared: &Arc<Shared>, query: Query) -> Result<usize, ApiError> {
    shared.check_model(&query.model)?;
    let room = shared.take_room()?;
    let generator = Arc::clone(&shared.parts.generator);
    let counted = apart(move || {
        let _room = room;
        count(&Generation::start(&*generator, request(query)))
    });
    Ok(counted.await??)
}

/// The first generation request for a question.
pub(crate) fn request(query: Query) -> GenerateRequest {
    let mut messages = query.history;
    messages.push(Message::new(Role::User, query.query));
    messages.extend(query.options.turns_after);
    GenerateRequest {
        teaches_tools: !query.options.tools.is_empty(),
        tools: query.options.tools,
        thinking: query.options.thinking,
        ..GenerateRequest::new(query.model, Prompt::Chat(messages))
    }
}

/// Waits for the start of a generation, and returns the number of its prompt tokens.
fn count(generation: &Generation) -> Result<usize, GenerateError> {
    loop {
        match generation.events().recv() {
            Ok(GenerationEvent::Started { prompt_token_ids, .. }) => return Ok(prompt_token_ids.len()),
            Ok(GenerationEvent::Failed(error)) => return Err(error),
            Ok(_) => {}
            Err(_) => return Err(GenerateError::Stopped),
        }
    }
}
