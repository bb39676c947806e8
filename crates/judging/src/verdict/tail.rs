//! The end of a text, read token by token from the last one backwards.

/// Marks that may follow a verdict.
const END_MARKS: &[char] = &['.', '!', '"', '\'', '”', '’', '»', '。'];
/// Maximum length in bytes of a control token that is recognized by its text.
const LONGEST_CONTROL_TOKEN: usize = 40;
/// Control tokens that models write at the end of a turn, without their angle brackets.
const END_TOKENS: [&str; 8] = ["/s", "s", "eos", "end_of_turn", "pad", "unk", "bos", "end"];
/// Dashes that may separate a marker from a verdict.
const DASHES: &[char] = &['-', '–', '—'];

/// The text that has not been taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail<'a> {
    text: &'a str,
}

/// One token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TailToken<'a> {
    pub(super) kind: TailTokenKind<'a>,
    /// Its first byte.
    pub(super) start: usize,
    /// Its end.
    pub(super) end: usize,
    /// Whether white space separates it from the token taken before.
    pub(super) is_spaced: bool,
    /// Whether a line break separates it from that token.
    pub(super) ends_line: bool,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TailTokenKind<'a> {
    /// Letters and digits.
    Word(&'a str),
    /// Any other character.
    Mark(char),
    /// The beginning of the text.
    Start,
}

/// The separator between a verdict and its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// Nothing.
    None,
    /// A colon or an equals sign.
    Colon,
    /// A dash with space around it.
    Dash,
    /// The word "of".
    Of,
}

impl<'a> Tail<'a> {
    /// The end of `text`, without trailing marks and tokens that models append to a verdict.
    pub(super) fn of(text: &'a str) -> Tail<'a> {
        Tail { text: without_leavings(text) }
    }

    /// Takes the last token. Emphasis (`**`) and zero-width characters are skipped.
    pub(super) fn pop(&mut self) -> TailToken<'a> {
        let rest = self.text.trim_end_matches(is_filler);
        let passed = &self.text[rest.len()..];
        let start = match rest.chars().next_back() {
            None => 0,
            Some(last) if last.is_alphanumeric() => rest.trim_end_matches(char::is_alphanumeric).len(),
            Some(last) => rest.len() - last.len_utf8(),
        };
        self.text = &rest[..start];
        let token = &rest[start..];
        let kind = match token.chars().next() {
            None => TailTokenKind::Start,
            Some(first) if first.is_alphanumeric() => TailTokenKind::Word(token),
            Some(first) => TailTokenKind::Mark(first),
        };
        let is_spaced = passed.contains(char::is_whitespace);
        TailToken { kind, start, end: rest.len(), is_spaced, ends_line: passed.contains(['\n', '\r']) }
    }

    /// The last token, without taking it.
    pub(super) fn peek(&self) -> TailToken<'a> {
        let mut copy = *self;
        copy.pop()
    }

    /// Takes the last token if it is this mark.
    pub(super) fn take_mark(&mut self, mark: char) -> bool {
        self.take_if(|token| token.kind == TailTokenKind::Mark(mark)).is_some()
    }

    /// Takes the last token if it is one of these words, in any case.
    pub(super) fn take_word(&mut self, words: &[&str]) -> Option<TailToken<'a>> {
        let is_one = |word: &str| words.iter().any(|wanted| wanted.eq_ignore_ascii_case(word));
        self.take_if(|token| matches!(token.kind, TailTokenKind::Word(word) if is_one(word)))
    }

    /// Takes the last token if `is_wanted` accepts it.
    pub(super) fn take_if(&mut self, is_wanted: impl Fn(&TailToken<'a>) -> bool) -> Option<TailToken<'a>> {
        let token = self.peek();
        is_wanted(&token).then(|| self.pop())
    }

    /// Takes closing brackets; the innermost is the last one returned.
    pub(super) fn take_closing_brackets(&mut self) -> Vec<char> {
        let mut brackets = Vec::new();
        while brackets.len() < 2
            && let Some(token) = self.take_if(|token| matches!(token.kind, TailTokenKind::Mark(')' | ']')))
        {
            brackets.push(if token.kind == TailTokenKind::Mark(')') { '(' } else { '[' });
        }
        brackets
    }

    /// Takes opening brackets as long as they match the closing ones, innermost first.
    pub(super) fn take_opening_brackets(&mut self, brackets: &mut Vec<char>) {
        while let Some(bracket) = brackets.last()
            && self.take_mark(*bracket)
        {
            brackets.pop();
        }
    }

    /// Takes the separator between a verdict and its label. A dash without spaces around it is not a separator: it
    /// makes the verdict a range or a negative number.
    pub(super) fn take_separator(&mut self) -> Separator {
        let is_dash = |token: &TailToken<'a>| matches!(token.kind, TailTokenKind::Mark(mark) if DASHES.contains(&mark));
        if self.take_mark(':') || self.take_mark('=') {
            Separator::Colon
        } else if self.take_if(|token| is_dash(token) && token.is_spaced).is_some() {
            Separator::Dash
        } else if self.take_word(&["of"]).is_some() {
            Separator::Of
        } else {
            Separator::None
        }
    }

    /// Takes `[RESULT]`; returns its start, including adjacent emphasis.
    pub(super) fn take_marker(&mut self) -> Option<usize> {
        let mut ahead = *self;
        let is_marker = ahead.take_mark(']') && ahead.take_word(&["result"]).is_some();
        let start = is_marker.then(|| ahead.take_marker_opening()).flatten()?;
        *self = ahead;
        Some(start)
    }

    /// Takes the `[` of a marker; returns its start, including adjacent emphasis.
    pub(super) fn take_marker_opening(&mut self) -> Option<usize> {
        self.take_if(|token| token.kind == TailTokenKind::Mark('['))
            .map(|_| self.text.trim_end_matches(is_emphasis).len())
    }

    /// Whether a sentence can begin here: at the start of a line, or after a mark that ends a sentence or opens an
    /// item.
    pub(super) fn is_at_boundary(&self) -> bool {
        let before = self.peek();
        match before.kind {
            TailTokenKind::Start => true,
            TailTokenKind::Mark(mark) if ".!?:;)]>#|•".contains(mark) || DASHES.contains(&mark) => true,
            _ => before.ends_line,
        }
    }
}

/// Whether a character only emphasizes the adjacent text.
pub(crate) fn is_emphasis(character: char) -> bool {
    matches!(character, '*' | '_' | '`')
}

fn is_filler(character: char) -> bool {
    character.is_whitespace() || is_emphasis(character) || matches!(character, '\u{200b}'..='\u{200d}' | '\u{feff}')
}

fn without_leavings(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_end_matches(|character| is_filler(character) || END_MARKS.contains(&character));
        match without_control_token(rest) {
            Some(shorter) => rest = shorter,
            None => return rest,
        }
    }
}

/// `text` without the control token (`</s>`, `<|im_end|>`) at its end; `None` if it does not end with one.
fn without_control_token(text: &str) -> Option<&str> {
    let inner = text.strip_suffix('>')?;
    let bytes = inner.as_bytes();
    let from = bytes.len().saturating_sub(LONGEST_CONTROL_TOKEN);
    let opening = from + bytes[from..].iter().rposition(|byte| *byte == b'<')?;
    let name = &inner[opening + 1..];
    let has_bars = name.len() > 2 && name.starts_with('|') && name.ends_with('|');
    let is_control = END_TOKENS.contains(&name) || (has_bars && !name.contains(char::is_whitespace));
    is_control.then(|| &text[..opening])
}
