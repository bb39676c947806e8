//! Presets: named settings for a chat, each a file of configuration keys in the user's folder `presets`.
//!
//! A preset overrides the user's files and variables; flags override it. Ollama's Modelfiles become presets
//! ([`modelfile`]).

pub mod modelfile;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hone_files::{create_private_folder, replace, write_new};
use toml::{Table, Value};

use crate::usage;

/// The folder within the configuration folder.
const FOLDER: &str = "presets";

/// The purpose in the names of presets that are being written.
const PURPOSE: &str = "preset";

/// The longest name of a preset, in characters.
const LONGEST_NAME: usize = 60;

/// The presets in a folder.
pub struct Presets {
    folder: PathBuf,
}

impl Presets {
    /// The presets in the user's configuration folder, which need not exist.
    ///
    /// # Errors
    /// When there is no such folder, because the user has no home.
    pub fn of(configuration: Option<&Path>) -> anyhow::Result<Presets> {
        let folder = configuration.context("no configuration folder is known: HONE_CONFIG names one")?;
        Ok(Presets { folder: folder.join(FOLDER) })
    }

    /// The file of a preset; it need not exist.
    ///
    /// # Errors
    /// When the name is not valid.
    pub fn path(&self, name: &str) -> anyhow::Result<PathBuf> {
        let allowed = |character: char| character.is_alphanumeric() || "-_.:".contains(character);
        let is_valid = !name.is_empty() && !name.starts_with('.') && name.chars().count() <= LONGEST_NAME;
        if !is_valid || !name.chars().all(allowed) {
            let rule = "use letters, digits, '-', '_', '.' and ':'";
            return Err(usage(format!("{name:?} is not a valid name for a preset: {rule}, at most {LONGEST_NAME}")));
        }
        Ok(self.folder.join(format!("{name}.toml")))
    }

    /// The names of all presets, in alphabetical order.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        let listing = || format!("cannot list {}", self.folder.display());
        let items = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.with_context(listing)?,
        };
        let mut names = Vec::new();
        for item in items {
            let name = item.with_context(listing)?.file_name();
            names.extend(name.to_str().and_then(|name| name.strip_suffix(".toml")).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// The text of a preset's file.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn text(&self, name: &str) -> anyhow::Result<String> {
        let path = self.path(name)?;
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names = self.names()?;
                let known = if names.is_empty() {
                    "none was created yet".to_owned()
                } else {
                    format!("known are {}", names.join(", "))
                };
                Err(usage(format!("no preset {name:?} exists: {known}")))
            }
            text => text.with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The keys of a preset, with their values.
    ///
    /// # Errors
    /// When it does not exist, or is not valid TOML with a table for each section.
    pub fn keys(&self, name: &str) -> anyhow::Result<Vec<(String, Value)>> {
        let path = self.path(name)?;
        let wrong = |reason: String| usage(format!("{}: {reason}", path.display()));
        let table: Table = self.text(name)?.parse().map_err(|error| wrong(format!("not valid TOML: {error}")))?;
        let mut keys = Vec::new();
        for (section, value) in table {
            let Value::Table(section_keys) = value else {
                return Err(wrong(format!("{section} stands in no section such as [sampling]")));
            };
            keys.extend(section_keys.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
        }
        Ok(keys)
    }

    /// Writes a new preset, and returns its file; `None` if the name is taken.
    ///
    /// # Errors
    /// When the name is not valid, or the file cannot be written.
    pub fn create(&self, name: &str, keys: Vec<(String, Value)>) -> anyhow::Result<Option<PathBuf>> {
        let (path, text) = self.file(name, keys)?;
        let is_new = write_new(&path, PURPOSE, |file| file.write_all(text.as_bytes()));
        Ok(is_new.with_context(|| unwritable(&path))?.then_some(path))
    }

    /// Writes a preset, in place of an existing one of this name, and returns its file.
    ///
    /// # Errors
    /// When the name is not valid, or the file cannot be written.
    pub fn replace(&self, name: &str, keys: Vec<(String, Value)>) -> anyhow::Result<PathBuf> {
        let (path, text) = self.file(name, keys)?;
        let written = replace(&path, PURPOSE, |file| file.write_all(text.as_bytes()));
        written.with_context(|| unwritable(&path)).map(|()| path)
    }

    /// The file of a preset with these keys, and its text. Creates the folder.
    fn file(&self, name: &str, keys: Vec<(String, Value)>) -> anyhow::Result<(PathBuf, String)> {
        let path = self.path(name)?;
        let mut sections = Table::new();
        for (key, value) in keys {
            let (section, name) = key.split_once('.').with_context(|| format!("key {key} has no section"))?;
            let section = sections.entry(section).or_insert_with(|| Value::Table(Table::new()));
            section.as_table_mut().into_iter().for_each(|table| drop(table.insert(name.to_owned(), value.clone())));
        }
        create_private_folder(&self.folder).with_context(|| unwritable(&path))?;
        Ok((path, toml::to_string_pretty(&sections)?))
    }

    /// Deletes a preset.
    ///
    /// # Errors
    /// When it does not exist or cannot be deleted.
    pub fn delete(&self, name: &str) -> anyhow::Result<()> {
        // The error for a missing preset lists the existing ones.
        self.text(name)?;
        let path = self.path(name)?;
        std::fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))
    }
}

fn unwritable(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_a_file_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let presets = Presets::of(Some(folder.path())).unwrap();
        assert_eq!(presets.names().unwrap(), Vec::<String>::new());
        let keys = vec![
            ("chat.system".to_owned(), Value::from("be brief")),
            ("sampling.temperature".to_owned(), Value::from(0.5)),
        ];
        let path = presets.create("brief", keys.clone()).unwrap();
        assert_eq!(path, Some(presets.path("brief").unwrap()));
        assert_eq!(presets.keys("brief").unwrap(), keys);
        let other = vec![("sampling.top_k".to_owned(), Value::from(5))];
        assert_eq!(presets.create("brief", other.clone()).unwrap(), None);
        assert_eq!(presets.keys("brief").unwrap(), keys, "an existing preset stays");
        presets.replace("brief", other.clone()).unwrap();
        assert_eq!(presets.keys("brief").unwrap(), other);
        assert_eq!(presets.text("b").unwrap_err().to_string(), "no preset \"b\" exists: known are brief");
        presets.delete("brief").unwrap();
        assert_eq!(
            presets.delete("brief").unwrap_err().to_string(),
            "no preset \"brief\" exists: none was created yet"
        );
        for name in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(presets.path(name).is_err(), "{name:?}");
        }
    }
}
