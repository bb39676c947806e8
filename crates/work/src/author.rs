//! The interface for generating text. The caller implements it, since it has access to the engine and to the models'
//! tool-call formats.

use hone_protocol::{FinishReason, GenerateError, GenerateRequest, ToolCall};

/// Generates text with models.
pub trait Author: Send + Sync {
    /// The model's context size in tokens, prompt and answer together; `None` if unknown.
    fn context_tokens(&self, agent: &str) -> Option<usize>;

    /// The answers to requests, computed together; `None` after `is_cancelled` returns true.
    ///
    /// # Errors
    /// When the model fails.
    fn write(
        &self,
        requests: Vec<GenerateRequest>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Written>>, GenerateError>;
}

/// A model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text, without the reasoning before it and without calls.
    pub text: String,
    /// Whether the model reasoned before it.
    pub has_reasoned: bool,
    /// The tool calls after the text.
    pub calls: Vec<ToolCall>,
    /// The reason why it ended.
    pub finish_reason: FinishReason,
}

impl Written {
    /// Why it was truncated, if it was.
    pub(crate) fn cut(&self) -> Option<FinishReason> {
        Some(self.finish_reason).filter(|reason| !reason.is_complete())
    }
}
