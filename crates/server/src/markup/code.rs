//! Blocks of code as HTML, with a class for each kind of word. The colours are those of the page.

use std::sync::LazyLock;

use syntect::parsing::{ParseState, ParsingError, Scope, ScopeStack, SyntaxReference, SyntaxSet};
use syntect::util::LinesWithEndings;

/// The longest block that is highlighted, and the longest line in it, in bytes; longer ones stay plain.
const LONGEST_BLOCK: usize = 64 << 10;
const LONGEST_LINE: usize = 2000;

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

/// The class of each scope, the narrower ones first; an empty one is plain text.
const SCOPES: [(&str, &str); 24] = [
    ("comment", "code-comment"),
    ("string", "code-string"),
    ("constant", "code-constant"),
    ("keyword.operator.word", "code-keyword"),
    ("keyword.operator.logical.python", "code-keyword"),
    ("keyword.operator", ""),
    ("keyword", "code-keyword"),
    ("storage", "code-keyword"),
    ("variable.language", "code-keyword"),
    ("variable.function", "code-function"),
    ("entity.name.function", "code-function"),
    ("support.function", "code-function"),
    ("support.macro", "code-function"),
    ("entity.other.attribute-name", "code-attribute"),
    ("entity.name.tag", "code-keyword"),
    ("support.type.property-name", "code-attribute"),
    ("entity.name", "code-type"),
    ("entity.other.inherited-class", "code-type"),
    ("support.type", "code-type"),
    ("support.class", "code-type"),
    ("markup.inserted", "code-inserted"),
    ("markup.deleted", "code-deleted"),
    ("markup.heading", "code-keyword"),
    ("markup.raw", "code-string"),
];

/// Names that models write for languages, and the ones by which the syntaxes know them.
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

/// The syntaxes of bat. Their expressions are compiled when they are first needed.
static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

static CLASS_OF_SCOPE: LazyLock<Vec<(Scope, &str)>> =
    LazyLock::new(|| SCOPES.iter().filter_map(|(scope, class)| Some((Scope::new(scope).ok()?, *class))).collect());

/// A block of code as HTML without the elements around it; plain text where the language is unknown.
pub(super) fn html_of_code(code: &str, language: &str) -> String {
    let highlighted = syntax_of(code, language).and_then(|syntax| highlighted(code, syntax).ok());
    highlighted.unwrap_or_else(|| ammonia::clean_text(code))
}

fn syntax_of(code: &str, language: &str) -> Option<&'static SyntaxReference> {
    if language.is_empty() || code.len() > LONGEST_BLOCK || code.lines().any(|line| line.len() > LONGEST_LINE) {
        return None;
    }
    let language = language.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == language).map(|(_, name)| *name);
    SYNTAXES.find_syntax_by_token(alias.unwrap_or(&language))
}

fn highlighted(code: &str, syntax: &SyntaxReference) -> Result<String, ParsingError> {
    let (mut state, mut stack, mut html) = (ParseState::new(syntax), ScopeStack::new(), Spans::default());
    for line in LinesWithEndings::from(code) {
        let mut place = 0;
        for (change_at, change) in state.parse_line(line, &SYNTAXES)? {
            html.push(&line[place..change_at], class_of(&stack));
            place = change_at;
            // A stack that a syntax mishandles only costs colours.
            let _ = stack.apply(&change);
        }
        html.push(&line[place..], class_of(&stack));
    }
    Ok(html.finish())
}

fn class_of(stack: &ScopeStack) -> &'static str {
    let class_of = |scope: &Scope| CLASS_OF_SCOPE.iter().find(|(known, _)| known.is_prefix_of(*scope));
    stack.scopes.iter().rev().find_map(class_of).map_or("", |(_, class)| class)
}

/// HTML that is written word by word; words of one class that follow each other have one element.
#[derive(Default)]
struct Spans {
    html: String,
    text: String,
    class: &'static str,
}

impl Spans {
    fn push(&mut self, text: &str, class: &'static str) {
        if class != self.class {
            self.flush();
            self.class = class;
        }
        self.text.push_str(text);
    }

    fn flush(&mut self) {
        let text = ammonia::clean_text(&std::mem::take(&mut self.text));
        match self.class {
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
