//! The line editor of the chat: history, completion, continuation, and pasted text that stays one input.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use crossterm::event::{self, Event, KeyEvent};
use hone_files::{create_private_folder, open_private};
use nu_ansi_term::Style;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, EditCommand, EditMode, Emacs, FileBackedHistory,
    Highlighter, Hinter, History, HistoryItem, HistoryItemId, HistorySessionId, KeyCode, KeyModifiers, Keybindings,
    MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline, ReedlineEvent,
    ReedlineMenu, ReedlineRawEvent, SearchQuery, Span, StyledText, Suggestion, ValidationResult, Validator,
    default_emacs_keybindings,
};

use super::completion::{Candidates, offers};
use super::input::is_complete;
use super::pastes::{Pastes, Side};
use crate::terminal::Output;

/// Lines that can be recalled within a chat that keeps no history.
const LINES_WITHOUT_FILE: usize = 1_000;

/// The input history. If no lines are to be kept, the file is neither read nor written.
fn typed_before(history_lines: usize, file: &Path) -> anyhow::Result<FileBackedHistory> {
    if history_lines == 0 {
        return Ok(FileBackedHistory::new(LINES_WITHOUT_FILE)?);
    }
    let failure = || format!("cannot keep the history of what is typed in {}", file.display());
    file.parent().map_or(Ok(()), create_private_folder).with_context(failure)?;
    // The history is written in place: a file that exists keeps its permissions.
    open_private(file, OpenOptions::new().append(true).create(true)).with_context(failure)?;
    FileBackedHistory::with_file(history_lines, file.to_owned()).with_context(failure)
}

const MENU: &str = "completions";

/// An editor that keeps input in the file `history`, and folds long pasted texts into `pastes`.
///
/// # Errors
/// When the history cannot be kept.
pub(crate) fn editor(
    history_lines: usize,
    history: PathBuf,
    pastes: &Pastes,
    output: Output,
) -> anyhow::Result<Reedline> {
    let typed = typed_before(history_lines, &history)?;
    Ok(Reedline::create()
        .with_history(Box::new(UnfoldingHistory { typed, pastes: pastes.clone() }))
        .with_history_exclusion_prefix(Some(" ".to_string()))
        .with_hinter(Box::new(OneLineHinter::default()))
        .with_highlighter(Box::new(NoHighlighting { pastes: pastes.clone() }))
        .with_validator(Box::new(LineValidator { pastes: pastes.clone() }))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(FoldingEmacs {
            keys: Emacs::new(keybindings()),
            pastes: pastes.clone(),
            is_pasting: is_pasted_by_keys,
        }))
        .with_ansi_colors(output.colors_stderr()))
}

fn keybindings() -> Keybindings {
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_string()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    let new_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line);
    #[cfg(unix)]
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('z'), ReedlineEvent::ExecuteHostCommand(SUSPEND.to_string()));
    keys
}

/// The command that [`read_line`](Reedline::read_line) returns for Ctrl-Z; the line being typed stays in the editor.
#[cfg(unix)]
const SUSPEND: &str = "suspend";

/// Emacs key bindings, with a pasted text as one insertion.
struct FoldingEmacs {
    keys: Emacs,
    pastes: Pastes,
    /// Whether the key that was just read belongs to a text that arrives key by key.
    is_pasting: fn() -> bool,
}

/// On Windows pasted text is not marked, but its keys arrive all at once: typing never follows Enter so quickly.
fn is_pasted_by_keys() -> bool {
    cfg!(windows) && event::poll(Duration::ZERO).unwrap_or(false)
}

impl FoldingEmacs {
    /// The commands for a key that deletes or passes the name of a folded text, which acts as a single character.
    fn over_name(&self, event: &Event) -> Option<Vec<EditCommand>> {
        let Event::Key(KeyEvent { code, modifiers, .. }) = event else { return None };
        let (side, edit) = match code {
            KeyCode::Backspace => (Side::Left, EditCommand::Backspace),
            KeyCode::Delete => (Side::Right, EditCommand::Delete),
            KeyCode::Left => (Side::Left, EditCommand::MoveLeft { select: false }),
            KeyCode::Right => (Side::Right, EditCommand::MoveRight { select: false }),
            _ => {
                self.pastes.forget_drawn();
                return None;
            }
        };
        let n_characters = self.pastes.name_at_cursor(side)?;
        modifiers.is_empty().then(|| vec![edit; n_characters])
    }
}

impl EditMode for FoldingEmacs {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        let event = Event::from(event);
        if matches!(event, Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. })) {
            self.pastes.give_up();
        }
        match event {
            Event::Paste(text) => ReedlineEvent::Edit(vec![EditCommand::InsertString(self.pastes.fold(&text))]),
            Event::Key(KeyEvent { code: KeyCode::Enter, .. }) if (self.is_pasting)() => {
                ReedlineEvent::Edit(vec![EditCommand::InsertNewline])
            }
            event => self.over_name(&event).map(ReedlineEvent::Edit).unwrap_or_else(|| {
                ReedlineRawEvent::try_from(event).map_or(ReedlineEvent::None, |event| self.keys.parse_event(event))
            }),
        }
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.keys.edit_mode()
    }
}

/// Stores pasted texts rather than their displayed names, which mean nothing in a later chat.
struct UnfoldingHistory {
    typed: FileBackedHistory,
    pastes: Pastes,
}

impl History for UnfoldingHistory {
    fn save(&mut self, mut item: HistoryItem) -> reedline::Result<HistoryItem> {
        if let Some(entered) = self.pastes.entered(&item.command_line) {
            item.command_line = entered;
        }
        self.typed.save(item)
    }

    fn load(&self, id: HistoryItemId) -> reedline::Result<HistoryItem> {
        self.typed.load(id)
    }

    fn count(&self, query: SearchQuery) -> reedline::Result<i64> {
        self.typed.count(query)
    }

    fn search(&self, query: SearchQuery) -> reedline::Result<Vec<HistoryItem>> {
        self.typed.search(query)
    }

    fn update(&mut self, id: HistoryItemId, updater: &dyn Fn(HistoryItem) -> HistoryItem) -> reedline::Result<()> {
        self.typed.update(id, updater)
    }

    fn clear(&mut self) -> reedline::Result<()> {
        self.typed.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> reedline::Result<()> {
        self.typed.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.typed.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.typed.session()
    }
}

/// Suggests earlier input; of a long text, only its beginning.
#[derive(Default)]
struct OneLineHinter {
    whole: DefaultHinter,
}

/// Maximum number of characters in a hint.
const LONGEST_HINT: usize = 60;

impl Hinter for OneLineHinter {
    fn handle(&mut self, line: &str, position: usize, history: &dyn History, colors: bool, folder: &str) -> String {
        let whole = self.whole.handle(line, position, history, false, folder);
        let hint = beginning(&whole);
        if colors && !hint.is_empty() { Style::new().dimmed().paint(hint).to_string() } else { hint }
    }

    fn complete_hint(&self) -> String {
        self.whole.complete_hint()
    }

    fn next_hint_token(&self) -> String {
        self.whole.next_hint_token()
    }
}

/// The first line of a text, or its beginning.
fn beginning(text: &str) -> String {
    let shown: String = text.chars().take_while(|character| *character != '\n').take(LONGEST_HINT).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

/// Shows input in the terminal's own colour, which is readable on every background.
struct NoHighlighting {
    pastes: Pastes,
}

impl Highlighter for NoHighlighting {
    fn highlight(&self, line: &str, cursor: usize) -> StyledText {
        self.pastes.note_drawn(line, cursor);
        let mut text = StyledText::new();
        text.push((Style::new(), line.to_string()));
        text
    }
}

/// Accepts a line once its typed part is complete.
struct LineValidator {
    pastes: Pastes,
}

impl Validator for LineValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        if is_complete(&self.pastes.typed(line)) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

/// Completes commands and their arguments.
pub(crate) struct TabCompleter {
    pub(crate) candidates: Candidates,
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

/// The prompt of the chat.
pub(crate) struct ChatPrompt;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_within_a_text_that_arrives_key_by_key_begins_a_new_line() {
        let enter = || ReedlineRawEvent::try_from(Event::Key(KeyCode::Enter.into())).unwrap();
        let mut mode = FoldingEmacs { keys: Emacs::new(keybindings()), pastes: Pastes::default(), is_pasting: || true };
        assert_eq!(mode.parse_event(enter()), ReedlineEvent::Edit(vec![EditCommand::InsertNewline]));
        mode.is_pasting = || false;
        assert_eq!(mode.parse_event(enter()), ReedlineEvent::Enter);
    }
}
