//! The tools with which an agent explores the workspace before it writes.

use hone_protocol::{Message, Role, Tool, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::overview::{lines_that_fit, list_of, paths_of};
use crate::WorkspaceFiles;
use crate::evaluating::{DirectoryFiles, is_work};

/// Maximum number of matches in a search result.
const MOST_FOUND: usize = 60;
/// Maximum total bytes of files that a search reads.
const MOST_SEARCHED: u64 = 256 << 20;
/// Maximum characters of a line in a search result.
const LONGEST_LINE: usize = 200;
/// Maximum characters of a call's result in the record of a task.
const LONGEST_KEPT: usize = 2000;

/// A tool call and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
    /// The result, abridged.
    pub result: String,
}

/// Explores a workspace for a model.
pub(super) struct Explorer<'a> {
    pub(super) files: &'a DirectoryFiles,
    /// The files that the task names, which may be read although `.gitignore` excludes them.
    pub(super) named: &'a [String],
    /// Maximum bytes of a result.
    pub(super) most_bytes: usize,
    /// Runs the tests, and returns their results.
    pub(super) run_tests: &'a dyn Fn() -> String,
}

/// The offered tools.
pub(super) fn tools() -> Vec<Tool> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = |description: &str| json!({ "type": "integer", "description": description });
    vec![
        tool(
            "list",
            "Lists the files of the workspace with their sizes.",
            &json!({ "folder": text("Only in this folder") }),
            &[],
        ),
        tool(
            "read",
            "Shows a file, or some of its lines.",
            &json!({ "path": text("The file"), "first_line": number("From 1"), "last_line": number("The last line to show") }),
            &["path"],
        ),
        tool(
            "search",
            "Finds the lines that contain a text, whatever its case, in all files.",
            &json!({ "text": text("What to find"), "folder": text("Only in this folder") }),
            &["text"],
        ),
        tool("run_tests", "Runs the tests on the files as they are, and says which fail and how.", &json!({}), &[]),
    ]
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Tool {
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    Tool { name: name.to_owned(), description: description.to_owned(), parameters }
}

impl Explorer<'_> {
    /// Carries out a call, and returns the turn for the model, and the call for the record.
    pub(super) fn carry_out(&self, call: &ToolCall) -> (Message, WorkToolCall) {
        let arguments = &call.arguments;
        // Some models say where as `path`, as in `read`.
        let folder = ["folder", "path"].iter().find_map(|key| arguments[*key].as_str()).unwrap_or_default();
        let result = match (call.name.as_str(), arguments["path"].as_str(), arguments["text"].as_str()) {
            ("list", ..) => self.list(folder),
            ("read", Some(path), _) => self.read(path, line(arguments, "first_line"), line(arguments, "last_line")),
            ("search", _, Some(text)) if !text.trim().is_empty() => self.search(text.trim(), folder),
            ("run_tests", ..) => shortened((self.run_tests)(), self.most_bytes),
            ("read", ..) => "read needs a path".to_owned(),
            ("search", ..) => "search needs a text".to_owned(),
            (name, ..) => format!("there is no tool {name:?}: call list, read, search or run_tests, or write the work"),
        };
        let kept = WorkToolCall {
            name: call.name.clone(),
            arguments: arguments.clone(),
            result: result.chars().take(LONGEST_KEPT).collect(),
        };
        (Message { result_of: call.id.clone(), ..Message::new(Role::Tool, result) }, kept)
    }

    fn list(&self, folder: &str) -> String {
        let mut listed = self.files.listed();
        listed.retain(|file| is_in(&file.path, folder));
        match (listed.is_empty(), folder) {
            (true, _) => format!("there are no files in {folder:?}"),
            (false, "") => list_of(&listed, self.most_bytes),
            (false, _) => lines_that_fit(paths_of(&listed), self.most_bytes),
        }
    }

    fn read(&self, path: &str, first: Option<usize>, last: Option<usize>) -> String {
        let path = path.trim_start_matches("./");
        let is_named = is_work(path) && self.named.iter().any(|named| named == path);
        if !is_named && !self.files.is_listed(path) {
            return format!("{path} is not one of the workspace's files, which `list` shows");
        }
        let Some(text) = self.files.text(path) else { return format!("{path} is not a text file") };
        let lines: Vec<&str> = text.lines().collect();
        let first = first.unwrap_or(1).max(1);
        let last = last.unwrap_or(lines.len()).min(lines.len());
        if first > last {
            return format!("{path} has {} lines", lines.len());
        }
        let (mut shown, mut end) = (String::new(), first - 1);
        for line in &lines[first - 1..last] {
            if shown.len() + line.len() > self.most_bytes && end >= first {
                break;
            }
            shown.push_str(line);
            shown.push('\n');
            end += 1;
        }
        let rest = if end < last { format!("; read on with first_line {}", end + 1) } else { String::new() };
        format!("{path}, lines {first} to {end} of {}{rest}\n{}", lines.len(), shortened(shown, self.most_bytes))
    }

    fn search(&self, text: &str, folder: &str) -> String {
        let wanted = text.to_lowercase();
        let (mut found, mut rest) = (String::new(), String::new());
        let (mut n_found, mut n_shown, mut n_bytes) = (0, 0, 0);
        for file in self.files.listed().iter().filter(|file| is_in(&file.path, folder)) {
            n_bytes += file.bytes;
            if n_bytes > MOST_SEARCHED {
                rest = format!("; {} and the files after it were not searched: name a folder", file.path);
                break;
            }
            let Some(content) = self.files.text(&file.path) else { continue };
            for (index, line) in content.lines().enumerate().filter(|(_, line)| line.to_lowercase().contains(&wanted)) {
                n_found += 1;
                if n_shown < MOST_FOUND && found.len() < self.most_bytes {
                    n_shown += 1;
                    let line: String = line.trim().chars().take(LONGEST_LINE).collect();
                    found.push_str(&format!("{}:{}: {line}\n", file.path, index + 1));
                }
            }
        }
        match n_found {
            0 => format!("no line contains {text:?}{rest}"),
            n => format!("{n_shown} of {n} lines that contain it{rest}:\n{found}"),
        }
    }
}

fn line(arguments: &Value, key: &str) -> Option<usize> {
    arguments[key].as_u64().map(|line| usize::try_from(line).unwrap_or(usize::MAX))
}

fn is_in(path: &str, folder: &str) -> bool {
    let folder = folder.trim_start_matches("./").trim_matches('/');
    folder.is_empty() || folder == "." || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A text of at most `most` bytes.
fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str("\n[the rest is left out]");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_tool_says_what_it_found_or_what_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/a.py"), "one\nTwo\nthree\n").unwrap();
        fs::write(folder.path().join("b.txt"), "two").unwrap();
        fs::write(folder.path().join(".ignore"), ".env\n.ignore\nbuilt.js\n").unwrap();
        fs::write(folder.path().join("built.js"), "x").unwrap();
        fs::write(folder.path().join(".env"), "SECRET=two").unwrap();
        let files = DirectoryFiles::new(folder.path());
        let named = ["built.js".to_owned()];
        let run_tests = || "1 of 2 tests fail".to_owned();
        let explorer = Explorer { files: &files, named: &named, most_bytes: 100, run_tests: &run_tests };
        let check = |name: &str, arguments: Value, expected: &str| {
            let (turn, kept) = explorer.carry_out(&ToolCall::new(name, arguments));
            assert_eq!((turn.content.as_str(), kept.result.as_str()), (expected, expected));
        };
        check("list", json!({}), "b.txt (3 bytes)\nsrc/a.py (14 bytes)\n");
        check("list", json!({ "folder": "src/" }), "src/a.py (14 bytes)\n");
        check("read", json!({ "path": "src/a.py", "first_line": 2 }), "src/a.py, lines 2 to 3 of 3\nTwo\nthree\n");
        check("read", json!({ "path": "./b.txt" }), "b.txt, lines 1 to 1 of 1\ntwo\n");
        check("read", json!({ "path": "built.js" }), "built.js, lines 1 to 1 of 1\nx\n");
        check("list", json!({ "path": "src" }), "src/a.py (14 bytes)\n");
        for hidden in ["../x", ".env"] {
            check(
                "read",
                json!({ "path": hidden }),
                &format!("{hidden} is not one of the workspace's files, which `list` shows"),
            );
        }
        check("read", json!({ "path": "b.txt", "first_line": 9 }), "b.txt has 1 lines");
        check("read", json!({}), "read needs a path");
        let found = "2 of 2 lines that contain it:\nb.txt:1: two\nsrc/a.py:2: Two\n";
        check("search", json!({ "text": "two" }), found);
        check("search", json!({ "text": "four" }), "no line contains \"four\"");
        check("run_tests", json!({}), "1 of 2 tests fail");
        let unknown = "there is no tool \"rm\": call list, read, search or run_tests, or write the work";
        check("rm", json!({}), unknown);
    }

    #[test]
    fn a_long_file_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=99).map(|number| format!("line {number}\n")).collect();
        fs::write(folder.path().join("a"), text).unwrap();
        let files = DirectoryFiles::new(folder.path());
        let explorer = Explorer { files: &files, named: &[], most_bytes: 40, run_tests: &String::new };
        let (turn, _) = explorer.carry_out(&ToolCall::new("read", json!({ "path": "a", "first_line": 10 })));
        assert!(turn.content.starts_with("a, lines 10 to 14 of 99; read on with first_line 15\nline 10\n"), "{turn:?}");
    }
}
