//! Edits the user's files: one key of one file, leaving everything else as it is.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hone_files::{create_private_folder, replace};
use tempfile::NamedTempFile;
use toml::Value;
use toml_edit::{DocumentMut, Item, RawString, TableLike};

use super::{Config, Places, Source};
use crate::usage;

/// Writes a key to the user's file of its section, and returns that file.
///
/// # Errors
/// When the key does not exist, the value is not valid for it, or the file cannot be read or written.
pub fn set(places: &Places, key: &str, text: &str) -> anyhow::Result<PathBuf> {
    let key = known(key)?;
    let file = file_of(places, &key)?;
    // An invalid file must not prevent the repair of another one.
    let mut config =
        Config::load(places, None, Vec::new()).map(|(config, _)| config).or_else(|_| Config::defaults())?;
    config.set_text(&key, text, Source::File(file.clone()))?;
    let value = config.entries()[&key].value.clone();
    change(&file, |document| put(document, &key, &value))?;
    Ok(file)
}

/// Removes a key from the user's file of its section, and returns that file; `None` if the key is not in it.
///
/// # Errors
/// When the key does not exist, or the file cannot be read or written.
pub fn unset(places: &Places, key: &str) -> anyhow::Result<Option<PathBuf>> {
    let key = known(key)?;
    let file = file_of(places, &key)?;
    let mut was_there = false;
    change(&file, |document| {
        let (tables, name) = split(&key);
        let table = tables.iter().try_fold(document.as_table_mut() as &mut dyn TableLike, |table, name| {
            table.get_mut(name).and_then(Item::as_table_like_mut)
        });
        let Some(table) = table else { return Ok(()) };
        let comments = comments_of(table, name);
        let next = table.iter().map(|(name, _)| name.to_owned()).skip_while(|other| other != name).nth(1);
        was_there = table.remove(name).is_some();
        match next.and_then(|next| table.key_mut(&next)) {
            Some(mut next) => {
                let decor = next.leaf_decor_mut();
                let own = decor.prefix().and_then(RawString::as_str).unwrap_or_default();
                decor.set_prefix(format!("{comments}{own}"));
            }
            None => {
                let rest = document.trailing().as_str().unwrap_or_default();
                document.set_trailing(format!("{comments}{rest}"));
            }
        }
        Ok(())
    })?;
    Ok(was_there.then_some(file))
}

/// The current name of a key.
fn known(key: &str) -> anyhow::Result<String> {
    Ok(Config::defaults()?.known(key)?.into_owned())
}

fn file_of(places: &Places, key: &str) -> anyhow::Result<PathBuf> {
    let folder = places.folder().context("no configuration folder is known: HONE_CONFIG names one")?;
    let section = key.split('.').next().unwrap_or_default();
    Ok(folder.join(format!("{section}.toml")))
}

/// The path of tables that contain a key within its section's file, and its name there.
fn split(key: &str) -> (Vec<&str>, &str) {
    let mut parts: Vec<&str> = key.split('.').skip(1).collect();
    let name = parts.pop().unwrap_or_default();
    (parts, name)
}

/// The comment lines above a key.
fn comments_of(table: &dyn TableLike, name: &str) -> String {
    let decor = table.key(name).map(|key| key.leaf_decor());
    decor.and_then(|decor| decor.prefix()).and_then(RawString::as_str).unwrap_or_default().to_owned()
}

fn put(document: &mut DocumentMut, key: &str, value: &Value) -> anyhow::Result<()> {
    let (tables, name) = split(key);
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in tables {
        let item = table.entry(name).or_insert_with(toml_edit::table);
        let no_table = || usage(format!("{name} is no table in your file, so {key} has no place there"));
        table = item.as_table_like_mut().ok_or_else(no_table)?;
    }
    let mut value: toml_edit::Value = value.to_string().parse()?;
    let place = table.entry(name).or_insert(Item::None);
    if let Some(before) = place.as_value() {
        *value.decor_mut() = before.decor().clone();
    }
    *place = Item::Value(value);
    Ok(())
}

/// Changes a file, which need not exist, and leaves it as it was if that fails.
fn change(file: &Path, edit: impl FnOnce(&mut DocumentMut) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let text = match file.exists() {
        true => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        false => String::new(),
    };
    let parsed = text.parse();
    let mut document: DocumentMut =
        parsed.map_err(|error| usage(format!("{} is not valid TOML: {error}", file.display())))?;
    edit(&mut document)?;
    let changed = document.to_string();
    if changed == text {
        return Ok(());
    }
    let failure = || format!("cannot write {}", file.display());
    // A link to a file elsewhere stays a link.
    let file = if file.exists() { file.canonicalize().with_context(failure)? } else { file.to_owned() };
    let folder = file.parent().unwrap_or(Path::new("."));
    create_private_folder(folder).with_context(failure)?;
    let write = |staged: &mut BufWriter<&mut NamedTempFile>| {
        if let Ok(metadata) = file.metadata() {
            staged.get_ref().as_file().set_permissions(metadata.permissions())?;
        }
        staged.write_all(changed.as_bytes())
    };
    replace(&file, "config", write).with_context(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(folder: &Path) -> Places {
        Places::new(Some(folder.join("hone")), Vec::new())
    }

    #[test]
    fn one_key_is_changed_and_the_rest_of_the_file_stays() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let places = places(folder.path());
        let file = set(&places, "sampling.temperature", "0.5")?;
        assert_eq!(std::fs::read_to_string(&file)?, "temperature = 0.5\n");
        std::fs::write(&file, "# Mine.\ntop_p = 0.5 # often\n\n# Warm.\ntemperature=0.5\n")?;
        set(&places, "sampling.top_p", "1")?;
        set(&places, "sampling.stop", "END")?;
        let expected = "# Mine.\ntop_p = 1.0 # often\n\n# Warm.\ntemperature=0.5\nstop = [\"END\"]\n";
        assert_eq!(std::fs::read_to_string(&file)?, expected);
        assert_eq!(unset(&places, "sampling.stop")?.as_deref(), Some(&*file));
        assert_eq!(unset(&places, "sampling.stop")?, None);
        assert_eq!(std::fs::read_to_string(&file)?, expected.replace("stop = [\"END\"]\n", ""));
        assert!(unset(&places, "sampling.temperature")?.is_some());
        assert_eq!(std::fs::read_to_string(&file)?, "# Mine.\ntop_p = 1.0 # often\n\n# Warm.\n");
        let (config, _) = Config::load(&places, None, Vec::new())?;
        assert_eq!(config.source_of("sampling.top_p"), Some(&Source::File(file)));
        Ok(())
    }

    #[test]
    fn a_key_of_a_profile_stands_in_its_table() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let places = places(folder.path());
        let file = set(&places, "judges.plain.feedback", "always")?;
        assert_eq!(std::fs::read_to_string(&file)?, "[plain]\nfeedback = \"always\"\n");
        assert!(unset(&places, "judges.plain.feedback")?.is_some());
        std::fs::write(&file, "plain = \"x\"\n")?;
        assert!(set(&places, "judges.plain.feedback", "always").unwrap_err().to_string().contains("is no table"));
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_said_and_nothing_is_written() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let places = places(folder.path());
        let wrong = |key: &str, text: &str| set(&places, key, text).unwrap_err().to_string();
        assert!(wrong("sampling.temprature", "1").contains("did you mean sampling.temperature?"));
        assert!(wrong("sampling.temperature", "warm").contains("expected a number"));
        assert!(wrong("sampling.top_p", "3").contains("it must be 0 to 1"));
        assert!(!folder.path().join("hone").exists());
        // An invalid file is named and left as it is; keys in other files can be set.
        let broken = folder.path().join("hone/sampling.toml");
        std::fs::create_dir(folder.path().join("hone"))?;
        std::fs::write(&broken, "temperature = \n")?;
        assert!(wrong("sampling.top_p", "1").contains("is not valid TOML"));
        set(&places, "chat.save", "false")?;
        assert_eq!(std::fs::read_to_string(broken)?, "temperature = \n");
        Ok(())
    }
}
