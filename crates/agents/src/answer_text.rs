//! The text of an answer from its generation events, for callers that use a model outside a conversation.

use hone_protocol::{FinishReason, GenerateError, GenerationEvent, Tool, ToolCall};

use crate::thinking::{OutputPiece, Splitter};
use crate::tool_calls::CallScanner;

/// An answer as it arrives, without the reasoning before it.
#[derive(Debug)]
pub struct AnswerText {
    text: String,
    has_reasoned: bool,
    splitter: Splitter,
    /// Scans for calls, if the model was given tools.
    scanner: Option<CallScanner>,
    calls: Vec<ToolCall>,
    /// Why it ended; `None` while it has not.
    pub finish_reason: Option<FinishReason>,
}

impl Default for AnswerText {
    fn default() -> Self {
        AnswerText::with_tools(&[])
    }
}

impl AnswerText {
    /// The answer of a model that may call these tools.
    pub fn with_tools(tools: &[Tool]) -> AnswerText {
        AnswerText {
            text: String::new(),
            has_reasoned: false,
            splitter: Splitter::new(None),
            scanner: (!tools.is_empty()).then(|| CallScanner::new(tools, None)),
            calls: Vec::new(),
            finish_reason: None,
        }
    }

    /// Adds an event; returns whether it was the last.
    ///
    /// # Errors
    /// The error in [`GenerationEvent::Failed`].
    pub fn take(&mut self, event: GenerationEvent) -> Result<bool, GenerateError> {
        match event {
            GenerationEvent::Started { reasoning, .. } => self.splitter = Splitter::new(reasoning),
            GenerationEvent::Loading { .. }
            | GenerationEvent::Prefill { .. }
            | GenerationEvent::OfPrompt(_)
            | GenerationEvent::Reward(_)
            | GenerationEvent::StoppedBy(_) => {}
            GenerationEvent::Token { text, .. } => {
                self.add(&text);
                if self.scanner.as_ref().is_some_and(CallScanner::is_complete) {
                    self.end(FinishReason::Stop);
                }
            }
            GenerationEvent::Finished { reason, text, .. } => {
                self.add(&text);
                let rest = self.splitter.finish();
                self.keep(rest);
                self.end(reason);
            }
            GenerationEvent::Failed(error) => return Err(error),
        }
        Ok(self.finish_reason.is_some())
    }

    /// The tools that the model calls after the text; empty until the answer has ended.
    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    /// The text so far, without surrounding white space.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    /// Whether the model has reasoned.
    pub fn has_reasoned(&self) -> bool {
        self.has_reasoned
    }

    fn end(&mut self, reason: FinishReason) {
        let (calls, held_back) = self.scanner.take().map(CallScanner::finish).unwrap_or_default();
        self.text.push_str(&held_back);
        self.calls = calls;
        self.finish_reason = Some(reason);
    }

    fn add(&mut self, text: &str) {
        let pieces = self.splitter.push(text);
        self.keep(pieces);
    }

    fn keep(&mut self, pieces: Vec<OutputPiece>) {
        for piece in pieces {
            match piece {
                OutputPiece::Text(text) => {
                    let certain = self.scanner.as_mut().map(|scanner| scanner.push(&text));
                    self.text.push_str(certain.as_deref().unwrap_or(&text));
                }
                OutputPiece::Thinking(text) => self.has_reasoned |= !text.trim().is_empty(),
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
        assert!(answer.has_reasoned());
        assert_eq!((answer.text(), answer.finish_reason), ("It is four.", Some(FinishReason::Stop)));
        assert_eq!(read(Script::saying(&["a <", "b"])).unwrap().text(), "a <b");
    }

    #[test]
    fn calls_of_the_offered_tools_are_no_text() {
        let tool = Tool { name: "look".to_owned(), description: String::new(), parameters: serde_json::json!({}) };
        let script =
            Script::saying(&["First", " this. <tool_call>", "{\"name\": \"look\", \"arguments\": {}}</tool_call>"]);
        let model = Scripted::new(move |_| script.clone());
        let generation = model.generate(GenerateRequest::new("m", Prompt::Chat(Vec::new()))).unwrap();
        let mut answer = AnswerText::with_tools(&[tool]);
        assert!(generation.events().iter().any(|event| answer.take(event).unwrap()));
        assert_eq!((answer.text(), answer.calls().len()), ("First this.", 1));
    }

    #[test]
    fn a_failure_is_passed_on() {
        let error = GenerateError::Failed("x".to_owned());
        assert_eq!(read(Script::failing(error.clone())).unwrap_err(), error);
    }
}
