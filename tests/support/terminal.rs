//! A terminal with a chat in it.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

use crate::support::{Home, PATIENCE, patiently, smollm2, wait_for};

/// A terminal of 60 lines of 100 columns with a chat in it.
pub(crate) struct Terminal {
    pub(crate) keyboard: Arc<Mutex<Box<dyn Write + Send>>>,
    pub(crate) screen: Arc<Mutex<vt100::Parser>>,
    pub(crate) master: Arc<Mutex<Box<dyn MasterPty + Send>>>,
    pub(crate) child: Box<dyn Child + Send + Sync>,
    /// Everything that was written to it.
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn chat(home: &Home, arguments: &[&str]) -> Terminal {
        Terminal::chat_with(home, &[&["--model", &smollm2(), "--temperature", "0"], arguments].concat())
    }

    /// A chat with these arguments alone.
    pub(crate) fn chat_with(home: &Home, arguments: &[&str]) -> Terminal {
        Terminal::chat_in(home, arguments, 100)
    }

    /// A chat in a terminal of this many columns.
    pub(crate) fn chat_in(home: &Home, arguments: &[&str], columns: u16) -> Terminal {
        Terminal::hone_in(home, &[&["chat"], arguments].concat(), columns)
    }

    /// A chat in a terminal that is taller than any text of a judge, which differs in every run.
    pub(crate) fn tall_chat(home: &Home, arguments: &[&str]) -> Terminal {
        let model = smollm2();
        let arguments = [&["chat", "--model", &model, "--temperature", "0"], arguments].concat();
        Terminal::start(home, &arguments, PtySize { rows: 1000, cols: 100, ..PtySize::default() })
    }

    /// hone with these arguments.
    pub(crate) fn hone_in(home: &Home, arguments: &[&str], columns: u16) -> Terminal {
        Terminal::start(home, arguments, PtySize { rows: 60, cols: columns, ..PtySize::default() })
    }

    fn start(home: &Home, arguments: &[&str], size: PtySize) -> Terminal {
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_hone"));
        command.args(arguments);
        command.env("HONE_HOME", home.path("data"));
        command.env("HONE_CONFIG", home.path("config"));
        command.env("HONE_OFFLINE", "1");
        command.env("TERM", "xterm-256color");
        home.variables.iter().for_each(|(name, value)| command.env(name, value));
        let child = pair.slave.spawn_command(command).unwrap();
        let keyboard = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size.rows, size.cols, 200)));
        let mut output = pair.master.try_clone_reader().unwrap();
        let (answers, shown) = (Arc::clone(&keyboard), Arc::clone(&screen));
        let master = Arc::new(Mutex::new(pair.master));
        let kept = Arc::clone(&master);
        let written = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..count]);
                let mut screen = shown.lock().unwrap();
                screen.process(&bytes[..count]);
                // The line editor asks the terminal for the cursor's position.
                if bytes[..count].windows(4).any(|window| window == b"\x1b[6n") {
                    let (row, column) = screen.screen().cursor_position();
                    write!(answers.lock().unwrap(), "\x1b[{};{}R", row + 1, column + 1).unwrap();
                }
            }
            // The master must live as long as its reader.
            drop(kept);
        });
        Terminal { keyboard, screen, master, child, written }
    }

    pub(crate) fn type_text(&self, text: &str) {
        self.keyboard.lock().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Everything that was written to the terminal, with its control sequences.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Fails if a colour was written that is hard to read on a light or on a dark background.
    #[track_caller]
    pub(crate) fn check_colours(&self) {
        let written = self.written();
        let parameters = written.split("\u{1b}[").filter_map(|rest| {
            let end = rest.find(|character: char| !"0123456789;:".contains(character))?;
            rest[end..].starts_with('m').then(|| &rest[..end])
        });
        // Black and white, and every background.
        let is_fixed = |number: &str| {
            matches!(number, "30" | "37" | "97" | "38" | "48") || number.len() > 1 && number.starts_with('4')
        };
        let fixed: Vec<&str> = parameters.filter(|all| all.split(';').any(is_fixed)).collect();
        assert!(fixed.is_empty(), "{fixed:?} in {written:?}");
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        let (_, columns) = screen.screen().size();
        screen.screen().rows(0, columns).map(|line| line.trim_end().to_string()).collect()
    }

    /// Waits until the chat has ended.
    #[track_caller]
    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        wait_for("the chat ends", || self.child.try_wait().unwrap())
    }

    /// Leaves the chat with Ctrl-D. While the chat reads no line, the terminal edits the line itself, and swallows that
    /// key.
    #[track_caller]
    pub(crate) fn end_chat(&mut self) {
        #[cfg(unix)]
        crate::support::wait_until("the chat reads keys", || !self.is_set("ICANON"));
        self.end_chat_of_lines();
    }

    /// Like `end_chat`, where the terminal edits the lines because it moves no cursor.
    #[track_caller]
    pub(crate) fn end_chat_of_lines(&mut self) {
        self.type_text("\u{4}");
        assert!(self.exit_status().success());
    }

    /// Whether the terminal has a local mode, such as `ICANON`: it edits lines itself.
    #[cfg(unix)]
    pub(crate) fn is_set(&self, wanted: &str) -> bool {
        let settings = self.master.lock().unwrap().get_termios().unwrap();
        settings.local_flags.iter_names().any(|(name, _)| name == wanted)
    }

    /// Waits until the screen's lines are as `wanted` says, and returns them.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        patiently(PATIENCE, || Some(self.lines()).filter(|lines| wanted(lines)))
            .unwrap_or_else(|| panic!("no {what} on the screen:\n{}", self.lines().join("\n")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}
