//! Who has models write: the caller's part, as it knows the engine and how models call tools.

use hone_protocol::{FinishReason, GenerateError, GenerateRequest, ToolCall};

/// Has models write.
pub trait Author: Send + Sync {
    /// How many tokens of prompt and answer together a model has room for; `None` if that is not known.
    fn context_tokens(&self, agent: &str) -> Option<usize>;

    /// The answers to requests, which are computed together; `None` once `is_cancelled` says so.
    ///
    /// # Errors
    /// When the model fails.
    fn write(
        &self,
        requests: Vec<GenerateRequest>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Written>>, GenerateError>;
}

/// What a model has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text, without the reasoning before it and without calls.
    pub text: String,
    /// The tools that it calls then.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

impl Written {
    /// Why it was cut, if it was.
    pub(crate) fn cut(&self) -> Option<FinishReason> {
        Some(self.finish_reason).filter(|reason| !reason.is_complete())
    }
}
