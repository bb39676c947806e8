//! Reads one file: plain text and source code as they are, HTML and PDF by their text.

use std::fs;
use std::io::{self, Read};
use std::panic::catch_unwind;
use std::path::Path;

use hone_files::open_regular;
use thiserror::Error;

use super::document::Document;
use super::html;
use super::pdf::{PdfProcess, is_pdf};

/// The reason why a file cannot be a source, worded to follow the name of the file.
#[derive(Debug, Error)]
pub enum UnreadableSource {
    /// The operating system refused to read it.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A device, a pipe or a socket.
    #[error("is no regular file")]
    NoFile,
    /// It is too large.
    #[error("is larger than {} MiB, the most that a source may have (research.largest_file_mib)", .limit >> 20)]
    TooLarge {
        /// The most bytes.
        limit: u64,
    },
    /// It is not a text.
    #[error("{0}")]
    NotText(#[from] NotText),
    /// A page or a PDF without text that can be read.
    #[error("{0}")]
    Broken(String),
    /// It holds no text.
    #[error("holds no text")]
    Empty,
}

/// The reason why bytes are not a text, worded to follow a name.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NotText {
    /// They contain a zero byte, which no text does.
    #[error("is a binary file")]
    Binary,
    /// They are in another encoding.
    #[error("is not UTF-8")]
    NotUtf8,
}

/// The text of a file's bytes, without a byte order mark.
///
/// # Errors
/// When they are not UTF-8, or contain a zero byte.
pub fn decode_text(bytes: Vec<u8>) -> Result<String, NotText> {
    if bytes.contains(&0) {
        return Err(NotText::Binary);
    }
    let text = String::from_utf8(bytes).map_err(|_| NotText::NotUtf8)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads files.
#[derive(Clone, Debug)]
pub struct SourceReader {
    /// The most bytes of a file.
    pub largest_file: u64,
    /// The reader of PDF files.
    pub pdf: PdfProcess,
}

/// A file's name in citations: on one line, and without characters that would control a terminal or change the display
/// order of others.
pub(super) fn name_of(path: &Path) -> String {
    let is_active = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut name = String::new();
    for character in path.display().to_string().chars() {
        match character {
            active if is_active(active) => name.extend(active.escape_default()),
            plain => name.push(plain),
        }
    }
    name
}

impl SourceReader {
    /// The text of a file, with the places of its lines.
    ///
    /// # Errors
    /// The reason why the file cannot be a source.
    pub fn read(&self, path: &Path) -> Result<Document, UnreadableSource> {
        let name = name_of(path);
        // Opening a pipe would block until its other end is opened.
        if !fs::metadata(path)?.is_file() {
            return Err(UnreadableSource::NoFile);
        }
        let mut bytes = Vec::new();
        open_regular(path)?.take(self.largest_file + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > self.largest_file {
            return Err(UnreadableSource::TooLarge { limit: self.largest_file });
        }
        let document = match SourceFormat::of(path, &bytes) {
            SourceFormat::Pdf => Document::of_pages(name, &self.pdf.pages(bytes).map_err(UnreadableSource::Broken)?),
            SourceFormat::Html => {
                let source = decode_text(bytes)?;
                let read = catch_unwind(|| html::read(&name, &source));
                read.map_err(|_| UnreadableSource::Broken("is not HTML that can be read".to_owned()))?
            }
            SourceFormat::Text => Document::of_text(name, &decode_text(bytes)?),
        };
        if document.is_empty() { Err(UnreadableSource::Empty) } else { Ok(document) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceFormat {
    Text,
    Html,
    Pdf,
}

impl SourceFormat {
    fn of(path: &Path, bytes: &[u8]) -> SourceFormat {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match extension.as_str() {
            "pdf" => SourceFormat::Pdf,
            "html" | "htm" | "xhtml" => SourceFormat::Html,
            // Markdown and code may mention a PDF's marker; a PDF contains it and is not text.
            _ if is_pdf(bytes) => SourceFormat::Pdf,
            _ => SourceFormat::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::document::DocumentUnit;

    fn reader() -> SourceReader {
        SourceReader { largest_file: 1000, pdf: PdfProcess::new("no-such-program".into(), "") }
    }

    #[track_caller]
    fn check(name: &str, content: &[u8], expected: Result<(usize, &str), &str>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        match (reader().read(&path), expected) {
            (Ok(document), Ok((number, text))) => {
                let line = document.lines.last().unwrap();
                assert_eq!((document.unit, line.number, line.text.as_str()), (DocumentUnit::Line, number, text));
            }
            (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
            (other, _) => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn text_html_and_code_are_read_with_their_lines() {
        check("a.md", "\u{feff}# Mill\r\n\r\nBuilt in 1792.".as_bytes(), Ok((3, "Built in 1792.")));
        check("a.rs", b"fn main() {\n    run();\n}\n", Ok((3, "}")));
        check("A.HTM", b"<h1>Mill</h1>\n<p>Built in <b>1792</b>.</p>", Ok((2, "Built in 1792.")));
        check("no extension", b"one\ntwo", Ok((2, "two")));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        check("photo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Err("is a binary file"));
        check("page.html", b"<p>\0\0</p>", Err("is a binary file"));
        check("notes.docx", b"PK\x03\x04\x14\0\0\0\x08\0", Err("is a binary file"));
        check("bomb.txt", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", Err("is a binary file"));
        check("old.txt", b"gr\xfcn", Err("is not UTF-8"));
        check("blank.txt", b" \n\n", Err("holds no text"));
        check("empty.html", b"<script>run()</script>", Err("holds no text"));
        check("long.txt", &[b'a'; 1001], Err("is larger than 0 MiB"));
        check("named.pdf", b"not one", Err("needs a process of its own"));
        check("unnamed", b"%PDF-1.4\n", Err("needs a process of its own"));
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(reader().read(folder.path()), Err(UnreadableSource::NoFile)));
        assert!(matches!(reader().read(&folder.path().join("absent")), Err(UnreadableSource::Io(_))));
        if cfg!(unix) {
            assert!(matches!(reader().read(Path::new("/dev/zero")), Err(UnreadableSource::NoFile)));
        }
    }
}
