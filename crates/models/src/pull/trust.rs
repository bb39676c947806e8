//! Certificates and proxies: which servers the network code trusts and how it reaches them.
//!
//! Many companies have their own certificate authorities and require a proxy. So the certificates are the system's, or
//! those in `SSL_CERT_FILE` and `SSL_CERT_DIR`, as for OpenSSL; only a machine without any certificate store (a bare
//! container) falls back to the compiled-in public authorities. Proxies are chosen by scheme and by `NO_PROXY`, which
//! includes subdomains, as in curl; the HTTP library supports only one proxy for all schemes, and exact names.

use std::{fs, path::Path};

use ureq::{
    Proxy,
    tls::{Certificate, PemItem, RootCerts, parse_pem},
};
use url::Url;

use super::transfer_error::TransferError;

/// The authorities to trust: the system's, and those in a file if one is given.
pub(crate) fn authorities(more: Option<&Path>) -> Result<RootCerts, TransferError> {
    let found = rustls_native_certs::load_native_certs();
    let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    let mut trusted: Vec<_> = found.certs.iter().map(|found| Certificate::from_der(found).to_owned()).collect();
    if let Some(path) = more {
        trusted.extend(in_file(path)?);
    }
    if !trusted.is_empty() {
        return Ok(RootCerts::from(trusted));
    }
    let is_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if is_named {
        return Err(TransferError::Certificates(format!(
            "SSL_CERT_FILE and SSL_CERT_DIR name no readable certificate ({}): correct or unset them",
            reasons.join("; ")
        )));
    }
    tracing::debug!(?reasons, "the system has no certificates, the public authorities that are built in are trusted");
    Ok(RootCerts::WebPki)
}

fn in_file(path: &Path) -> Result<Vec<Certificate<'static>>, TransferError> {
    let text = fs::read(path).map_err(|error| TransferError::file(path, error))?;
    let is_certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    Ok(parse_pem(&text).filter_map(is_certificate).collect())
}

/// The proxy for an address, if one is configured and `NO_PROXY` does not exclude the address.
pub(crate) fn proxy(address: &Url) -> Result<Option<Proxy>, TransferError> {
    choose(address, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn choose(address: &Url, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Proxy>, TransferError> {
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_uppercase()));
    let by_scheme = format!("{}_proxy", address.scheme());
    let named = [by_scheme.as_str(), "all_proxy"].into_iter().find_map(|name| Some((name, either(name)?)));
    let Some((name, value)) = named else { return Ok(None) };
    if either("no_proxy").is_some_and(|list| is_excepted(address, &list)) {
        return Ok(None);
    }
    // The value may hold a password.
    let malformed = |_| TransferError::Proxy(format!("{} is not a valid proxy address", name.to_uppercase()));
    Proxy::new(value.trim()).map(Some).map_err(malformed)
}

/// Whether a list such as `localhost, .example.org, 10.0.0.1:8080` includes the host of an address.
fn is_excepted(address: &Url, list: &str) -> bool {
    let host = address.host_str().unwrap_or_default().trim_matches(['[', ']']).to_lowercase();
    let port = address.port_or_known_default().map(|port| port.to_string());
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let names = |entry: &str| {
        let entry = entry.to_lowercase();
        let (name, only) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') => (name.to_owned(), Some(digits.to_owned())),
            _ => (entry, None),
        };
        let name = name.trim_start_matches('*').trim_start_matches('.').trim_matches(['[', ']']);
        let is_host = host == name || (!is_address && host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')));
        !name.is_empty() && is_host && (only.is_none() || only == port)
    };
    list.split([',', ' ']).map(str::trim).any(|entry| entry == "*" || names(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, variables: &[(&str, &str)], expected: Option<&str>) {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let found = choose(&address.parse().unwrap(), &lookup).unwrap();
        assert_eq!(found.as_ref().map(|proxy| proxy.host()), expected, "{address} {variables:?}");
    }

    #[test]
    fn a_proxy_is_chosen_by_scheme() {
        check("https://h/", &[], None);
        check("https://h/", &[("HTTPS_PROXY", "http://p:1")], Some("p"));
        check("https://h/", &[("http_proxy", "http://p:1")], None);
        check("http://h/", &[("HTTPS_PROXY", "http://p"), ("http_proxy", "q:3128")], Some("q"));
        check("http://h/", &[("ALL_PROXY", "socks5h://s:1080")], Some("s"));
        check("https://h/", &[("ALL_PROXY", "http://s"), ("https_proxy", "http://p")], Some("p"));
    }

    #[test]
    fn exceptions_hold_for_subdomains() {
        let except = |address: &str, list: &str, expected: bool| {
            let variables = [("ALL_PROXY", "http://p"), ("NO_PROXY", list)];
            check(address, &variables, if expected { None } else { Some("p") });
        };
        for list in ["*", "example.org", ".example.org", "*.example.org", "x, EXAMPLE.org ", "a.example.org:443"] {
            except("https://a.example.org/x", list, true);
        }
        for list in ["", ",", "example", "xample.org", "b.example.org", "a.example.org:80", "."] {
            except("https://a.example.org/x", list, false);
        }
        except("http://127.0.0.1:8080/", "127.0.0.1", true);
        except("http://[::1]:8080/", "::1", true);
        except("http://10.0.0.1/", "0.0.1", false);
    }

    #[test]
    fn a_malformed_proxy_is_named_and_not_shown() {
        let lookup = |name: &str| (name == "HTTPS_PROXY").then(|| "http://me:hush@".to_owned());
        let text = choose(&"https://h/".parse().unwrap(), &lookup).unwrap_err().to_string();
        assert!(text.contains("HTTPS_PROXY") && !text.contains("hush"), "{text}");
    }
}
