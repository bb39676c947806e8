//! Python and Jinja2 features that chat templates use and minijinja lacks: methods, filters and `%` on texts, within
//! limits.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};

/// Maximum of a number in a template that sets a width or a number of groups.
const MOST: usize = 256;
/// The filter that `%` on a text becomes.
const PERCENT: &str = "percent";

/// Adds the filters and methods to an environment.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment.add_filter("format", format);
    environment.add_filter(PERCENT, percent);
    environment.add_filter("indent", indent);
    environment.add_filter("batch", batch);
    environment.add_filter("slice", slice);
    environment.add_filter("truncate", minijinja_contrib::filters::truncate);
    environment.add_filter("wordcount", word_count);
    environment.add_filter("striptags", minijinja_contrib::filters::striptags);
}

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Checks a number that determines the length of a result.
fn bounded(number: Option<usize>) -> Result<(), Error> {
    match number {
        Some(number) if number > MOST => Err(invalid(format!("a width of {number}: it may be {MOST} at most"))),
        _ => Ok(()),
    }
}

/// `'%s: %d' | format(name, n)`.
fn format(state: &mut State, text: &str, arguments: Rest<Value>) -> Result<Value, Error> {
    printf(state, text, &arguments)
}

/// `'%s: %d' % (name, n)`, where a single value need not be a tuple.
fn percent(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let Some(text) = left.as_str() else { return remainder(&left, &right) };
    match right.kind() {
        ValueKind::Seq => printf(state, text, &right.try_iter()?.collect::<Vec<_>>()),
        _ => printf(state, text, &[right]),
    }
}

/// The remainder as Python defines it: with the sign of the divisor.
fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Ok(left), Ok(right)) = (i64::try_from(left.clone()), i64::try_from(right.clone()))
        && right != 0
    {
        return Ok(Value::from((i128::from(left) % i128::from(right) + i128::from(right)) % i128::from(right)));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(left), Ok(right)) if right != 0.0 => Ok(Value::from((left % right + right) % right)),
        _ => Err(invalid("% needs a text, or two numbers")),
    }
}

/// A text in Python's `printf` style.
fn printf(state: &mut State, text: &str, arguments: &[Value]) -> Result<Value, Error> {
    if text.contains('*') || longest_number(text) > 3 {
        return Err(invalid(format!("{text:?} has a width that is too large or not known")));
    }
    let arguments = arguments.iter().cloned().map(ValueOrKwargs::from).collect();
    minijinja::filters::format(state, &Value::from(text), Rest(arguments))
}

/// Digits of the longest number in a text.
fn longest_number(text: &str) -> usize {
    text.split(|letter: char| !letter.is_ascii_digit()).map(str::len).max().unwrap_or(0)
}

fn indent(text: Value, width: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let width = width.or(options.get("width")?).unwrap_or_else(|| Value::from(4));
    let (first, blank) = (options.get::<Option<bool>>("first")?, options.get::<Option<bool>>("blank")?);
    options.assert_all_used()?;
    let margin = match width.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let width = width.as_usize();
            bounded(width)?;
            " ".repeat(width.unwrap_or(0))
        }
    };
    let (first, blank) = (first.unwrap_or(false), blank.unwrap_or(false));
    let text = text.to_string();
    let lines = text.split('\n').enumerate().map(|(index, line)| match index {
        0 if !first => line.to_owned(),
        _ if line.is_empty() && !blank => String::new(),
        _ => std::format!("{margin}{line}"),
    });
    Ok(Value::from(lines.collect::<Vec<_>>().join("\n")))
}

fn batch(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    bounded(Some(count))?;
    minijinja::filters::batch(state, value, count, fill)
}

fn slice(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    bounded(Some(count))?;
    minijinja::filters::slice(state, value, count, fill)
}

fn word_count(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Methods of Python's types.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let text = |index: usize| arguments.get(index).and_then(Value::as_str);
    if let Some(this) = value.as_str() {
        match (name, text(0)) {
            ("removeprefix", Some(prefix)) => return Ok(Value::from(this.strip_prefix(prefix).unwrap_or(this))),
            ("removesuffix", Some(suffix)) => return Ok(Value::from(this.strip_suffix(suffix).unwrap_or(this))),
            ("partition", Some(mark)) => return Ok(parted(this.split_once(mark), mark, [this, "", ""])),
            ("rpartition", Some(mark)) => return Ok(parted(this.rsplit_once(mark), mark, ["", "", this])),
            ("rsplit", mark) => return rsplit(this, mark, arguments.get(1)),
            ("index", Some(part)) => return place(this.find(part).map(|at| this[..at].chars().count())),
            ("rindex", Some(part)) => return place(this.rfind(part).map(|at| this[..at].chars().count())),
            ("swapcase", None) => return Ok(Value::from(this.chars().map(swapped).collect::<String>())),
            ("casefold", None) => return Ok(Value::from(this.to_lowercase())),
            ("ljust" | "rjust" | "center" | "zfill", _) => return justified(this, name, arguments),
            _ => {}
        }
    }
    if value.kind() == ValueKind::Seq && name == "index" {
        let sought = arguments.first().cloned().unwrap_or_default();
        return place(value.try_iter()?.position(|item| item == sought));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments)
}

fn parted(parts: Option<(&str, &str)>, mark: &str, whole: [&str; 3]) -> Value {
    let parts = parts.map_or(whole, |(before, after)| [before, mark, after]);
    parts.into_iter().map(Value::from).collect()
}

fn rsplit(this: &str, mark: Option<&str>, most: Option<&Value>) -> Result<Value, Error> {
    let most = most.and_then(Value::as_i64).and_then(|most| usize::try_from(most).ok());
    let n_parts = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<&str> = match mark {
        Some("") => return Err(invalid("an empty separator")),
        Some(mark) => this.rsplitn(n_parts, mark).collect(),
        None => this.trim().rsplitn(n_parts, char::is_whitespace).filter(|part| !part.is_empty()).collect(),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn place(found: Option<usize>) -> Result<Value, Error> {
    found.map(Value::from).ok_or_else(|| invalid("what is looked for does not occur"))
}

fn swapped(letter: char) -> char {
    let other = if letter.is_lowercase() { letter.to_uppercase().next() } else { letter.to_lowercase().next() };
    other.unwrap_or(letter)
}

fn justified(this: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let width = arguments.first().and_then(Value::as_usize);
    bounded(width)?;
    let fill = arguments.get(1).and_then(Value::as_str).unwrap_or(if name == "zfill" { "0" } else { " " });
    let missing = width.unwrap_or(0).saturating_sub(this.chars().count());
    let (before, after) = match name {
        "ljust" => (0, missing),
        "center" => (missing / 2, missing - missing / 2),
        _ => (missing, 0),
    };
    Ok(Value::from(std::format!("{}{this}{}", fill.repeat(before), fill.repeat(after))))
}

/// Rewrites `%` after a quoted text as a filter, because minijinja's operator does not support texts: `'%s' % x`
/// becomes `'%s' | percent(x)`. The operand is a name with its parts, a number, a text, or a tuple or expression in
/// brackets.
pub(super) fn with_percent_as_filter(source: &str) -> Cow<'_, str> {
    let mut rewritten = String::new();
    let mut copied = 0;
    let mut scanner = Scanner { source, at: 0, is_within_tag: false };
    while let Some((operator, operand)) = scanner.next_percent() {
        rewritten.push_str(&source[copied..operator]);
        rewritten.push_str("| ");
        rewritten.push_str(PERCENT);
        rewritten.push('(');
        rewritten.push_str(&source[operand.clone()]);
        rewritten.push(')');
        copied = operand.end;
    }
    match copied {
        0 => Cow::Borrowed(source),
        _ => Cow::Owned(rewritten + &source[copied..]),
    }
}

/// Rewrites changes of lists as new lists, since minijinja's values are immutable: `{% set _ = ns.ids.append(x) %}`
/// becomes `{% set ns.ids = ns.ids + [x] %}`, and `ns.ids.pop(0)` takes the first. Only members of a namespace can be
/// changed from within a loop.
pub(super) fn with_lists_as_values(source: &str) -> Cow<'_, str> {
    let (mut rewritten, mut rest) = (String::new(), source);
    while let Some((before, statement, after)) = next_statement(rest) {
        let changed = changed_list(statement);
        rewritten.push_str(before);
        rewritten.push_str(changed.as_deref().unwrap_or(statement));
        rest = after;
    }
    if rewritten.len() + rest.len() == source.len() { Cow::Borrowed(source) } else { Cow::Owned(rewritten + rest) }
}

/// The text before the next statement, the statement without its marks, and the text after it.
fn next_statement(text: &str) -> Option<(&str, &str, &str)> {
    let begin = text.find("{%")? + 2;
    let end = begin + text[begin..].find("%}")?;
    Some((&text[..begin], &text[begin..end], &text[end..]))
}

/// Rewrites a statement that changes a list of a namespace so that it assigns a new list.
fn changed_list(statement: &str) -> Option<String> {
    let inner = statement.trim_matches('-').trim();
    let (name, change) = inner.strip_prefix("set ")?.split_once('=')?;
    let (list, argument) = change.trim().strip_suffix(')')?.split_once('(')?;
    let is_path = |path: &str| path.contains('.') && path.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
    let before = if statement.starts_with('-') { "-" } else { "" };
    let after = if statement.ends_with('-') { "-" } else { "" };
    let name = name.trim();
    if let Some(list) = list.strip_suffix(".append").filter(|list| is_path(list)) {
        return Some(std::format!("{before} set {list} = {list} + [{argument}] {after}"));
    }
    let list = list.strip_suffix(".pop").filter(|list| is_path(list) && argument.trim() == "0")?;
    Some(std::format!("{before} set {name} = {list}[0] -%}}{{%- set {list} = {list}[1:] {after}"))
}

/// Finds quoted texts within the tags of a template.
struct Scanner<'a> {
    source: &'a str,
    at: usize,
    is_within_tag: bool,
}

impl Scanner<'_> {
    /// The position of the next `%` after a quoted text, and the range of its operand.
    fn next_percent(&mut self) -> Option<(usize, std::ops::Range<usize>)> {
        while let Some(quoted) = self.next_quoted() {
            let rest = &self.source[quoted..];
            let space = rest.len() - rest.trim_start().len();
            let Some(after) = rest[space..].strip_prefix('%') else { continue };
            if after.starts_with('}') {
                continue;
            }
            let begin = quoted + space + 1 + (after.len() - after.trim_start().len());
            let end = begin + operand_len(&self.source[begin..]);
            if end > begin {
                self.at = end;
                return Some((quoted + space, begin..end));
            }
        }
        None
    }

    /// The end of the next quoted text within a tag.
    fn next_quoted(&mut self) -> Option<usize> {
        loop {
            let rest = &self.source[self.at..];
            // Outside of tags, quotes are letters like others.
            if !self.is_within_tag {
                let opening = ["{{", "{%"].iter().filter_map(|mark| rest.find(mark)).min()?;
                match rest.find("{#").filter(|comment| *comment < opening) {
                    Some(comment) => {
                        self.at += rest[comment..].find("#}").map_or(rest.len(), |end| comment + end + 2);
                    }
                    None => {
                        self.at += opening + 2;
                        self.is_within_tag = true;
                    }
                }
                continue;
            }
            let mark = rest.find(['\'', '"'])?;
            let closing = ["}}", "%}"].iter().filter_map(|mark| rest.find(mark)).min().unwrap_or(rest.len());
            if closing < mark {
                self.at += closing + 2;
                self.is_within_tag = false;
                continue;
            }
            let length = quoted_len(&rest[mark..])?;
            self.at += mark + length;
            return Some(self.at);
        }
    }
}

/// Bytes of a quoted text at the beginning.
fn quoted_len(source: &str) -> Option<usize> {
    let mark = source.chars().next()?;
    let mut is_escaped = false;
    for (place, letter) in source.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            letter if letter == mark => return Some(place + 1),
            _ => {}
        }
    }
    None
}

/// Bytes of the operand at the beginning: a name, number or text, and the brackets and parts after it.
fn operand_len(source: &str) -> usize {
    let mut end = match source.chars().next() {
        Some('\'' | '"') => quoted_len(source).unwrap_or(0),
        Some('(') => bracketed_len(source),
        _ => name_len(source),
    };
    while end > 0 {
        let rest = &source[end..];
        let more = match rest.chars().next() {
            Some('(' | '[') => bracketed_len(rest),
            Some('.') => 1 + name_len(&rest[1..]),
            _ => 0,
        };
        if more == 0 {
            break;
        }
        end += more;
    }
    end
}

fn name_len(source: &str) -> usize {
    source.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(source.len())
}

/// Bytes of a bracketed expression at the beginning, including the brackets and any texts in it.
fn bracketed_len(source: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(letter) = source[at..].chars().next() {
        match letter {
            '\'' | '"' => {
                at += quoted_len(&source[at..]).unwrap_or(source.len() - at);
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += letter.len_utf8();
        if depth == 0 {
            return at;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let mut environment = Environment::new();
        add_to(&mut environment);
        let source = with_percent_as_filter(source);
        let source = with_lists_as_values(&source);
        let said = environment.render_str(&source, minijinja::context! { name => "Ann", list => [1, 2, 3] });
        let said = said.unwrap_or_else(|error| error.detail().unwrap_or_default().to_owned());
        assert_eq!(said, expected, "{source}");
    }

    #[test]
    fn percent_formats_texts_and_divides_numbers() {
        check("{{ '%s!' % name }} 5 % '7' {{ 7 % 4 }}", "Ann! 5 % '7' 3");
        check("{{ '%s has %d' % (name, list[1]) + '.' }}", "Ann has 2.");
        check("{% set x = \"%s\" % name.upper() %}{{ x }}", "ANN");
        check("{% if name == 'Ann' %}yes{% endif %}{# it's '%s' % x #}", "yes");
        check("{{ '}}%s' % list[0] }}{{ '%' }}{{ '%05.1f' % 2.25 }}", "}}1%002.2");
        check("{{ '%9999d' % 1 }}", "\"%9999d\" has a width that is too large or not known");
    }

    #[test]
    fn lists_of_a_namespace_grow_and_shrink() {
        let queue =
            "{% set ns = namespace(ids=[]) %}{% for x in list %}{%- set _ = ns.ids.append('id-%s' % x) -%}{% endfor %}";
        check(
            &std::format!("{queue}{{% set first = ns.ids.pop(0) %}} {{{{ first }}}} {{{{ ns.ids }}}}"),
            " id-1 ['id-2', 'id-3']",
        );
        check("{% set n = list[0] %}{{ n }}", "1");
    }

    #[test]
    fn filters_and_methods_are_those_of_jinja_and_python() {
        check("{{ '%s-%s' | format('a', 'b') }}{{ 'x\ny' | indent(2) }}", "a-bx\n  y");
        check("{{ 'a\n\nb' | indent(width=1, first=true) }}", " a\n\n b");
        check("{{ list | batch(2) | list }}{{ 'a b c' | wordcount }}", "[[1, 2], [3]]3");
        check("{{ 'a.b.c'.rsplit('.', 1) }}{{ 'a=b'.partition('=') }}", "['a.b', 'c']['a', '=', 'b']");
        check("{{ 'prefix'.removeprefix('pre') }}{{ 'abc'.index('c') }}{{ list.index(3) }}", "fix22");
        check("{{ 'ab'.index('z') }}", "what is looked for does not occur");
        check("{{ '7'.zfill(3) }}{{ 'x'.ljust(3, '.') }}|{{ 'x'.center(3) }}|", "007x..| x |");
        check("{{ 'x' | indent(999999) }}", "a width of 999999: it may be 256 at most");
    }
}
