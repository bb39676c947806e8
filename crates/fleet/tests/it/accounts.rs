//! Accounts that do not see each other's work, and encrypted connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hone_fleet::{BusSettings, Fleet, FleetError, Requests, Urgency, Work, WorkerState};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::nats::NatsServer;
use crate::{ask, finish, message, next, results, route, settings};

/// An operator of a NATS server as `nsc` makes one: it signs accounts, which sign their users.
struct Operator {
    key: KeyPair,
    folder: TempDir,
}

impl Operator {
    fn new() -> Operator {
        Operator { key: KeyPair::new_operator(), folder: tempfile::tempdir().unwrap() }
    }

    /// A new account with streams: its public key, its token, and the file with the credentials of its user.
    fn account(&self, name: &str) -> (String, String, PathBuf) {
        self.account_within(name, &["mem_storage", "disk_storage", "streams", "consumer"])
    }

    fn account_within(&self, name: &str, more: &[&str]) -> (String, String, PathBuf) {
        let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
        let unlimited = ["subs", "data", "payload", "imports", "exports", "conn", "leaf"];
        let limits: serde_json::Map<String, Value> =
            unlimited.iter().chain(more).map(|name| ((*name).to_owned(), json!(-1))).collect();
        let of_account = token(&self.key, &account.public_key(), name, &json!({"type": "account", "limits": limits}));
        let limits = json!({"type": "user", "subs": -1, "data": -1, "payload": -1});
        let of_user = token(&account, &user.public_key(), name, &limits);
        let credentials = self.folder.path().join(format!("{name}.creds"));
        let seed = user.seed().unwrap();
        let content = format!(
            "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&credentials, content).unwrap();
        (account.public_key(), of_account, credentials)
    }

    /// A server with these accounts, and one of its own.
    fn server(&self, accounts: &[(&String, &String)]) -> NatsServer {
        let (system, of_system, _) = self.account_within("system", &[]);
        let of_operator = token(&self.key, &self.key.public_key(), "operator", &json!({"type": "operator"}));
        let known = accounts.iter().copied().chain([(&system, &of_system)]);
        let preloaded: String = known.map(|(key, token)| format!("  {key}: {token}\n")).collect();
        let content = format!(
            "operator: {of_operator}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n{preloaded}}}\n"
        );
        let path = self.folder.path().join("server.conf");
        fs::write(&path, content).unwrap();
        NatsServer::start_with(&["--config", path.to_str().unwrap()])
    }
}

/// A token of NATS (<https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt>) about `subject`.
fn token(issuer: &KeyPair, subject: &str, name: &str, claims: &Value) -> String {
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut about = claims.clone();
    about["version"] = json!(2);
    let header = encoded(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let claims = encoded(&json!({
        "jti": format!("{name}-{at}"), "iat": at, "iss": issuer.public_key(), "sub": subject, "name": name, "nats": about,
    }));
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn login(server: &NatsServer, credentials: &Path) -> Result<Fleet, FleetError> {
    Fleet::connect(&BusSettings { credentials: credentials.to_owned(), ..settings(server.url()) }, "test")
}

#[test]
fn no_account_sees_the_work_of_another() {
    let operator = Operator::new();
    let (red, of_red, as_red) = operator.account("red");
    let (blue, of_blue, as_blue) = operator.account("blue");
    let server = operator.server(&[(&red, &of_red), (&blue, &of_blue)]);
    let (asking, working, other) =
        (login(&server, &as_red).unwrap(), login(&server, &as_red).unwrap(), login(&server, &as_blue).unwrap());
    let requests = Requests::begin(&asking, route());
    // A worker of another account is there first, and takes nothing.
    let work_of_other = Work::<hone_protocol::Envelope>::begin(&other, route(), 4).unwrap();
    let requests_of_other = Requests::begin(&other, route());
    ask(&requests, 1..=3);
    let work = Work::begin(&working, route(), 4).unwrap();
    working.tell(&WorkerState { name: "red".to_owned(), ..WorkerState::default() }).unwrap();
    (0..3).for_each(|_| finish(next(work.jobs())));
    assert_eq!(results(&requests, 3), [101, 102, 103]);
    requests.ask(&message(4), Urgency::Now).unwrap();
    next(work.jobs()).fail("no judge");
    assert!(work_of_other.jobs().is_empty() && requests_of_other.results().is_empty());
    assert_eq!((asking.processes().unwrap().len(), other.processes().unwrap().len()), (1, 0));
    assert_eq!((asking.queues().unwrap().open, other.queues().unwrap().open), (1, 0));
    // Credentials from another operator are refused, and so is a connection without any.
    let stranger = Operator::new();
    let (_, _, strange) = stranger.account("red");
    for refused in [login(&server, &strange), Fleet::connect(&settings(server.url()), "test")] {
        let error = refused.err().expect("it is refused").to_string();
        assert!(error.to_lowercase().contains("authorization violation"), "{error}");
    }
    let missing = operator.folder.path().join("missing.creds");
    assert!(login(&server, &missing).err().unwrap().to_string().contains("missing.creds"));
}

#[test]
fn nothing_is_said_to_a_server_without_tls_where_it_is_wanted_or_to_one_that_nobody_vouches_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: String| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let authority = file("authority.pem", authority.pem());
    let (certificate, key) = (file("server.pem", certificate.pem()), file("server.key", key.serialize_pem()));
    let server = NatsServer::start_with(&[
        "--tls",
        "--tlscert",
        certificate.to_str().unwrap(),
        "--tlskey",
        key.to_str().unwrap(),
    ]);
    let secured = server.url().replace("nats://", "tls://");
    let connected =
        |url: String, authority: PathBuf| Fleet::connect(&BusSettings { authority, ..settings(url) }, "test");
    for url in [secured.clone(), server.url()] {
        let fleet = connected(url, authority.clone()).unwrap();
        assert_eq!(fleet.queues().unwrap().open, 0);
    }
    // It is not waited for: a certificate does not become valid.
    let unknown = connected(secured, PathBuf::new()).err().expect("nobody vouches for the server");
    assert!(matches!(&unknown, FleetError::Connection { reason, .. } if reason.contains("UnknownIssuer")), "{unknown}");
    let plain = NatsServer::start();
    let refused = connected(plain.url().replace("nats://", "tls://"), authority).err().expect("it speaks no TLS");
    assert!(refused.to_string().contains(&plain.url().replace("nats://", "")), "{refused}");
}
