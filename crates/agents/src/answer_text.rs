//! The text of an answer from the events of its generation, for those who ask a model outside of a conversation.

use hone_protocol::{FinishReason, GenerateError, GenerationEvent};

use crate::thinking::{OutputPiece, Splitter};

/// An answer as it arrives, without the reasoning before it.
#[derive(Debug)]
pub struct AnswerText {
    text: String,
    splitter: Splitter,
    /// Why it ended; `None` while it has not.
    pub finish_reason: Option<FinishReason>,
}

impl Default for AnswerText {
    fn default() -> Self {
        AnswerText { text: String::new(), splitter: Splitter::new(None), finish_reason: None }
    }
}

impl AnswerText {
    /// Adds an event; returns whether it was the last.
    ///
    /// # Errors
    /// What [`GenerationEvent::Failed`] carries.
    pub fn take(&mut self, event: GenerationEvent) -> Result<bool, GenerateError> {
        match event {
            GenerationEvent::Started { reasoning, .. } => self.splitter = Splitter::new(reasoning),
            GenerationEvent::Loading { .. } | GenerationEvent::Prefill { .. } => {}
            GenerationEvent::Token { text, .. } => self.add(&text),
            GenerationEvent::Finished { reason, text, .. } => {
                self.add(&text);
                let rest = self.splitter.finish();
                self.keep(rest);
                self.finish_reason = Some(reason);
                return Ok(true);
            }
            GenerationEvent::Failed(error) => return Err(error),
        }
        Ok(false)
    }

    /// The text so far, without white space around it.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    fn add(&mut self, text: &str) {
        let pieces = self.splitter.push(text);
        self.keep(pieces);
    }

    fn keep(&mut self, pieces: Vec<OutputPiece>) {
        for piece in pieces {
            match piece {
                OutputPiece::Text(text) => self.text.push_str(&text),
                OutputPiece::Thinking(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::{Script, Scripted};
    use hone_protocol::{Generate, GenerateRequest, Prompt};

    use super::*;

    fn read(script: Script) -> Result<AnswerText, GenerateError> {
        let model = Scripted::new(move |_| script.clone());
        let generation = model.generate(GenerateRequest::new("m", Prompt::Chat(Vec::new()))).unwrap();
        let mut answer = AnswerText::default();
        for event in generation.events() {
            if answer.take(event)? {
                break;
            }
        }
        Ok(answer)
    }

    #[test]
    fn the_text_comes_without_the_reasoning() {
        let answer = read(Script::saying(&["<think>Hm", "m.</th", "ink>\n\nIt is", " four.\n"])).unwrap();
        assert_eq!((answer.text(), answer.finish_reason), ("It is four.", Some(FinishReason::Stop)));
        assert_eq!(read(Script::saying(&["a <", "b"])).unwrap().text(), "a <b");
    }

    #[test]
    fn a_failure_is_passed_on() {
        let error = GenerateError::Failed("x".to_owned());
        assert_eq!(read(Script::failing(error.clone())).unwrap_err(), error);
    }
}
