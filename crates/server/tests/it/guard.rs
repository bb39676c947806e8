//! Which requests are accepted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hone_app::config::{KeyHash, ServerSettings};

use crate::stage::{PATIENCE, Stage, ask, echo, settings};

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
    let curl = |headers: &str| {
        let form = stage.post_text("/v1/chat/completions", &ask("x"));
        let form = form.replace("Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded");
        stage.send(&form.replacen("\r\n", &format!("\r\n{headers}"), 1)).0
    };
    assert_eq!(curl("User-Agent: curl/8.11.1\r\n"), 200);
    assert_eq!(curl("Sec-Fetch-Site: same-origin\r\n"), 415);
    assert_eq!(curl(&format!("Referer: http://localhost:{port}/\r\n")), 415);
    let locked = Stage::start(ServerSettings { keys: vec![KeyHash::of("sesame")], ..settings() }, echo);
    assert_eq!(locked.get("/v1/models").0, 401);
    let (host, path) = (locked.address, "GET /v1/models HTTP/1.1\r\nConnection: close\r\n");
    assert_eq!(locked.send(&format!("{path}Host: {host}\r\nAuthorization: Bearer sesame\r\n\r\n")).0, 200);
    assert_eq!(locked.send(&format!("{path}Host: {host}\r\nAuthorization: Bearer Sesame\r\n\r\n")).0, 401);
    for right in [
        "Authorization: bearer sesame",
        "Authorization: BEARER  sesame",
        "Authorization: Bearer ollama\r\nx-api-key: sesame",
    ] {
        assert_eq!(locked.send(&format!("{path}Host: {host}\r\n{right}\r\n\r\n")).0, 200, "{right}");
    }
    for wrong in
        ["Authorization: Basic sesame", "Authorization: sesame", "Authorization: Bearer ollama\r\nx-api-key: x"]
    {
        assert_eq!(locked.send(&format!("{path}Host: {host}\r\n{wrong}\r\n\r\n")).0, 401, "{wrong}");
    }
}

/// A tunnel (`ssh -L`) or a container forwards another port to the server's.
#[test]
fn a_forwarded_port_is_served() {
    let stage = Stage::start(settings(), echo);
    let port = stage.address.port();
    let other = port ^ 1;
    let status =
        |headers: &str| stage.send(&format!("GET /v1/models HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).0;
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(status(&format!("Host: {host}\r\n")), 200, "{host}");
        assert_eq!(status(&format!("Host: {host}:{other}\r\n")), 200, "{host}");
        let page = format!("Host: {host}:{other}\r\nOrigin: http://{host}:{other}\r\nSec-Fetch-Site: same-origin\r\n");
        assert_eq!(status(&page), 200, "{host}");
        let elsewhere = format!("Host: {host}:{port}\r\nOrigin: http://{host}:{other}\r\n");
        assert_eq!(status(&elsewhere), 403, "{host}");
    }
    assert_eq!(status(&format!("Host: evil.example:{other}\r\n")), 403);
}

/// Sends bytes and returns the status of the answer; `None` if the connection is closed without one.
fn status_of(address: SocketAddr, request: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses the head need not read all of it.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).map(|status| status.parse().unwrap())
}

/// The statuses of requests to read and to ask, as a page could send them.
fn statuses(address: SocketAddr, target: &str, headers: &[u8]) -> [Option<u16>; 2] {
    let body = ask("foreign").to_string();
    let length = body.len();
    let request = |line: String, rest: String| {
        [line.as_bytes(), b" HTTP/1.1\r\nConnection: close\r\n", headers, rest.as_bytes()].concat()
    };
    let kind = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    [
        status_of(address, &request(format!("GET {target}/v1/models"), "\r\n".to_owned())),
        status_of(address, &request(format!("POST {target}/v1/chat/completions"), kind)),
    ]
}

/// Notations of a host that is not this server's.
fn foreign_hosts(port: u16) -> Vec<String> {
    let foreign = [
        "evil.example",
        "localhost.",
        "localhost.evil.example",
        "evil.localhost",
        "user@localhost",
        "user:password@localhost",
        "localhost:80",
        "[localhost]",
        "local\thost",
        "localhost,evil.example",
        "localhost evil.example",
        "http://localhost",
        "xn--localhost-",
        "ｌｏｃａｌｈｏｓｔ",
        "loсalhost",
        "127.0.0.1.",
        "127.0.0.1.nip.io",
        "127-0-0-1.nip.io",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.01",
        "127.0.0.1%00",
        "127.0.0.256",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::0001]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1%lo]",
        "[::1",
        "::1",
        "[fe80::1]",
        "[]",
        "",
    ];
    let long = "a".repeat(10_000);
    let mut hosts: Vec<String> = foreign.iter().map(|host| format!("{host}:{port}")).collect();
    hosts.extend([format!("{long}:{port}"), format!("localhost.{long}:{port}"), format!("evil.example:80:{port}")]);
    hosts.extend(["evil.example", "", "localhost:", "localhost:0", "localhost:65536"].map(str::to_owned));
    hosts.extend([
        format!("localhost:0{port}"),
        format!("localhost:+{port}"),
        format!("localhost:{port}/"),
        format!("localhost:{port}#"),
    ]);
    hosts.extend([format!("localhost:{port}, localhost:{port}"), format!("\"localhost:{port}\"")]);
    hosts
}

/// Whatever a page makes its browser send, a request for a foreign name, from a foreign page or to a foreign address is
/// refused before any work is done for it.
#[test]
fn no_form_of_a_foreign_host_or_origin_gets_through() {
    let stage = Stage::start(settings(), echo);
    let (address, port) = (stage.address, stage.address.port());
    let own = format!("Host: localhost:{port}\r\n");
    let check = |target: &str, headers: &[u8]| {
        for status in statuses(address, target, headers) {
            let shown = String::from_utf8_lossy(headers).chars().take(200).collect::<String>();
            assert!(matches!(status, None | Some(400 | 403 | 404 | 431)), "{target} {shown:?}: {status:?}");
        }
    };
    let hosts = foreign_hosts(port);
    for host in &hosts {
        check("", format!("Host: {host}\r\n").as_bytes());
        check("", format!("{own}Origin: http://{host}\r\n").as_bytes());
        check("", format!("{own}Host: {host}\r\n").as_bytes());
        check("", format!("Host: {host}\r\n{own}").as_bytes());
    }
    let origins = [
        "null",
        "",
        "file://",
        "*",
        "http://",
        "https:",
        "localhost",
        "data:text/html,x",
        "chrome-extension://abc",
        "//",
    ];
    for origin in origins {
        check("", format!("{own}Origin: {origin}\r\n").as_bytes());
    }
    let at_own = |text: &str| format!("{own}Origin: {text}localhost:{port}\r\n");
    for scheme in
        ["", "//", "ftp://", "ws://", "http:/", "http:", "http:///", "http://evil.example@", "http://evil.example/"]
    {
        check("", at_own(scheme).as_bytes());
    }
    check("", format!("{}Origin: http://evil.example\r\n", at_own("http://")).as_bytes());
    let whole: [&[u8]; 8] = [
        b"",
        b"Host\r\n",
        b"Host:\r\n",
        b"Host : localhost\r\n",
        b"X-Forwarded-Host: localhost\r\n",
        b"Host: local\xffhost\r\n",
        b"Host: local\0host\r\n",
        b"Host: evil.example\r\n localhost\r\n",
    ];
    whole.iter().for_each(|headers| check("", headers));
    check("", format!("Host: localhost\r\n :{port}\r\n").as_bytes());
    check("", format!("Host:\r\n\tlocalhost:{port}\r\n").as_bytes());
    check("", format!(" {own}").as_bytes());
    check("", format!("{own}Sec-Fetch-Site: same-site\r\n").as_bytes());
    check("", format!("{own}Sec-Fetch-Site: same-origin, none\r\n").as_bytes());
    // Text after a # is not part of a target's host, and white space ends a target.
    for target in hosts.iter().filter(|host| !host.is_empty() && !host.contains(['\t', ' ', '#'])) {
        check(&format!("http://{target}"), own.as_bytes());
    }
    check(&format!("http://localhost:{port}"), b"Host: evil.example\r\n");
    assert_eq!(stage.model.requests().len(), 0, "nothing was asked");
}

/// Checks that every way to ask for this server by a name of its own is let in.
#[track_caller]
fn check_own_names(stage: &Stage) {
    let (address, port) = (stage.address, stage.address.port());
    let check = |target: &str, headers: &str| {
        assert_eq!(statuses(address, target, headers.as_bytes()), [Some(200); 2], "{target} {headers:?}");
    };
    let names = ["localhost", "LocalHost", "127.0.0.1", "127.0.0.2", "[::1]"].map(|name| format!("{name}:{port}"));
    for host in &names {
        for origin in names.iter().filter(|name| !name.contains("Host")) {
            check("", &format!("Host: {host}\r\nOrigin: http://{origin}\r\n"));
        }
        check("", &format!("host:{host} \t\r\n"));
        check("", &format!("HOST:  {host}\r\nSec-Fetch-Site: same-origin\r\n"));
        check("", &format!("Host: {host}\r\nSec-Fetch-Site: none\r\n"));
        check(&format!("http://{host}"), &format!("Host: {host}\r\n"));
    }
}

#[test]
fn every_form_of_an_own_host_is_let_in() {
    check_own_names(&Stage::start(settings(), echo));
    let by_ipv6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0));
    match std::net::TcpListener::bind(by_ipv6) {
        Ok(_) => check_own_names(&Stage::start(ServerSettings { listen: by_ipv6, ..settings() }, echo)),
        Err(error) => eprintln!("LEFT OUT: this machine has no IPv6 ({error})"),
    }
}

/// A page may send any bytes as text or as a form, or without a content type; its browser then adds the page's origin.
#[test]
fn a_body_of_no_kind_is_taken_from_programs_alone() {
    let stage = Stage::start(settings(), echo);
    let port = stage.address.port();
    let status = |kind: &str, headers: &str| {
        let text = stage.post_text("/v1/chat/completions", &ask("x"));
        stage.send(&text.replace("Content-Type: application/json\r\n", &format!("{kind}{headers}"))).0
    };
    let (bytes, own) = ("Content-Type: application/octet-stream\r\n", format!("Origin: http://localhost:{port}\r\n"));
    // The type that `curl -d` sends; a form of a page has an origin.
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for kind in ["", bytes, form] {
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
    for kind in ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data", ""] {
        assert_eq!(status(&format!("Content-Type: {kind}\r\n"), ""), 415, "{kind:?}");
    }
    assert_eq!(status(&format!("{bytes}Content-Type: text/plain\r\n"), ""), 415);
    assert_eq!(status("Content-Type: Application/JSON; charset=utf-8\r\n", &own), 200);
}
