//! Who is let in.

use hone_server::{KeyHash, ServerSettings};

use crate::stage::{Stage, ask, echo, settings};

#[test]
fn foreign_names_pages_and_forms_are_not_let_in() {
    let stage = Stage::start(settings(), echo);
    let port = stage.address.port();
    let status =
        |headers: &str| stage.send(&format!("GET /v1/models HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).0;
    assert_eq!(status(&format!("Host: localhost:{port}\r\n")), 200);
    assert_eq!(status("Host: evil.example\r\n"), 403);
    assert_eq!(status(&format!("Host: evil.example:{port}\r\n")), 403);
    assert_eq!(status(&format!("Host: localhost:{port}\r\nOrigin: https://evil.example\r\n")), 403);
    assert_eq!(status(&format!("Host: localhost:{port}\r\nOrigin: null\r\n")), 403);
    assert_eq!(status(&format!("Host: localhost:{port}\r\nSec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(status(&format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n")), 200);
    let form = stage.post_text("/v1/chat/completions", &ask("x")).replace("application/json", "text/plain");
    assert_eq!(stage.send(&form).0, 415);
    let locked = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    assert_eq!(locked.get("/v1/models").0, 401);
    let (host, path) = (locked.address, "GET /v1/models HTTP/1.1\r\nConnection: close\r\n");
    assert_eq!(locked.send(&format!("{path}Host: {host}\r\nAuthorization: Bearer sesame\r\n\r\n")).0, 200);
    assert_eq!(locked.send(&format!("{path}Host: {host}\r\nAuthorization: Bearer Sesame\r\n\r\n")).0, 401);
}
