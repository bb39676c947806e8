//! The folder for hone's models and data.
//!
//! `HONE_HOME` takes precedence; otherwise it is the platform's folder for local data: `$XDG_DATA_HOME/hone` or
//! `~/.local/share/hone`, `~/Library/Application Support/hone` on macOS, `%LOCALAPPDATA%\hone` on Windows (not the
//! roaming folder: models take gigabytes). Implementing these three rules is shorter than using a library.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Neither `HONE_HOME` nor a home folder is known.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("there is no home folder for models: set HONE_HOME to a writable folder")]
pub struct HomeError;

/// The folder for hone's data; it need not exist yet.
///
/// # Errors
/// When the environment has neither `HONE_HOME` nor a home folder.
pub fn data_folder() -> Result<PathBuf, HomeError> {
    resolve(|variable| std::env::var_os(variable), std::env::home_dir(), std::env::consts::OS).ok_or(HomeError)
}

fn resolve(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
    operating_system: &str,
) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = home.filter(|folder| folder.is_absolute());
    if let Some(folder) = set("HONE_HOME") {
        return Some(folder);
    }
    let base = match operating_system {
        "windows" => set("LOCALAPPDATA").or_else(|| Some(home?.join("AppData").join("Local"))),
        "macos" => home.map(|home| home.join("Library").join("Application Support")),
        // The XDG specification says to ignore relative paths.
        _ => {
            set("XDG_DATA_HOME").filter(|folder| Path::is_absolute(folder)).or_else(|| Some(home?.join(".local/share")))
        }
    };
    base.map(|folder| folder.join("hone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operating_system: &str, variables: &[(&str, &str)], home: Option<&str>, expected: Option<&str>) {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        assert_eq!(resolve(lookup, home.map(PathBuf::from), operating_system), expected.map(PathBuf::from));
    }

    #[cfg(unix)]
    #[test]
    fn the_environment_decides() {
        check("linux", &[("HONE_HOME", "/m")], Some("/home/u"), Some("/m"));
        check("linux", &[("HONE_HOME", "")], Some("/home/u"), Some("/home/u/.local/share/hone"));
        check("linux", &[("XDG_DATA_HOME", "/data")], Some("/home/u"), Some("/data/hone"));
        check("linux", &[("XDG_DATA_HOME", "data")], Some("/home/u"), Some("/home/u/.local/share/hone"));
        check("linux", &[], None, None);
        check("macos", &[("XDG_DATA_HOME", "/data")], Some("/u"), Some("/u/Library/Application Support/hone"));
        check("windows", &[("LOCALAPPDATA", "/local")], None, Some("/local/hone"));
        check("windows", &[("HONE_HOME", "/m"), ("LOCALAPPDATA", "/local")], None, Some("/m"));
    }
}
