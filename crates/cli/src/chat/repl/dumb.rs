//! A terminal that cannot move its cursor, such as an editor's: it edits its lines itself.

use anyhow::Context;

use super::handle;
use crate::chat::input::is_complete;
use crate::chat::screen::Screen;
use crate::chat::shell::{Flow, Shell};
use crate::chat::typeahead::Typed;
use crate::terminal::{Line, Output};

/// Chats until the user leaves. Announcements come before the next prompt, where they disturb no line.
///
/// # Errors
/// When the terminal can no longer be used.
pub(super) fn run(shell: &mut Shell<'_>, screen: &mut dyn Screen, output: Output) -> anyhow::Result<()> {
    let mut typed = Typed::default();
    loop {
        shell.announcements.lines.release();
        shell.announcements.lines.hold();
        let entered = match typed.inputs.pop_front() {
            Some(text) => {
                output.announce(&Line::plain(format!("> {text}")));
                Some(text)
            }
            None => read(output, std::mem::take(&mut typed.rest))?,
        };
        let Some(text) = entered else { return Ok(()) };
        if handle(shell, &text, screen, &mut typed)? == Flow::Leave {
            return Ok(());
        }
    }
}

/// Reads lines until they form a whole input, which begins with `text`; `None` at the end.
fn read(output: Output, mut text: String) -> anyhow::Result<Option<String>> {
    output.note_piece(&format!("> {text}"));
    loop {
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).context("cannot read from the terminal")? == 0 {
            return Ok(None);
        }
        text += line.trim_end_matches(['\n', '\r']);
        if is_complete(&text) {
            return Ok(Some(text));
        }
        text.push('\n');
        output.note_piece("… ");
    }
}
