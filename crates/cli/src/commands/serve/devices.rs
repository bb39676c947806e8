//! How other devices of the network reach the server.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// An address of no machine (RFC 5737). Nothing is sent there: the system only says which of its addresses it would
/// send from.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// The address at which other devices reach a server that listens here; `None` if they do not, or it is unknown.
pub(super) fn reachable(listening: SocketAddr) -> Option<SocketAddr> {
    let own = if listening.ip().is_unspecified() { own_address()? } else { listening };
    (!own.ip().is_loopback()).then(|| SocketAddr::new(own.ip(), listening.port()))
}

fn own_address() -> Option<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    socket.local_addr().ok()
}

/// A link for a phone's camera, as lines of characters that are black on white.
///
/// # Errors
/// When the link is longer than a QR code can be.
pub(super) fn qr_code(link: &str) -> anyhow::Result<String> {
    Ok(QrCode::with_error_correction_level(link, EcLevel::L)?.render::<Dense1x2>().build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(listening: &str, expected: Option<&str>) {
        let reached = reachable(listening.parse().unwrap());
        assert_eq!(reached, expected.map(|address| address.parse().unwrap()), "{listening}");
    }

    #[test]
    fn a_server_of_this_machine_is_not_reached_from_others() {
        check("127.0.0.1:11435", None);
        check("[::1]:11435", None);
        check("192.168.1.7:11435", Some("192.168.1.7:11435"));
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_at_an_address_of_this_machine() {
        // Without a network it has none.
        let Some(reached) = reachable("0.0.0.0:11435".parse().unwrap()) else { return };
        assert_eq!(reached.port(), 11_435);
        assert!(!reached.ip().is_unspecified() && !reached.ip().is_loopback(), "{reached}");
    }
}
