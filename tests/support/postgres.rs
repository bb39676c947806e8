//! A PostgreSQL server of a test's own, with pgvector.

use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Far longer than it takes to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// The version of pgserver, whose files are kept between tests.
const VERSION: &str = "0.1.4";

/// The user that runs the server if the tests run as root, which PostgreSQL refuses.
const NOBODY: u32 = 65534;

/// A server that is reached through a socket in its folder. It is stopped when dropped.
pub(crate) struct PostgresServer {
    folder: PathBuf,
    /// The folder, if it is the server's own.
    _own: Option<TempDir>,
    programs: PathBuf,
    /// Whether it waits for the disk, as production servers do.
    is_durable: bool,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts an empty server.
    pub(crate) fn start() -> PostgresServer {
        let own = TempDir::new().unwrap();
        PostgresServer::start_as(own.path().to_owned(), Some(own), false)
    }

    /// Starts an empty server that waits for the disk, as production servers do.
    #[allow(dead_code)]
    pub(crate) fn start_durable() -> PostgresServer {
        let own = TempDir::new().unwrap();
        PostgresServer::start_as(own.path().to_owned(), Some(own), true)
    }

    /// Starts an empty server in a new folder.
    #[allow(dead_code)]
    pub(crate) fn start_in(folder: PathBuf) -> PostgresServer {
        fs::create_dir(&folder).unwrap();
        PostgresServer::start_as(folder, None, false)
    }

    fn start_as(folder: PathBuf, own: Option<TempDir>, is_durable: bool) -> PostgresServer {
        let programs = programs();
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let mut server = PostgresServer { folder, _own: own, programs, is_durable, process: None };
        server.make_data();
        server.resume();
        server
    }

    /// Creates its data folder: a copy of one created by the first test, which is faster than creating another.
    fn make_data(&self) {
        let user = fs::metadata(&self.folder).unwrap().uid();
        let template = env::temp_dir().join(format!("hone-test-postgres-{VERSION}-data-of-{user}"));
        if !template.exists() {
            let mut command = self.command("initdb");
            command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
            let made = command.arg("--wal-segsize=1").arg("-D").arg(self.data()).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            // Another test may have been faster.
            let _ = fs::rename(self.data(), &template);
            let _ = fs::remove_dir_all(self.data());
        }
        let mut copy = Command::new("cp");
        as_nobody_if_root(copy.arg("-R").arg(&template).arg(self.data()));
        assert!(copy.status().unwrap().success());
    }

    /// The address of a database for a role.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@localhost/{database}?host={}", self.folder.display())
    }

    /// The socket at which it listens.
    #[allow(dead_code)]
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// The address of the default database, for the superuser.
    pub(crate) fn own_url(&self) -> String {
        self.url("postgres", "postgres")
    }

    /// Restarts it with its data.
    pub(crate) fn resume(&mut self) {
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        let mut command = self.command("postgres");
        let durability = if self.is_durable { "fsync=on" } else { "fsync=off" };
        for setting in ["listen_addresses=", durability, "shared_buffers=16MB", "max_connections=50"] {
            command.args(["-c", setting]);
        }
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        self.process = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while !self.is_ready() {
            assert!(Instant::now() < until, "the PostgreSQL server is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Executes SQL as the superuser, and returns the output, a row per line.
    #[allow(dead_code)]
    pub(crate) fn sql(&self, sql: &str) -> String {
        let Output { status, stdout, stderr } = self.psql("postgres", sql);
        assert!(status.success(), "{sql}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap().trim_end().to_owned()
    }

    /// Executes SQL as a role.
    #[allow(dead_code)]
    pub(crate) fn psql(&self, role: &str, sql: &str) -> Output {
        let mut command = self.command("psql");
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-U", role, "-c", sql, "-h"]);
        command.arg(&self.folder).output().unwrap()
    }

    /// Sends a signal to it and all its processes.
    #[allow(dead_code)]
    pub(crate) fn signal(&self, name: &str) {
        let parent = self.process.as_ref().unwrap().id().to_string();
        let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap().stdout;
        let children = String::from_utf8(children).unwrap();
        let all = children.split_whitespace().chain([parent.as_str()]);
        let killed = Command::new("kill").arg(format!("-{name}")).args(all).status();
        assert!(killed.unwrap().success());
    }

    /// Ends it at once, as a crash would; acknowledged data is there when it starts again.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An immediate shutdown, which also ends its other processes; a suspended server is resumed for it.
            for signal in ["-CONT", "-QUIT"] {
                assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
            }
            process.wait().unwrap();
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Reads the state from the eighth line of the server's file.
    fn is_ready(&self) -> bool {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        file.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join("bin").join(program));
        command.current_dir(&self.folder);
        as_nobody_if_root(&mut command);
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn as_nobody_if_root(command: &mut Command) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// The folder of PostgreSQL's programs; a copy of it if the server's user cannot read the tests' own.
fn programs() -> PathBuf {
    let root = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join("target/test-tools");
    let packages = env::var_os("HONE_TEST_TOOLS").map_or_else(root, PathBuf::from).join("python/lib");
    let versions = fs::read_dir(&packages).unwrap_or_else(|error| panic!("{}: {error}", packages.display()));
    let of_version = |version: fs::DirEntry| version.path().join("site-packages/pgserver/pginstall");
    let programs = versions.flatten().map(of_version).find(|programs| programs.is_dir());
    let programs = programs.unwrap_or_else(|| panic!("pgserver is not in {}", packages.display()));
    if can_run(&programs) { programs } else { copy_for_everybody(&programs) }
}

fn can_run(programs: &Path) -> bool {
    let mut command = Command::new(programs.join("bin/postgres"));
    as_nobody_if_root(command.arg("--version").stdout(Stdio::null()));
    command.status().is_ok_and(|status| status.success())
}

fn copy_for_everybody(programs: &Path) -> PathBuf {
    let copy = env::temp_dir().join(format!("hone-test-postgres-{VERSION}"));
    if !copy.exists() {
        let folder = TempDir::new().unwrap();
        let copied = Command::new("cp").arg("-R").arg(programs).arg(folder.path().join("copy")).status();
        assert!(copied.unwrap().success());
        // Another test may have been faster.
        let _ = fs::rename(folder.path().join("copy"), &copy);
    }
    copy
}
