//! The keyboard while it is not being read: input waits in the terminal and is not echoed into the output.

use std::io::{IsTerminal, stderr, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEventKind, KeyModifiers, poll, read,
};
use crossterm::execute;

use super::Output;

/// While this exists, the terminal does not echo. Ctrl-C works as usual, and keeps earlier input.
pub(crate) struct Quiet(#[cfg(unix)] Option<terminal::Quiet>);

impl Quiet {
    /// Begins now, if the input is a terminal.
    pub(crate) fn begin() -> Quiet {
        #[cfg(unix)]
        return Quiet(terminal::Quiet::begin());
        #[cfg(not(unix))]
        Quiet()
    }

    /// Ends the quiet, and returns the input typed since.
    pub(crate) fn keys(self) -> String {
        #[cfg(unix)]
        return self.0.map(|quiet| quiet.keys()).unwrap_or_default();
        #[cfg(not(unix))]
        String::new()
    }
}

/// While this exists, the terminal marks pasted text, so that its lines can be told from typed lines.
pub(crate) struct BracketedPaste(());

/// Whether the terminal was told to mark pasted text.
static MARKS_PASTES: AtomicBool = AtomicBool::new(false);

impl BracketedPaste {
    /// Begins now, if there is a terminal that can do so.
    pub(crate) fn begin() -> BracketedPaste {
        MARKS_PASTES.store(stdin().is_terminal() && stderr().is_terminal(), Ordering::SeqCst);
        BracketedPaste(())
    }

    /// Tells the terminal again: a shell in which the program was suspended may have changed it.
    pub(crate) fn enable(&self) {
        if MARKS_PASTES.load(Ordering::SeqCst) {
            // Without a terminal nothing can be pasted.
            let _ = execute!(stderr(), EnableBracketedPaste);
        }
    }
}

impl Drop for BracketedPaste {
    fn drop(&mut self) {
        leave_pastes_unmarked();
        MARKS_PASTES.store(false, Ordering::SeqCst);
    }
}

fn leave_pastes_unmarked() {
    if MARKS_PASTES.load(Ordering::SeqCst) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(stderr(), DisableBracketedPaste);
    }
}

/// Gives the terminal to the shell until it continues this process, as Ctrl-Z does.
pub(crate) fn suspend() {
    leave_pastes_unmarked();
    // It fails only for signals that cannot be caught.
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP);
}

/// Gives the terminal to another program while `work` runs.
pub(crate) fn lend<T>(work: impl FnOnce() -> T) -> T {
    leave_pastes_unmarked();
    #[cfg(unix)]
    let paused = terminal::pause();
    let done = work();
    #[cfg(unix)]
    terminal::resume(paused);
    done
}

/// A key that answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Yes,
    /// Any other key.
    No,
    /// Ctrl-C.
    Interrupted,
}

/// Whether a person can be asked.
pub(crate) fn can_ask(output: Output) -> bool {
    stdin().is_terminal() && output.stderr_is_terminal
}

/// Asks for consent, and shows how the answer was understood.
///
/// # Errors
/// When the terminal cannot be used.
pub(crate) fn consent(output: Output, question: &str) -> anyhow::Result<Consent> {
    output.note_piece(question);
    let reply = ask().context("cannot read from the terminal")?;
    output.note(if reply == Consent::Yes { "yes" } else { "no" });
    Ok(reply)
}

/// How long an Enter after the key that answers a question is waited for: it belongs to the answer.
const ENTER: Duration = Duration::from_millis(300);

/// Waits for the key that answers a question. Input typed before the question does not answer it, and is discarded.
///
/// # Errors
/// When the terminal cannot be used.
fn ask() -> std::io::Result<Consent> {
    crossterm::terminal::enable_raw_mode()?;
    let reply = next_key();
    crossterm::terminal::disable_raw_mode()?;
    reply
}

fn next_key() -> std::io::Result<Consent> {
    while poll(Duration::ZERO)? {
        read()?;
    }
    loop {
        let Event::Key(key) = read()? else { continue };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if is_control => return Ok(Consent::Interrupted),
            KeyCode::Char(letter @ ('y' | 'Y' | 'n' | 'N')) if !is_control => {
                skip_enter()?;
                return Ok(if letter.eq_ignore_ascii_case(&'y') { Consent::Yes } else { Consent::No });
            }
            _ => return Ok(Consent::No),
        }
    }
}

/// Takes an Enter that follows soon, so that it does not answer the next question.
fn skip_enter() -> std::io::Result<()> {
    while poll(ENTER)? {
        match read()? {
            Event::Key(key) if key.kind == KeyEventKind::Release => {}
            _ => break,
        }
    }
    Ok(())
}

/// Restores the terminal for a process that ends immediately: echo, whole lines, no raw mode.
pub(crate) fn restore() {
    leave_pastes_unmarked();
    // A terminal that is gone needs no restoring.
    let _ = crossterm::terminal::disable_raw_mode();
    #[cfg(unix)]
    terminal::restore();
}

#[cfg(unix)]
mod terminal {
    use std::io::{Stdin, stdin};
    use std::sync::{Mutex, PoisonError};

    use rustix::io::{Errno, read};
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

    /// A terminal that neither echoes nor waits for whole lines.
    pub(super) struct Quiet {
        keyboard: Stdin,
        quiet: Termios,
    }

    /// The terminal's settings before it became quiet.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    pub(super) fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A terminal that is gone needs no restoring.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }

    /// Ends the quiet for a while; returns the settings for [`resume`].
    pub(super) fn pause() -> Option<Termios> {
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let quiet = tcgetattr(stdin()).ok()?;
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        Some(quiet)
    }

    /// Begins the quiet again, if there was one.
    pub(super) fn resume(paused: Option<Termios>) {
        if let Some(quiet) = paused {
            // A terminal that is gone needs no quiet.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &quiet);
        }
    }

    impl Quiet {
        /// Begins, if the input is a terminal.
        pub(super) fn begin() -> Option<Quiet> {
            let keyboard = stdin();
            let before = tcgetattr(&keyboard).ok()?;
            let mut quiet = before.clone();
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
            // What was typed before Ctrl-C is not thrown away.
            quiet.local_modes |= LocalModes::NOFLSH;
            // Reads return at once with what is available.
            quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
            quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
            tcsetattr(&keyboard, OptionalActions::Now, &quiet).ok()?;
            Some(Quiet { keyboard, quiet })
        }

        /// Typed input that has not been read.
        pub(super) fn keys(&self) -> String {
            let (mut keys, mut part) = (Vec::new(), [0; 1024]);
            // A shell that suspended the process may have reset the terminal, in which case reading would block.
            if tcsetattr(&self.keyboard, OptionalActions::Now, &self.quiet).is_err() {
                return String::new();
            }
            loop {
                match read(&self.keyboard, &mut part) {
                    Ok(count @ 1..) => keys.extend_from_slice(&part[..count]),
                    Err(Errno::INTR) => {}
                    Ok(0) | Err(_) => return String::from_utf8_lossy(&keys).into_owned(),
                }
            }
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            restore();
        }
    }
}
