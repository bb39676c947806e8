//! Blocks of Markdown while it is being written: which are whole, and how the one in progress is shown.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// The supported extensions of Markdown. Formulas are parsed so that nothing in them is taken for emphasis.
pub(super) const EXTENSIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_TASKLISTS);

/// The beginning of a text that no later text can change.
#[derive(Debug, PartialEq)]
pub(super) struct Finished {
    /// Its length, in bytes.
    pub(super) length: usize,
    /// Whether a fenced block of code begins there.
    pub(super) opens_code: bool,
}

/// The blocks of `source` that are whole. Only whole lines are considered: the last one may become anything.
pub(super) fn finished(source: &str) -> Finished {
    let lines = &source[..source.rfind('\n').map_or(0, |end| end + 1)];
    let (mut depth, mut last) = (0_usize, None);
    for (event, range) in Parser::new_ext(lines, EXTENSIONS).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    last = Some((range.start, kind(&tag)));
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Rule if depth == 0 => last = Some((range.start, Kind::OneLine)),
            _ => {}
        }
    }
    let Some((start, kind)) = last else { return Finished { length: 0, opens_code: false } };
    let is_whole = match kind {
        Kind::OneLine => true,
        Kind::UntilBlank => ends_in_blank_line(lines),
        Kind::Code | Kind::Other => false,
    };
    // A block begins in its own line, before which there may be spaces.
    let start = lines[..start].rfind('\n').map_or(0, |end| end + 1);
    Finished { length: if is_whole { lines.len() } else { start }, opens_code: kind == Kind::Code }
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// With its line.
    OneLine,
    /// With a blank line.
    UntilBlank,
    /// With its closing fence.
    Code,
    /// With the block that follows.
    Other,
}

fn kind(tag: &Tag<'_>) -> Kind {
    match tag {
        Tag::Heading { .. } => Kind::OneLine,
        Tag::Paragraph | Tag::Table(_) => Kind::UntilBlank,
        Tag::CodeBlock(CodeBlockKind::Fenced(_)) => Kind::Code,
        _ => Kind::Other,
    }
}

/// Whether the last line is blank.
pub(super) fn ends_in_blank_line(lines: &str) -> bool {
    lines.strip_suffix('\n').is_some_and(|lines| lines.rsplit('\n').next().is_some_and(|line| line.trim().is_empty()))
}

/// The fence that opens a block of code.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fence {
    character: char,
    length: usize,
    /// Columns that are taken from each line.
    pub(super) indent: usize,
    /// The declared language.
    pub(super) language: String,
}

impl Fence {
    /// The fence in this line.
    pub(super) fn open(line: &str) -> Option<Fence> {
        let text = line.trim_start_matches(' ');
        let character = text.chars().next().filter(|first| "`~".contains(*first))?;
        let info = text.trim_start_matches(character);
        let (indent, length) = (line.len() - text.len(), text.len() - info.len());
        (length >= 3).then(|| Fence { character, length, indent, language: language_of(info).to_owned() })
    }

    /// Whether a line closes the block.
    pub(super) fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|character| character == self.character)
    }

    /// Whether a line that is not whole may still become one that closes the block.
    pub(super) fn may_be_closed_by(&self, line: &str) -> bool {
        line.trim().chars().all(|character| character == self.character)
    }
}

/// The language in the text after a fence.
pub(super) fn language_of(info: &str) -> &str {
    info.trim().split([' ', ',', '{']).next().unwrap_or_default()
}

/// The shown form of a block in progress: without ambiguous marks at its end, and with open marks closed, so that bold
/// text is bold from its first word.
pub(super) fn in_progress(source: &str) -> String {
    let line_start = source.rfind('\n').map_or(0, |end| end + 1);
    let last_line = &source[line_start..];
    let is_mark = |character: char| "#-*_=`~>+|:$[".contains(character) || character.is_whitespace();
    let without_number = last_line.trim_start().trim_start_matches(|digit: char| digit.is_ascii_digit());
    let is_number =
        without_number.len() < last_line.trim_start().len() && matches!(without_number.trim(), "" | "." | ")");
    if last_line.chars().all(is_mark) || is_number {
        return source[..line_start].to_owned();
    }
    let mut shown = source.trim_end_matches(['*', '_', '`', '~', ' ']).to_owned();
    let is_fence = |line: &&str| ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence));
    // In a block of code, which is a part of a list or a quote here, nothing is a mark.
    if shown.lines().filter(is_fence).count() % 2 == 0 {
        let block_start = shown.rfind("\n\n").map_or(0, |end| end + 2);
        let closing = closing(&shown[block_start..]);
        shown.push_str(closing);
    }
    shown
}

/// The marks that close bold text and code left open at the end of a text.
fn closing(text: &str) -> &'static str {
    let (mut in_code, mut in_bold, mut rest) = (false, false, text);
    while let Some(first) = rest.chars().next() {
        let step = match first {
            '\\' if !in_code => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '`' => {
                in_code = !in_code;
                1
            }
            '*' if !in_code && rest.starts_with("**") => {
                in_bold = !in_bold;
                2
            }
            other => other.len_utf8(),
        };
        rest = &rest[step..];
    }
    match (in_code, in_bold) {
        (true, true) => "`**",
        (true, false) => "`",
        (false, true) => "**",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str, opens_code: bool) {
        let finished = finished(source);
        assert_eq!((&source[..finished.length], finished.opens_code), (expected, opens_code), "{source:?}");
    }

    #[test]
    fn a_block_is_finished_when_nothing_can_change_it() {
        check("one", "", false);
        check("one\n", "", false);
        check("one\n\n", "one\n\n", false);
        check("one\n# ", "", false);
        check("# one\n", "# one\n", false);
        check("one\n\n- two\n\n", "one\n\n", false);
        check("- two\n\nthree\n", "- two\n\n", false);
        check("- two\n\n  three\n\n", "", false);
        check("one\n---\n", "one\n---\n", false);
        check("| a |\n|---|\n| b |\n", "", false);
        check("| a |\n|---|\n| b |\n\n", "| a |\n|---|\n| b |\n\n", false);
        check("one\n```rust\n", "one\n", true);
        check("one\n```rust", "", false);
        check("   ```\n", "", true);
        check("> one\n", "", false);
        check("---\ntwo", "---\n", false);
    }

    #[test]
    fn fences_are_read() {
        let fence = Fence::open("  ````rust,ignore").unwrap();
        assert_eq!((fence.indent, fence.language.as_str()), (2, "rust"));
        assert!(fence.is_closed_by(" `````") && !fence.is_closed_by("```") && !fence.is_closed_by("````x"));
        assert!(fence.may_be_closed_by("``") && !fence.may_be_closed_by("x"));
        assert_eq!(Fence::open("``x"), None);
    }

    #[test]
    fn a_block_in_progress_is_shown_as_it_will_be() {
        let check = |source: &str, expected: &str| assert_eq!(in_progress(source), expected, "{source:?}");
        check("a **bo", "a **bo**");
        check("a **bo**", "a **bo**");
        check("a **", "a");
        check("a `co", "a `co`");
        check("a `b **c", "a `b **c`");
        check(r"a \`b", r"a \`b");
        check("one\n-", "one\n");
        check("one\n2.", "one\n");
        check("one\n2. x", "one\n2. x");
        check("**a\n\nb", "**a\n\nb");
        check("2", "");
        check("2 apples", "2 apples");
        check("- a\n  ```\n  b", "- a\n  ```\n  b");
    }
}
