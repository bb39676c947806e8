//! Rubrics by name: the user's own, then the compiled-in ones.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hone_judging::Rubric;

use crate::usage;

/// The folder of the user's rubrics within the configuration folder.
const FOLDER: &str = "rubrics";

/// The rubric with this name. A user's file takes precedence over a compiled-in rubric.
///
/// # Errors
/// When it does not exist (the error lists the names of existing ones), or its file is invalid.
pub(super) fn find(name: &str, config_folder: Option<&Path>) -> anyhow::Result<Rubric> {
    let folder = config_folder.map(|folder| folder.join(FOLDER));
    if let Some((path, text)) = folder.as_deref().map(|folder| read(folder, name)).transpose()?.flatten() {
        return Rubric::parse(name, &text).map_err(|invalid| usage(format!("{}: {invalid}", path.display())));
    }
    match Rubric::shipped(name) {
        Some(rubric) => Ok(rubric?),
        None => Err(usage(format!("there is no rubric {name:?}: there are {}", names(folder.as_deref())))),
    }
}

/// The user's rubric with this name and its file.
fn read(folder: &Path, name: &str) -> anyhow::Result<Option<(PathBuf, String)>> {
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    if name.is_empty() || !name.chars().all(is_name) {
        return Ok(None);
    }
    let path = folder.join(format!("{name}.toml"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read the rubric {}", path.display())),
    }
}

/// The names of all available rubrics.
fn names(folder: Option<&Path>) -> String {
    let files = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let of_file = |path: PathBuf| {
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        is_toml.then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned())).flatten()
    };
    let own = files.filter_map(|file| of_file(file.path()));
    let all: BTreeSet<String> = Rubric::shipped_names().map(str::to_owned).chain(own).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDNESS: &str = "criterion = 'Is it kind?'\nscores = ['a', 'b', 'c', 'd', 'e']";

    /// The criterion of a rubric, or the error, given these user files.
    #[track_caller]
    fn check(files: &[(&str, &str)], name: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(FOLDER)).unwrap();
        for (file, text) in files {
            std::fs::write(folder.path().join(FOLDER).join(file), text).unwrap();
        }
        let found = find(name, Some(folder.path()));
        let seen = found.map_or_else(|error| format!("{error:#}"), |rubric| rubric.criterion);
        let seen = seen.replace(folder.path().to_str().unwrap(), "~");
        assert!(seen.starts_with(expected), "{seen}");
    }

    #[test]
    fn a_rubric_is_found_by_its_name() {
        check(&[], "honesty", "Does the response say truthfully");
        check(&[("kindness.toml", KINDNESS)], "kindness", "Is it kind?");
        check(&[("honesty.toml", KINDNESS)], "honesty", "Is it kind?");
        assert_eq!(find("default", None).unwrap().name, "default");
        assert_eq!(find("default", Some(Path::new("/nowhere"))).unwrap().name, "default");
    }

    #[test]
    fn an_unknown_rubric_is_answered_with_those_that_there_are() {
        let names = "default, factual_accuracy, harmlessness, helpfulness, honesty";
        check(&[], "x", &format!("there is no rubric \"x\": there are {names}, reasoning"));
        let files = [("kindness.toml", KINDNESS), ("notes.txt", "")];
        check(&files, "../x", &format!("there is no rubric \"../x\": there are {names}, kindness, reasoning"));
        check(&[], "", "there is no rubric \"\"");
    }

    #[test]
    fn a_rubric_that_is_wrong_is_named_with_its_file() {
        let broken = [("kindness.toml", "criterion = 'x'\nscores = ['a']")];
        let expected =
            "~/rubrics/kindness.toml: the rubric \"kindness\" cannot be used: scores has 1 texts, expected 5";
        check(&broken, "kindness", expected);
    }
}
