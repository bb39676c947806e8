//! Texts whose lines record their places, and the parts of them that can be cited.

use std::fmt;

use hone_protocol::QueryId;
use serde::{Deserialize, Serialize};

/// A file's text, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The file's name in citations.
    pub name: String,
    /// The unit that its line numbers count.
    pub unit: DocumentUnit,
    /// Its lines in order. Several may have the same number: the lines of a page, or blocks of HTML in one line of the
    /// source.
    pub lines: Vec<DocumentLine>,
}

/// The unit of places in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentUnit {
    /// Lines of the file, from 1.
    Line,
    /// Pages, from 1.
    Page,
}

/// A line of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLine {
    /// The line's number, or that of its page.
    pub number: usize,
    /// Its text, without the line ending.
    pub text: String,
}

impl Document {
    /// A document of a text, divided into lines.
    pub fn of_text(name: impl Into<String>, text: &str) -> Document {
        let line = |(index, text): (usize, &str)| DocumentLine { number: index + 1, text: text.to_owned() };
        Document { name: name.into(), unit: DocumentUnit::Line, lines: text.lines().enumerate().map(line).collect() }
    }

    /// A document of the texts of pages.
    pub(super) fn of_pages(name: impl Into<String>, pages: &[String]) -> Document {
        let lines = pages.iter().enumerate().flat_map(|(index, page)| {
            page.lines().map(move |text| DocumentLine { number: index + 1, text: text.to_owned() })
        });
        Document { name: name.into(), unit: DocumentUnit::Page, lines: lines.collect() }
    }

    /// Whether it holds no text.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.text.trim().is_empty())
    }

    /// The place of the lines with these numbers.
    pub(super) fn place(&self, first: usize, last: usize) -> PassagePlace {
        let file = self.name.clone();
        match self.unit {
            DocumentUnit::Line => PassagePlace::Lines { file, first, last },
            DocumentUnit::Page => PassagePlace::Page { file, page: first },
        }
    }
}

/// The place of a passage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassagePlace {
    /// Lines of a file.
    Lines {
        /// The file.
        file: String,
        /// The first line, from 1.
        first: usize,
        /// The last line.
        last: usize,
    },
    /// A page of a file.
    Page {
        /// The file.
        file: String,
        /// The page, from 1.
        page: usize,
    },
    /// An engram.
    Memory {
        /// Its id.
        id: QueryId,
    },
}

impl fmt::Display for PassagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassagePlace::Lines { file, first, last } if first == last => write!(f, "{file}:{first}"),
            PassagePlace::Lines { file, first, last } => write!(f, "{file}:{first}-{last}"),
            PassagePlace::Page { file, page } => write!(f, "{file}, page {page}"),
            PassagePlace::Memory { id } => write!(f, "memory {id}"),
        }
    }
}

/// A part of a source that can be cited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// The place.
    pub place: PassagePlace,
    /// The text.
    pub text: String,
}
