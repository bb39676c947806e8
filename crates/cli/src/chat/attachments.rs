//! Files and piped text that go with a question.
//!
//! They precede the question, each in a fenced [`block`] under its name, so that the next question about the same files
//! finds their tokens in the KV cache.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use hone_app::conversations::attached::{LARGEST_TEXT, block, split, text_of};
use hone_app::describe::bytes;
use hone_app::describe::on_one_line;

/// A text attached to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    name: String,
    text: String,
}

impl Attachment {
    /// Reads the texts at `path`: a file, the files that match a pattern with `*`, `?` or `[…]`, or stdin for `-`.
    ///
    /// # Errors
    /// When nothing matches, or a match is not a text.
    pub(crate) fn read_all(path: &str) -> anyhow::Result<Vec<Attachment>> {
        if path == "-" {
            return Ok(vec![Attachment::stdin()?.context("stdin, which -f - names, is empty")?]);
        }
        paths(path)?.iter().map(|path| Attachment::file(path)).collect()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is larger than [`LARGEST_TEXT`], or is not a text.
    pub(crate) fn file(path: &Path) -> anyhow::Result<Attachment> {
        let name = path.display().to_string();
        let cannot = || format!("cannot read {name}");
        if fs::metadata(path).with_context(cannot)?.is_dir() {
            bail!("{name} is a folder: name its files, for example {}", path.join("*.txt").display());
        }
        let text = read(&name, File::open(path).with_context(cannot)?)?;
        Ok(Attachment { name, text })
    }

    /// Reads piped input; `None` if it is blank.
    ///
    /// # Errors
    /// When it cannot be read, is larger than [`LARGEST_TEXT`], or is not a text.
    pub(crate) fn stdin() -> anyhow::Result<Option<Attachment>> {
        let text = read(STDIN, std::io::stdin().lock())?;
        Ok((!text.trim().is_empty()).then(|| Attachment { name: STDIN.to_owned(), text }))
    }

    /// The files mentioned in `question` as `@PATH` or `@"PATH"`. Other words that begin with `@` are left alone.
    ///
    /// # Errors
    /// When a mentioned file is not a text.
    pub(crate) fn mentioned(question: &str) -> anyhow::Result<Vec<Attachment>> {
        mentions(question).filter_map(|(_, path)| path).map(Attachment::file).collect()
    }

    /// Words of `question` that look like file mentions but name no file.
    pub(crate) fn mentioned_in_vain(question: &str) -> Vec<&str> {
        let words = mentions(question).filter(|(_, path)| path.is_none()).map(|(word, _)| word);
        words.filter(|word| looks_like_path(word)).collect()
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The name and size, for display.
    pub(crate) fn description(&self) -> String {
        let lines = match self.text.lines().count() {
            1 => "1 line".to_owned(),
            n_lines => format!("{n_lines} lines"),
        };
        format!("{} ({}, {lines})", self.name, bytes(self.text.len() as u64))
    }
}

/// The descriptions of several attachments.
pub(crate) fn describe(attachments: &[Attachment]) -> String {
    attachments.iter().map(Attachment::description).collect::<Vec<_>>().join(", ")
}

/// The question with its attachments before it.
pub(crate) fn compose(attachments: &[Attachment], question: &str) -> String {
    let blocks = attachments.iter().map(|Attachment { name, text }| block(name, text));
    blocks.chain([question.to_owned()]).collect()
}

/// A question on one line, with the names of its attachments instead of their texts.
pub(crate) fn label(composed: &str) -> String {
    let (names, question) = split(composed);
    let question = on_one_line(question);
    if names.is_empty() { question } else { format!("[{}] {question}", names.join(", ")) }
}

const STDIN: &str = "stdin";

/// Maximum number of words in a file name.
const MOST_WORDS: usize = 12;

/// The words of a text that begin with `@`, without the `@`, and the files they name.
fn mentions(text: &str) -> impl Iterator<Item = (&str, Option<&Path>)> {
    let places = text.match_indices('@').map(|(at, _)| at);
    let begin_word = places.filter(|at| text[..*at].chars().next_back().is_none_or(char::is_whitespace));
    begin_word.map(|at| {
        let rest = text[at + 1..].lines().next().unwrap_or_default();
        let quoted = rest.strip_prefix('"').and_then(|rest| Some(rest.split_once('"')?.0));
        let path = quoted.map(Path::new).filter(|path| path.is_file()).or_else(|| mentioned_path(rest));
        let word = quoted.or_else(|| rest.split_whitespace().next()).unwrap_or_default();
        (word.trim_end_matches(ends_sentence), path)
    })
}

/// Whether a word contains a folder or an extension.
fn looks_like_path(word: &str) -> bool {
    let is_extension = |end: &str| (1..=5).contains(&end.len()) && end.chars().all(char::is_alphanumeric);
    word.contains(['/', '\\']) || word.rsplit_once('.').is_some_and(|(name, end)| !name.is_empty() && is_extension(end))
}

fn ends_sentence(character: char) -> bool {
    ".,;:!?)".contains(character)
}

/// The file whose path begins the line: the longest existing one, as names may contain spaces.
fn mentioned_path(line: &str) -> Option<&Path> {
    let ends = line.match_indices(char::is_whitespace).map(|(at, _)| at).take(MOST_WORDS).chain([line.len()]);
    let paths: Vec<&Path> =
        ends.flat_map(|end| [line[..end].trim_end_matches(ends_sentence), &line[..end]]).map(Path::new).collect();
    paths.into_iter().rfind(|path| path.is_file())
}

/// The paths that `path` stands for: itself, or the files that match it as a pattern with `*`, `?` or `[…]`.
///
/// # Errors
/// When it is a pattern and nothing matches.
pub(crate) fn paths(path: &str) -> anyhow::Result<Vec<PathBuf>> {
    if Path::new(path).exists() || !path.contains(['*', '?', '[']) {
        return Ok(vec![PathBuf::from(path)]);
    }
    let matching = glob::glob(path).with_context(|| format!("{path:?} is not a valid pattern"))?;
    let found = matching.collect::<Result<Vec<_>, _>>().with_context(|| format!("cannot look for {path:?}"))?;
    let files: Vec<PathBuf> = found.into_iter().filter(|path| path.is_file()).collect();
    if files.is_empty() {
        bail!("no file matches {path:?}");
    }
    Ok(files)
}

fn read(name: &str, source: impl Read) -> anyhow::Result<String> {
    let mut content = Vec::new();
    source.take(LARGEST_TEXT + 1).read_to_end(&mut content).with_context(|| format!("cannot read {name}"))?;
    if content.len() as u64 > LARGEST_TEXT {
        bail!("{name} is larger than {}: no model's context holds it", bytes(LARGEST_TEXT));
    }
    text_of(content).map_err(|reason| anyhow!("{name} {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: &str, text: &str) -> Attachment {
        Attachment { name: name.to_owned(), text: text.to_owned() }
    }

    #[track_caller]
    fn check(attachments: &[Attachment], question: &str, expected: &str) {
        let composed = compose(attachments, question);
        assert_eq!(composed, expected);
        let names: Vec<&str> = attachments.iter().map(|attachment| attachment.name.as_str()).collect();
        assert_eq!(split(&composed), (names, question));
    }

    #[test]
    fn files_stand_before_the_question_and_are_told_from_it() {
        check(&[], "Why?", "Why?");
        check(&[attachment("a.txt", "one\ntwo\n")], "Why?", "File: a.txt\n```\none\ntwo\n```\n\nWhy?");
        let two = [attachment("a.md", "x\n```\ny\n```\n\nz"), attachment("b", "w")];
        check(&two, "Why?", "File: a.md\n````\nx\n```\ny\n```\n\nz\n````\n\nFile: b\n```\nw\n```\n\nWhy?");
        check(&[attachment("a", "`````")], "b:\n```\nw\n```", "File: a\n``````\n`````\n``````\n\nb:\n```\nw\n```");
        check(&[], "Explain:\n```\nx\n```", "Explain:\n```\nx\n```");
    }

    #[test]
    fn mentioned_files_may_have_spaces_in_their_names() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().display();
        for name in ["my", "my notes.txt", "plain.txt"] {
            fs::write(folder.path().join(name), name)?;
        }
        let check = |question: String, expected: &[&str]| {
            let mentioned = Attachment::mentioned(&question).unwrap();
            let texts: Vec<&str> = mentioned.iter().map(Attachment::text).collect();
            assert_eq!(texts, expected, "{question}");
        };
        check(format!("What is in @{root}/my notes.txt please?"), &["my notes.txt"]);
        check(format!("What is in @\"{root}/my notes.txt\", please?"), &["my notes.txt"]);
        check(format!("Compare @{root}/my with @{root}/plain.txt."), &["my", "plain.txt"]);
        check(format!("Write to me@{root}/my, @nobody or NSLog(@\"x\") @\"y\""), &[]);
        Ok(())
    }

    #[test]
    fn a_label_names_the_files() {
        assert_eq!(label("Why?"), "Why?");
        assert_eq!(label(&compose(&[attachment("a", "x"), attachment("b", "y")], "Why?")), "[a, b] Why?");
    }

    #[track_caller]
    fn check_refused(name: &str, content: &[u8], complaint: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = Attachment::file(&path).unwrap_err().to_string();
        assert_eq!(error.replace(&path.display().to_string(), name), complaint);
    }

    #[test]
    fn only_text_goes_with_a_question() {
        let binary = "photo.png is a binary file: only texts and PDFs can go with a question";
        check_refused("photo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", binary);
        check_refused("old.txt", b"gr\xfcn", "old.txt is not UTF-8: only texts and PDFs can go with a question");
        let large = vec![b'a'; LARGEST_TEXT as usize + 1];
        check_refused("log", &large, "log is larger than 16.78 MB: no model's context holds it");
    }

    #[test]
    fn patterns_and_mentions_find_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in [("a.txt", "\u{feff}one"), ("b.txt", "two"), ("c.md", "three")] {
            fs::write(path(name), text).unwrap();
        }
        let (a, b) = (attachment(&path("a.txt"), "one"), attachment(&path("b.txt"), "two"));
        assert_eq!(Attachment::read_all(&path("*.txt")).unwrap(), [a.clone(), b.clone()]);
        assert_eq!(Attachment::read_all(&path("a.txt")).unwrap(), std::slice::from_ref(&a));
        let error = |path: &str| format!("{:#}", Attachment::read_all(path).unwrap_err());
        assert!(error(&path("*.rs")).starts_with("no file matches"), "{}", error(&path("*.rs")));
        assert!(error(&path("d.txt")).starts_with("cannot read"), "{}", error(&path("d.txt")));
        assert!(error(&folder.path().display().to_string()).contains("is a folder"));
        let question = format!("Compare @{} with @{}, @somebody: @ a@b", path("a.txt"), path("b.txt"));
        assert_eq!(Attachment::mentioned(&question).unwrap(), [a, b]);
    }
}
