//! The keyboard: reads lines with history, completion and continuation, and passes them to the shell.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::path::PathBuf;

use anyhow::Context;
use hone_files::{create_private_folder, open_private};
use nu_ansi_term::Style;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, EditCommand, Emacs, ExternalPrinter, FileBackedHistory,
    HistoryItem, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion, ValidationResult,
    Validator, default_emacs_keybindings,
};

use super::completion::{Candidates, offers};
use super::input::is_complete;
use super::screen::Screen;
use super::shell::{Flow, Shell};
use super::typeahead::Typed;
use crate::terminal::keyboard::Quiet;
use crate::terminal::{Line, Output};

/// Chats until the user leaves. `history` is the file of earlier input.
///
/// # Errors
/// When the terminal can no longer be used.
pub(crate) fn run(
    shell: &mut Shell<'_>,
    screen: &mut dyn Screen,
    history: PathBuf,
    output: Output,
) -> anyhow::Result<()> {
    let printer = ExternalPrinter::new(ANNOUNCEMENTS);
    let announce = printer.sender();
    let editor = editor(shell.session.config().chat.history_lines, history, output)?;
    let mut editor = editor.with_external_printer(printer);
    let mut typed = Typed::default();
    loop {
        let text = if let Some(text) = typed.inputs.pop_front() {
            output.announce(&Line::plain(format!("> {}", text.replace('\n', "\n… "))));
            // The chat continues without the line in its history.
            let _ = editor.history_mut().save(HistoryItem::from_command_line(&text));
            text
        } else {
            if !typed.rest.is_empty() {
                editor.run_edit_commands(&[EditCommand::InsertString(std::mem::take(&mut typed.rest))]);
            }
            editor = editor.with_completer(Box::new(TabCompleter { candidates: shell.candidates() }));
            shell.announcements.lines.begin_typing(announce.clone());
            let read = editor.read_line(&ChatPrompt);
            shell.announcements.lines.hold();
            match read.context("cannot read from the terminal")? {
                Signal::Success(text) => text,
                Signal::CtrlD => return Ok(()),
                signal => {
                    // The editor receives no host command and no break signal.
                    if matches!(signal, Signal::CtrlC) {
                        screen.note("Ctrl-D or /exit leaves");
                    }
                    continue;
                }
            }
        };
        if handle(shell, &text, screen, &mut typed)? == Flow::Leave {
            return Ok(());
        }
    }
}

/// Executes `text`. What is typed in the meantime is executed next.
fn handle(shell: &mut Shell<'_>, text: &str, screen: &mut dyn Screen, typed: &mut Typed) -> anyhow::Result<Flow> {
    let quiet = Quiet::begin();
    let flow = shell.handle(text, screen);
    typed.press(&quiet.keys());
    if matches!(flow, Ok(Flow::Interrupted)) {
        typed.inputs.clear();
    }
    flow
}

/// How many lines may wait to be printed above the one being typed.
const ANNOUNCEMENTS: usize = 64;

const MENU: &str = "completions";

fn editor(history_lines: usize, history: PathBuf, output: Output) -> anyhow::Result<Reedline> {
    let failure = || format!("cannot keep the history of what is typed in {}", history.display());
    history.parent().map_or(Ok(()), create_private_folder).with_context(failure)?;
    // The history is written in place, so an existing file keeps its permissions.
    open_private(&history, OpenOptions::new().append(true).create(true)).with_context(failure)?;
    let history = FileBackedHistory::with_file(history_lines, history.clone()).with_context(failure)?;
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_string()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    let new_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line);
    let hint = Style::new().dimmed();
    Ok(Reedline::create()
        .with_history(Box::new(history))
        .with_history_exclusion_prefix(Some(" ".to_string()))
        .with_hinter(Box::new(DefaultHinter::default().with_style(hint)))
        .with_validator(Box::new(LineValidator))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_ansi_colors(output.colors_stderr()))
}

struct LineValidator;

impl Validator for LineValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        if is_complete(line) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

struct TabCompleter {
    candidates: Candidates,
}

impl Completer for TabCompleter {
    fn complete(&mut self, line: &str, cursor: usize) -> CompletionResult {
        let before = line.get(..cursor).unwrap_or(line);
        let suggestions: Vec<Suggestion> = offers(before, &self.candidates)
            .into_iter()
            .map(|offer| Suggestion {
                value: offer.text,
                description: offer.description.map(str::to_string),
                span: Span::new(offer.start, before.len()),
                append_whitespace: offer.goes_on,
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}

struct ChatPrompt;

impl Prompt for ChatPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("… ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing for ",
        };
        Cow::Owned(format!("({failing}{:?}) ", search.term))
    }

    fn get_indicator_color(&self) -> reedline::Color {
        reedline::Color::Green
    }
}
