//! JSON as Python's `json.dumps` writes it, with the options that transformers' `tojson` has.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The widest indentation.
const MAX_INDENT: usize = 256;
/// Maximum nesting of values.
const MAX_DEPTH: usize = 200;

/// JSON of a value, with Python's default layout.
pub(super) fn written(value: &Value) -> String {
    let mut writer = Writer::new(Layout::default());
    // Plain data is neither too deep nor of a kind that JSON lacks.
    let _ = writer.write(value, 0);
    writer.text
}

/// The filter `tojson`. Its first argument is transformers' `ensure_ascii`, or Jinja's `indent`.
pub(super) fn to_json(value: &Value, first: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let is_flag = first.as_ref().is_some_and(|first| first.kind() == ValueKind::Bool);
    let (flag, width) = if is_flag { (first, None) } else { (None, first) };
    let ascii = flag.or(options.get("ensure_ascii")?).is_some_and(|flag| flag.is_true());
    let sorted = options.get::<Option<Value>>("sort_keys")?.is_some_and(|flag| flag.is_true());
    let indent = width.or(options.get("indent")?).map(|width| indentation(&width)).transpose()?.flatten();
    let separators = options.get::<Option<Value>>("separators")?.map(|pair| separators(&pair)).transpose()?.flatten();
    options.assert_all_used()?;
    let default = if indent.is_some() { (",", ": ") } else { (", ", ": ") };
    let (item, key) = separators.unwrap_or((default.0.to_owned(), default.1.to_owned()));
    let mut writer = Writer::new(Layout { ascii, sorted, indent, item, key });
    writer.write(value, 0)?;
    Ok(Value::from(writer.text))
}

fn indentation(width: &Value) -> Result<Option<String>, Error> {
    if width.is_none() || width.is_undefined() {
        return Ok(None);
    }
    if let Some(text) = width.as_str().filter(|text| text.len() <= MAX_INDENT) {
        return Ok(Some(text.to_owned()));
    }
    match width.as_usize() {
        Some(width) if width <= MAX_INDENT => Ok(Some(" ".repeat(width))),
        _ => Err(invalid(format!("an indentation of {width}: it may be 0 to {MAX_INDENT}"))),
    }
}

fn separators(pair: &Value) -> Result<Option<(String, String)>, Error> {
    if pair.is_none() {
        return Ok(None);
    }
    let texts: Vec<Value> = pair.try_iter()?.collect();
    match texts.iter().map(Value::as_str).collect::<Vec<_>>()[..] {
        [Some(item), Some(key)] => Ok(Some((item.to_owned(), key.to_owned()))),
        _ => Err(invalid(format!("the separators of JSON are {pair}: there must be two texts"))),
    }
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// How JSON is laid out.
struct Layout {
    /// Whether other characters are escaped.
    ascii: bool,
    sorted: bool,
    /// The indentation of each level, if there are lines.
    indent: Option<String>,
    /// Separator between items.
    item: String,
    /// Separator between a key and its value.
    key: String,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { ascii: false, sorted: false, indent: None, item: ", ".to_owned(), key: ": ".to_owned() }
    }
}

struct Writer {
    text: String,
    layout: Layout,
}

impl Writer {
    fn new(layout: Layout) -> Writer {
        Writer { text: String::new(), layout }
    }

    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("JSON of more than {MAX_DEPTH} levels")));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&value.to_string()),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.layout.sorted {
                    keys.sort_by_key(Value::to_string);
                }
                let fields = keys.into_iter().map(|key| Ok((Some(key.to_string()), value.get_item(&key)?)));
                let fields = fields.collect::<Result<Vec<_>, Error>>()?;
                self.write_all(['{', '}'], fields, depth)?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.write_all(['[', ']'], items, depth)?;
            }
            other => return Err(invalid(format!("{other} has no JSON"))),
        }
        Ok(())
    }

    fn write_all(&mut self, marks: [char; 2], items: Vec<(Option<String>, Value)>, depth: usize) -> Result<(), Error> {
        self.text.push(marks[0]);
        let is_empty = items.is_empty();
        for (index, (key, item)) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push_str(&self.layout.item);
            }
            self.begin_line(depth + 1);
            if let Some(key) = key {
                self.write_text(&key);
                self.text.push_str(&self.layout.key);
            }
            self.write(&item, depth + 1)?;
        }
        if !is_empty {
            self.begin_line(depth);
        }
        self.text.push(marks[1]);
        Ok(())
    }

    fn begin_line(&mut self, depth: usize) {
        if let Some(indent) = &self.layout.indent {
            self.text.push('\n');
            (0..depth).for_each(|_| self.text.push_str(indent));
        }
    }

    fn write_text(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                letter if letter < ' ' || self.layout.ascii && !letter.is_ascii() => {
                    letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                        let _ = write!(self.text, "\\u{unit:04x}");
                    });
                }
                letter => self.text.push(letter),
            }
        }
        self.text.push('"');
    }
}
