//! The keyboard: reads lines from the editor and passes them to the shell.

mod dumb;

use std::path::PathBuf;

use anyhow::Context;
use reedline::{EditCommand, ExternalPrinter, HistoryItem, Reedline, Signal};

use super::editor::{ChatPrompt, TabCompleter, editor};
use super::pastes::Pastes;
use super::screen::Screen;
use super::shell::{Flow, Shell};
use super::typeahead::Typed;
use crate::terminal::keyboard::{BracketedPaste, Quiet, suspend};
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
    if !output.moves_cursor {
        return dumb::run(shell, screen, output);
    }
    let printer = ExternalPrinter::new(ANNOUNCEMENTS);
    let announce = printer.sender();
    let pastes = Pastes::default();
    let editor = editor(shell.session.config().chat.history_lines, history, &pastes, output)?;
    let mut editor = editor.with_external_printer(printer);
    let mut typed = Typed::default();
    let bracketed_paste = BracketedPaste::begin();
    loop {
        let text = if let Some(text) = typed.inputs.pop_front() {
            output.announce(&Line::plain(format!("> {}", text.replace('\n', "\n… "))));
            // The chat continues without the line in its history.
            let _ = editor.history_mut().save(HistoryItem::from_command_line(&text));
            text
        } else {
            if !typed.rest.is_empty() {
                let (rest, holds_paste) = typed.take_rest();
                let shown = if holds_paste { pastes.fold(&rest) } else { rest };
                editor.run_edit_commands(&[EditCommand::InsertString(shown)]);
            }
            editor = editor.with_completer(Box::new(TabCompleter { candidates: shell.candidates() }));
            shell.announcements.lines.begin_typing(announce.clone());
            bracketed_paste.enable();
            let read = editor.read_line(&ChatPrompt);
            shell.announcements.lines.hold();
            match read.context("cannot read from the terminal")? {
                Signal::Success(text) => text,
                Signal::CtrlD => return Ok(()),
                Signal::CtrlC => {
                    given_up(&mut editor, pastes.take_given_up(), screen);
                    pastes.forget_shown();
                    continue;
                }
                // The editor's only command is Ctrl-Z's, and nothing interrupts it from outside.
                _ => {
                    suspend();
                    continue;
                }
            }
        };
        let entered = pastes.entered(&text).unwrap_or(text);
        pastes.forget_shown();
        if handle(shell, &entered, screen, &mut typed)? == Flow::Leave {
            return Ok(());
        }
    }
}

/// Puts an abandoned line into the history, where the arrow key finds it.
fn given_up(editor: &mut Reedline, line: Option<String>, screen: &mut dyn Screen) {
    let Some(text) = line else { return screen.note("Ctrl-D or /exit leaves") };
    // As for entered lines: a leading space keeps them out of the history.
    if text.starts_with(' ') {
        return;
    }
    match editor.history_mut().save(HistoryItem::from_command_line(&text)) {
        Ok(_) => screen.note("not sent: press Up to bring it back"),
        Err(error) => tracing::warn!("the line cannot be kept in the history: {error}"),
    }
}

/// Executes `text`. Input typed in the meantime is executed next.
fn handle(shell: &mut Shell<'_>, text: &str, screen: &mut dyn Screen, typed: &mut Typed) -> anyhow::Result<Flow> {
    let quiet = Quiet::begin();
    let flow = shell.handle(text, screen);
    typed.press(&quiet.keys());
    if matches!(flow, Ok(Flow::Interrupted)) {
        typed.take_back();
    }
    flow
}

/// Maximum number of lines that wait to be printed above the one being typed.
const ANNOUNCEMENTS: usize = 64;
