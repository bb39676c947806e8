//! The HTTP client for the hub and for package indices.
//!
//! The hub answers a request for a large file with a redirect to a content network. The redirect carries
//! `X-Linked-Etag`, the SHA-256 of the content, which the network's own answer does not. So redirects are followed
//! here, one by one, and the file's identity is taken from the answer that has it. Credentials are sent only to the
//! host that they are for, and addresses are shown without anything that may be secret.

use std::{io::Read, path::Path, time::Duration};

use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, StatusCode},
    tls::TlsConfig,
};
use url::{Origin, Url};

use super::{
    transfer_error::{Peer, TransferError},
    trust,
};
use crate::{
    address::{bare, shown, without_secrets},
    digest::is_sha256,
};

const MOST_REDIRECTS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The answer to a request for a file.
pub(crate) struct Answer {
    /// Identifies the content: its hash or the server's validator.
    pub(crate) identity: Option<String>,
    /// The SHA-256 of the content, if the hub provides it.
    pub(crate) sha256: Option<String>,
    /// The offset of the first byte of the body.
    pub(crate) start: u64,
    /// The length of the whole file, if the server provides it.
    pub(crate) total: Option<u64>,
    /// The bytes from `start` on.
    pub(crate) body: Body,
}

/// A complete short answer.
pub(crate) struct Page {
    /// The final address, after redirects.
    pub(crate) address: String,
    /// Its media type, without parameters.
    pub(crate) media_type: String,
    pub(crate) bytes: Vec<u8>,
}

/// Requests files and pages from servers.
pub(crate) struct Client {
    agent: Agent,
    peer: Peer,
    /// The `Authorization` header for one origin.
    credential: Option<(Origin, String)>,
}

impl Client {
    /// A client that trusts the system's certificate authorities and those in the file `more`.
    pub(crate) fn new(peer: Peer, more: Option<&Path>) -> Result<Self, TransferError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .accept_encoding("identity")
            .user_agent(concat!("hone/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(trust::authorities(more)?).build())
            // A proxy is chosen for each request.
            .proxy(None)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(SILENCE_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT));
        Ok(Self { agent: config.build().new_agent(), peer, credential: None })
    }

    /// Adds an `Authorization` header for the host of `address`.
    pub(crate) fn authorized(self, address: &str, authorization: Option<String>) -> Self {
        let origin = Url::parse(address).ok().map(|url| url.origin());
        Self { credential: origin.zip(authorization), ..self }
    }

    /// Requests a file from byte `start` on. If the hub reports a SHA-256 other than `expected`, the download is not
    /// even started.
    pub(crate) fn get(&self, url: &str, start: u64, expected: Option<&str>) -> Result<Answer, TransferError> {
        let mut hub_etag = None;
        let mut look = |headers: &HeaderMap| {
            let published = header(headers, "x-linked-etag").and_then(strong_etag);
            hub_etag = hub_etag.take().or(published);
            check_published(url, hub_etag.as_deref(), expected)
        };
        let range = format!("bytes={start}-");
        let headers = [("Range", range.as_str())];
        let (address, response) = self.follow(url, &headers[..usize::from(start > 0)], &mut look)?;
        self.answer(&address, start, response, hub_etag)
    }

    /// Reads a whole answer of at most `most` bytes.
    pub(crate) fn page(&self, url: &str, accept: &str, most: u64) -> Result<Page, TransferError> {
        let (address, response) = self.follow(url, &[("Accept", accept)], &mut |_| Ok(()))?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(&address, &response));
        }
        let media_type = header(response.headers(), "content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_lowercase();
        let mut bytes = Vec::new();
        let broken = |error: std::io::Error| TransferError::Broken { url: shown(&address), reason: error.to_string() };
        response.into_body().into_reader().take(most + 1).read_to_end(&mut bytes).map_err(broken)?;
        if bytes.len() as u64 > most {
            return Err(protocol(&address, &format!("its answer is longer than {most} bytes")));
        }
        Ok(Page { address: address.into(), media_type, bytes })
    }

    /// Follows redirects to the final answer; `look` sees the headers of each answer.
    fn follow(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        look: &mut dyn FnMut(&HeaderMap) -> Result<(), TransferError>,
    ) -> Result<(Url, Response<Body>), TransferError> {
        let malformed =
            |_| TransferError::Protocol { url: without_secrets(url), reason: "it is not a valid address".to_owned() };
        let mut address = Url::parse(url).map_err(malformed)?;
        for _ in 0..MOST_REDIRECTS {
            let response = self.request(&address, headers)?;
            look(response.headers())?;
            if !response.status().is_redirection() {
                return Ok((address, response));
            }
            let location = header(response.headers(), "location");
            let target = location.and_then(|location| address.join(location).ok());
            let target = target.ok_or_else(|| protocol(&address, "it redirects without a valid address"))?;
            if address.scheme() == "https" && target.scheme() != "https" {
                return Err(protocol(&address, "it redirects from https to an address without TLS"));
            }
            address = target;
        }
        Err(protocol(&address, "it redirects too often"))
    }

    fn request(&self, address: &Url, headers: &[(&str, &str)]) -> Result<Response<Body>, TransferError> {
        let proxy = trust::proxy(address)?;
        let bare = bare(address);
        let mut request = self.agent.get(bare.as_str()).config().proxy(proxy).build();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some((_, value)) = self.credential.as_ref().filter(|(origin, _)| *origin == address.origin()) {
            request = request.header("Authorization", value);
        }
        request.call().map_err(|error| TransferError::connection(&shown(address), error))
    }

    fn answer(
        &self,
        address: &Url,
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
                .ok_or_else(|| protocol(address, "it answered with a different range than requested"))?,
            StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => return Err(TransferError::RangeRefused),
            _ => return Err(self.refused(address, &response)),
        };
        Ok(Answer { identity, sha256, start, total, body: response.into_body() })
    }

    fn refused(&self, address: &Url, response: &Response<Body>) -> TransferError {
        let retry_after = header(response.headers(), "retry-after").and_then(|seconds| seconds.trim().parse().ok());
        TransferError::Status {
            url: shown(address),
            status: response.status().as_u16(),
            retry_after: retry_after.map(Duration::from_secs),
            peer: self.peer,
        }
    }
}

fn check_published(url: &str, published: Option<&str>, expected: Option<&str>) -> Result<(), TransferError> {
    match (published, expected) {
        (Some(actual), Some(expected)) if is_sha256(actual) && actual != expected => Err(TransferError::WrongHash {
            from: without_secrets(url),
            expected: expected.to_owned(),
            actual: actual.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The validator without its quotes; `None` for a weak one, which does not promise identical bytes.
fn strong_etag(etag: &str) -> Option<String> {
    let etag = etag.trim();
    (!etag.starts_with("W/")).then(|| etag.trim_matches('"').to_owned()).filter(|etag| !etag.is_empty())
}

/// Parses `bytes 5-9/10` into the first byte and the total length.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.parse().ok()?, total.parse().ok()))
}

pub(crate) fn protocol(address: &Url, reason: &str) -> TransferError {
    TransferError::Protocol { url: shown(address), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(content_range("bytes */10"), None);
        assert_eq!(strong_etag("\"abc\"").as_deref(), Some("abc"));
        assert_eq!(strong_etag("W/\"abc\""), None);
        assert_eq!(strong_etag("\"\""), None);
    }
}
