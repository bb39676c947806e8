//! Lines that arrive at any time (grades, events, the log), printed when they disturb nothing.
//!
//! They are printed above a line being typed, wait while an answer is being printed, and otherwise appear at once. If
//! stderr is not a terminal, there is nothing to disturb.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Line, Output};

/// The destination of such lines. Clones share it.
#[derive(Clone)]
pub(crate) struct Lines {
    output: Output,
    state: Arc<Mutex<LinesState>>,
}

#[derive(Default)]
struct LinesState {
    screen: Screen,
    /// Lines waiting for the screen.
    held: Vec<Line>,
    /// The latest line of the log.
    logged: Option<Line>,
}

/// The current user of the screen.
#[derive(Default)]
enum Screen {
    /// None.
    #[default]
    Free,
    /// An answer, or other output of a command.
    Busy,
    /// The user is typing; the channel prints above their line.
    Typing(SyncSender<String>),
}

impl Lines {
    /// Starts with the screen free.
    pub(crate) fn new(output: Output) -> Lines {
        Lines { output, state: Arc::default() }
    }

    /// Holds lines back from now on.
    pub(crate) fn hold(&self) {
        self.lock().screen = Screen::Busy;
    }

    /// A line is being typed from now on, and `printer` prints above it. Lines held back are printed first.
    pub(crate) fn begin_typing(&self, printer: SyncSender<String>) {
        self.give_screen(Screen::Typing(printer));
    }

    /// The screen is free from now on. Lines held back are printed.
    pub(crate) fn release(&self) {
        self.give_screen(Screen::Free);
    }

    /// Prints a line as soon as it disturbs nothing.
    pub(crate) fn announce(&self, line: Line) {
        self.lock().announce(line, self.output);
    }

    /// Like [`announce`](Lines::announce), for a log line; immediate repetitions are printed once.
    pub(crate) fn announce_log(&self, text: String) {
        let line = Line::plain(text);
        let mut state = self.lock();
        if state.logged.as_ref() != Some(&line) {
            state.logged = Some(line.clone());
            state.announce(line, self.output);
        }
    }

    fn give_screen(&self, screen: Screen) {
        let mut state = self.lock();
        state.screen = screen;
        for line in std::mem::take(&mut state.held) {
            self.output.announce(&line);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinesState {
    fn announce(&mut self, line: Line, output: Output) {
        match &self.screen {
            Screen::Busy if output.stderr_is_terminal => self.held.push(line),
            Screen::Free | Screen::Busy => output.announce(&line),
            // If the prompt is gone or its channel is full, the line waits for the next one.
            Screen::Typing(printer) => {
                if printer.try_send(output.rendered(&line)).is_err() {
                    self.held.push(line);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    /// Checks the lines that a prompt receives, one at a time, and those that wait.
    #[track_caller]
    fn check(lines: &Lines, shown: &Receiver<String>, expected: &[&str], held: &[&str]) {
        assert_eq!(shown.try_iter().collect::<Vec<_>>(), expected);
        assert_eq!(lines.lock().held, held.iter().map(|text| Line::plain(*text)).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_goes_above_what_is_typed_and_waits_for_the_end_of_an_answer() {
        let mut output = Output::plain();
        output.stderr_is_terminal = true;
        let lines = Lines::new(output);
        let (printer, shown) = sync_channel(1);
        lines.begin_typing(printer);
        lines.announce(Line::plain("one\u{1b}[2J"));
        check(&lines, &shown, &["one␛[2J"], &[]);
        lines.announce(Line::plain("two"));
        lines.announce(Line::plain("too many for the prompt"));
        check(&lines, &shown, &["two"], &["too many for the prompt"]);
        lines.release();
        lines.hold();
        lines.announce(Line::plain("three"));
        lines.announce_log("four".to_owned());
        lines.announce_log("four".to_owned());
        check(&lines, &shown, &[], &["three", "four"]);
        lines.release();
        lines.announce(Line::plain("five"));
        check(&lines, &shown, &[], &[]);
    }

    #[test]
    fn a_script_is_given_every_line_at_once() {
        let lines = Lines::new(Output::plain());
        let (_printer, shown) = sync_channel(1);
        lines.hold();
        lines.announce(Line::plain("one"));
        check(&lines, &shown, &[], &[]);
    }
}
