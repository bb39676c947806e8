//! A NATS server of a test's own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Far longer than it takes to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with JetStream, at an address of its own. It is stopped when dropped.
pub(crate) struct NatsServer {
    folder: TempDir,
    port: String,
    options: Vec<String>,
    process: Option<Child>,
}

impl NatsServer {
    /// Starts an empty server.
    pub(crate) fn start() -> NatsServer {
        NatsServer::start_with(&[])
    }

    /// Starts an empty server with more options.
    pub(crate) fn start_with(options: &[&str]) -> NatsServer {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = NatsServer { folder: TempDir::new().unwrap(), port: "-1".to_owned(), options, process: None };
        server.resume();
        server
    }

    /// Its address, which stays the same.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Restarts it with its data.
    pub(crate) fn resume(&mut self) {
        let ports = self.folder.path().join("ports");
        let _ = fs::remove_dir_all(&ports);
        fs::create_dir(&ports).unwrap();
        let mut command = Command::new(program());
        command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &self.port, "--store_dir"]);
        command.arg(self.folder.path().join("data")).arg("--ports_file_dir").arg(&ports).args(&self.options);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(child.unwrap_or_else(|error| panic!("{}: {error}", program().display())));
        let until = Instant::now() + PATIENCE;
        self.port = loop {
            if let Some(port) = port_in(&ports) {
                break port;
            }
            assert!(Instant::now() < until, "the NATS server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        };
    }

    /// Removes its data, while it is stopped.
    #[allow(dead_code)]
    pub(crate) fn forget(&self) {
        fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }

    /// Sends it a signal.
    #[allow(dead_code)]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Shuts it down: all acknowledged data is there when it starts again, unlike after [`NatsServer::stop`].
    #[allow(dead_code)]
    pub(crate) fn shut_down(&mut self) {
        self.signal("INT");
        self.process.take().unwrap().wait().unwrap();
    }

    /// Kills it. Data that it acknowledged just before may be lost.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The port in the file that the server writes once it listens: `{"nats":["nats://127.0.0.1:PORT"]}`.
fn port_in(folder: &Path) -> Option<String> {
    let file = fs::read_dir(folder).ok()?.next()?.ok()?.path();
    let text = fs::read_to_string(file).ok()?;
    let digits = text.split("127.0.0.1:").nth(1)?.split('"').next()?;
    (!digits.is_empty() && text.contains('}')).then(|| digits.to_owned())
}

fn program() -> PathBuf {
    let root = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join("target/test-tools");
    env::var_os("HONE_TEST_TOOLS").map_or_else(root, PathBuf::from).join("python/bin/nats-server")
}
