//! Actions on a conversation besides asking: answering again, copying, writing in an editor, and exporting.

use std::path::Path;

use hone_app::conversations::SavedConversation;

use super::{Flow, Shell};
use crate::chat::attachments;
use crate::chat::export::{is_json, text_of, write_new};
use crate::chat::screen::Screen;

/// The name of an exported conversation that is not saved.
const UNSAVED: &str = "Conversation";

impl Shell<'_> {
    /// Answers the last question again, with this model if one is given.
    pub(super) fn ask_again(&mut self, model: Option<String>, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        if let Some(model) = &model {
            self.models.provide(model)?;
        }
        if !self.session.ask_again(model) {
            anyhow::bail!("nothing has been asked yet");
        }
        self.answer(screen)
    }

    /// Continues the last answer.
    pub(super) fn continue_answer(&mut self, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        if !self.session.continue_answer() {
            anyhow::bail!("no answer was cut off: there is nothing to continue");
        }
        self.answer(screen)
    }

    /// Switches to a model that has been downloaded in the meantime.
    pub(super) fn welcome(&mut self) -> anyhow::Result<()> {
        let arrived = self.fetching.and_then(|fetching| fetching.take_arrived(self.session.model()));
        arrived.map_or(Ok(()), |name| self.session.set("engine.model", &name))
    }

    /// Copies an answer to the clipboard.
    pub(super) fn copy(&self, number: Option<usize>, screen: &mut dyn Screen) -> anyhow::Result<()> {
        let (_, exchange) = self.find_exchange(number)?;
        screen.copy(exchange.answer.trim())
    }

    /// Asks a question written in an editor.
    pub(super) fn ask_edited(&mut self, text: &str, screen: &mut dyn Screen) -> anyhow::Result<Flow> {
        let question = screen.edit(text)?;
        let question = question.trim();
        if question.is_empty() {
            screen.note("nothing to ask");
            return Ok(Flow::Continue);
        }
        screen.note(&format!("> {}", attachments::label(question)));
        self.ask(question, screen)
    }

    /// Writes the conversation to a file.
    pub(super) fn export(&self, file: &str, screen: &mut dyn Screen) -> anyhow::Result<()> {
        if self.session.exchanges().is_empty() {
            anyhow::bail!("nothing has been answered yet");
        }
        let (path, name) = (Path::new(file), self.session.name().unwrap_or(UNSAVED));
        let conversation = SavedConversation::of_file(self.session.conversation())?;
        write_new(path, &text_of(name, &conversation, is_json(path)))?;
        screen.note(&format!("written to {file}"));
        Ok(())
    }
}
