//! A home of its own for the real binary, and the built-in model.

#[cfg(unix)]
pub(crate) mod nats;
#[cfg(unix)]
pub(crate) mod postgres;
#[cfg(unix)]
pub(crate) mod proxy;
pub(crate) mod served;
#[cfg(unix)]
pub(crate) mod small_disk;
pub(crate) mod terminal;

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Far longer than anything here takes, so that only a missing event reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A home that holds nothing at first.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Starts a program. A program that was just written is busy while a process started by another test still has its file
/// open.
fn started(mut command: Command) -> Child {
    wait_for("the program can be started", || match command.spawn() {
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
        child => Some(child.unwrap()),
    })
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until `look` finds something, and returns that.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_for_long(what, PATIENCE, look)
}

/// Like `wait_for`, for waits that take longer than [`PATIENCE`] on a slow machine.
#[track_caller]
pub(crate) fn wait_for_long<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    patiently(limit, look).unwrap_or_else(|| panic!("within {limit:?} it has not come about that {what}"))
}

/// Polls until `look` finds something; `None` after the time limit. Polling takes half of the time at most.
pub(crate) fn patiently<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + limit;
    loop {
        let begun = Instant::now();
        let found = look();
        if found.is_some() || begun > until {
            return found;
        }
        std::thread::sleep(begun.elapsed().max(Duration::from_millis(1)));
    }
}

impl Home {
    /// A home in which everything is as hone ships it. `HONE_TEST_INSTRUCTION_SET` names the instruction set that hone
    /// is limited to.
    pub(crate) fn new() -> Home {
        let limit = std::env::var("HONE_TEST_INSTRUCTION_SET").ok();
        let variables = limit.map(|limit| ("HONE_ENGINE_INSTRUCTION_SET", limit)).into_iter().collect();
        Home { folder: tempfile::tempdir().unwrap(), variables }
    }

    /// A home in which the generator grades, unexamined, because there is no judge.
    pub(crate) fn graded_by_the_generator() -> Home {
        Home::new().variable("HONE_JUDGE_EXAMINATION", "false").variable("HONE_JUDGE_FALLBACK", "generator")
    }

    pub(crate) fn variable(mut self, name: &'static str, value: &str) -> Home {
        self.variables.push((name, value.to_string()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("HONE_")) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env("HONE_HOME", self.path("data"))
            .env("HONE_CONFIG", self.path("config"))
            .env("HONE_OFFLINE", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run_program(&self, program: &Path, arguments: &[&str], stdin: &[u8]) -> Run {
        let mut child = started(self.command(program, arguments));
        // A command that does not read its stdin may have closed it already.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        let text =
            |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(self.folder.path().to_str().unwrap(), "~");
        Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with_stdin(arguments, b"")
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], stdin: &[u8]) -> Run {
        self.run_program(Path::new(env!("CARGO_BIN_EXE_hone")), arguments, stdin)
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.json_with_code(arguments, 0)
    }

    /// The JSON printed by a command that ends with this exit code.
    #[track_caller]
    pub(crate) fn json_with_code(&self, arguments: &[&str], code: i32) -> Value {
        let run = self.run(arguments);
        assert_eq!(run.code, code, "{}", run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }
}

/// The built-in model's file.
pub(crate) fn smollm2() -> String {
    test_model("SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// The embedding model's folder.
pub(crate) fn embedder() -> String {
    test_model("all-MiniLM-L6-v2")
}

fn test_model(name: &str) -> String {
    let default = || root().join("target/test-models");
    let folder = std::env::var_os("HONE_TEST_MODELS").map_or_else(default, PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: scripts/lib/fetch-test-models.sh fetches it", path.display());
    path.to_str().unwrap().to_owned()
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
