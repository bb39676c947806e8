//! The hub's addresses: `GET {endpoint}/{repository}/resolve/{revision}/{file}`, with the user's token for that host.

use std::path::Path;

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};

use hone_protocol::PartName;

use super::{
    PullOptions,
    client::Client,
    transfer_error::{Peer, TransferError},
};
use crate::{catalog::Source, name::is_safe_file_name};

/// A file on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubFile {
    repository: String,
    revision: String,
    pub(crate) path: String,
}

/// Downloads files from the hub.
pub(crate) struct HubClient {
    client: Client,
    endpoint: String,
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
        let is_plain = |part: &str| {
            part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && is_safe_file_name(part)
        };
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

    /// The same as a source of a catalog entry.
    pub(crate) fn source(&self) -> Source {
        let (repository, revision, paths) = (self.repository.clone(), self.revision.clone(), self.parts());
        Source::Hub { repository, revision, paths, sha256: None, confirmed: true }
    }
}

/// The token that the hub's own tools keep for the user.
pub(crate) fn stored_token() -> Option<String> {
    // Without either of these the library has no place to look in, and panics.
    let has_place = std::env::var_os("HF_HOME").is_some() || std::env::home_dir().is_some();
    has_place.then(|| Cache::from_env().token())?
}

impl HubClient {
    pub(crate) fn new(options: &PullOptions) -> Result<Self, TransferError> {
        let token = options.hub_token.as_ref().map(|token| format!("Bearer {token}"));
        let client = Client::new(Peer::Hub, None)?.authorized(&options.hub_endpoint, token);
        Ok(Self { client, endpoint: options.hub_endpoint.clone() })
    }

    /// The library's client, which builds addresses.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The address of a file.
    pub(crate) fn url(&self, file: &HubFile) -> Result<String, TransferError> {
        let repo = Repo::with_revision(file.repository.clone(), RepoType::Model, file.revision.clone());
        // The library builds addresses only through its own client, which never sends anything here.
        let api: Api = ApiBuilder::from_cache(Cache::new(std::path::PathBuf::new()))
            .with_endpoint(self.endpoint.clone())
            .build()
            .map_err(|error| TransferError::Protocol { url: self.endpoint.clone(), reason: error.to_string() })?;
        Ok(api.repo(repo).url(&percent_encoded(&file.path)))
    }
}

/// A path as part of an address: everything but unreserved characters and `/` is escaped (RFC 3986, 2.3).
fn percent_encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
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

    #[test]
    fn paths_are_escaped() {
        assert_eq!(percent_encoded("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
