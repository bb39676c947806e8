//! The form of a JSON object that holds reasons and a label, each at a path of keys (`explanation`, `verdict.score`).

use super::Labels;

/// Matches one character of a JSON string.
const STRING_CHARACTER: &str = r#"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])"#;

/// The layout of the object.
pub(super) enum Layout {
    /// On one line, with reasons of at most this many characters: the constraint for a judge.
    Written(usize),
    /// With any white space and any reasons, which are captured as `reasons`, and the label as `quoted` or `bare`: the
    /// expression for reading.
    Read,
}

/// The key of a path's last part.
pub(super) fn key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The text before the label in an object that holds nothing else.
pub(super) fn before(label_path: &str) -> String {
    let keys: Vec<String> = label_path.split('.').map(|key| format!("{{\"{key}\":")).collect();
    keys.join(" ")
}

/// Matches the object. A label that is a JSON value by itself may be quoted or not.
pub(super) fn object(reason_path: &str, label_path: &str, labels: &Labels, layout: &Layout) -> String {
    let (reasons, quoted, bare) = match layout {
        Layout::Written(n) => (format!(r#""{STRING_CHARACTER}{{1,{n}}}""#), labels.regex(), labels.regex()),
        Layout::Read => (
            format!(r#"(?<reasons>"{STRING_CHARACTER}*")"#),
            format!("(?<quoted>{})", labels.regex()),
            format!("(?<bare>{})", labels.regex()),
        ),
    };
    let are_values = labels.names().iter().all(|label| serde_json::from_str::<serde_json::Value>(label).is_ok());
    let label = if are_values { format!(r#"(?:"{quoted}"|{bare})"#) } else { format!(r#""{quoted}""#) };
    let members = match reason_path {
        "" => vec![(label_path, label.as_str())],
        path => vec![(path, reasons.as_str()), (label_path, label.as_str())],
    };
    nested(&members, layout)
}

/// An object with these members. Adjacent members whose paths begin with the same key share an object under it.
fn nested(members: &[(&str, &str)], layout: &Layout) -> String {
    let (space, colon, comma) = match layout {
        Layout::Written(_) => ("", ": ", ", "),
        Layout::Read => (r"\s*", r"\s*:\s*", r"\s*,\s*"),
    };
    let first_key = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let groups = members.chunk_by(|left, right| first_key(left.0) == first_key(right.0));
    let member = |group: &[(&str, &str)]| {
        let inner: Vec<(&str, &str)> =
            group.iter().filter_map(|(path, value)| Some((path.split_once('.')?.1, *value))).collect();
        let value = if inner.is_empty() { group[0].1.to_owned() } else { nested(&inner, layout) };
        format!("\"{}\"{colon}{value}", regex::escape(&first_key(group[0].0)))
    };
    format!(r"\{{{space}{}{space}\}}", groups.map(member).collect::<Vec<_>>().join(comma))
}
