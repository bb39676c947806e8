//! The view of a workspace in a prompt: the list of its files, and the relevant ones, whole or in excerpts, within a
//! budget of bytes.
//!
//! Files that were changed or are named, by the task or by the findings about the last attempt, come first. The other
//! files follow, those with the most words of the task first. Rare words count most (by inverse document frequency).

use std::collections::{BTreeMap, BTreeSet};

use crate::evaluating::{DirectoryFiles, ListedFile, is_work};
use crate::{WorkspaceFiles, quoted_file};

/// The number of lines before and after the relevant line in an excerpt.
const AROUND: usize = 8;
/// Maximum number of a task's words to search for.
const MOST_TERMS: usize = 48;
/// Maximum bytes of a file that is searched for a task's words, and of all of them together. Named files are read
/// regardless.
const MOST_OF_A_FILE: u64 = 1 << 20;
const MOST_SEARCHED: u64 = 64 << 20;
/// Shorter words are ignored.
const SHORTEST_TERM: usize = 4;
/// With less room than this, in bytes, no further file is shown.
const LEAST_LEFT: usize = 200;
/// The fraction (1/n) of the budget that the list of files may take.
const OF_LIST: usize = 4;

/// A workspace, and the parts of a task to search it for.
pub(super) struct Overview<'a> {
    pub(super) files: &'a DirectoryFiles,
    /// The paths of files that come first.
    pub(super) first: Vec<String>,
    /// The goal, the requirements, and the findings about the last attempt.
    pub(super) about: String,
    /// Whether the model can read other files by itself.
    pub(super) has_tools: bool,
}

/// A file with its relevance.
struct Known {
    path: String,
    text: String,
    /// The text in lower case.
    lower: String,
    /// Whether it was changed, or is named.
    is_named: bool,
    /// Its relevance to the task.
    score: f64,
}

impl Overview<'_> {
    /// The text for a prompt; empty if there are no files.
    pub(super) fn text(&self, budget: usize) -> String {
        let listed = self.files.listed();
        let mut known = self.known(&listed);
        let n_quoted: usize = known.iter().map(|file| quoted_file(&file.path, &file.text).len()).sum();
        if listed.is_empty() {
            return String::new();
        }
        if n_quoted <= budget && listed.iter().all(|file| file.bytes <= MOST_OF_A_FILE) {
            let all: String = known.iter().map(|file| quoted_file(&file.path, &file.text)).collect();
            let is_text = |file: &&ListedFile| known.iter().any(|known| known.path == file.path);
            let others: Vec<ListedFile> = listed.iter().filter(|file| !is_text(file)).cloned().collect();
            let rest = list_of(&others, budget / OF_LIST);
            let rest = if others.is_empty() { rest } else { format!("Files that are no text:\n{rest}") };
            return format!("## The files as they are\n{all}{rest}");
        }
        let list = list_of(&listed, budget / OF_LIST);
        let terms = weighed(terms_of(&self.about), &known);
        for file in &mut known {
            file.score = weight_in(&file.lower, &terms);
        }
        let rank = |file: &Known| (file.is_named, file.score);
        known.sort_by(|one, other| {
            let ((named, score), (other_named, other_score)) = (rank(one), rank(other));
            other_named.cmp(&named).then(other_score.total_cmp(&score))
        });
        let (shown, n_whole, n_in_part) = self.shown(&known, &terms, budget.saturating_sub(list.len()));
        let n_bytes: u64 = listed.iter().map(|file| file.bytes).sum();
        let rest = if self.has_tools { "; look at others with the tools" } else { "" };
        format!(
            "## The workspace\n{} files with {}. Below are {n_whole} of them as they are and {n_in_part} in part{rest}.\n\
             {list}\n{shown}",
            listed.len(),
            size(n_bytes),
        )
    }

    /// The files with their texts, changed and named ones first.
    fn known(&self, listed: &[ListedFile]) -> Vec<Known> {
        // Named files are shown although `.gitignore` excludes them.
        let mut first: Vec<&str> = self.first.iter().map(String::as_str).filter(|path| is_work(path)).collect();
        first.extend(named_in(&self.about, listed));
        let n_named = first.len();
        let mut n_bytes = 0;
        let short = listed.iter().filter(|file| file.bytes <= MOST_OF_A_FILE);
        let searched = short.take_while(|file| {
            n_bytes += file.bytes;
            n_bytes <= MOST_SEARCHED
        });
        let others = searched.map(|file| file.path.as_str());
        let mut seen = BTreeSet::new();
        let in_order = first.into_iter().chain(others).enumerate().filter(|(_, path)| seen.insert(*path));
        in_order
            .filter_map(|(index, path)| {
                let text = self.files.text(path)?;
                let (path, lower) = (path.to_owned(), text.to_lowercase());
                Some(Known { path, text, lower, is_named: index < n_named, score: 0.0 })
            })
            .collect()
    }

    /// The files in this order within the budget, the number of whole ones, and the number of partial ones.
    fn shown(&self, known: &[Known], terms: &[(String, f64)], budget: usize) -> (String, usize, usize) {
        let (mut shown, mut n_whole, mut n_in_part) = (String::new(), 0, 0);
        for file in known {
            let left = budget.saturating_sub(shown.len());
            if left < LEAST_LEFT {
                break;
            }
            let whole = quoted_file(&file.path, &file.text);
            // A file that is not named leaves room for others.
            let most = if file.is_named { left } else { left / 2 };
            if whole.len() <= most {
                shown.push_str(&whole);
                n_whole += 1;
                continue;
            }
            let excerpt = self.excerpt(file, terms, most / 2);
            if !excerpt.is_empty() {
                shown.push_str(&excerpt);
                n_in_part += 1;
            }
        }
        (shown, n_whole, n_in_part)
    }

    /// The relevant parts of a file.
    fn excerpt(&self, file: &Known, terms: &[(String, f64)], most: usize) -> String {
        let lines: Vec<&str> = file.text.lines().collect();
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        let mut n_bytes = 0;
        for line in self.lines_of_interest(file, &lines, terms) {
            let around = line.saturating_sub(AROUND)..(line + AROUND + 1).min(lines.len());
            let added: Vec<usize> = around.filter(|index| !chosen.contains(index)).collect();
            let more: usize = added.iter().map(|index| lines[*index].len() + 1).sum();
            if n_bytes + more > most {
                break;
            }
            n_bytes += more;
            chosen.extend(added);
        }
        let mut text = String::new();
        let mut last = None;
        for index in &chosen {
            if last != index.checked_sub(1) || last.is_none() {
                let end = (*index..).take_while(|next| chosen.contains(next)).last().unwrap_or(*index);
                text.push_str(&format!("--- {}, lines {} to {} of {}\n", file.path, index + 1, end + 1, lines.len()));
            }
            text.push_str(lines[*index]);
            text.push('\n');
            last = Some(*index);
        }
        text
    }

    /// Indices of lines: first those named in the findings, then those with the rarest words.
    fn lines_of_interest(&self, file: &Known, lines: &[&str], terms: &[(String, f64)]) -> Vec<usize> {
        let mut found: Vec<usize> = lines_named(&self.about, &file.path);
        found.retain(|line| *line < lines.len());
        let mut scored: Vec<(usize, f64)> =
            lines.iter().map(|line| weight_in(&line.to_lowercase(), terms)).enumerate().collect();
        scored.retain(|(_, score)| *score > 0.0);
        scored.sort_by(|one, other| other.1.total_cmp(&one.1));
        found.extend(scored.into_iter().map(|(index, _)| index));
        found
    }
}

/// The paths that a text names: in full, or by a file name that is unique among them.
fn named_in<'a>(text: &str, listed: &'a [ListedFile]) -> Vec<&'a str> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for file in listed {
        *by_name.entry(name_of(&file.path)).or_default() += 1;
    }
    let words: BTreeSet<&str> =
        text.split(|c| !is_part_of_path(c)).map(|word| word.trim_end_matches('.').trim_start_matches("./")).collect();
    let is_named = |file: &&ListedFile| {
        let name = name_of(&file.path);
        words.contains(file.path.as_str()) || (name.contains('.') && by_name[name] == 1 && words.contains(name))
    };
    listed.iter().filter(is_named).map(|file| file.path.as_str()).collect()
}

fn is_part_of_path(c: char) -> bool {
    c.is_alphanumeric() || "_-./".contains(c)
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The indices of the lines of a file that a text names, as `path:12` or `"path", line 12`.
fn lines_named(text: &str, path: &str) -> Vec<usize> {
    let is_whole = |start: usize| {
        let before = &text[..start];
        !before.strip_suffix("./").unwrap_or(before).ends_with(is_part_of_path)
    };
    let named = text.match_indices(path).filter(|(start, _)| is_whole(*start));
    let numbers = named.map(|(start, _)| &text[start + path.len()..]).filter_map(|rest| {
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix("\", line "))?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse::<usize>().ok()?.checked_sub(1)
    });
    numbers.collect()
}

/// The words of a text to search files for, without duplicates.
fn terms_of(text: &str) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let word = word.to_lowercase();
        if word.chars().count() >= SHORTEST_TERM && terms.len() < MOST_TERMS && !terms.contains(&word) {
            terms.push(word);
        }
    }
    terms
}

/// Words with their inverse document frequency; words that most files contain are left out.
fn weighed(terms: Vec<String>, known: &[Known]) -> Vec<(String, f64)> {
    let weigh = |term: String| {
        let n_having = known.iter().filter(|file| file.lower.contains(&term)).count();
        let is_rare = n_having > 0 && (n_having * 2 <= known.len() || known.len() < 4);
        is_rare.then(|| (term, (1.0 + known.len() as f64 / n_having as f64).ln()))
    };
    terms.into_iter().filter_map(weigh).collect()
}

/// The total weight of a task's words in a lower-case text.
fn weight_in(text: &str, terms: &[(String, f64)]) -> f64 {
    terms.iter().filter(|(term, _)| text.contains(term.as_str())).map(|(_, weight)| weight).sum()
}

/// The files with their sizes, one per line.
pub(crate) fn paths_of(listed: &[ListedFile]) -> String {
    listed.iter().map(|file| format!("{} ({})\n", file.path, size(file.bytes))).collect()
}

/// The files with their sizes, one per line; their folders if that takes more bytes than `most`.
pub(crate) fn list_of(listed: &[ListedFile], most: usize) -> String {
    let each = paths_of(listed);
    if each.len() <= most {
        return each;
    }
    let by_folder = folders(listed, |path| path.rsplit_once('/').map_or("", |(folder, _)| folder));
    if by_folder.len() <= most {
        return by_folder;
    }
    lines_that_fit(folders(listed, |path| path.split_once('/').map_or("", |(top, _)| top)), most)
}

/// The first lines of a list, as many as fit, and the number of omitted lines.
pub(crate) fn lines_that_fit(list: String, most: usize) -> String {
    if list.len() <= most {
        return list;
    }
    let mut n_bytes = 0;
    let fits = |line: &&str| {
        n_bytes += line.len() + 1;
        n_bytes <= most
    };
    let kept: Vec<&str> = list.lines().take_while(fits).collect();
    let n_more = list.lines().count() - kept.len();
    format!("{}\n[{n_more} more]\n", kept.join("\n"))
}

fn folders<'a>(listed: &'a [ListedFile], folder_of: impl Fn(&'a str) -> &'a str) -> String {
    let mut folders: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for file in listed {
        let (n_files, bytes) = folders.entry(folder_of(&file.path)).or_default();
        (*n_files, *bytes) = (*n_files + 1, *bytes + file.bytes);
    }
    let line = |(folder, (n_files, bytes)): (&str, (usize, u64))| {
        let folder = if folder.is_empty() { "." } else { folder };
        format!("{folder}/ ({n_files} files, {})\n", size(bytes))
    };
    folders.into_iter().map(line).collect()
}

fn size(bytes: u64) -> String {
    if bytes < 1000 { format!("{bytes} bytes") } else { format!("{:.1} KB", bytes as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The view of a workspace with these files in a prompt.
    fn shown(files: &[(&str, String)], first: &[&str], about: &str, budget: usize) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = DirectoryFiles::new(folder.path());
        let first = first.iter().map(|path| (*path).to_owned()).collect();
        Overview { files: &files, first, about: about.to_owned(), has_tools: true }.text(budget)
    }

    fn many() -> Vec<(&'static str, String)> {
        let large: String = (1..=2000).map(|number| format!("value_{number} = {number}\n")).collect();
        let small = |name: &str| format!("def {name}():\n    return '{name}'\n");
        vec![
            (".gitignore", "ignored/\n".to_owned()),
            ("ignored/data.txt", "secret".repeat(99)),
            ("lib/large.py", large),
            ("lib/other.py", small("other")),
            ("lib/rates.py", small("convert_currency")),
            ("src/main.py", small("main")),
        ]
    }

    #[test]
    fn a_small_workspace_is_shown_whole() {
        let text = shown(&[("a.py", "x = 1\n".to_owned())], &[], "", 1000);
        assert_eq!(text, "## The files as they are\n=== write a.py\nx = 1\n=== end\n");
        assert_eq!(shown(&[], &[], "", 1000), "");
    }

    #[test]
    fn of_a_large_one_all_names_and_what_the_task_is_about_are_shown() {
        let text = shown(&many(), &["src/main.py"], "mend convert_currency; lib/large.py:1500: too large", 4000);
        for part in [
            "5 files with",
            "lib/other.py (",
            "=== write src/main.py",
            "--- lib/large.py, lines 1492 to 1508 of 2000\nvalue_1492 = 1492\n",
            "=== write lib/rates.py",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(!text.contains("ignored/data"), "{text}");
        assert!(text.len() < 4400, "{}", text.len());
    }

    #[test]
    fn a_file_is_named_by_its_path_or_by_a_name_of_its_own() {
        let listed = ["a/x.py", "b/x.py", "b/y.py"].map(|path| ListedFile { path: path.to_owned(), bytes: 1 });
        assert_eq!(named_in("see y.py.", &listed), ["b/y.py"]);
        assert_eq!(named_in("x.py", &listed), [""; 0]);
        assert_eq!(named_in("(a/x.py:3)", &listed), ["a/x.py"]);
        assert_eq!(lines_named("a/x.py:3: E1, File \"a/x.py\", line 12", "a/x.py"), [2, 11]);
        assert_eq!(lines_named("lib/a.py:12, ./a.py:3, data.py:4", "a.py"), [2]);
    }

    #[test]
    fn a_huge_file_does_not_keep_others_from_being_searched() {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("a.bin")).unwrap().set_len(MOST_SEARCHED + 1).unwrap();
        fs::write(folder.path().join("rates.py"), "def convert_currency():\n    pass\n").unwrap();
        let files = DirectoryFiles::new(folder.path());
        let overview =
            Overview { files: &files, first: Vec::new(), about: "mend convert_currency".to_owned(), has_tools: true };
        assert!(overview.text(4000).contains("=== write rates.py"), "{}", overview.text(4000));
    }

    #[test]
    fn a_long_list_names_folders() {
        let listed: Vec<ListedFile> =
            (0..50).map(|number| ListedFile { path: format!("src/{}/{number}.rs", number % 2), bytes: 100 }).collect();
        assert_eq!(list_of(&listed, 100), "src/0/ (25 files, 2.5 KB)\nsrc/1/ (25 files, 2.5 KB)\n");
        assert_eq!(list_of(&listed, 30), "src/ (50 files, 5.0 KB)\n");
        assert_eq!(
            lines_that_fit(paths_of(&listed), 50),
            "src/0/0.rs (100 bytes)\nsrc/1/1.rs (100 bytes)\n[48 more]\n"
        );
    }
}
