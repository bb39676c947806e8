//! Decides which requests to accept.
//!
//! A page from elsewhere, open in a browser on this machine, can send requests to a local server: directly, or under
//! its own name, which it points here (DNS rebinding). So a request must name this server by one of its own names, must
//! not come from another page, and must declare its body as JSON, which a page may not do without a preflight request.
//! A program outside a browser may omit the content type, as LiteLLM does for Ollama, or declare a form, as `curl -d`
//! does. The port may be another one, as forwarded by a tunnel or a container: the name is what protects.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hone_app::config::KeyHash;
use hone_protocol::OwnerId;
use serde_json::Value;

use crate::Shared;
use crate::clients::{Client, Peer};
use crate::error::ApiError;
use crate::page;
use crate::shapes::template;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The path to which a page sends files: a browser sends arbitrary bytes elsewhere only after a preflight request, too.
const FILE_PATH: &str = "/hone/v1/text";

/// A socket through which requests arrive.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

/// Passes a request on, or refuses it with the reason.
pub(crate) async fn check(State(guarded): State<Guarded>, mut request: Request, next: Next) -> Response {
    match client(&guarded, &request) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// The client of an accepted request.
fn client(guarded: &Guarded, request: &Request) -> Result<Client, ApiError> {
    let (method, headers) = (request.method(), request.headers());
    let Guarded { shared, address } = guarded;
    let settings = &shared.settings;
    let forbidden = |reason: &str| Err(ApiError::new(StatusCode::FORBIDDEN, reason));
    let own = Names { address: *address, hosts: &settings.hosts };
    let asks_for_own = single(headers, &header::HOST).is_some_and(|host| own.has(host));
    // The form for proxies: the request line holds the whole address.
    let is_foreign_target = request.uri().authority().is_some_and(|target| !own.has(target.as_str()));
    if !asks_for_own || is_foreign_target {
        return forbidden("this server does not answer to the name in the header Host: name it in server.hosts");
    }
    let host = single(headers, &header::HOST).unwrap_or_default();
    let is_own_page = || single(headers, &header::ORIGIN).is_some_and(|origin| own.is_own_page(origin, host));
    if headers.contains_key(header::ORIGIN) && !is_own_page() {
        return forbidden("pages of other origins may not use this server");
    }
    if headers.get(SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return forbidden("pages of other sites may not use this server");
    }
    let owner = keys(headers).find_map(|key| owner(&settings.keys, key));
    let needs_key = !settings.keys.is_empty() && !page::is_file(request.uri().path());
    if needs_key && owner.is_none() {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "a valid API key is needed: Authorization: Bearer KEY"));
    }
    if method == Method::POST
        && !has_known_type(headers, request.uri().path())
        && !is_refused_by_router(shared, request)
    {
        let what = "the header Content-Type must be application/json, and for a file application/octet-stream";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let address = request.extensions().get::<Peer>().map_or(address.ip(), |Peer(peer)| *peer);
    Ok(owner.map_or(Client::Address(address), Client::Key))
}

/// Whether a path is known not to accept POST; the router tells the client so.
fn is_refused_by_router(shared: &Shared, request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>();
    path.is_some_and(|path| takes_no_post(&shared.document, path.as_str()))
}

/// The value of a header that occurs once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The keys in a request. A client may send a placeholder in one header and the key in the other.
fn keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = single(headers, &header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.into_iter().chain(single(headers, &HeaderName::from_static("x-api-key")))
}

/// The owner of a known key. The key is compared with all known keys, so that the timing does not reveal the matching
/// one.
fn owner(keys: &[KeyHash], key: &str) -> Option<OwnerId> {
    keys.iter().fold(None, |found, known| if known.is_of(key) { Some(known.owner()) } else { found })
}

/// Whether a body may be what the path takes: its content type says so, or says nothing. Some programs send no content
/// type, the one for arbitrary bytes, or that of a form (`curl -d`). A page could, too, but its browser adds the page's
/// origin.
fn has_known_type(headers: &HeaderMap, path: &str) -> bool {
    let is_from_browser = [header::ORIGIN, header::REFERER, SEC_FETCH_SITE].iter().any(|it| headers.contains_key(it));
    if !headers.contains_key(header::CONTENT_TYPE) {
        return !is_from_browser;
    }
    let kind = single(headers, &header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| kind.eq_ignore_ascii_case(known);
    let (is_bytes, is_form) = (is("application/octet-stream"), is("application/x-www-form-urlencoded"));
    is("application/json") || is_bytes && path == FILE_PATH || (is_bytes || is_form) && !is_from_browser
}

/// The names that a server answers to.
struct Names<'a> {
    address: SocketAddr,
    hosts: &'a [String],
}

impl Names<'_> {
    /// Whether a name is this server's, with any port or none.
    fn has(&self, host: &str) -> bool {
        let (name, port) = parted(host);
        is_port(port) && self.is_name(name)
    }

    /// Whether an origin is a page of this server, requested as `host`: either that very name, or another of the
    /// server's names at its own port.
    fn is_own_page(&self, origin: &str, host: &str) -> bool {
        let page = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        page.is_some_and(|page| {
            let is_other_name = |it: &&str| self.is_own_port(it) && !self.is_any_address(parted(it).0);
            self.has(page) && (page.eq_ignore_ascii_case(host) || [page, host].iter().all(is_other_name))
        })
    }

    fn is_own_port(&self, host: &str) -> bool {
        match parted(host).1 {
            None => self.address.port() == 80,
            Some(port) => port == self.address.port().to_string(),
        }
    }

    fn is_name(&self, name: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name)) || self.is_own_name(name)
    }

    fn is_own_name(&self, name: &str) -> bool {
        let ip = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name).parse::<IpAddr>();
        match ip {
            // Only the canonical notation: other notations are not names of this server.
            Ok(IpAddr::V4(ip)) if ip.to_string() == name => self.is_own_address(ip.into()),
            Ok(IpAddr::V6(ip)) if format!("[{ip}]") == name => self.is_own_address(ip.into()),
            Ok(_) => false,
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether clients may reach the server at this address. A server that listens on all interfaces is reached at any
    /// address of its machine, or of the machine in front of it; no other site's name can be a number.
    fn is_own_address(&self, ip: IpAddr) -> bool {
        let is_everywhere = self.address.ip().is_unspecified() && !ip.is_unspecified() && !ip.is_multicast();
        ip.is_loopback() || self.address.ip() == ip || is_everywhere
    }

    /// Whether a name is accepted only because the server listens on all interfaces: it may be another machine's.
    fn is_any_address(&self, name: &str) -> bool {
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        self.address.ip().is_unspecified() && ip.is_ok_and(|ip| !ip.is_loopback())
    }
}

/// A host's name and its port, if it has one.
fn parted(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a port is in canonical notation, or omitted.
fn is_port(port: Option<&str>) -> bool {
    port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port))
}

/// Whether a path of the router is documented and does not accept POST.
fn takes_no_post(document: &Value, path: &str) -> bool {
    document["paths"].get(template(path)).is_some_and(|item| item.get("post").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names<'static> {
        Names { address: SocketAddr::from(([127, 0, 0, 1], 11435)), hosts: &[] }
    }

    #[test]
    fn own_names_are_let_in() {
        for host in ["localhost:11435", "LOCALHOST:11435", "127.0.0.1:11435", "[::1]:11435"] {
            assert!(names().has(host), "{host}");
        }
        for forwarded in ["localhost", "localhost:80", "localhost:18080", "127.0.0.1:18080", "[::1]", "[::1]:18080"] {
            assert!(names().has(forwarded), "{forwarded}");
        }
        let hosts = vec!["grader.lan".to_owned()];
        let names = Names { address: SocketAddr::from(([192, 168, 0, 7], 80)), hosts: &hosts };
        for host in ["grader.lan", "grader.lan:80", "192.168.0.7", "localhost"] {
            assert!(names.has(host), "{host}");
        }
        let everywhere = Names { address: SocketAddr::from(([0, 0, 0, 0], 11435)), hosts: &[] };
        for host in ["192.168.0.7:11435", "192.168.0.8", "[fd00::7]:11435", "localhost"] {
            assert!(everywhere.has(host), "{host}");
        }
        let own_page = |page: &str, host: &str| everywhere.is_own_page(&format!("http://{page}"), host);
        assert!(own_page("192.168.0.7:11435", "192.168.0.7:11435") && own_page("localhost:11435", "127.0.0.1:11435"));
        assert!(!own_page("6.6.6.6:11435", "192.168.0.7:11435") && !own_page("192.168.0.7:11435", "localhost:11435"));
        for host in ["[::]:11435", "224.0.0.1", "192.168.000.7", "grader.lan", "evil.example"] {
            assert!(!everywhere.has(host), "{host}");
        }
    }

    #[test]
    fn foreign_names_and_other_spellings_are_not() {
        let foreign = [
            "",
            ":",
            ":11435",
            "localhost:",
            "localhost:011435",
            "localhost:0",
            "localhost:65536",
            "localhost:+11435",
            "localhost:11435 ",
            " localhost:11435",
            "localhost.:11435",
            "localhost.evil.example:11435",
            "evil.example:11435",
            "evil.example",
            "localhost:11435@evil.example",
            "user@localhost:11435",
            "localhost:11435/",
            "localhost:11435:11435",
            "http://localhost:11435",
            "127.0.0.1.nip.example:11435",
            "127.1:11435",
            "2130706433:11435",
            "0x7f000001:11435",
            "0177.0.0.1:11435",
            "127.0.0.1.:11435",
            "0.0.0.0:11435",
            "10.0.0.1:11435",
            "192.168.0.7:11435",
            "[::]:11435",
            "[0:0:0:0:0:0:0:1]:11435",
            "[::ffff:127.0.0.1]:11435",
            "[::1%lo]:11435",
            "::1:11435",
            "[localhost]:11435",
            "127.0.0.1%00.evil.example:11435",
            "localhost\t:11435",
            "xn--localhost-:11435",
        ];
        for host in foreign {
            assert!(!names().has(host), "{host:?}");
        }
        let check = |origin: &str, host: &str, expected: bool| {
            assert_eq!(names().is_own_page(origin, host), expected, "{origin:?} {host:?}");
        };
        for origin in ["null", "", "http://evil.example", "http://localhost:11435.evil.example", "file://"] {
            check(origin, "localhost:11435", false);
        }
        for origin in ["https://evil.example:11435", "http://localhost", "ftp://localhost:11435", "localhost:11435"] {
            check(origin, "localhost:11435", false);
        }
        check("http://localhost:11435", "localhost:11435", true);
        check("http://127.0.0.1:11435", "localhost:11435", true);
        check("http://localhost:18080", "localhost:18080", true);
        check("http://localhost:18080", "localhost:11435", false);
        check("http://localhost:11435", "localhost:18080", false);
        check("http://localhost", "localhost", true);
        check("http://evil.example", "evil.example", false);
    }

    #[test]
    fn a_key_is_known_by_its_hash() {
        let keys = [KeyHash::of("one"), KeyHash::of("two")];
        assert_eq!(["one", "two"].map(|key| owner(&keys, key)), [Some(keys[0].owner()), Some(keys[1].owner())]);
        assert_ne!(owner(&keys, "one"), owner(&keys, "two"));
        assert_eq!((owner(&keys, "three"), owner(&[], "")), (None, None));
    }
}
