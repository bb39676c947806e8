//! What the user sees of an answer while it streams.

use indicatif::ProgressBar;

use crate::terminal::{Output, Wrap, progress};

/// Shorter prompts are processed too quickly for a progress bar to be useful.
const LONG_PROMPT: usize = 256;

/// The display of an answer.
pub(crate) trait Screen {
    /// Nothing has arrived for a while.
    fn waiting(&mut self);
    /// `done` of the `total` tokens of the prompt have been processed.
    fn prompt_progress(&mut self, done: usize, total: usize);
    /// A piece of the model's reasoning.
    fn thinking(&mut self, text: &str);
    /// A piece of the answer.
    ///
    /// # Errors
    /// When the output has no reader any more.
    fn text(&mut self, text: &str) -> anyhow::Result<()>;
    /// The answer has ended, perhaps with an error.
    ///
    /// # Errors
    /// When the output has no reader any more.
    fn end(&mut self) -> anyhow::Result<()>;
    /// Information that the user requested, perhaps on several lines.
    ///
    /// # Errors
    /// When the output has no reader any more.
    fn say(&mut self, text: &str) -> anyhow::Result<()>;
    /// Information that the user requested, as rows of a table.
    ///
    /// # Errors
    /// When the output has no reader any more.
    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()>;
    /// A remark that the user did not request.
    fn note(&mut self, text: &str);
    /// Something failed, but the chat continues.
    fn error(&mut self, text: &str);
}

/// Streams the answer to stdout, and everything else to stderr.
pub(crate) struct Terminal {
    output: Output,
    shows_answer: bool,
    transient: Option<Transient>,
    last_character: Option<char>,
    is_thinking: bool,
    wrap: Wrap,
}

enum Transient {
    Waiting(ProgressBar),
    Prompt(ProgressBar),
}

impl Terminal {
    /// Shows everything.
    pub(crate) fn new(output: Output) -> Terminal {
        Terminal {
            output,
            shows_answer: true,
            transient: None,
            last_character: None,
            is_thinking: false,
            wrap: Wrap::default(),
        }
    }

    /// Does not print answers, for a caller that prints them in another form.
    pub(crate) fn without_answers(output: Output) -> Terminal {
        Terminal { shows_answer: false, ..Terminal::new(output) }
    }

    /// Ends the line of reasoning.
    fn end_thinking(&mut self) {
        if std::mem::take(&mut self.is_thinking) {
            self.output.note("");
        }
    }

    fn clear_transient(&mut self) {
        match self.transient.take() {
            Some(Transient::Waiting(bar) | Transient::Prompt(bar)) => bar.finish_and_clear(),
            None => {}
        }
    }
}

impl Screen for Terminal {
    fn waiting(&mut self) {
        if self.transient.is_none() && self.output.stderr_is_terminal {
            self.transient = Some(Transient::Waiting(progress::spinner(self.output, "preparing")));
        }
    }

    fn prompt_progress(&mut self, done: usize, total: usize) {
        if total < LONG_PROMPT {
            return;
        }
        if !matches!(self.transient, Some(Transient::Prompt(_))) {
            self.clear_transient();
            self.transient = Some(Transient::Prompt(progress::prompt(self.output, total as u64)));
        }
        if let Some(Transient::Prompt(bar)) = &self.transient {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }

    fn thinking(&mut self, text: &str) {
        if !self.output.stderr_is_terminal {
            return;
        }
        self.clear_transient();
        self.output.note_piece(text);
        self.is_thinking = true;
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self.clear_transient();
        self.end_thinking();
        if !self.shows_answer || text.is_empty() {
            return Ok(());
        }
        self.output.print_wrapped(text, &mut self.wrap)?;
        self.last_character = text.chars().next_back();
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.clear_transient();
        self.end_thinking();
        self.wrap = Wrap::default();
        match self.last_character.take() {
            None | Some('\n') => Ok(()),
            Some(_) => self.output.print_line(""),
        }
    }

    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.output.print_line(text)
    }

    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.output.print_table(rows)
    }

    fn note(&mut self, text: &str) {
        self.output.note(text);
    }

    fn error(&mut self, text: &str) {
        self.output.error(text);
    }
}
