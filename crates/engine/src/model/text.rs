//! Converts between text and a model's tokens.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hone_protocol::Prompt;

use super::{ModelError, check_vocabulary};
use crate::constraint::{ConstraintError, ConstraintFactory};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::heads::is_reward_model;
use crate::template::{ChatTemplate, TemplateError, TemplateHost};
use crate::tokenizer::Tokenizer;

/// A model's tokenizer, its chat template, and its constraints on answers: everything needed to prepare a request. It
/// is immutable, so requests can be prepared while the model works on others.
pub(crate) struct ModelText {
    tokenizer: Arc<Tokenizer>,
    template: Result<ChatTemplate, TemplateError>,
    constraints: OnceLock<ConstraintFactory>,
    /// Held while the constraints are being built.
    building: Mutex<()>,
    vocab_size: usize,
    context_length: usize,
    gives_rewards: bool,
}

impl ModelText {
    pub(super) fn from_gguf(
        gguf: &Gguf,
        spec: &DecoderSpec,
        context_length: usize,
        templates: &TemplateHost,
    ) -> Result<Self, ModelError> {
        let tokenizer = Tokenizer::from_gguf(gguf)?;
        check_vocabulary(&tokenizer, spec)?;
        Ok(ModelText {
            template: ChatTemplate::from_gguf(gguf, &tokenizer, templates),
            tokenizer: Arc::new(tokenizer),
            constraints: OnceLock::new(),
            building: Mutex::new(()),
            vocab_size: spec.vocab_size,
            context_length,
            gives_rewards: is_reward_model(gguf),
        })
    }

    /// The model's tokenizer.
    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// When the file has no usable template: the model can continue text, but cannot chat.
    pub(crate) fn template(&self) -> Result<&ChatTemplate, &TemplateError> {
        self.template.as_ref()
    }

    /// Whether preparing a prompt may take as long as a chat template is allowed to.
    pub(crate) fn may_take_long(&self, prompt: &Prompt) -> bool {
        matches!(prompt, Prompt::Chat(_)) && self.template().is_ok_and(ChatTemplate::may_take_long)
    }

    /// Makes constraints over the model's vocabulary; built on first use.
    ///
    /// # Errors
    /// When the vocabulary cannot be constrained.
    pub(crate) fn constraints(&self) -> Result<&ConstraintFactory, ConstraintError> {
        if let Some(factory) = self.constraints.get() {
            return Ok(factory);
        }
        let _alone = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let factory = match self.constraints.get() {
            Some(factory) => return Ok(factory),
            None => ConstraintFactory::new(&self.tokenizer)?,
        };
        Ok(self.constraints.get_or_init(|| factory))
    }

    /// Whether the model rates answers instead of giving them.
    pub(crate) fn gives_rewards(&self) -> bool {
        self.gives_rewards
    }

    /// Number of logits per row: every token id is below this.
    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Positions that a sequence can have.
    pub(crate) fn context_length(&self) -> usize {
        self.context_length
    }
}
