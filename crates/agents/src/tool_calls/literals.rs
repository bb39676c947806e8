//! Parses values in the syntax of Python, or of Gemma 4: JSON with `<|"|>` around texts and bare keys.

use hone_protocol::TEXT_MARK;
use serde_json::{Map, Value};

/// How deeply values may be nested.
const MAX_DEPTH: usize = 32;

/// Reads values from the beginning of a text. White space between them is ignored.
pub(super) struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Reader { rest: text.trim_start(), depth: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips `mark` if it comes next; returns whether it did.
    pub(super) fn take(&mut self, mark: &str) -> bool {
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest).trim_start();
        rest.is_some()
    }

    /// The next name.
    pub(super) fn word(&mut self) -> Option<&'t str> {
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-' | '+');
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        (!word.is_empty()).then_some(word)
    }

    /// Named values: `(a=1, b=2)`.
    pub(super) fn pairs(&mut self, open: &str, between: &str, close: &str) -> Option<Map<String, Value>> {
        let mut pairs = Map::new();
        self.list(open, close, |reader| {
            let key = match reader.text() {
                Some(key) => key,
                None => reader.word()?.to_owned(),
            };
            reader.take(between).then_some(())?;
            pairs.insert(key, reader.value()?);
            Some(())
        })?;
        Some(pairs)
    }

    /// Reads items with `item`, separated by commas, up to `close`.
    fn list(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH && self.take(open)).then_some(())?;
        while !self.take(close) {
            item(self)?;
            if !self.take(",") {
                self.take(close).then_some(())?;
                break;
            }
        }
        self.depth -= 1;
        Some(())
    }

    fn value(&mut self) -> Option<Value> {
        if let Some(text) = self.text() {
            return Some(Value::String(text));
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if self.rest.starts_with(open) {
                let mut items = Vec::new();
                self.list(open, close, |reader| reader.value().map(|value| items.push(value)))?;
                return Some(Value::Array(items));
            }
        }
        if self.rest.starts_with('{') {
            return self.pairs("{", ":", "}").map(Value::Object);
        }
        match self.word()? {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            number => serde_json::from_str(number).ok().filter(Value::is_number),
        }
    }

    /// The next quoted text.
    fn text(&mut self) -> Option<String> {
        if let Some(rest) = self.rest.strip_prefix(TEXT_MARK) {
            let (text, rest) = rest.split_once(TEXT_MARK)?;
            self.rest = rest.trim_start();
            return Some(text.to_owned());
        }
        let quote = self.rest.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
        let mut text = String::new();
        let mut letters = self.rest[1..].char_indices();
        while let Some((place, letter)) = letters.next() {
            match letter {
                '\\' => match letters.next()?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    escaped @ ('\\' | '\'' | '"' | '/') => text.push(escaped),
                    other => text.extend(['\\', other]),
                },
                _ if letter == quote => {
                    self.rest = self.rest[place + 2..].trim_start();
                    return Some(text);
                }
                _ => text.push(letter),
            }
        }
        None
    }
}
