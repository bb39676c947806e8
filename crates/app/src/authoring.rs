//! Writes the work on tasks with the engine's models.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use hone_agents::AnswerText;
use hone_protocol::{FinishReason, Generate, GenerateError, GenerateRequest, Generation, Tool};
use hone_work::{Author, Written};

use crate::App;
use crate::models::GgufFacts;

/// Interval for checking whether a slow answer is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// The context length of an installed model (prompt and answer), in tokens; `None` if its file does not state it.
///
/// # Errors
/// When it is unknown, cannot be downloaded, or its file cannot be read.
pub fn context_tokens(app: &App, model: &str) -> anyhow::Result<Option<usize>> {
    app.installed(model)?;
    let trained = GgufFacts::read(&app.model_file(model)?)?.context_length;
    let trained = trained.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    Ok(app.config.engine.options.model.context_length.into_iter().chain(trained).min())
}

/// The models of an engine as authors.
pub struct EngineAuthor {
    generator: Arc<dyn Generate>,
    /// The known models and their context lengths, in tokens.
    context_tokens: HashMap<String, usize>,
}

impl EngineAuthor {
    /// The models of `generator`. `context_tokens` has their context lengths (prompt and answer), in tokens.
    pub fn new(generator: Arc<dyn Generate>, context_tokens: HashMap<String, usize>) -> EngineAuthor {
        EngineAuthor { generator, context_tokens }
    }
}

impl Author for EngineAuthor {
    fn context_tokens(&self, agent: &str) -> Option<usize> {
        self.context_tokens.get(agent).copied()
    }

    fn write(
        &self,
        requests: Vec<GenerateRequest>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Written>>, GenerateError> {
        let start = |request: GenerateRequest| {
            // A constrained answer calls no tools, whatever it quotes.
            let tools = if request.constraint.is_some() { Vec::new() } else { request.tools.clone() };
            (Generation::start(&*self.generator, request), tools)
        };
        let started: Vec<(Generation, Vec<Tool>)> = requests.into_iter().map(start).collect();
        started.iter().map(|(generation, tools)| complete(generation, tools, is_cancelled)).collect()
    }
}

fn complete(
    generation: &Generation,
    tools: &[Tool],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Written>, GenerateError> {
    let mut answer = AnswerText::with_tools(tools);
    loop {
        match generation.events().recv_timeout(LOOK) {
            Ok(event) => {
                if answer.take(event)? {
                    let finish_reason = answer.finish_reason.unwrap_or(FinishReason::Stop);
                    let (text, calls) = (format!("{}\n", answer.text()), answer.calls().to_vec());
                    return Ok(Some(Written { text, has_reasoned: answer.has_reasoned(), calls, finish_reason }));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(GenerateError::Stopped),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_cancelled() {
            return Ok(None);
        }
    }
}
