//! Code blocks as HTML, with a class for each kind of word. The page defines the colours.

use crate::highlighting::{CodeHighlighter, LONGEST_LINE, WordKind};

/// The longest block that is highlighted, in bytes. Longer blocks, and blocks with a line too long for the highlighter,
/// stay plain.
const LONGEST_BLOCK: usize = 64 << 10;

/// The classes of words.
pub(super) const CLASSES: [&str; 9] = [
    "code-attribute",
    "code-comment",
    "code-constant",
    "code-deleted",
    "code-function",
    "code-inserted",
    "code-keyword",
    "code-string",
    "code-type",
];

/// The class of a kind; plain text has none.
fn class_of(kind: WordKind) -> &'static str {
    match kind {
        WordKind::Plain => "",
        WordKind::Attribute => "code-attribute",
        WordKind::Comment => "code-comment",
        WordKind::Constant => "code-constant",
        WordKind::Deleted => "code-deleted",
        WordKind::Function => "code-function",
        WordKind::Inserted => "code-inserted",
        WordKind::Keyword => "code-keyword",
        WordKind::String => "code-string",
        WordKind::Type => "code-type",
    }
}

/// A code block as HTML, without the enclosing elements; plain text if the language is unknown.
pub(super) fn html_of_code(code: &str, language: &str) -> String {
    highlighted(code, language).unwrap_or_else(|| ammonia::clean_text(code))
}

fn highlighted(code: &str, language: &str) -> Option<String> {
    if code.len() > LONGEST_BLOCK || code.lines().any(|line| line.len() > LONGEST_LINE) {
        return None;
    }
    let (mut highlighter, mut html) = (CodeHighlighter::new(language)?, Spans::default());
    for line in code.split_inclusive('\n') {
        for (range, kind) in highlighter.words(line)? {
            html.push(&line[range], kind);
        }
    }
    Some(html.finish())
}

/// HTML that is written word by word; consecutive words of one class share an element.
#[derive(Default)]
struct Spans {
    html: String,
    text: String,
    kind: Option<WordKind>,
}

impl Spans {
    fn push(&mut self, text: &str, kind: WordKind) {
        if self.kind != Some(kind) {
            self.flush();
            self.kind = Some(kind);
        }
        self.text.push_str(text);
    }

    fn flush(&mut self) {
        let text = ammonia::clean_text(&std::mem::take(&mut self.text));
        match self.kind.map_or("", class_of) {
            _ if text.is_empty() => {}
            "" => self.html.push_str(&text),
            class => self.html.push_str(&format!("<span class=\"{class}\">{text}</span>")),
        }
    }

    fn finish(mut self) -> String {
        self.flush();
        self.html
    }
}
