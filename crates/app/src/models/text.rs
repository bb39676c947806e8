//! A model's tokenizer, and its chat template for conversations.

use std::sync::Arc;

use hone_engine::gguf::Gguf;
use hone_engine::{Chat, ChatTemplate, EncodeOptions, TemplateHost, Tokenizer};
use hone_protocol::{GenerateRequest, Prompt, with_causes};

use super::ModelError;

/// A model's tokenizer and chat template, without its weights.
#[derive(Debug)]
pub struct ModelText {
    tokenizer: Tokenizer,
    template: Result<ChatTemplate, String>,
}

impl ModelText {
    /// Reads them from an open file; the template will run in `templates`.
    ///
    /// # Errors
    /// When the file has no tokenizer that is supported.
    pub(super) fn of(gguf: &Gguf, templates: &TemplateHost) -> Result<Arc<ModelText>, ModelError> {
        let tokenizer = Tokenizer::from_gguf(gguf).map_err(|error| ModelError::Failed(with_causes(&error)))?;
        let template = ChatTemplate::from_gguf(gguf, &tokenizer, templates).map_err(|error| with_causes(&error));
        Ok(Arc::new(ModelText { tokenizer, template }))
    }

    /// The tokens of a text. `parse_special` replaces the names of control tokens in it by those tokens; `add_special`
    /// adds the tokens that the model expects around a text.
    ///
    /// # Errors
    /// When the text cannot be written in the model's vocabulary.
    pub fn tokens(&self, text: &str, parse_special: bool, add_special: bool) -> Result<Vec<u32>, ModelError> {
        let options = EncodeOptions { parse_special, add_special };
        self.tokenizer.encode(text, options).map_err(|error| ModelError::Invalid(error.to_string()))
    }

    /// The text of tokens, names of control tokens included.
    ///
    /// # Errors
    /// When one of them is not in the vocabulary.
    pub fn text(&self, tokens: &[u32]) -> Result<String, ModelError> {
        let n_tokens = self.tokenizer.n_tokens();
        match tokens.iter().find(|id| **id as usize >= n_tokens) {
            Some(id) => Err(ModelError::Invalid(format!("token id {id} is not in the vocabulary of {n_tokens}"))),
            None => Ok(self.tokenizer.decode(tokens, true)),
        }
    }

    /// The bytes that a token stands for, which may be a part of a character.
    pub fn piece(&self, token: u32) -> &[u8] {
        self.tokenizer.token_bytes(token)
    }

    /// The name of the token that begins a text; empty if there is none.
    pub fn bos(&self) -> String {
        self.name(self.tokenizer.bos())
    }

    /// The name of the token that ends a text; empty if there is none.
    pub fn eos(&self) -> String {
        self.name(self.tokenizer.eos())
    }

    fn name(&self, token: Option<u32>) -> String {
        token.map(|id| self.tokenizer.decode(&[id], true)).unwrap_or_default()
    }

    /// The prompt that the model is shown for a request. It takes as long as the template is allowed to.
    ///
    /// # Errors
    /// When the file has no template, or it refuses the conversation.
    pub fn prompt(&self, request: &GenerateRequest, is_cancelled: &dyn Fn() -> bool) -> Result<String, ModelError> {
        let messages = match &request.prompt {
            Prompt::Chat(messages) => messages,
            Prompt::Text { text, .. } => return Ok(text.clone()),
            Prompt::Tokens(tokens) => return self.text(tokens),
        };
        let template = self.template.as_ref().map_err(|reason| ModelError::Invalid(reason.clone()))?;
        let chat = Chat {
            tools: &request.tools,
            teaches_tools: request.teaches_tools,
            thinking: request.thinking,
            is_cancelled,
            ..Chat::of(messages)
        };
        template.render(chat).map_err(|error| ModelError::Invalid(with_causes(&error)))
    }
}
