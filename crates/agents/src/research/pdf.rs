//! The text of PDF files, page by page.
//!
//! A PDF is a kind of program: it decompresses to any size, refers to itself, and has caused failures in every reader.
//! So it is read in a separate process, whose time, memory and output are limited from outside; see [`PdfProcess`].

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The time limit for a file.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The stack of the reading thread, large since references nest.
const STACK_BYTES: usize = 64 << 20;
/// The bytes with which a PDF begins.
const MARK: &[u8] = b"%PDF-";
/// The most bytes before the beginning of a PDF.
const MOST_BEFORE: usize = 1024;
/// The most bytes of a file's text.
const MOST_TEXT: u64 = 64 << 20;

/// Whether a file is a PDF. Other bytes may precede it, if the file is not a text that is about PDFs.
pub fn is_pdf(file: &[u8]) -> bool {
    file.starts_with(MARK) || beginning(file).is_some() && std::str::from_utf8(file).is_err()
}

/// Where a PDF begins in its file (ISO 32000-1, annex H.3, implementation note 13).
fn beginning(file: &[u8]) -> Option<usize> {
    file.windows(MARK.len()).take(MOST_BEFORE).position(|bytes| bytes == MARK)
}

/// Starts the processes that read PDF files.
#[derive(Clone, Debug)]
pub struct PdfProcess {
    /// The program that calls [`serve_pdf`] when it gets the argument.
    pub program: PathBuf,
    /// The argument that makes it do so.
    pub argument: String,
    /// The time limit for a file.
    pub time_limit: Duration,
}

impl PdfProcess {
    /// Processes that run this program.
    pub fn new(program: PathBuf, argument: &str) -> PdfProcess {
        PdfProcess { program, argument: argument.to_owned(), time_limit: TIME_LIMIT }
    }

    /// The text of each page.
    ///
    /// # Errors
    /// Why it cannot be read, worded to follow "it".
    pub fn pages(&self, file: Vec<u8>) -> Result<Vec<String>, String> {
        let started = Command::new(&self.program)
            .arg(&self.argument)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let child = started.map_err(|error| format!("needs a process of its own, which cannot be started: {error}"))?;
        let mut child = Ended(child);
        let (stdin, stdout) = (child.0.stdin.take(), child.0.stdout.take());
        // A process that has ended does not read the rest of the file; the write error is ignored.
        thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&file)));
        let (sender, received) = channel();
        thread::spawn(move || {
            let mut answer = Vec::new();
            let _ = stdout.map(|stdout| stdout.take(MOST_TEXT).read_to_end(&mut answer));
            let _ = sender.send(answer);
        });
        match received.recv_timeout(self.time_limit) {
            Ok(answer) => match serde_json::from_slice(&answer) {
                Ok(pages) => pages,
                Err(_) => Err("took more memory than it may, or ended the process that read it".to_owned()),
            },
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(format!("took more than {} seconds to read", self.time_limit.as_secs_f64()))
            }
        }
    }
}

/// A process that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads the PDF on stdin and writes the text of its pages, or an error, as JSON to stdout. The caller has limited the
/// process.
///
/// # Errors
/// When a stream breaks, or the thread cannot be started.
pub fn serve_pdf() -> io::Result<()> {
    let mut file = Vec::new();
    io::stdin().read_to_end(&mut file)?;
    let reader = thread::Builder::new().name("pdf".into()).stack_size(STACK_BYTES).spawn(move || text_of(&file))?;
    let pages = reader.join().unwrap_or_else(|_| Err("ended the thread that read it".to_owned()));
    serde_json::to_writer(io::stdout().lock(), &pages)?;
    io::stdout().flush()
}

/// The text of each page.
fn text_of(file: &[u8]) -> Result<Vec<String>, String> {
    let begin = beginning(file).unwrap_or_default();
    match extracted(&file[begin..]) {
        // Its offsets may count from the beginning of the file.
        Err(_) if begin > 0 => extracted(file),
        read => read,
    }
}

fn extracted(file: &[u8]) -> Result<Vec<String>, String> {
    let read = AssertUnwindSafe(|| pdf_extract::extract_text_from_mem_by_pages(file));
    match catch_unwind(read) {
        Ok(Ok(pages)) => Ok(pages),
        Ok(Err(error)) => Err(format!("is not a PDF that can be read: {error}")),
        Err(_) => Err("is not a PDF that can be read: its structure is broken".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::samples::pdf;

    #[test]
    fn each_page_has_its_text() {
        let pages = text_of(&pdf(&["The mill was built in 1792.", "It burned down in 1871."])).unwrap();
        assert_eq!(
            pages.iter().map(|page| page.trim()).collect::<Vec<_>>(),
            ["The mill was built in 1792.", "It burned down in 1871."]
        );
    }

    #[test]
    fn a_pdf_may_begin_after_other_bytes() {
        let file = [b"\xff\x00\r\n".as_slice(), &pdf(&["The mill was built in 1792."])].concat();
        assert!(is_pdf(&file) && !is_pdf("A PDF begins with %PDF-, and this does not.".as_bytes()));
        assert!(text_of(&file).unwrap()[0].contains("1792"));
    }

    #[test]
    fn no_part_of_a_file_and_no_changed_byte_ends_the_reader() {
        let file = pdf(&["The mill was built in 1792."]);
        for length in (0..file.len()).step_by(7) {
            let _ = text_of(&file[..length]);
        }
        for at in (0..file.len()).step_by(5) {
            let mut changed = file.clone();
            changed[at] ^= 0x15;
            let _ = text_of(&changed);
        }
        assert!(text_of(b"%PDF-1.7 and nothing else").unwrap_err().starts_with("is not a PDF that can be read"));
    }

    #[test]
    fn a_process_that_says_nothing_is_ended() {
        let process = |program: &str, argument: &str| PdfProcess {
            time_limit: Duration::from_millis(100),
            ..PdfProcess::new(program.into(), argument)
        };
        if cfg!(unix) {
            let error = process("sleep", "60").pages(Vec::new()).unwrap_err();
            assert_eq!(error, "took more than 0.1 seconds to read");
            let error = process("cat", "/dev/null").pages(Vec::new()).unwrap_err();
            assert!(error.starts_with("took more memory than it may"), "{error}");
        }
        let error = process("no-such-program", "").pages(Vec::new()).unwrap_err();
        assert!(error.contains("cannot be started"), "{error}");
    }
}
