//! A recorder as the screen of a chat.

use hone_app::scripted::Recorder;

use super::screen::Screen;
use crate::terminal::{Line, Output};

impl Screen for Recorder {
    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.seen.push(text.to_string());
        Ok(())
    }

    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.say(&Output::plain().table(rows, 0).join("\n"))
    }

    fn mark(&mut self, badge: &Line) {
        self.seen.push(Output::plain().rendered(badge));
    }

    fn error(&mut self, text: &str) {
        self.seen.push(format!("error: {text}"));
    }

    fn copy(&mut self, text: &str) -> anyhow::Result<()> {
        self.say(&format!("copied: {text}"))
    }

    /// Adds to a text that is not empty.
    fn edit(&mut self, text: &str) -> anyhow::Result<String> {
        self.say(&format!("edited: {text}"))?;
        Ok(if text.is_empty() { String::new() } else { format!("{text}, at length\n") })
    }
}
