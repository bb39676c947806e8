//! The form in which an agent writes files, and its parser.
//!
//! ```text
//! === write src/area.py
//! def area(w, h):
//!     return w * h
//! === end
//! === edit README.md
//! === search
//! old lines
//! === replace
//! new lines
//! === end
//! === delete notes.txt
//! ```
//!
//! `write` gives the whole file. `edit` replaces lines that occur exactly once in the file, and may contain several
//! replacements. Markers are at the beginning of a line; a line of a file that begins with `===` or `\` is written with
//! `\` before it. Text before the first marker, between blocks and after the last one is not part of the work.

use crate::assignment::is_inside;

/// Maximum number of blocks in an answer.
const MOST_BLOCKS: usize = 200;
const MARK: &str = "=== ";

/// The form, in words for an agent.
pub(crate) const WORK_FORM: &str = "\
You change files. Answer with blocks in exactly these forms and nothing else. A whole file:
=== write path/of/file
its lines
=== end
A part of a file, whose lines occur in it exactly once:
=== edit path/of/file
=== search
the lines as they are
=== replace
the lines as they should be
=== end
A file that is no longer needed:
=== delete path/of/file
A line of a file that begins with === or \\ gets a \\ before it.";

/// Additional instructions for an agent with tools: its maximum number of calls, and the maximum bytes of one result and of
/// all together.
pub(crate) fn tools_first(calls: usize, of_one: usize, of_all: usize) -> String {
    format!(
        "\
Before you answer, look at what you need with the tools, which read the files as they are: nothing that they show can be changed
but by the blocks of your answer. You have {calls} calls; a result has at most {of_one} bytes, and all of them {of_all}. Call no
tool once you know enough."
    )
}

/// A change to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file gets this text.
    Write {
        /// Its path.
        path: String,
        /// Its whole text.
        text: String,
    },
    /// Parts of the file are replaced.
    Edit {
        /// Its path.
        path: String,
        /// Pairs of old and new text, in order.
        replacements: Vec<(String, String)>,
    },
    /// The file is removed.
    Delete {
        /// Its path.
        path: String,
    },
}

impl FileChange {
    /// The path of the file.
    pub fn path(&self) -> &str {
        match self {
            FileChange::Write { path, .. } | FileChange::Edit { path, .. } | FileChange::Delete { path } => path,
        }
    }
}

/// A regular expression for answers in this form, for a constraint on a model.
pub(crate) fn work_regex() -> String {
    // A line that is not a marker, escaped where it would be one.
    let line = r"(?:(?:[^=\\\n]|=[^=\n]|==[^=\n]|\\[^\n])[^\n]*|={0,2})\n";
    let path = r"[A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]+)*";
    let write = format!("=== write {path}\n(?:{line})*=== end\n");
    let edit = format!("=== edit {path}\n(?:=== search\n(?:{line})+=== replace\n(?:{line})*)+=== end\n");
    format!("(?:{write}|{edit}|=== delete {path}\n)+")
}

/// A file as a block in this form.
pub fn quoted_file(path: &str, text: &str) -> String {
    let mut block = format!("=== write {path}\n");
    for line in text.lines() {
        if line.starts_with("===") || line.starts_with('\\') {
            block.push('\\');
        }
        block.push_str(line);
        block.push('\n');
    }
    block.push_str("=== end\n");
    block
}

/// Whether an answer attempts this form: it has the beginning of a block.
pub(crate) fn has_blocks(answer: &str) -> bool {
    let mut verbs = answer.lines().filter_map(|line| Some(line.strip_prefix(MARK)?.split_once(' ')?.0));
    verbs.any(|verb| matches!(verb, "write" | "edit" | "delete"))
}

/// Reads the changes in an answer.
///
/// # Errors
/// Describes the first invalid block, in words for the agent.
pub fn parse_work(answer: &str) -> Result<Vec<FileChange>, String> {
    let mut lines = answer.lines().enumerate();
    let mut changes: Vec<FileChange> = Vec::new();
    while let Some((number, line)) = lines.next() {
        let Some(head) = line.strip_prefix(MARK) else { continue };
        let wrong = |what: String| format!("line {}: {what}", number + 1);
        let (verb, path) = head.trim_end().split_once(' ').unwrap_or((head.trim_end(), ""));
        if !matches!(verb, "write" | "edit" | "delete") {
            return Err(wrong(format!("{line:?} begins no block: write, edit or delete a file")));
        }
        if !is_inside(path) || path == "." || path.ends_with('/') {
            return Err(wrong(format!("{path:?} is not the path of a file inside of the workspace")));
        }
        if hone_containment::is_version_control(std::path::Path::new(path)) {
            return Err(wrong(format!("{path:?} belongs to version control, which obeys what stands there")));
        }
        let path = path.to_owned();
        let change = match verb {
            "write" => {
                let (parts, _) = block(&mut lines, &["end"]).map_err(wrong)?;
                FileChange::Write { path, text: parts }
            }
            "edit" => FileChange::Edit { path, replacements: replacements(&mut lines).map_err(wrong)? },
            _ => FileChange::Delete { path },
        };
        changes.push(change);
        if changes.len() > MOST_BLOCKS {
            return Err(format!("there are more than {MOST_BLOCKS} blocks"));
        }
    }
    match changes.is_empty() {
        true => Err("there is no block such as \"=== write path/of/file\"".to_owned()),
        false => Ok(changes),
    }
}

fn replacements<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let first = lines.next().map(|(_, line)| line.trim_end());
    if first != Some("=== search") {
        return Err("an edit must begin with \"=== search\"".to_owned());
    }
    loop {
        let (search, _) = block(lines, &["replace"])?;
        if search.trim().is_empty() {
            return Err("a search has no text".to_owned());
        }
        let (replacement, end) = block(lines, &["search", "end"])?;
        found.push((search, replacement));
        if end == "end" {
            return Ok(found);
        }
    }
}

/// The lines up to one of these markers, and that marker.
fn block<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    ends: &[&'static str],
) -> Result<(String, &'static str), String> {
    let mut text = String::new();
    for (_, line) in lines {
        if let Some(marker) = line.strip_prefix(MARK) {
            let marker = marker.trim_end();
            let found = ends.iter().find(|end| **end == marker);
            return match found {
                Some(end) => Ok((text, end)),
                None => Err(format!("\"=== {marker}\" stands where \"=== {}\" is expected", ends.join("\" or \"=== "))),
            };
        }
        text.push_str(line.strip_prefix('\\').unwrap_or(line));
        text.push('\n');
    }
    Err(format!("the answer ends before \"=== {}\"", ends.join("\" or \"=== ")))
}

/// The text of a file after a change; `None` if the file is then deleted. `before` is its text before the change.
///
/// # Errors
/// In words for the agent, when the text that an edit searches for does not occur exactly once, or the file does not
/// exist.
pub fn changed_text(change: &FileChange, before: Option<&str>) -> Result<Option<String>, String> {
    match change {
        FileChange::Write { text, .. } => Ok(Some(text.clone())),
        FileChange::Delete { path } => match before {
            Some(_) => Ok(None),
            None => Err(format!("{path} cannot be deleted: it does not exist")),
        },
        FileChange::Edit { path, replacements } => {
            let Some(before) = before else { return Err(format!("{path} cannot be edited: it does not exist")) };
            let mut text = before.to_owned();
            for (search, replacement) in replacements {
                let first = search.lines().next().unwrap_or_default();
                match text.matches(search.as_str()).count() {
                    1 => text = text.replacen(search.as_str(), replacement, 1),
                    0 => return Err(format!("{path} does not contain the lines to replace that begin with {first:?}")),
                    n => {
                        return Err(format!(
                            "{path} contains the lines that begin with {first:?} {n} times: search for more lines"
                        ));
                    }
                }
            }
            Ok(Some(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    const ANSWER: &str = "=== write src/a.py\ndef a():\n    return 1\n\n\\=== no marker\n=== end\n=== edit README.md\n\
                          === search\nold\n=== replace\nnew\n=== search\nx\n=== replace\n=== end\n=== delete notes.txt\n";

    #[test]
    fn an_answer_is_read() {
        let changes = parse_work(&format!("Here it is.\n{ANSWER}Done.")).unwrap();
        let write =
            FileChange::Write { path: "src/a.py".into(), text: "def a():\n    return 1\n\n=== no marker\n".into() };
        let replacements = vec![("old\n".into(), "new\n".into()), ("x\n".into(), String::new())];
        let edit = FileChange::Edit { path: "README.md".into(), replacements };
        assert_eq!(changes, [write, edit, FileChange::Delete { path: "notes.txt".into() }]);
    }

    #[test]
    fn the_expression_accepts_what_the_parser_reads() {
        let whole = Regex::new(&format!("^(?:{})$", work_regex())).unwrap();
        assert!(whole.is_match(ANSWER));
        for wrong in ["", "text\n", "=== write /etc/passwd\n=== end\n", "=== write a\nx\n", "=== edit a\n=== end\n"] {
            assert!(!whole.is_match(wrong), "{wrong:?}");
        }
        assert!(whole.is_match("=== write a\n=\n==\n= x\n\n=== end\n"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |answer: &str, part: &str| {
            let error = parse_work(answer).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check("nothing", "no block");
        check("=== write ../x\n=== end\n", "../x");
        check("=== write /etc/passwd\n=== end\n", "/etc/passwd");
        check("=== write a/\n=== end\n", "a/");
        check("=== write a\nunfinished", "ends before");
        check("=== edit a\n=== replace\n=== end\n", "=== search");
        check("=== edit a\n=== search\n\n=== replace\nx\n=== end\n", "no text");
        check("=== edit a\n=== search\nx\n=== end\n", "=== replace");
        check("=== move a\n", "begins no block");
        check("=== write a/.git/config\n=== end\n", "belongs to version control");
    }

    #[test]
    fn a_quoted_file_is_read_as_it_was() {
        let text = "a\n=== end\n\\b\n====\n";
        let quoted = quoted_file("a.txt", text);
        assert_eq!(parse_work(&quoted).unwrap(), [FileChange::Write { path: "a.txt".into(), text: text.into() }]);
        assert!(Regex::new(&format!("^(?:{})$", work_regex())).unwrap().is_match(&quoted));
    }

    #[test]
    fn edits_replace_what_occurs_once() {
        let edit = |search: &str, replacement: &str| FileChange::Edit {
            path: "a".into(),
            replacements: vec![(search.into(), replacement.into())],
        };
        assert_eq!(changed_text(&edit("b\n", "c\n"), Some("a\nb\n")), Ok(Some("a\nc\n".into())));
        assert!(changed_text(&edit("q\n", "c\n"), Some("a\n")).unwrap_err().contains("does not contain"));
        assert!(changed_text(&edit("a\n", "c\n"), Some("a\na\n")).unwrap_err().contains("2 times"));
        assert!(changed_text(&edit("a\n", "c\n"), None).unwrap_err().contains("does not exist"));
        let delete = FileChange::Delete { path: "a".into() };
        assert_eq!(changed_text(&delete, Some("text")), Ok(None));
        assert!(changed_text(&delete, None).is_err());
    }
}
