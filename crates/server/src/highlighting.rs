//! Syntax highlighting, line by line, for the page and the terminal.

use std::ops::Range;
use std::sync::LazyLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

/// The longest line that is highlighted, in bytes; longer lines stay plain.
pub(crate) const LONGEST_LINE: usize = 2000;

/// The kind of a word in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    /// No special kind.
    Plain,
    /// The name of an attribute or a property.
    Attribute,
    /// A comment.
    Comment,
    /// A number, or another constant.
    Constant,
    /// A line removed by a diff.
    Deleted,
    /// The name of a function.
    Function,
    /// A line added by a diff.
    Inserted,
    /// A keyword.
    Keyword,
    /// A string.
    String,
    /// The name of a type.
    Type,
}

/// The kind of each scope, the narrower ones first.
const SCOPES: [(&str, WordKind); 24] = [
    ("comment", WordKind::Comment),
    ("string", WordKind::String),
    ("constant", WordKind::Constant),
    ("keyword.operator.word", WordKind::Keyword),
    ("keyword.operator.logical.python", WordKind::Keyword),
    ("keyword.operator", WordKind::Plain),
    ("keyword", WordKind::Keyword),
    ("storage", WordKind::Keyword),
    ("variable.language", WordKind::Keyword),
    ("variable.function", WordKind::Function),
    ("entity.name.function", WordKind::Function),
    ("support.function", WordKind::Function),
    ("support.macro", WordKind::Function),
    ("entity.other.attribute-name", WordKind::Attribute),
    ("entity.name.tag", WordKind::Keyword),
    ("support.type.property-name", WordKind::Attribute),
    ("entity.name", WordKind::Type),
    ("entity.other.inherited-class", WordKind::Type),
    ("support.type", WordKind::Type),
    ("support.class", WordKind::Type),
    ("markup.inserted", WordKind::Inserted),
    ("markup.deleted", WordKind::Deleted),
    ("markup.heading", WordKind::Keyword),
    ("markup.raw", WordKind::String),
];

/// Language names as models write them, and as the syntaxes know them.
const ALIASES: [(&str, &str); 8] = [
    ("shell", "bash"),
    ("console", "bash"),
    ("csharp", "cs"),
    ("golang", "go"),
    ("objective-c", "objc"),
    ("objectivec", "objc"),
    ("jsonc", "json"),
    ("py3", "python"),
];

/// bat's syntaxes. Their regular expressions are compiled on first use.
static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

static KIND_OF_SCOPE: LazyLock<Vec<(Scope, WordKind)>> =
    LazyLock::new(|| SCOPES.iter().filter_map(|(scope, kind)| Some((Scope::new(scope).ok()?, *kind))).collect());

/// Highlights a block of code.
pub struct CodeHighlighter {
    state: ParseState,
    stack: ScopeStack,
}

impl CodeHighlighter {
    /// A highlighter for a language, as named in a Markdown code block; `None` if the language is unknown.
    pub fn new(language: &str) -> Option<CodeHighlighter> {
        let state = ParseState::new(syntax_of(language)?);
        Some(CodeHighlighter { state, stack: ScopeStack::new() })
    }

    /// The words of the next line, including its line break; together they make up the line. `None` if the line is
    /// longer than 2000 bytes, or the syntax cannot parse it.
    pub fn words(&mut self, line: &str) -> Option<Vec<(Range<usize>, WordKind)>> {
        if line.trim_end_matches('\n').len() > LONGEST_LINE {
            return None;
        }
        let (mut words, mut place) = (Vec::new(), 0);
        for (change_at, change) in self.state.parse_line(line, &SYNTAXES).ok()? {
            words.push((place..change_at, kind_of(&self.stack)));
            place = change_at;
            // If a syntax mishandles the stack, only colours are lost.
            let _ = self.stack.apply(&change);
        }
        words.push((place..line.len(), kind_of(&self.stack)));
        words.retain(|(range, _)| !range.is_empty());
        Some(words)
    }
}

fn syntax_of(language: &str) -> Option<&'static SyntaxReference> {
    if language.is_empty() {
        return None;
    }
    let language = language.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == language).map(|(_, name)| *name);
    SYNTAXES.find_syntax_by_token(alias.unwrap_or(&language))
}

fn kind_of(stack: &ScopeStack) -> WordKind {
    let kind_of = |scope: &Scope| KIND_OF_SCOPE.iter().find(|(known, _)| known.is_prefix_of(*scope));
    stack.scopes.iter().rev().find_map(kind_of).map_or(WordKind::Plain, |(_, kind)| *kind)
}
