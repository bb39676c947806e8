//! Models in several files, named `NAME-00001-of-00003.gguf` by llama.cpp's convention, which the hub's files follow:
//! each name gives the part's number and the number of parts. All parts are in one folder.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::ModelFile;

/// The name of a file that is one part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartName<'a> {
    /// The text before the number.
    pub stem: &'a str,
    /// The part's number, from 1.
    pub number: u32,
    /// The number of parts.
    pub count: u32,
}

impl<'a> PartName<'a> {
    /// The most parts that a model may have; published ones have a few dozen.
    pub const MOST: u32 = 1024;

    /// Reads the name of a file, without folders; `None` for a name that does not follow the convention.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let is_valid = !stem.is_empty() && (1..=count).contains(&number) && count <= Self::MOST;
        is_valid.then_some(Self { stem, number, count })
    }

    /// Reads the name of the file at `path`, if it follows the convention.
    #[must_use]
    pub fn of_path(path: &'a Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    /// The names of all parts, in order.
    pub fn all(self) -> impl Iterator<Item = PartName<'a>> {
        (1..=self.count).map(move |number| PartName { number, ..self })
    }
}

/// Writes the name of the file.
impl fmt::Display for PartName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{:05}-of-{:05}.gguf", self.stem, self.number, self.count)
    }
}

/// The error for a path that does not lead to a complete model.
#[derive(Debug, Error)]
pub enum PartError {
    /// The operating system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path names a later part.
    #[error("{} is part {number} of {count} of a model: give the first part instead, {}", path.display(), first.display())]
    NotFirst {
        /// The file.
        path: PathBuf,
        /// The part's number.
        number: u32,
        /// The number of parts.
        count: u32,
        /// The first part.
        first: PathBuf,
    },
    /// One of the parts does not exist.
    #[error("part {number} of {count} of the model is missing: there is no file {}; all parts have to be in one folder", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The missing part's number.
        number: u32,
        /// The number of parts.
        count: u32,
    },
}

impl ModelFile {
    /// The model in the file at `path`, with the parts next to it if its name is that of a first part. Only the files'
    /// lengths are read.
    ///
    /// # Errors
    /// When the file or a part does not exist, or `path` is a later part; the message says what to do.
    pub fn at_path(path: &Path) -> Result<Self, PartError> {
        let Some(name) = PartName::of_path(path) else { return whole_file(path) };
        if name.number != 1 {
            let (number, count, first) = (name.number, name.count, PartName { number: 1, ..name });
            let (path, first) = (path.to_owned(), path.with_file_name(first.to_string()));
            return Err(PartError::NotFirst { path, number, count, first });
        }
        let mut model = whole_file(path)?;
        for PartName { number, count, .. } in name.all().skip(1) {
            let path = path.with_file_name(PartName { number, ..name }.to_string());
            model.rest.push(whole_file(&path).map_err(|error| match error {
                PartError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    PartError::Missing { path, number, count }
                }
                other => other,
            })?);
        }
        Ok(model)
    }
}

fn whole_file(path: &Path) -> Result<ModelFile, PartError> {
    let failed = |source| PartError::Io { path: path.to_owned(), source };
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() && !metadata.is_dir() {
        // Opening a pipe would block until its other end is opened.
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    Ok(ModelFile::new(path, 0, metadata.len()))
}

fn five_digits(text: &str) -> Option<u32> {
    let is_number = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_recognised_and_others_are_not() {
        let name = PartName::parse("gpt-oss-120b-mxfp4-00002-of-00003.gguf").unwrap();
        assert_eq!((name.stem, name.number, name.count), ("gpt-oss-120b-mxfp4", 2, 3));
        let all: Vec<String> = PartName::parse("a-00001-of-00002.gguf").unwrap().all().map(|n| n.to_string()).collect();
        assert_eq!(all, ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]);
        for name in [
            "model.gguf",
            "a-1-of-2.gguf",
            "a-00000-of-00002.gguf",
            "a-00003-of-00002.gguf",
            "a-00001-of-00002.bin",
            "-00001-of-00002.gguf",
            "a-+0001-of-00002.gguf",
            "a-00001-of-01025.gguf",
            "",
        ] {
            assert_eq!(PartName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_first_part_leads_to_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |number: u32| folder.path().join(format!("m-0000{number}-of-00003.gguf"));
        let message = ModelFile::at_path(&at(1)).unwrap_err().to_string();
        assert!(message.contains("cannot read") && message.contains("m-00001-of-00003.gguf"), "{message}");
        std::fs::write(at(1), "a").unwrap();
        std::fs::write(at(3), "ccc").unwrap();
        let message = ModelFile::at_path(&at(1)).unwrap_err().to_string();
        assert!(message.contains("part 2 of 3 of the model is missing"), "{message}");
        assert!(message.contains("m-00002-of-00003.gguf"), "{message}");
        std::fs::write(at(2), "bb").unwrap();
        let model = ModelFile::at_path(&at(1)).unwrap();
        assert_eq!(model.parts().map(|part| part.length).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(model.size(), 6);
        assert!(model.parts().zip(1..).all(|(part, number)| part.path == at(number)));
        let message = ModelFile::at_path(&at(2)).unwrap_err().to_string();
        assert!(message.contains("is part 2 of 3 of a model: give the first part instead"), "{message}");
        assert!(message.ends_with("m-00001-of-00003.gguf"), "{message}");
    }
}
