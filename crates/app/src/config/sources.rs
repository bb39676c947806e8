//! Sources of configuration outside the program: the user's files and the environment.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Config, EVALUATORS, JUDGES, PHASES, SECTIONS, Source, keys_of, moved};
use crate::usage;

/// Variables that begin with `HONE_` but are not configuration keys.
const RESERVED_VARIABLES: [&str; 6] =
    ["HONE_HOME", "HONE_OFFLINE", "HONE_LOG", "HONE_CONFIG", "HONE_TEST_MODELS", "HONE_API_KEY"];

/// The places to look for configuration.
#[derive(Clone, Debug)]
pub struct Places {
    folder: Option<PathBuf>,
    variables: Vec<(String, String)>,
}

impl Places {
    /// The user's folder, if any, and the environment's variables.
    pub fn new(folder: Option<PathBuf>, variables: Vec<(String, String)>) -> Places {
        Places { folder, variables }
    }

    /// The places of this process: `HONE_CONFIG`, or else `hone` in `XDG_CONFIG_HOME`, or else in `~/.config`.
    pub fn of_this_process() -> Places {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Places::new(user_folder(), variables)
    }

    /// The user's folder, if any; it need not exist.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The configuration files in the user's folder, in alphabetical order.
    ///
    /// # Errors
    /// When the folder exists but cannot be listed.
    pub fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let Some(folder) = self.folder.as_deref().filter(|folder| folder.exists()) else { return Ok(Vec::new()) };
        let listing = || format!("cannot list the configuration folder {}", folder.display());
        let mut files = Vec::new();
        for item in std::fs::read_dir(folder).with_context(listing)? {
            let path = item.with_context(listing)?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The user's file of tables with this name; empty if that file does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or is not valid.
    pub fn tables(&self, name: &str) -> anyhow::Result<toml::Table> {
        let path = self.folder().map(|folder| folder.join(format!("{name}.toml")));
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(toml::Table::new()) };
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.parse().map_err(|error| usage(format!("{} is not valid TOML: {error}", path.display())))
    }
}

/// Applies the user's files.
pub(super) fn apply_files(config: &mut Config, places: &Places, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    if let Some(folder) = places.folder.as_ref().filter(|folder| !folder.exists())
        && places.variables.iter().any(|(name, _)| name == "HONE_CONFIG")
    {
        warnings.push(format!("HONE_CONFIG names the folder {}, which does not exist", folder.display()));
    }
    for path in places.files()? {
        apply_file(config, &path, warnings)?;
    }
    Ok(())
}

/// Applies `HONE_SECTION_KEY` variables.
pub(super) fn apply_variables(config: &mut Config, places: &Places, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    let present = config.entries().keys();
    let former = present.clone().filter_map(|key| moved::former_name(key)).chain(moved::keys().map(str::to_owned));
    let keys: Vec<String> = present.cloned().chain(former).collect();
    let mut variables: Vec<_> = places.variables.iter().filter(|(name, _)| name.starts_with("HONE_")).collect();
    variables.sort();
    for (name, text) in variables {
        if RESERVED_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        match keys.iter().find(|key| variable_of(key) == *name) {
            Some(key) => {
                let now = moved::new_name(key).map(|key| variable_of(&key));
                warnings.extend(now.map(|now| format!("the variable {name} is called {now} now")));
                config.set_text(key, text, Source::Variable(name.clone()))?;
            }
            None => {
                warnings.push(format!("the variable {name} does not match any key and is ignored: see `hone config`"))
            }
        }
    }
    Ok(())
}

fn apply_file(config: &mut Config, path: &Path, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    let section = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if [EVALUATORS, PHASES].contains(&section) {
        // Read when work on a task begins.
        return Ok(());
    }
    if section == moved::FORMER_SECTION {
        let path = path.display();
        warnings
            .push(format!("{path} holds the settings of the judge, whose file is called judge.toml now: rename it"));
    } else if !SECTIONS.iter().any(|(name, _)| *name == section) {
        let names = SECTIONS.iter().map(|(name, _)| *name).chain([EVALUATORS, PHASES]);
        let known: Vec<String> = names.map(|name| format!("{name}.toml")).collect();
        return Err(usage(format!("unknown configuration file {}: known are {}", path.display(), known.join(", "))));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table =
        text.parse().map_err(|error| usage(format!("{} is not valid TOML: {error}", path.display())))?;
    let (keys, source) = (keys_of(section, table), Source::File(path.to_path_buf()));
    if section == JUDGES {
        return config.set_together(keys, &source);
    }
    for (key, value) in keys {
        config.set(&key, value, source.clone())?;
    }
    Ok(())
}

fn variable_of(key: &str) -> String {
    format!("HONE_{}", key.replace('.', "_").to_uppercase())
}

fn user_folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("HONE_CONFIG").filter(|value| !value.is_empty()) {
        return Some(PathBuf::from(folder));
    }
    // The XDG specification says to ignore relative paths.
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = configured.or_else(|| std::env::home_dir().map(|home| home.join(".config")))?;
    Some(base.join("hone"))
}
