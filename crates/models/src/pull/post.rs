//! Messages to a server that the user has named, such as one of the Model Context Protocol.

use std::io::Read;
use std::time::Duration;

use ureq::tls::TlsConfig;
use ureq::{
    Agent,
    http::{HeaderMap, Request},
};
use url::{Host, Url};

use super::{offline_in_environment, transfer_error::TransferError, trust};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends messages over HTTP.
#[derive(Clone, Debug)]
pub struct Messenger {
    agent: Agent,
    address: Url,
}

/// A server's answer.
pub struct Posted {
    /// The HTTP status.
    pub status: u16,
    headers: HeaderMap,
    /// The body, which may arrive gradually.
    pub body: Box<dyn Read>,
}

impl Posted {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Messenger {
    /// A messenger to this address. A server that is silent for longer than `patience` is given up.
    ///
    /// # Errors
    /// When the address is not valid, or the network is needed but disabled; the message says so.
    pub fn new(address: &str, patience: Duration) -> Result<Messenger, String> {
        let address = Url::parse(address).map_err(|error| format!("{address:?} is not an address: {error}"))?;
        if !["http", "https"].contains(&address.scheme()) {
            return Err(format!("{address} is not an address of the web"));
        }
        if offline_in_environment() && !is_on_this_machine(&address) {
            return Err(format!("{address} is not on this machine, and HONE_OFFLINE disables the network"));
        }
        let roots = trust::authorities(None).map_err(|error| error.to_string())?;
        let proxy = trust::proxy(&address).map_err(|error| error.to_string())?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("hone/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .proxy(proxy)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(patience))
            .timeout_per_read(Some(patience));
        Ok(Messenger { agent: config.build().new_agent(), address })
    }

    /// Posts a message with these headers, and waits until the server answers.
    ///
    /// # Errors
    /// When it is unreachable, or does not answer.
    pub fn post<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        message: &str,
    ) -> Result<Posted, String> {
        self.sent("POST", &self.address, headers, Some(message))
    }

    /// Sends a request for a path of the server, and waits until it answers.
    ///
    /// # Errors
    /// When it is unreachable, or does not answer.
    pub fn send<'a>(
        &self,
        method: &str,
        path: &str,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        message: Option<&str>,
    ) -> Result<Posted, String> {
        let address = self.address.join(path).map_err(|error| format!("{path:?} is no path of a server: {error}"))?;
        self.sent(method, &address, headers, message)
    }

    fn sent<'a>(
        &self,
        method: &str,
        address: &Url,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        message: Option<&str>,
    ) -> Result<Posted, String> {
        let request = Request::builder().method(method).uri(address.as_str());
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = match message {
            Some(message) => {
                request.body(message).map_err(ureq::Error::from).and_then(|request| self.agent.run(request))
            }
            None => request.body(()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
        };
        let failed = |error| TransferError::connection(address.as_str(), error).to_string();
        let (head, body) = answer.map_err(failed)?.into_parts();
        Ok(Posted { status: head.status.as_u16(), headers: head.headers, body: Box::new(body.into_reader()) })
    }
}

fn is_on_this_machine(address: &Url) -> bool {
    match address.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_on_this_machine_are_known() {
        let is_local = |address: &str| is_on_this_machine(&Url::parse(address).unwrap());
        for address in ["http://localhost:1/mcp", "http://127.0.0.1", "http://[::1]:8/"] {
            assert!(is_local(address), "{address}");
        }
        for address in ["http://localhost.evil.example", "http://10.0.0.1", "https://example.org"] {
            assert!(!is_local(address), "{address}");
        }
    }

    #[test]
    fn what_is_no_address_of_the_web_is_refused() {
        for address in ["", "localhost", "file:///etc/passwd", "ftp://127.0.0.1"] {
            assert!(Messenger::new(address, CONNECT_TIMEOUT).is_err(), "{address}");
        }
    }
}
