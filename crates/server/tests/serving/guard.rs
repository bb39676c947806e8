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

/// A page may send any bytes as text or as a form, or without saying what they are; its browser then says where it is from.
#[test]
fn a_body_of_no_kind_is_taken_from_programs_alone() {
    let stage = Stage::start(settings(), echo);
    let port = stage.address.port();
    let status = |kind: &str, headers: &str| {
        let text = stage.post_text("/v1/chat/completions", &ask("x"));
        stage.send(&text.replace("Content-Type: application/json\r\n", &format!("{kind}{headers}"))).0
    };
    let (bytes, own) = ("Content-Type: application/octet-stream\r\n", format!("Origin: http://localhost:{port}\r\n"));
    for kind in ["", bytes] {
        assert_eq!(status(kind, ""), 200, "{kind:?}");
        assert_eq!(status(kind, &own), 415, "{kind:?}");
        assert_eq!(status(kind, "Origin: https://evil.example\r\n"), 403, "{kind:?}");
        assert_eq!(status(kind, "Origin: null\r\n"), 403, "{kind:?}");
        for site in ["none", "same-origin"] {
            assert_eq!(status(kind, &format!("Sec-Fetch-Site: {site}\r\n")), 415, "{kind:?}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(kind, &format!("Sec-Fetch-Site: {site}\r\n")), 403, "{kind:?}");
        }
    }
    for kind in
        ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data", ""]
    {
        assert_eq!(status(&format!("Content-Type: {kind}\r\n"), ""), 415, "{kind:?}");
    }
    assert_eq!(status(&format!("{bytes}Content-Type: text/plain\r\n"), ""), 415);
    assert_eq!(status("Content-Type: Application/JSON; charset=utf-8\r\n", &own), 200);
}
