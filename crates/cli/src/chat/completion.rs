//! Completions for the Tab key: commands and their arguments, and files.

use std::path::{MAIN_SEPARATOR, Path};

use super::slash::COMMANDS;

/// Names that commands accept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    /// For `/model`.
    pub(crate) models: Vec<String>,
    /// For `/load` and `/save`.
    pub(crate) conversations: Vec<String>,
    /// For `/set`.
    pub(crate) settings: Vec<String>,
}

/// A possible completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Byte offset in the line where the text is inserted; it replaces everything from there to the cursor.
    pub(crate) start: usize,
    /// The text.
    pub(crate) text: String,
    /// The command's description.
    pub(crate) description: Option<&'static str>,
    /// Whether more may follow.
    pub(crate) goes_on: bool,
}

/// The completions for `line`, which is the text before the cursor.
pub(crate) fn offers(line: &str, candidates: &Candidates) -> Vec<Offer> {
    let Some(command) = line.strip_prefix('/') else { return mentioned_files(line) };
    let Some((name, rest)) = command.split_once(' ') else { return commands_from(command) };
    let argument = rest.trim_start();
    let start = line.len() - argument.len();
    let names = match name {
        "file" | "export" => return files(start, argument),
        "model" | "again" => &candidates.models,
        "load" | "save" => &candidates.conversations,
        "set" => &candidates.settings,
        _ => return Vec::new(),
    };
    let fitting = names.iter().filter(|candidate| candidate.starts_with(argument));
    fitting.map(|text| Offer { start, text: text.clone(), description: None, goes_on: name == "set" }).collect()
}

/// Files that the end of the line may mention: the text after the last `@` that begins a word. It may contain spaces.
fn mentioned_files(line: &str) -> Vec<Offer> {
    let begins_word = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let Some((at, _)) = line.rmatch_indices('@').find(|(at, _)| begins_word(*at)) else { return Vec::new() };
    let path = line[at + 1..].trim_start_matches('"');
    files(line.len() - path.len(), path)
}

/// The files and folders whose paths begin with `path`; hidden ones only if it names them. A folder that cannot
/// be listed offers nothing.
fn files(start: usize, path: &str) -> Vec<Offer> {
    let (folder, beginning) = path.split_at(path.rfind(['/', MAIN_SEPARATOR]).map_or(0, |slash| slash + 1));
    let listed = Path::new(if folder.is_empty() { "." } else { folder }).read_dir();
    let entries = listed.into_iter().flatten().filter_map(Result::ok).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_offered = name.starts_with(beginning) && (beginning.starts_with('.') || !name.starts_with('.'));
        is_offered.then(|| if entry.path().is_dir() { format!("{folder}{name}/") } else { format!("{folder}{name}") })
    });
    let mut paths: Vec<String> = entries.collect();
    paths.sort_unstable();
    paths.into_iter().map(|text| Offer { start, text, description: None, goes_on: false }).collect()
}

fn commands_from(beginning: &str) -> Vec<Offer> {
    let fitting = COMMANDS.iter().filter(|command| command.name.starts_with(beginning));
    fitting
        .map(|command| Offer {
            start: 0,
            text: format!("/{}", command.name),
            description: Some(command.does),
            goes_on: !command.takes.is_empty(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The completed lines.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let candidates = Candidates {
            models: list(&["qwen3:4b", "qwen3:8b", "smollm2:135m"]),
            conversations: list(&["tides"]),
            settings: list(&["top_k", "top_p"]),
        };
        let seen: Vec<String> =
            offers(line, &candidates).iter().map(|offer| format!("{}{}", &line[..offer.start], offer.text)).collect();
        assert_eq!(seen, expected, "{line:?}");
    }

    #[test]
    fn commands_and_what_they_take_are_offered() {
        check("", &[]);
        check("hello /s", &[]);
        check("/s", &["/system", "/set", "/show", "/save", "/stats"]);
        check("/x", &[]);
        check("/model q", &["/model qwen3:4b", "/model qwen3:8b"]);
        check("/model  s", &["/model  smollm2:135m"]);
        check("/set top_", &["/set top_k", "/set top_p"]);
        check("/set top_k 4", &[]);
        check("/load ", &["/load tides"]);
        check("/undo ", &[]);
    }

    #[test]
    fn files_are_offered() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        for name in ["notes.txt", "news.md", ".hidden", "my notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("nested")).unwrap();
        let line = |path: &str| format!("What is in @{root}/{path}");
        check(&line("ne"), &[&line("nested/"), &line("news.md")]);
        check(&line(".h"), &[&line(".hidden")]);
        check(&line("nested/"), &[]);
        check(&line("my no"), &[&line("my notes.txt")]);
        check(&line("nowhere/x"), &[]);
        check(&format!("/file {root}/no"), &[&format!("/file {root}/notes.txt")]);
        check(&format!("{} too", line("ne")), &[]);
    }
}
