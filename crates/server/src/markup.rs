//! Renders a model's Markdown as HTML that the page may show.
//!
//! HTML in the Markdown stays text, and images become links, so that nothing is loaded from elsewhere. The result is
//! then parsed as a browser does it, and only the elements and attributes in the list of [`SANITIZER`] pass: each of
//! the two steps catches mistakes of the other.
//!
//! The cost is bounded for any Markdown: a text that is longer, nests deeper or has more parts than answers have is
//! shown as is.

mod code;
mod formula;
mod links;
mod math;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use pulldown_latex::config::DisplayMode;

use self::code::html_of_code;
use self::formula::with_dollars;
use self::math::mathml_of;

/// The elements allowed in an answer.
const ELEMENTS: [&str; 26] = [
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "em",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];

/// The elements allowed in a formula, all from MathML Core. None of them links, loads or holds another language.
const MATH_ELEMENTS: [&str; 23] = [
    "math",
    "mfrac",
    "mi",
    "mmultiscripts",
    "mn",
    "mo",
    "mover",
    "mphantom",
    "mprescripts",
    "mroot",
    "mrow",
    "mspace",
    "msqrt",
    "mstyle",
    "msub",
    "msubsup",
    "msup",
    "mtable",
    "mtd",
    "mtext",
    "mtr",
    "munder",
    "munderover",
];

/// The attributes allowed in a formula, by element.
const MATH_ATTRIBUTES: [(&str, &[&str]); 9] = [
    ("math", &["display"]),
    ("mfrac", &["linethickness"]),
    ("mi", &["mathvariant"]),
    ("mo", &["largeop", "maxsize", "minsize", "movablelimits", "stretchy", "symmetric"]),
    ("mspace", &["depth", "height", "width"]),
    ("mstyle", &["displaystyle", "scriptlevel"]),
    ("mtable", &["class"]),
    ("mtd", &["class"]),
    ("mtr", &["class"]),
];

/// The classes allowed in a formula's tables.
const MATH_CLASSES: [&str; 12] = [
    "cell-left",
    "cell-right",
    "menv-align",
    "menv-alignlike",
    "menv-arraylike",
    "menv-cases",
    "menv-cells-left",
    "menv-cells-right",
    "menv-hline",
    "menv-left-solid",
    "menv-matrix",
    "menv-right-solid",
];

/// The URL schemes allowed in an answer's links.
const SCHEMES: [&str; 3] = ["http", "https", "mailto"];

/// The prefix of a code block's class; the language follows.
const LANGUAGE: &str = "language-";

/// The Markdown extensions that are supported.
const EXTENSIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_TASKLISTS);

/// The longest text that is read as Markdown, in bytes.
pub(crate) const LONGEST: usize = 256 << 10;
/// The deepest nesting of quotations, lists and emphasis.
const MOST_LEVELS: usize = 100;
/// Maximum number of parser events.
const MOST_EVENTS: usize = 100_000;
/// Maximum number of rendered formulas, and of highlighted code blocks and bytes.
const MOST_FORMULAS: usize = 500;
const MOST_BLOCKS: usize = 200;
const MOST_HIGHLIGHTED: usize = 128 << 10;

/// Passes only the elements and attributes that an answer may have.
static SANITIZER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut attributes: HashMap<&str, HashSet<&str>> =
        MATH_ATTRIBUTES.iter().map(|(element, names)| (*element, names.iter().copied().collect())).collect();
    attributes.extend([
        ("a", HashSet::from(["href", "title"])),
        ("code", HashSet::from(["class"])),
        ("ol", HashSet::from(["start"])),
        ("span", HashSet::from(["class"])),
        ("td", HashSet::from(["class"])),
        ("th", HashSet::from(["class"])),
    ]);
    let mut builder = Builder::empty();
    builder
        .tags(ELEMENTS.iter().chain(&MATH_ELEMENTS).copied().collect())
        .tag_attributes(attributes)
        .attribute_filter(attribute)
        .set_tag_attribute_value("a", "target", "_blank")
        .link_rel(Some("noopener noreferrer nofollow"))
        .url_schemes(HashSet::from(SCHEMES))
        .url_relative(UrlRelative::Deny);
    builder
});

/// Renders Markdown as HTML that a page may show.
pub(crate) fn html_of(markdown: &str) -> String {
    rendered(markdown).unwrap_or_else(|| format!("<pre><code>{}</code></pre>", ammonia::clean_text(markdown)))
}

/// The HTML; `None` if the text is too complex.
fn rendered(markdown: &str) -> Option<String> {
    if markdown.len() > LONGEST || markdown.lines().any(|line| n_containers(line) > MOST_LEVELS) {
        return None;
    }
    let markdown = with_dollars(markdown);
    let events = Parser::new_ext(&markdown, EXTENSIONS).into_offset_iter();
    let tamed = Tamed { events, source: &markdown, n_formulas: 0, n_blocks: 0, n_highlighted: 0 };
    let (mut kept, mut level) = (Vec::new(), 0_usize);
    for event in tamed {
        match event {
            Event::Start(_) => level += 1,
            Event::End(_) => level = level.saturating_sub(1),
            _ => {}
        }
        if level > MOST_LEVELS || kept.len() >= MOST_EVENTS {
            return None;
        }
        kept.push(event);
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, links::with_links(kept).into_iter());
    Some(SANITIZER.clean(&with_alignment(html)).to_string())
}

/// The alignments of a cell in a Markdown table.
const ALIGNMENTS: [&str; 3] = ["left", "center", "right"];

/// The HTML with classes for the alignment of cells in place of styles, which the page's policy forbids. No text in the
/// Markdown can look like such a tag: its special characters are escaped.
fn with_alignment(html: String) -> String {
    ALIGNMENTS.iter().fold(html, |html, side| {
        ["td", "th"].iter().fold(html, |html, tag| {
            html.replace(&format!("<{tag} style=\"text-align: {side}\">"), &format!("<{tag} class=\"{side}\">"))
        })
    })
}

/// The number of quotations and list items that a line opens.
fn n_containers(line: &str) -> usize {
    let is_part = |byte: &u8| b" \t>*+-.)".contains(byte) || byte.is_ascii_digit();
    let n = line.bytes().take_while(is_part).count();
    let next = line.as_bytes()[1.min(line.len())..].iter().copied().chain([b' ']);
    let pairs = line.bytes().zip(next).take(n);
    pairs.filter(|(byte, next)| *byte == b'>' || b"*+-.)".contains(byte) && b" \t".contains(next)).count()
}

/// Events without raw HTML and without images; code is highlighted, and formulas become MathML.
struct Tamed<'a, I> {
    events: I,
    source: &'a str,
    n_formulas: usize,
    n_blocks: usize,
    n_highlighted: usize,
}

impl<'a, I: Iterator<Item = (Event<'a>, Range<usize>)>> Iterator for Tamed<'a, I> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let (event, range) = self.events.next()?;
        Some(match event {
            Event::Start(Tag::CodeBlock(kind)) => self.code(&kind),
            Event::InlineMath(_) if is_price(&self.source[range.end..]) => Event::Text(self.source[range].into()),
            Event::InlineMath(latex) => self.formula(&latex, DisplayMode::Inline),
            Event::DisplayMath(latex) => self.formula(&latex, DisplayMode::Block),
            other => tamed(other),
        })
    }
}

impl<'a, I: Iterator<Item = (Event<'a>, Range<usize>)>> Tamed<'a, I> {
    /// A code block, up to its end.
    fn code(&mut self, kind: &CodeBlockKind<'_>) -> Event<'a> {
        let mut code = String::new();
        for (event, _) in self.events.by_ref() {
            match event {
                Event::Text(text) => code.push_str(&text),
                Event::End(TagEnd::CodeBlock) => break,
                _ => {}
            }
        }
        let language = match kind {
            CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or_default(),
            CodeBlockKind::Indented => "",
        };
        let class = match is_language(language) {
            true => format!(" class=\"{LANGUAGE}{language}\""),
            false => String::new(),
        };
        self.n_blocks += 1;
        self.n_highlighted += code.len();
        let html = match self.n_blocks <= MOST_BLOCKS && self.n_highlighted <= MOST_HIGHLIGHTED {
            true => html_of_code(&code, language),
            false => ammonia::clean_text(&code),
        };
        Event::Html(format!("<pre><code{class}>{html}</code></pre>\n").into())
    }

    /// A formula, or its source if it is invalid.
    fn formula(&mut self, latex: &CowStr<'a>, mode: DisplayMode) -> Event<'a> {
        self.n_formulas += 1;
        let mathml = if self.n_formulas <= MOST_FORMULAS { mathml_of(latex, mode) } else { None };
        mathml.map_or_else(|| Event::Code(latex.clone()), |mathml| Event::InlineHtml(mathml.into()))
    }
}

/// Whether an apparent formula is an amount of money and the text after it: $5–$10.
fn is_price(rest: &str) -> bool {
    rest.starts_with(|character: char| character.is_ascii_digit())
}

/// The event without raw HTML and without images; headings leave the first two levels to the page.
fn tamed(event: Event<'_>) -> Event<'_> {
    match event {
        Event::InlineHtml(text) if is_line_break(&text) => Event::HardBreak,
        Event::InlineHtml(text) if INDEXES.contains(&&*text) => Event::InlineHtml(text),
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::TaskListMarker(is_done) => Event::Text(if is_done { "☑ " } else { "☐ " }.into()),
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: lowered(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lowered(level))),
        other => other,
    }
}

/// The elements of raw HTML that are kept, besides line breaks: models write them where Markdown has nothing.
const INDEXES: [&str; 4] = ["<sub>", "</sub>", "<sup>", "</sup>"];

fn is_line_break(html: &str) -> bool {
    let inside = html.trim_start_matches('<').trim_end_matches('>').trim_end_matches('/').trim();
    inside.eq_ignore_ascii_case("br")
}

fn lowered(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

/// The value of an attribute, if it is allowed.
fn attribute<'a>(element: &str, name: &str, value: &'a str) -> Option<Cow<'a, str>> {
    let is_let_through = match (element, name) {
        ("code", "class") => value.strip_prefix(LANGUAGE).is_some_and(is_language),
        ("ol", "start") | (_, "scriptlevel") => value.bytes().all(|byte| byte.is_ascii_digit()),
        ("span", "class") => code::CLASSES.contains(&value),
        ("td" | "th", "class") => ALIGNMENTS.contains(&value),
        ("mtable" | "mtr" | "mtd", "class") => value.split(' ').all(|class| MATH_CLASSES.contains(&class)),
        ("math", "display") => matches!(value, "block" | "inline"),
        ("mi", "mathvariant") => value == "normal",
        (_, "displaystyle" | "largeop" | "movablelimits" | "stretchy" | "symmetric") => {
            matches!(value, "true" | "false")
        }
        (_, "depth" | "height" | "width" | "linethickness" | "maxsize" | "minsize") => is_length(value),
        ("a", "href" | "title" | "target" | "rel") => true,
        _ => false,
    };
    is_let_through.then_some(Cow::Borrowed(value))
}

/// Whether this is a length: a number and its unit.
fn is_length(value: &str) -> bool {
    let unit = value.trim_start_matches(|character: char| character.is_ascii_digit() || "+-.".contains(character));
    value.len() <= 24 && matches!(unit, "" | "em" | "ex" | "px" | "pt" | "%")
}

/// Whether this may be the name of a language: the page has its own classes.
fn is_language(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || "+-#_.".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(markdown: &str, expected: &str) {
        assert_eq!(html_of(markdown).trim_end(), expected, "{markdown}");
    }

    #[test]
    fn markdown_becomes_html() {
        check("a **b** `c`", "<p>a <strong>b</strong> <code>c</code></p>");
        check("# Title", "<h3>Title</h3>");
        check("3. x", "<ol start=\"3\">\n<li>x</li>\n</ol>");
        check("- x", "<ul>\n<li>x</li>\n</ul>");
        check("```none\nlet x = 1 < 2;\n```", "<pre><code class=\"language-none\">let x = 1 &lt; 2;\n</code></pre>");
        check("    a < b\n", "<pre><code>a &lt; b\n</code></pre>");
        check(
            "|a|\n|-|\n|b|",
            "<table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>b</td></tr>\n</tbody></table>",
        );
        check(
            "[x](https://a.example/b)",
            "<p><a href=\"https://a.example/b\" target=\"_blank\" rel=\"noopener noreferrer nofollow\">x</a></p>",
        );
    }

    #[test]
    fn html_stays_text_and_nothing_is_loaded() {
        check("x<br>y <BR/>z", "<p>x<br>\ny <br>\nz</p>");
        check("H<sub>2</sub>O <sup onclick=\"x\">2", "<p>H<sub>2</sub>O &lt;sup onclick=\"x\"&gt;2</p>");
        check("open <sub>x", "<p>open <sub>x</sub></p>");
        check("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
        check("a <img src=x onerror=alert(1)> b", "<p>a &lt;img src=x onerror=alert(1)&gt; b</p>");
        check("[x](javascript:alert(1))", "<p><a target=\"_blank\" rel=\"noopener noreferrer nofollow\">x</a></p>");
        let image =
            "<p><a href=\"https://a.example/i.png\" target=\"_blank\" rel=\"noopener noreferrer nofollow\">alt</a></p>";
        check("![alt](https://a.example/i.png)", image);
    }

    #[test]
    fn a_class_names_a_language_and_nothing_else() {
        assert_eq!(attribute("code", "class", "language-c++").as_deref(), Some("language-c++"));
        for class in ["panel", "language-a panel", "language-\u{e9}", "language-"] {
            assert_eq!(attribute("code", "class", class), None);
        }
        assert_eq!(attribute("span", "class", "hidden"), None);
        assert_eq!(attribute("mtd", "class", "cell-left hidden"), None);
    }

    #[test]
    fn code_is_highlighted_in_the_languages_that_models_write() {
        let rust = "<pre><code class=\"language-rust\"><span class=\"code-keyword\">let</span> x = \
                    <span class=\"code-string\">\"&lt;b&gt;\"</span>; \
                    <span class=\"code-comment\">// why\n</span></code></pre>";
        check("```rust\nlet x = \"<b>\"; // why\n```", rust);
        for language in [
            "rust",
            "python",
            "py",
            "js",
            "javascript",
            "ts",
            "typescript",
            "tsx",
            "bash",
            "sh",
            "shell",
            "c",
            "cpp",
            "c++",
            "csharp",
            "java",
            "go",
            "golang",
            "kotlin",
            "swift",
            "ruby",
            "php",
            "sql",
            "html",
            "css",
            "json",
            "yaml",
            "toml",
            "dockerfile",
            "diff",
            "lua",
            "r",
            "haskell",
            "makefile",
            "xml",
            "scala",
            "markdown",
        ] {
            let found = html_of(&format!("```{language}\n<a b=\"c\"> \"x\" # 1 if for\n+ x: 1\nFROM x\n```"));
            assert!(found.contains("<span class=\"code-"), "{language}: {found}");
        }
    }

    #[test]
    fn code_that_is_too_long_stays_plain() {
        let long = format!("```rust\nlet x = {};\n```", "1".repeat(3000));
        assert!(!html_of(&long).contains("<span"));
    }

    #[test]
    fn formulas_become_mathml() {
        let half = "<mfrac><mn>1</mn><mn>2</mn></mfrac>";
        let inline = format!("<p>so <math display=\"inline\">{half}</math></p>");
        let block = format!("<p><math display=\"block\">{half}</math></p>");
        check(r"so $\frac12$", &inline);
        check(r"so \(\frac12\)", &inline);
        check(r"$$\frac12$$", &block);
        check("\\[\n\\frac12\n\\]", &block);
        check("$$\n\\frac12\n$$", &block);
        assert!(html_of(r"$\boxed{4}$").contains("menv-left-solid"));
        assert!(html_of("- a\n\n  \\[ x \\]").contains("<math display=\"block\"><mi>x</mi></math>"));
    }

    #[test]
    fn what_is_not_a_formula_stays_as_it_is() {
        check("It costs $5 or $10.", "<p>It costs $5 or $10.</p>");
        check("It costs $5-$10.", "<p>It costs $5-$10.</p>");
        check("`\\(x\\)` and `$x$`", "<p><code>\\(x\\)</code> and <code>$x$</code></p>");
        check("```\n\\[x\\]\n```", "<pre><code>\\[x\\]\n</code></pre>");
        check(r"a \\(b\\)", r"<p>a \(b\)</p>");
        check(r"$\nonsense{x}$", r"<p><code>\nonsense{x}</code></p>");
        check(r"$\def\a{\a\a}\a$", r"<p><code>\def\a{\a\a}\a</code></p>");
        let deep = format!("${}x$", r"\sqrt".repeat(3000));
        assert!(html_of(&deep).starts_with("<p><code>"));
    }

    /// Each of these took minutes, or might: repeated parts, parts opened and never closed, or padding. The limit is
    /// many times what the slowest needs, so that only a cost that grows with the square of the length reaches it.
    #[test]
    fn no_text_takes_long() {
        let parts = [
            ">",
            "> ",
            "- ",
            "* ",
            "1. ",
            "+ - ",
            ">- ",
            "[",
            "![",
            "](",
            "[a](",
            "*",
            "**a ",
            "*a **b ",
            "_a __b ",
            "~~a ",
            "`",
            "`a` ",
            "``a ` ",
            "$",
            "$a$ ",
            "$$a$$\n",
            "\\(",
            "\\(a$ ",
            "\\[\n",
            "\\(a\\) ",
            "<",
            "<a ",
            "<!--",
            "<?",
            "<![CDATA[",
            "&amp;",
            "\\",
            "|",
            "a|",
            "|a|\n|-|\n",
            "#",
            "# a\n",
            "```\n",
            "```rust\nlet\n```\n",
            "    a\n",
            "\n",
            "[a]: b\n",
            "[^a]: b\n",
            "{",
            "<http://a",
            "a\n===\n",
            "- a\n\n",
            "***",
            "a**b*c",
            "[a]",
            "<b>",
            "'\"",
            "\u{0}",
        ];
        let mut slow = Vec::new();
        let mut check = |name: &str, text: &str| {
            let begin = std::time::Instant::now();
            html_of(text);
            if begin.elapsed() > std::time::Duration::from_secs(10) {
                slow.push(format!("{name:?}: {:?}", begin.elapsed()));
            }
        };
        for part in parts {
            check(part, &part.repeat((32 << 10) / part.len()));
            check(part, &format!("{}\\) $ ) ] > ` x", part.repeat((32 << 10) / part.len())));
        }
        let wide = format!("{}\n{}\n{}", "|a".repeat(10_000), "|-".repeat(10_000), "a\n".repeat(10_000));
        check("wide table", &wide);
        let nested: String = (0..400).map(|level| format!("{}- a\n", "  ".repeat(level))).collect();
        check("nested list", &nested);
        check("too long", &"> a\n".repeat(1 << 20));
        assert!(slow.is_empty(), "{slow:#?}");
    }

    #[test]
    fn what_is_too_involved_is_shown_as_it_is() {
        check(&">".repeat(101), &format!("<pre><code>{}</code></pre>", "&gt;".repeat(101)));
        assert!(html_of(&">".repeat(100)).starts_with("<blockquote>"));
        check(&"-".repeat(500), "<hr>");
        assert!(html_of(&"*a ".repeat(500)).starts_with("<p>"));
        assert!(html_of(&"x".repeat(LONGEST + 1)).starts_with("<pre>"));
    }

    #[test]
    fn the_deepest_formula_that_is_allowed_is_drawn() {
        for command in [r"\sqrt", r"\hat", r"\frac1", "x^{", r"\left(", r"\mathbf{", r"\begin{matrix}"] {
            html_of(&format!("${}x$", command.repeat(500 / command.matches(['\\', '{', '^']).count())));
        }
    }
}
