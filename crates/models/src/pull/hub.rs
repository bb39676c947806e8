//! The hub's protocol: where a file is, and what one answer says about it.
//!
//! `GET {endpoint}/{repository}/resolve/{revision}/{file}` answers for a large file with a redirect to a content network;
//! that first answer carries `X-Linked-Etag`, the SHA-256 of the content, which the network's own answer does not. So
//! redirects are followed here, one by one, and the identity of the file is taken from whichever answer names it. The
//! token goes to the hub's own host only.

use std::time::Duration;

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, StatusCode, Uri},
};

use super::{PullOptions, download::TransferError};
use crate::{catalog::Source, digest::is_sha256, name::is_safe_file_name};

const MOST_REDIRECTS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// A file on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubFile {
    repository: String,
    revision: String,
    pub(crate) path: String,
}

/// What one answer to a request for a file says.
pub(crate) struct Answer {
    /// What tells this content from any other: the content's hash or the server's validator.
    pub(crate) identity: Option<String>,
    /// The content's SHA-256, where the hub says it.
    pub(crate) sha256: Option<String>,
    /// The first byte that the body holds.
    pub(crate) start: u64,
    /// The length of the whole file, where the server says it.
    pub(crate) total: Option<u64>,
    /// The bytes from `start` on.
    pub(crate) body: Body,
}

/// Asks the hub for files.
pub(crate) struct HubClient {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

impl HubFile {
    pub(crate) fn new(repository: &str, revision: &str, path: &str) -> Self {
        Self { repository: repository.to_owned(), revision: revision.to_owned(), path: path.to_owned() }
    }

    /// Reads `OWNER/REPO/FILE` or `OWNER/REPO@REVISION/FILE`; the error says what is expected.
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
        Ok(Self::new(&format!("{owner}/{repo}"), revision, path))
    }

    /// How a person writes it.
    pub(crate) fn label(&self) -> String {
        let revision = if self.revision == "main" { String::new() } else { format!("@{}", self.revision) };
        format!("hf:{}{revision}/{}", self.repository, self.path)
    }

    /// The same as a source of a catalog entry.
    pub(crate) fn source(&self) -> Source {
        let (repository, revision, paths) = (self.repository.clone(), self.revision.clone(), vec![self.path.clone()]);
        Source::Hub { repository, revision, paths, sha256: None, confirmed: true }
    }
}

/// The token that the hub's own tools keep for the user.
pub(crate) fn stored_token() -> Option<String> {
    // Without either of these the library has no place to look and panics.
    let has_place = std::env::var_os("HF_HOME").is_some() || std::env::home_dir().is_some();
    has_place.then(|| Cache::from_env().token())?
}

impl HubClient {
    pub(crate) fn new(options: &PullOptions) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .accept_encoding("identity")
            .user_agent(concat!("hone/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(SILENCE_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT));
        let agent = config.build().new_agent();
        Self { agent, endpoint: options.hub_endpoint.clone(), token: options.hub_token.clone() }
    }

    /// The address of a file.
    pub(crate) fn url(&self, file: &HubFile) -> Result<String, TransferError> {
        let repo = Repo::with_revision(file.repository.clone(), RepoType::Model, file.revision.clone());
        // The library builds addresses only through a client of its own, with which nothing is ever sent.
        let api: Api = ApiBuilder::from_cache(Cache::new(std::path::PathBuf::new()))
            .with_endpoint(self.endpoint.clone())
            .build()
            .map_err(|error| TransferError::Protocol { url: self.endpoint.clone(), reason: error.to_string() })?;
        Ok(api.repo(repo).url(&percent_encoded(&file.path)))
    }

    /// Asks for a file from byte `start` on; where the hub says that its SHA-256 is another one than `expected`, there
    /// is no need to download it to find out.
    pub(crate) fn get(&self, url: &str, start: u64, expected: Option<&str>) -> Result<Answer, TransferError> {
        let mut address = url.to_owned();
        let mut hub_etag = None;
        for _ in 0..MOST_REDIRECTS {
            let response = self.request(&address, start)?;
            hub_etag = hub_etag.or_else(|| header(response.headers(), "x-linked-etag").and_then(strong_etag));
            check_published(url, hub_etag.as_deref(), expected)?;
            if !response.status().is_redirection() {
                return answer(&address, start, response, hub_etag);
            }
            let location = header(response.headers(), "location");
            let target = location.and_then(|location| resolve(&address, location));
            address = target.ok_or_else(|| protocol(&address, "it redirects to nowhere"))?;
        }
        Err(protocol(url, "it redirects without end"))
    }

    fn request(&self, address: &str, start: u64) -> Result<Response<Body>, TransferError> {
        let mut request = self.agent.get(address);
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| origin(address) == origin(&self.endpoint)) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| TransferError::connection(address, error))
    }
}

fn check_published(url: &str, published: Option<&str>, expected: Option<&str>) -> Result<(), TransferError> {
    match (published, expected) {
        (Some(actual), Some(expected)) if is_sha256(actual) && actual != expected => Err(TransferError::WrongHash {
            from: url.to_owned(),
            expected: expected.to_owned(),
            actual: actual.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn answer(
    address: &str,
    start: u64,
    response: Response<Body>,
    hub_etag: Option<String>,
) -> Result<Answer, TransferError> {
    let headers = response.headers();
    let sha256 = hub_etag.clone().filter(|etag| is_sha256(etag));
    let identity = hub_etag.or_else(|| header(headers, "etag").and_then(strong_etag));
    let (start, total) = match response.status() {
        StatusCode::OK => (0, header(headers, "content-length").and_then(|length| length.parse().ok())),
        StatusCode::PARTIAL_CONTENT => header(headers, "content-range")
            .and_then(content_range)
            .filter(|(from, _)| *from == start)
            .ok_or_else(|| protocol(address, "it answers with another range than was asked for"))?,
        StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => return Err(TransferError::RangeRefused),
        status => {
            let retry_after = header(headers, "retry-after").and_then(|seconds| seconds.trim().parse().ok());
            let retry_after = retry_after.map(Duration::from_secs);
            return Err(TransferError::Status { url: address.to_owned(), status: status.as_u16(), retry_after });
        }
    };
    Ok(Answer { identity, sha256, start, total, body: response.into_body() })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The validator without its quotes; a weak one does not promise the same bytes and is worth nothing here.
fn strong_etag(etag: &str) -> Option<String> {
    let etag = etag.trim();
    (!etag.starts_with("W/")).then(|| etag.trim_matches('"').to_owned()).filter(|etag| !etag.is_empty())
}

/// `bytes 5-9/10` as the first byte and the whole length.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.parse().ok()?, total.parse().ok()))
}

/// The address that `location` means in an answer from `address`.
fn resolve(address: &str, location: &str) -> Option<String> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(location.to_owned());
    }
    let (scheme, host) = origin(address)?;
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    if location.starts_with('/') {
        return Some(format!("{scheme}://{host}{location}"));
    }
    let folder = &address[..=address.split('?').next()?.rfind('/')?];
    Some(format!("{folder}{location}"))
}

fn origin(address: &str) -> Option<(String, String)> {
    let uri: Uri = address.parse().ok()?;
    Some((uri.scheme_str()?.to_owned(), uri.authority()?.as_str().to_owned()))
}

/// A path as it stands in an address: everything but unreserved characters and `/` escaped (RFC 3986, 2.3).
fn percent_encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

fn protocol(url: &str, reason: &str) -> TransferError {
    TransferError::Protocol { url: url.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
    fn locations_are_resolved() {
        let check = |location: &str, expected: &str| {
            assert_eq!(resolve("https://h:1/a/b?c=/d", location).unwrap(), expected);
        };
        check("https://cdn/x", "https://cdn/x");
        check("//cdn/x", "https://cdn/x");
        check("/x?y", "https://h:1/x?y");
        check("x", "https://h:1/a/x");
    }

    #[test]
    fn headers_are_read() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(content_range("bytes */10"), None);
        assert_eq!(strong_etag("\"abc\"").as_deref(), Some("abc"));
        assert_eq!(strong_etag("W/\"abc\""), None);
        assert_eq!(strong_etag("\"\""), None);
        assert_eq!(percent_encoded("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
