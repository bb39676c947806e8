//! A file on the hub.

use std::path::Path;

use hone_protocol::PartName;

use super::is_plain;
use crate::name::is_safe_file_name;

/// A file on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubFile {
    pub(crate) repository: String,
    pub(crate) revision: String,
    pub(crate) path: String,
}

impl HubFile {
    pub(crate) fn new(repository: &str, revision: &str, path: &str) -> Self {
        Self { repository: repository.to_owned(), revision: revision.to_owned(), path: path.to_owned() }
    }

    /// Parses `OWNER/REPO/FILE` or `OWNER/REPO@REVISION/FILE`; the error says what is expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("`hf:{text}` is not of the form hf:OWNER/REPO/FILE.gguf");
        let (owner, rest) = text.split_once('/').ok_or_else(malformed)?;
        let (repo, path) = rest.split_once('/').ok_or_else(malformed)?;
        let (repo, revision) = repo.split_once('@').unwrap_or((repo, "main"));
        let is_gguf = path.to_lowercase().ends_with(".gguf");
        if !is_plain(owner) || !is_plain(repo) || !is_plain(revision) || !is_safe_file_name(path) || !is_gguf {
            return Err(malformed());
        }
        let file = Self::new(&format!("{owner}/{repo}"), revision, path);
        match PartName::of_path(Path::new(path)) {
            Some(PartName { number, count, .. }) if number > 1 => {
                let first = Self { path: file.parts().swap_remove(0), ..file };
                Err(format!(
                    "`hf:{text}` is part {number} of {count} of a model: pull the first part, {}",
                    first.label()
                ))
            }
            _ => Ok(file),
        }
    }

    /// The reference as users type it.
    pub(crate) fn label(&self) -> String {
        let revision = if self.revision == "main" { String::new() } else { format!("@{}", self.revision) };
        format!("hf:{}{revision}/{}", self.repository, self.path)
    }

    /// The paths of the file and of the parts that belong to it, if it is the first of several.
    pub(crate) fn parts(&self) -> Vec<String> {
        let (folder, name) = match self.path.rsplit_once('/') {
            Some((folder, name)) => (format!("{folder}/"), name),
            None => (String::new(), self.path.as_str()),
        };
        match PartName::parse(name) {
            Some(first) => first.all().map(|part| format!("{folder}{part}")).collect(),
            None => vec![self.path.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read() {
        let check = |text: &str, expected: Option<(&str, &str, &str)>| {
            let expected = expected.map(|(repository, revision, path)| HubFile::new(repository, revision, path));
            assert_eq!(HubFile::parse(text).ok(), expected, "{text}");
        };
        check("o/r/f.gguf", Some(("o/r", "main", "f.gguf")));
        check("o/r@v1.0/sub/f g.GGUF", Some(("o/r", "v1.0", "sub/f g.GGUF")));
        for text in ["", "o", "o/r", "o/r/", "o/r/f.bin", "o/r/../f.gguf", "../r/f.gguf", "o/r@/f.gguf", "o x/r/f.gguf"]
        {
            check(text, None);
        }
    }

    #[test]
    fn the_first_part_stands_for_all() {
        let first = HubFile::parse("o/r/sub/f-00001-of-00002.gguf").unwrap();
        assert_eq!(first.parts(), ["sub/f-00001-of-00002.gguf", "sub/f-00002-of-00002.gguf"]);
        assert_eq!(HubFile::parse("o/r/f.gguf").unwrap().parts(), ["f.gguf"]);
        let message = HubFile::parse("o/r@v1/sub/f-00002-of-00002.gguf").unwrap_err();
        assert!(message.contains("is part 2 of 2 of a model"), "{message}");
        assert!(message.ends_with("pull the first part, hf:o/r@v1/sub/f-00001-of-00002.gguf"), "{message}");
    }
}
