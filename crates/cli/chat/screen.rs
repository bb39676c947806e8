//! What a person sees of an answer while it comes.

use indicatif::ProgressBar;

use crate::terminal::{Output, Wrap, progress};

/// Prompts of fewer tokens than this are read too quickly for a bar to be of use.
const LONG_PROMPT: usize = 256;

/// Where an answer goes.
pub(crate) trait Screen {
    /// Nothing has come for a while.
    fn waiting(&mut self);
    /// `done` of the `total` tokens of the prompt have been read.
    fn prompt_progress(&mut self, done: usize, total: usize);
    /// A piece of what the model thinks before it answers.
    fn thinking(&mut self, text: &str);
    /// A piece of the answer.
    ///
    /// # Errors
    /// When nobody can read it any more.
    fn text(&mut self, text: &str) -> anyhow::Result<()>;
    /// The answer has ended, be it with an error.
    ///
    /// # Errors
    /// When nobody can read it any more.
    fn end(&mut self) -> anyhow::Result<()>;
    /// Information that was asked for: several lines, perhaps.
    ///
    /// # Errors
    /// When nobody can read it any more.
    fn say(&mut self, text: &str) -> anyhow::Result<()>;
    /// Information that was asked for, as rows of a table.
    ///
    /// # Errors
    /// When nobody can read it any more.
    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()>;
    /// A remark that was not asked for.
    fn note(&mut self, text: &str);
    /// Something went wrong, and the chat goes on.
    fn error(&mut self, text: &str);
}

/// The answer on stdout as it comes, everything else on stderr.
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

    /// Shows no text of answers, for a caller who prints them in another form.
    pub(crate) fn without_answers(output: Output) -> Terminal {
        Terminal { shows_answer: false, ..Terminal::new(output) }
    }

    /// Ends the line of what was thought.
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
