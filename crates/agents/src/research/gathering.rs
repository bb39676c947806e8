//! Collects the sources: named files, and the files in folders.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use serde::Serialize;
use thiserror::Error;

use super::document::Document;
use super::reading::{SourceReader, UnreadableSource, name_of};

/// A path among the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePath {
    /// A file or a folder that was named; a file that cannot be read is an error.
    Named(PathBuf),
    /// A file that a pattern has found; one that cannot be read is skipped.
    Found(PathBuf),
}

/// Limits on the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLimits {
    /// The most files.
    pub files: usize,
    /// The most bytes of text of all files.
    pub text_bytes: usize,
}

/// The sources.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The files that were read.
    pub documents: Vec<Document>,
    /// The files that were not read.
    pub skipped: Vec<Skipped>,
}

/// A file that is not a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path.
    pub file: String,
    /// Why, worded to follow its name.
    pub reason: String,
}

/// Why the sources cannot be collected.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file that was named cannot be read.
    #[error("{} {reason}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: UnreadableSource,
    },
    /// There are too many files.
    #[error("the sources are more than {limit} files: name fewer, or raise research.most_files")]
    TooMany {
        /// The most files.
        limit: usize,
    },
    /// There is too much text.
    #[error("the sources hold more than {} MiB of text: name fewer, or raise research.most_text_mib", .limit >> 20)]
    TooLong {
        /// The most bytes.
        limit: usize,
    },
}

impl Sources {
    /// Reads the sources at these paths. In folders, all files are read, in alphabetical order, except for hidden ones,
    /// links and files excluded by `.gitignore` and `.ignore`. `show` gets the number of files read so far.
    ///
    /// # Errors
    /// When a named file cannot be read, or there is more than the limits allow.
    pub fn gather(
        paths: &[SourcePath],
        reader: &SourceReader,
        limits: SourceLimits,
        show: &mut dyn FnMut(usize),
    ) -> Result<Sources, SourceError> {
        let mut sources = Sources::default();
        let mut n_bytes = 0;
        for (file, is_named) in files(paths, limits, &mut sources.skipped)? {
            let name = name_of(&file);
            if sources.documents.iter().any(|document| document.name == name) {
                continue;
            }
            match reader.read(&file) {
                Ok(document) => {
                    n_bytes += document.lines.iter().map(|line| line.text.len()).sum::<usize>();
                    sources.documents.push(document);
                }
                Err(reason) if is_named => return Err(SourceError::Unreadable { file, reason }),
                Err(reason) => sources.skipped.push(Skipped { file: name, reason: reason.to_string() }),
            }
            if n_bytes > limits.text_bytes {
                return Err(SourceError::TooLong { limit: limits.text_bytes });
            }
            show(sources.documents.len() + sources.skipped.len());
        }
        Ok(sources)
    }
}

/// The files, and whether each was named.
fn files(
    paths: &[SourcePath],
    limits: SourceLimits,
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<(PathBuf, bool)>, SourceError> {
    let mut files = Vec::new();
    for path in paths {
        match path {
            SourcePath::Named(folder) if folder.is_dir() => {
                for found in files_in(folder).take(limits.files + 1) {
                    match found {
                        Ok(file) => files.push((file, false)),
                        Err(error) => skipped.push(Skipped {
                            file: folder.display().to_string(),
                            reason: format!("could not be looked through: {error}"),
                        }),
                    }
                }
            }
            SourcePath::Named(file) => files.push((file.clone(), true)),
            SourcePath::Found(file) => files.push((file.clone(), false)),
        }
        if files.len() > limits.files {
            return Err(SourceError::TooMany { limit: limits.files });
        }
    }
    Ok(files)
}

fn files_in(folder: &Path) -> impl Iterator<Item = Result<PathBuf, ignore::Error>> {
    let walk = WalkBuilder::new(folder).require_git(false).sort_by_file_path(Path::cmp).build();
    walk.filter_map(|entry| match entry {
        Ok(entry) => entry.file_type().is_some_and(|kind| kind.is_file()).then(|| Ok(entry.into_path())),
        Err(error) => Some(Err(error)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::research::pdf::PdfProcess;

    const LIMITS: SourceLimits = SourceLimits { files: 6, text_bytes: 60 };

    fn gather(paths: &[SourcePath]) -> Result<Sources, SourceError> {
        let reader = SourceReader { largest_file: 1 << 20, pdf: PdfProcess::new("no-such-program".into(), "") };
        Sources::gather(paths, &reader, LIMITS, &mut |_| ())
    }

    fn write(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn a_folder_gives_its_files_without_hidden_ignored_and_binary_ones() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["b.md", "a/deep/c.txt", ".hidden", "target/out.txt"] {
            write(folder, name, b"text");
        }
        write(folder, ".gitignore", b"/target");
        write(folder, "photo.png", b"\0\0");
        let sources = gather(&[SourcePath::Named(folder.to_owned())]).unwrap();
        let names: Vec<String> = sources.documents.iter().map(|document| document.name.clone()).collect();
        let path = |name: &str| folder.join(name).display().to_string();
        assert_eq!(names, [path("a/deep/c.txt"), path("b.md")]);
        assert_eq!(sources.skipped, [Skipped { file: path("photo.png"), reason: "is a binary file".to_owned() }]);
    }

    #[test]
    fn a_named_file_that_cannot_be_read_is_an_error_and_a_found_one_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let photo = write(folder.path(), "photo.png", b"\0\0");
        let error = gather(&[SourcePath::Named(photo.clone())]).unwrap_err().to_string();
        assert_eq!(error, format!("{} is a binary file", photo.display()));
        assert_eq!(gather(&[SourcePath::Found(photo)]).unwrap().skipped.len(), 1);
        assert!(gather(&[SourcePath::Named("absent.txt".into())]).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    #[cfg(unix)]
    fn a_name_with_control_characters_stays_one_line_that_controls_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a\x1b[31m\nb\u{202e}ä.txt", b"text");
        let sources = gather(&[SourcePath::Named(folder.path().to_owned())]).unwrap();
        let expected = format!("{}/a\\u{{1b}}[31m\\nb\\u{{202e}}ä.txt", folder.path().display());
        assert_eq!(sources.documents[0].name, expected);
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = write(folder.path(), "a.txt", b"text");
        let paths = [SourcePath::Named(file.clone()), SourcePath::Found(file)];
        assert_eq!(gather(&paths).unwrap().documents.len(), 1);
    }

    #[test]
    fn the_limits_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = SourcePath::Named(folder.path().to_owned());
        (0..6).for_each(|index| drop(write(folder.path(), &format!("{index}.txt"), b"ten bytes.")));
        assert_eq!(gather(std::slice::from_ref(&path)).unwrap().documents.len(), 6);
        write(folder.path(), "0.txt", b"eleven now.");
        let error = gather(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.starts_with("the sources hold more than 0 MiB of text"), "{error}");
        write(folder.path(), "7.txt", b"x");
        let error = gather(&[path]).unwrap_err().to_string();
        assert!(error.starts_with("the sources are more than 6 files"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_in_a_circle_end() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.txt", b"text");
        symlink(folder.path(), folder.path().join("loop")).unwrap();
        symlink(folder.path().join("self"), folder.path().join("self")).unwrap();
        let sources = gather(&[SourcePath::Named(folder.path().to_owned())]).unwrap();
        assert_eq!((sources.documents.len(), sources.skipped.len()), (1, 0));
        let error = gather(&[SourcePath::Named(folder.path().join("self"))]).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }
}
