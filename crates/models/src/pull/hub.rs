//! The hub's addresses: `GET {endpoint}/{repository}/resolve/{revision}/{file}` for a file and `GET
//! {endpoint}/api/models/{repository}/revision/{revision}` for a repository's contents, with the user's token for that
//! host.

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};

use super::{
    PullOptions,
    client::Client,
    transfer_error::{Peer, TransferError},
};
use crate::reference::HubFile;

/// Downloads files from the hub.
pub(crate) struct HubClient {
    client: Client,
    endpoint: String,
}

/// The token that the hub's own tools keep for the user.
pub(crate) fn stored_token() -> Option<String> {
    // Without either of these the library has no folder to search, and panics.
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

    /// The address of the hub's description of a repository, including the sizes of its files.
    pub(crate) fn description_url(&self, repository: &str, revision: &str) -> String {
        format!("{}/api/models/{repository}/revision/{revision}?blobs=true", self.endpoint)
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
    fn paths_are_escaped() {
        assert_eq!(percent_encoded("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
