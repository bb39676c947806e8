//! References to models outside the catalog: a file or a repository of the hub, or any address.

mod hub_file;
mod hub_repository;

use hone_protocol::PartName;
use percent_encoding::percent_decode_str;
use url::Url;

pub(crate) use self::{hub_file::HubFile, hub_repository::HubRepository};
use crate::{address::without_secrets, name::is_safe_file_name};

/// The prefixes of references to the hub.
const HUB: [&str; 7] = [
    "hf:",
    "https://huggingface.co/",
    "http://huggingface.co/",
    "https://hf.co/",
    "http://hf.co/",
    "huggingface.co/",
    "hf.co/",
];

/// The prefixes of other addresses.
const WEB: [&str; 2] = ["https://", "http://"];

/// A model somewhere on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A file on the hub.
    File(HubFile),
    /// A repository of the hub, and the quantization.
    Repository(HubRepository),
    /// A file at any other address.
    Web(WebFile),
}

/// A GGUF file at an address that is not the hub's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebFile(Url);

impl Reference {
    /// Parses a reference; `None` for a text that does not refer to the network. The error says what is expected.
    pub(crate) fn parse(text: &str) -> Result<Option<Reference>, String> {
        if let Some((prefix, rest)) = after_any(&HUB, text) {
            // Only an address has a query.
            let end = if prefix == HUB[0] { None } else { rest.find(['?', '#']) };
            return on_hub(&rest[..end.unwrap_or(rest.len())]).map(Some);
        }
        if after_any(&WEB, text).is_some() {
            return WebFile::parse(text).map(|file| Some(Reference::Web(file)));
        }
        let repository = HubRepository::parse(text).ok().filter(|_| !text.to_lowercase().ends_with(".gguf"));
        Ok(repository.map(Reference::Repository))
    }

    /// Whether a text begins like a reference, and so cannot be a path.
    pub(crate) fn is_explicit(text: &str) -> bool {
        after_any(&HUB, text).or_else(|| after_any(&WEB, text)).is_some()
    }

    /// Whether an installed model whose source is `source` came from there.
    pub(crate) fn is_origin_of(&self, source: &str) -> bool {
        match self {
            Reference::File(file) => source == file.label(),
            Reference::Repository(repository) => repository.is_origin_of(source),
            Reference::Web(file) => source == file.label(),
        }
    }
}

/// The prefix that a text begins with, in any case, and the rest.
fn after_any<'a>(prefixes: &[&'static str], text: &'a str) -> Option<(&'static str, &'a str)> {
    prefixes.iter().find_map(|prefix| {
        let (beginning, rest) = text.split_at_checked(prefix.len())?;
        beginning.eq_ignore_ascii_case(prefix).then_some((*prefix, rest))
    })
}

/// A reference to the hub without its prefix: typed by a user, or an address copied from a browser.
fn on_hub(rest: &str) -> Result<Reference, String> {
    let rest = rest.trim_end_matches('/');
    let parts: Vec<&str> = rest.splitn(5, '/').collect();
    match parts[..] {
        [owner, repo, "resolve" | "blob", revision, file] => {
            HubFile::parse(&format!("{owner}/{repo}@{revision}/{}", decoded(file))).map(Reference::File)
        }
        [owner, repo, "tree", revision] => {
            HubRepository::parse(&format!("{owner}/{repo}@{revision}")).map(Reference::Repository)
        }
        [_, _] => HubRepository::parse(rest).map(Reference::Repository),
        _ => HubFile::parse(rest).map(Reference::File),
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl WebFile {
    fn parse(text: &str) -> Result<WebFile, String> {
        let shown = without_secrets(text);
        let url = Url::parse(text).map_err(|error| format!("`{shown}` is not a valid address: {error}"))?;
        let file = WebFile(url);
        if !file.file_name().to_lowercase().ends_with(".gguf") {
            return Err(format!("`{shown}` is not the address of a model: its path does not end with .gguf"));
        }
        match PartName::parse(&file.file_name()) {
            Some(part) if part.number > 1 => {
                Err(format!("`{shown}` is part {} of {} of a model: pull the first part", part.number, part.count))
            }
            _ => Ok(file),
        }
    }

    /// The last part of the path.
    pub(crate) fn file_name(&self) -> String {
        decoded(self.0.path().rsplit('/').next().unwrap_or_default())
    }

    /// The address as users see it.
    pub(crate) fn label(&self) -> String {
        without_secrets(self.0.as_str())
    }

    /// The addresses of the file and of the parts that belong to it, if it is the first of several.
    pub(crate) fn parts(&self) -> Vec<String> {
        match PartName::parse(&self.file_name()) {
            Some(first) => first.all().filter_map(|part| self.beside(&part.to_string())).collect(),
            None => vec![self.0.to_string()],
        }
    }

    /// The address of a file in the same folder.
    fn beside(&self, name: &str) -> Option<String> {
        let mut url = self.0.clone();
        url.path_segments_mut().ok()?.pop().push(name);
        Some(url.into())
    }
}

/// Whether a text can be the name of an owner, a repository or a revision.
pub(crate) fn is_plain(part: &str) -> bool {
    part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && is_safe_file_name(part)
}

/// The last part of a path with `/` between folders.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
