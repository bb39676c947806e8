//! The display of an answer while it streams.

use std::time::Instant;

use hone_app::answering::Audience;
use hone_app::describe::bytes;
use indicatif::ProgressBar;

use crate::terminal::editing::edit;
use crate::terminal::progress::Loading;
use crate::terminal::{Line, Markdown, Output, Region, Wrap, progress};

/// Shorter prompts are processed too quickly for a progress bar to be useful.
const LONG_PROMPT: usize = 256;

/// Number of lines of the model's reasoning shown at once.
const THOUGHT_LINES: usize = 5;

/// Maximum bytes of reasoning kept for showing its last lines.
const LATEST_THOUGHTS: usize = 4096;

/// The display of a chat.
pub(crate) trait Screen: Audience {
    /// Information that the user requested, perhaps on several lines.
    ///
    /// # Errors
    /// When the reader of the output is gone.
    fn say(&mut self, text: &str) -> anyhow::Result<()>;
    /// Information that the user requested, as rows of a table.
    ///
    /// # Errors
    /// When the reader of the output is gone.
    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()>;
    /// Shows the badge of the answer above it.
    fn mark(&mut self, badge: &Line);
    /// Something failed, but the chat continues.
    fn error(&mut self, text: &str);
    /// Puts a text into the clipboard.
    ///
    /// # Errors
    /// When there is no terminal that supports it.
    fn copy(&mut self, text: &str) -> anyhow::Result<()>;
    /// Lets the user edit a text, and returns it.
    ///
    /// # Errors
    /// When the editor cannot be run, or fails.
    fn edit(&mut self, text: &str) -> anyhow::Result<String>;
}

/// Streams the answer to stdout, and everything else to stderr.
pub(crate) struct Terminal {
    output: Output,
    shows_answer: bool,
    transient: Option<Transient>,
    last_character: Option<char>,
    thoughts: Option<Thoughts>,
    form: Form,
}

enum Transient {
    Waiting(ProgressBar),
    Loading(Loading),
    Prompt(ProgressBar),
}

/// The form in which an answer is shown.
enum Form {
    /// Verbatim, wrapped between words.
    Plain(Wrap),
    /// Its Markdown is rendered.
    Rendered(Box<Markdown>),
}

impl Form {
    fn new(output: Output, renders: bool) -> Form {
        if renders && output.renders_markdown() { Form::Rendered(Box::default()) } else { Form::Plain(Wrap::default()) }
    }
}

/// The model's reasoning.
struct Thoughts {
    since: Instant,
    n_words: usize,
    /// The latest part.
    latest: String,
    region: Region,
}

impl Terminal {
    /// Shows everything; renders the Markdown of answers if requested and if the terminal supports it.
    pub(crate) fn new(output: Output, renders: bool) -> Terminal {
        let (transient, last_character, thoughts, form) = (None, None, None, Form::new(output, renders));
        Terminal { output, shows_answer: true, transient, last_character, thoughts, form }
    }

    /// Does not print answers, for a caller that prints them in another form.
    pub(crate) fn without_answers(output: Output) -> Terminal {
        Terminal { shows_answer: false, ..Terminal::new(output, false) }
    }

    /// Ends the reasoning. If the answer is rendered, one line of the reasoning remains.
    fn end_thinking(&mut self) {
        let Some(mut thoughts) = self.thoughts.take() else { return };
        if !self.folds_thoughts() {
            return self.output.note("");
        }
        self.output.clear_note(&mut thoughts.region);
        let (seconds, n_words) = (thoughts.since.elapsed().as_secs(), thoughts.n_words);
        self.output.note(&format!("thought for {seconds} s ({n_words} words)"));
    }

    fn folds_thoughts(&self) -> bool {
        matches!(self.form, Form::Rendered(_))
    }

    fn clear_transient(&mut self) {
        match self.transient.take() {
            Some(Transient::Waiting(bar) | Transient::Prompt(bar)) => bar.finish_and_clear(),
            // It disappears with the value.
            Some(Transient::Loading(_)) | None => {}
        }
    }
}

impl Thoughts {
    fn begin() -> Thoughts {
        Thoughts { since: Instant::now(), n_words: 0, latest: String::new(), region: Region::default() }
    }

    fn add(&mut self, text: &str) {
        let continues = !self.latest.is_empty() && !self.latest.ends_with(char::is_whitespace);
        let is_continued = text.starts_with(|first: char| !first.is_whitespace());
        self.n_words += text.split_whitespace().count() - usize::from(continues && is_continued);
        self.latest.push_str(text);
        if self.latest.len() > LATEST_THOUGHTS {
            let cut = self.latest.ceil_char_boundary(self.latest.len() / 2);
            self.latest.drain(..cut);
        }
    }
}

impl Audience for Terminal {
    fn waiting(&mut self) {
        if self.transient.is_none() && self.output.stderr_is_terminal {
            self.transient = Some(Transient::Waiting(progress::spinner(self.output, "preparing")));
        }
    }

    fn loading(&mut self, done: u64, total: u64) {
        if !matches!(self.transient, Some(Transient::Loading(_))) {
            self.clear_transient();
            self.transient = Some(Transient::Loading(Loading::begin(self.output)));
        }
        if let Some(Transient::Loading(loading)) = &mut self.transient {
            loading.show(done, total);
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
        let folds = self.folds_thoughts();
        let thoughts = self.thoughts.get_or_insert_with(Thoughts::begin);
        thoughts.add(text);
        match folds {
            true => self.output.show_note(thoughts.latest.trim(), THOUGHT_LINES, &mut thoughts.region),
            false => self.output.note_piece(text),
        }
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self.clear_transient();
        self.end_thinking();
        if !self.shows_answer || text.is_empty() {
            return Ok(());
        }
        match &mut self.form {
            Form::Plain(wrap) => self.output.print_wrapped(text, wrap)?,
            Form::Rendered(markdown) => self.output.print_markdown(text, markdown)?,
        }
        self.last_character = text.chars().next_back();
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.clear_transient();
        self.end_thinking();
        let last = self.last_character.take();
        match &mut self.form {
            Form::Rendered(markdown) => self.output.finish_markdown(markdown),
            Form::Plain(wrap) => {
                *wrap = Wrap::default();
                if last.is_none_or(|last| last == '\n') { Ok(()) } else { self.output.print_line("") }
            }
        }
    }

    fn note(&mut self, text: &str) {
        self.output.note(text);
    }
}

impl Screen for Terminal {
    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.output.print_prose(text)
    }

    fn say_rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.output.print_table(rows)
    }

    fn mark(&mut self, badge: &Line) {
        self.output.announce(badge);
    }

    fn error(&mut self, text: &str) {
        self.output.error(text);
    }

    fn copy(&mut self, text: &str) -> anyhow::Result<()> {
        self.output.copy(text)?;
        let size = bytes(text.len() as u64);
        self.output.note(&format!("{size} copied to the clipboard, if the terminal allows it"));
        Ok(())
    }

    fn edit(&mut self, text: &str) -> anyhow::Result<String> {
        edit(text)
    }
}
