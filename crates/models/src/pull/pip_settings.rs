//! The package index of this machine: pip's environment variables and configuration files, read as data.
//!
//! Mirrors are configured for pip alone, but hone never runs pip. The files and their order follow pip's documentation
//! ("Configuration"): global, the user's, a virtual environment's, `PIP_CONFIG_FILE`, then variables; within them
//! `[global]`, `[install]`, `[download]`. Later ones take precedence. Settings that hone does not support (client
//! certificates, hosts trusted without TLS, keyrings) are ignored.

use std::{
    collections::HashMap,
    fmt,
    io::Read,
    path::{Path, PathBuf},
};

use hone_files::open_regular;

use crate::address::without_secrets;

/// The index to use if none is configured.
const PUBLIC_INDEX: &str = "https://pypi.org/simple";

/// The longest configuration file that is read, in bytes.
const LONGEST_FILE: u64 = 1024 * 1024;

/// The sections that are read, lowest precedence first.
const SECTIONS: [&str; 3] = ["global", "install", "download"];

/// The sources of wheels.
#[derive(Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// Addresses of the simple API, in the order in which to try them; they may contain `user:password@`.
    pub urls: Vec<String>,
    /// A certificate authority to trust in addition to the system's (pip's `cert`).
    pub certificate: Option<PathBuf>,
    /// Whether indices are disabled (pip's `no-index`).
    pub forbidden: bool,
}

impl fmt::Debug for IndexOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| without_secrets(url)).collect();
        let Self { certificate, forbidden, .. } = self;
        write!(f, "IndexOptions {{ urls: {urls:?}, certificate: {certificate:?}, forbidden: {forbidden} }}")
    }
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { urls: vec![PUBLIC_INDEX.to_owned()], certificate: None, forbidden: false }
    }
}

impl IndexOptions {
    /// pip's settings in this environment.
    #[must_use]
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let files = configuration_files(&variable, std::env::home_dir().as_deref(), std::env::consts::OS);
        Self::of(&settings(&variable, &files))
    }

    fn of(settings: &HashMap<String, String>) -> Self {
        let set = |key: &str| settings.get(key).map(|value| value.trim()).filter(|value| !value.is_empty());
        let extra = set("extra-index-url").into_iter().flat_map(str::split_whitespace);
        Self {
            urls: std::iter::once(set("index-url").unwrap_or(PUBLIC_INDEX)).chain(extra).map(str::to_owned).collect(),
            certificate: set("cert").map(PathBuf::from),
            forbidden: set("no-index").is_some_and(is_true),
        }
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "1" | "y" | "yes" | "t" | "true" | "on")
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// pip's configuration files, lowest precedence first; most of them do not exist.
fn configuration_files(variable: Variable<'_>, home: Option<&Path>, operating_system: &str) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let chosen = set("PIP_CONFIG_FILE");
    if chosen.as_deref().is_some_and(|file| file == "/dev/null" || file.eq_ignore_ascii_case("nul")) {
        return Vec::new();
    }
    let name = if operating_system == "windows" { "pip.ini" } else { "pip.conf" };
    let mut files: Vec<PathBuf> = global_folders(variable, operating_system).iter().map(|at| at.join(name)).collect();
    if !chosen.as_ref().is_some_and(|file| Path::new(file).exists()) {
        files.extend(user_folders(variable, home, operating_system).iter().map(|at| at.join(name)));
    }
    files.extend(set("VIRTUAL_ENV").map(|folder| Path::new(&folder).join(name)));
    files.extend(chosen.map(PathBuf::from));
    files
}

fn global_folders(variable: Variable<'_>, operating_system: &str) -> Vec<PathBuf> {
    match operating_system {
        "macos" => vec![PathBuf::from("/Library/Application Support/pip")],
        "windows" => variable("PROGRAMDATA").map(|folder| Path::new(&folder).join("pip")).into_iter().collect(),
        _ => {
            let folders = variable("XDG_CONFIG_DIRS").filter(|folders| !folders.is_empty());
            let folders = folders.unwrap_or_else(|| "/etc/xdg".to_owned());
            let of_xdg = folders.split(':').map(|folder| Path::new(folder).join("pip"));
            of_xdg.chain([PathBuf::from("/etc")]).collect()
        }
    }
}

/// The legacy location of the user's file, then the current one.
fn user_folders(variable: Variable<'_>, home: Option<&Path>, operating_system: &str) -> Vec<PathBuf> {
    let below = |path: &str| home.map(|home| home.join(path));
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (old, new) = match operating_system {
        "windows" => (below("pip"), set("APPDATA").map(|folder| folder.join("pip"))),
        "macos" => {
            let new = below("Library/Application Support/pip").filter(|folder| folder.is_dir());
            (below(".pip"), new.or_else(|| below(".config/pip")))
        }
        _ => {
            let configuration = set("XDG_CONFIG_HOME").or_else(|| below(".config"));
            (below(".pip"), configuration.map(|folder| folder.join("pip")))
        }
    };
    old.into_iter().chain(new).collect()
}

/// Every setting by its name, from files and then from variables.
fn settings(variable: Variable<'_>, files: &[PathBuf]) -> HashMap<String, String> {
    let mut by_section: HashMap<(String, String), String> = HashMap::new();
    for text in files.iter().filter_map(|file| read(file)) {
        by_section.extend(parse(&text).into_iter().map(|(section, key, value)| ((section, key), value)));
    }
    let mut settings = HashMap::new();
    for section in SECTIONS {
        let of_section = by_section.iter().filter(|((found, _), _)| found == section);
        settings.extend(of_section.map(|((_, key), value)| (key.clone(), value.clone())));
    }
    for key in ["index-url", "extra-index-url", "cert", "no-index"] {
        let name = format!("PIP_{}", key.replace('-', "_").to_uppercase());
        settings.extend(variable(&name).filter(|value| !value.is_empty()).map(|value| (key.to_owned(), value)));
    }
    settings
}

fn read(path: &Path) -> Option<String> {
    let file = open_regular(path).ok()?;
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The entries of a configuration file in the syntax of Python's `configparser`: `key = value` or `key: value`,
/// comments on separate lines, and values that continue on indented lines.
fn parse(text: &str) -> Vec<(String, String, String)> {
    let mut entries: Vec<(String, String, String)> = Vec::new();
    let (mut section, mut is_open) = (String::new(), false);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let is_continued = line.starts_with([' ', '\t']) && is_open;
        if let Some((_, _, value)) = entries.last_mut().filter(|_| is_continued) {
            value.push('\n');
            value.push_str(trimmed);
        } else if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            (section, is_open) = (name.to_owned(), false);
        } else if let Some((key, value)) = trimmed.split_once(['=', ':']) {
            let key = key.trim().to_lowercase().replace('_', "-");
            let key = key.strip_prefix("--").unwrap_or(&key).to_owned();
            entries.push((section.clone(), key, value.trim().to_owned()));
            is_open = true;
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The options that result from variables and files; the files are in order of increasing precedence.
    fn options(variables: &[(&str, &str)], files: &[&str]) -> IndexOptions {
        let folder = tempfile::TempDir::new().unwrap();
        let place = |index: usize| folder.path().join(index.to_string());
        files.iter().enumerate().for_each(|(index, text)| fs::write(place(index), text).unwrap());
        let places: Vec<_> = (0..files.len()).map(place).collect();
        IndexOptions::of(&settings(&lookup(variables), &places))
    }

    fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn variables_come_before_files_and_later_files_before_earlier_ones() {
        let check = |variables: &[(&str, &str)], files: &[&str], expected: &[&str]| {
            assert_eq!(options(variables, files).urls, expected, "{variables:?} {files:?}");
        };
        check(&[], &[], &[PUBLIC_INDEX]);
        check(&[], &["[global]\nindex-url = http://a\n"], &["http://a"]);
        check(&[], &["[global]\nindex_url: http://a\n", "[global]\nindex-url=http://b"], &["http://b"]);
        check(&[], &["[download]\nindex-url=http://d\n[global]\nindex-url=http://g"], &["http://d"]);
        check(&[], &["[search]\nindex-url=http://s\n# index-url=http://c\n"], &[PUBLIC_INDEX]);
        check(&[("PIP_INDEX_URL", "http://v")], &["[global]\nindex-url = http://a"], &["http://v"]);
        check(&[("PIP_INDEX_URL", "")], &["[global]\nindex-url = http://a"], &["http://a"]);
        let several = "[global]\nextra-index-url =\n    http://x\n    http://y\n";
        check(&[], &[several], &[PUBLIC_INDEX, "http://x", "http://y"]);
        check(&[("PIP_EXTRA_INDEX_URL", "http://z http://w")], &[several], &[PUBLIC_INDEX, "http://z", "http://w"]);
    }

    #[test]
    fn certificates_and_prohibitions_are_read() {
        let found = options(&[("PIP_NO_INDEX", "true")], &["[global]\ncert = /etc/ours.pem\nno-index = no"]);
        assert_eq!(found.certificate.as_deref(), Some(Path::new("/etc/ours.pem")));
        assert!(found.forbidden && !options(&[], &["[global]\nno-index = 0"]).forbidden);
    }

    #[test]
    fn what_is_no_configuration_is_passed_over() {
        for text in ["", "\0\0", "index-url", "[global", "= x", "  lone", "[global]\n: \n=\n", "\u{feff}[x]"] {
            assert_eq!(options(&[], &[text]).urls, [PUBLIC_INDEX], "{text:?}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let found = options(&[("PIP_INDEX_URL", "https://me:hush@h/simple")], &[]);
        assert_eq!(found.urls, ["https://me:hush@h/simple"]);
        assert!(!format!("{found:?}").contains("hush"), "{found:?}");
    }

    #[cfg(unix)]
    #[test]
    fn files_are_looked_for_where_pip_does() {
        let check = |system: &str, variables: &[(&str, &str)], expected: &[&str]| {
            let found = configuration_files(&lookup(variables), Some(Path::new("/u")), system);
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{system} {variables:?}");
        };
        let usual = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", "/u/.pip/pip.conf", "/u/.config/pip/pip.conf"];
        check("linux", &[], &usual);
        check("linux", &[("PIP_CONFIG_FILE", "/dev/null")], &[]);
        check("linux", &[("VIRTUAL_ENV", "/v")], &[&usual[..], &["/v/pip.conf"]].concat());
        check("linux", &[("PIP_CONFIG_FILE", "/no/such")], &[&usual[..], &["/no/such"]].concat());
        check("linux", &[("PIP_CONFIG_FILE", "/")], &[&usual[..2], &["/"]].concat());
        check(
            "linux",
            &[("XDG_CONFIG_HOME", "/c"), ("XDG_CONFIG_DIRS", "/a:/b")],
            &["/a/pip/pip.conf", "/b/pip/pip.conf", "/etc/pip.conf", "/u/.pip/pip.conf", "/c/pip/pip.conf"],
        );
        let mac = ["/Library/Application Support/pip/pip.conf", "/u/.pip/pip.conf", "/u/.config/pip/pip.conf"];
        check("macos", &[], &mac);
        let windows = [("PROGRAMDATA", "/p"), ("APPDATA", "/r")];
        check("windows", &windows, &["/p/pip/pip.ini", "/u/pip/pip.ini", "/r/pip/pip.ini"]);
    }
}
