//! The tests, and their own small harness.

use std::fs;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hone_containment::{ContainedCommand, Ending, Launcher, Limits, Ran, worker};
use tempfile::TempDir;

const WORKER: &str = "command-worker";

type Test = (&'static str, fn(&Place));

const TESTS: &[Test] = &[
    ("a_command_that_ends_by_itself_is_reported", a_command_that_ends_by_itself_is_reported),
    ("a_missing_program_is_reported", a_missing_program_is_reported),
    ("a_signal_is_reported", a_signal_is_reported),
    ("a_report_is_read_and_a_link_in_its_place_is_not", a_report_is_read_and_a_link_in_its_place_is_not),
    (
        "only_the_named_environment_is_passed_and_stdin_is_empty",
        only_the_named_environment_is_passed_and_stdin_is_empty,
    ),
    ("a_process_bomb_is_ended", a_process_bomb_is_ended),
    ("endless_output_is_ended", endless_output_is_ended),
    ("a_grandchild_that_holds_the_pipe_delays_nothing", a_grandchild_that_holds_the_pipe_delays_nothing),
    ("a_session_of_its_own_is_no_escape", a_session_of_its_own_is_no_escape),
    ("nothing_outside_is_read", nothing_outside_is_read),
    ("nothing_outside_is_written", nothing_outside_is_written),
    ("no_socket_is_opened", no_socket_is_opened),
    ("ignoring_sigterm_does_not_help", ignoring_sigterm_does_not_help),
    ("a_disk_is_not_filled_by_one_file", a_disk_is_not_filled_by_one_file),
    ("a_disk_is_not_filled_by_many_files", a_disk_is_not_filled_by_many_files),
    ("memory_is_limited", memory_is_limited),
    ("a_cancelled_command_is_ended", a_cancelled_command_is_ended),
    ("nothing_outlives_a_killed_caller", nothing_outlives_a_killed_caller),
    #[cfg(target_os = "linux")]
    ("no_mode_time_owner_or_attribute_outside_is_changed", attributes::outside_stay),
    #[cfg(target_os = "linux")]
    ("modes_and_times_inside_can_be_changed", attributes::inside_change),
    #[cfg(target_os = "linux")]
    ("no_program_with_the_rights_of_its_owner_is_made", attributes::no_set_user_id),
    #[cfg(target_os = "linux")]
    ("the_command_lines_of_others_are_not_read", others_are_invisible),
    #[cfg(target_os = "linux")]
    ("no_namespace_is_made_in_any_way", no_namespace_is_made),
    #[cfg(target_os = "linux")]
    ("no_descriptor_of_the_caller_is_inherited", no_descriptor_is_inherited),
    #[cfg(target_os = "linux")]
    ("memory_without_an_owner_is_limited", ownerless_memory_is_limited),
    #[cfg(target_os = "linux")]
    ("space_is_not_reserved_beyond_the_limit", no_space_is_reserved),
    ("what_tools_run_by_themselves_stays_as_it_is", self_running_stays),
    ("new_files_that_tools_run_by_themselves_are_set_aside", self_running_is_set_aside),
];

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(WORKER) => return worker::serve().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Some("connect") => return connect(&arguments[1]),
        Some("allocate") => return allocate(),
        Some("call") => return call(&arguments[1]),
        #[cfg(target_os = "linux")]
        Some("change") => return attributes::change(Path::new(&arguments[1])),
        #[cfg(target_os = "linux")]
        Some("share") => return share(),
        _ => {}
    }
    let selection = Selection::of(arguments);
    let mut failed = Vec::new();
    for uses_namespaces in [true, false] {
        for (name, test) in TESTS {
            let name = format!("{name}{}", if uses_namespaces { "" } else { " (without namespaces)" });
            if !selection.has(&name) {
                continue;
            }
            if selection.is_list {
                println!("{name}: test");
                continue;
            }
            let passed = catch_unwind(AssertUnwindSafe(|| test(&Place::new(uses_namespaces)))).is_ok();
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
            if !passed {
                failed.push(name);
            }
        }
    }
    if !selection.is_list {
        println!("{} failed: {failed:?}", failed.len());
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests that `cargo test` or `cargo nextest` asks for, with the arguments of the standard test harness.
#[derive(Default)]
struct Selection {
    names: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    is_list: bool,
    /// No test is ignored, so there is none to run.
    is_ignored: bool,
}

impl Selection {
    fn of(arguments: Vec<String>) -> Self {
        let mut selection = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => selection.is_list = true,
                "--exact" => selection.is_exact = true,
                "--ignored" => selection.is_ignored = true,
                "--skip" => selection.skipped.extend(arguments.next()),
                "--format" | "--test-threads" => drop(arguments.next()),
                option if option.starts_with('-') => {}
                _ => selection.names.push(argument),
            }
        }
        selection
    }

    fn has(&self, name: &str) -> bool {
        let is_meant = |text: &String| if self.is_exact { name == text } else { name.contains(text) };
        !self.is_ignored
            && (self.names.is_empty() || self.names.iter().any(is_meant))
            && !self.skipped.iter().any(is_meant)
    }
}

/// A workspace, and a folder outside.
struct Place {
    folder: TempDir,
    launcher: Launcher,
}

impl Place {
    fn new(uses_namespaces: bool) -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["workspace", "outside"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let launcher = Launcher { program: this_program(), arguments: vec![WORKER.into()], uses_namespaces };
        Place { folder, launcher }
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn command(&self, argv: &[&str]) -> ContainedCommand {
        ContainedCommand {
            argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
            workspace: self.workspace(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            readable: vec![this_program()],
            limits: Limits { seconds: 20.0, ..Limits::default() },
        }
    }

    fn shell(&self, script: &str) -> ContainedCommand {
        self.command(&["/bin/sh", "-c", script])
    }

    fn run(&self, command: &ContainedCommand) -> Ran {
        self.launcher.run(command, &|| false).unwrap()
    }

    /// Whether files are contained here; prints a warning if not.
    fn contains_files(&self, ran: &Ran) -> bool {
        let missing = ran.containment.missing.iter().find(|missing| missing.starts_with("files"));
        if let Some(missing) = missing {
            println!("NOT CHECKED on this system: {missing}");
        }
        missing.is_none()
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Running processes whose command line holds `mark`, which no other process here has.
fn running(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some(String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).replace('\0', " "))
    });
    lines.filter(|line| line.contains(mark) && !line.contains(WORKER)).collect()
}

/// The promised time within which processes that a command has left behind are gone after it was ended.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// How long a command may take to start: half as long as [`unique_sleep`] lasts, so that nothing ends by itself.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

#[track_caller]
fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not happen within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn assert_gone(mark: &str) {
    wait_until("the end of all processes", GONE_WITHIN, || running(mark).is_empty());
}

/// A number of seconds that no other `sleep` has.
fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("61.{:06}{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn a_command_that_ends_by_itself_is_reported(place: &Place) {
    let ran = place.run(&place.shell("echo out; echo error >&2; echo kept > file; exit 3"));
    assert_eq!(ran.ending, Ending::Exited(3));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "error\n"));
    assert_eq!(fs::read_to_string(place.workspace().join("file")).unwrap(), "kept\n");
    let can_reach_others = ran.containment.missing.iter().any(|missing| missing.starts_with("processes"));
    assert!(!can_reach_others || !place.launcher.uses_namespaces, "{}", ran.containment);
}

fn a_missing_program_is_reported(place: &Place) {
    let ran = place.run(&place.command(&["/nowhere/at-all"]));
    assert!(matches!(ran.ending, Ending::NotStarted(_)), "{:?}", ran.ending);
}

fn a_signal_is_reported(place: &Place) {
    assert_eq!(place.run(&place.shell("kill -SEGV $$")).ending, Ending::Signalled(11));
}

fn a_report_is_read_and_a_link_in_its_place_is_not(place: &Place) {
    let ran = place.run(&place.command(&["/bin/sh", "-c", "echo found > $1", "sh", "{report}"]));
    assert_eq!(ran.report.as_deref(), Some("found\n"), "{ran:?}");
    let secret = place.outside().join("secret");
    fs::write(&secret, "secret").unwrap();
    let ran = place.run(&place.command(&["/bin/sh", "-c", "ln -s $2 $1", "sh", "{report}", secret.to_str().unwrap()]));
    assert_eq!(ran.report, None);
}

fn only_the_named_environment_is_passed_and_stdin_is_empty(place: &Place) {
    let ran = place.run(&place.shell("env; echo \"read: $(cat)\""));
    let mut names: Vec<&str> = ran.stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH", "TMPDIR"], "{}", ran.stdout);
    assert!(ran.stdout.ends_with("read: \n"), "{}", ran.stdout);
}

/// Bounded: 300 processes if nothing ends it.
fn a_process_bomb_is_ended(place: &Place) {
    let mark = unique_sleep();
    let mut command = place.shell(&format!("i=0; while [ $i -lt 300 ]; do sleep {mark} & i=$((i+1)); done; wait"));
    command.limits.processes = 40;
    let began = Instant::now();
    let ran = place.run(&command);
    // A user's own limit of processes may stop the shell before the supervisor does.
    let is_ended = ran.ending == Ending::TooManyProcesses || ran.stderr.contains("fork");
    assert!(is_ended, "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_gone(&mark);
}

fn endless_output_is_ended(place: &Place) {
    let mut command = place.shell("head -c 1000000000 /dev/zero");
    command.limits.output_bytes = 1 << 20;
    let ran = place.run(&command);
    assert_eq!(ran.ending, Ending::TooMuchOutput);
    assert_eq!(ran.stdout.len(), 1 << 20);
    assert!(ran.seconds < 2.0, "{}", ran.seconds);
}

fn a_grandchild_that_holds_the_pipe_delays_nothing(place: &Place) {
    let mark = unique_sleep();
    let ran = place.run(&place.shell(&format!("sleep {mark} & echo done")));
    assert_eq!((ran.ending.clone(), ran.stdout.as_str()), (Ending::Exited(0), "done\n"), "{ran:?}");
    assert!(ran.seconds < 2.0, "{}", ran.seconds);
    assert_gone(&mark);
}

fn a_session_of_its_own_is_no_escape(place: &Place) {
    let mark = unique_sleep();
    let inner = format!("echo > escaped; exec sleep {mark}");
    let outer = format!("(setsid sh -c \"{inner}\" &) ; sleep {mark}");
    let script = format!("(setsid sh -c '{outer}' &) ; until [ -e escaped ]; do sleep 0.01; done; echo started");
    let ran = place.run(&place.shell(&script));
    assert_eq!(ran.stdout, "started\n", "{ran:?}");
    assert_gone(&mark);
}

fn nothing_outside_is_read(place: &Place) {
    let secret = place.outside().join("secret");
    fs::write(&secret, "the secret").unwrap();
    std::os::unix::fs::symlink(&secret, place.workspace().join("link")).unwrap();
    fs::hard_link(&secret, place.outside().join("other")).unwrap();
    let script = "cat $1; cat link; cat ../outside/secret; ls ..; cat /proc/1/environ; ln $1 hard && cat hard; true";
    let ran = place.run(&place.command(&["/bin/sh", "-c", script, "sh", secret.to_str().unwrap()]));
    assert_eq!(ran.ending, Ending::Exited(0));
    if place.contains_files(&ran) {
        assert!(ran.stdout.is_empty(), "it has read {:?}", ran.stdout);
    }
}

fn nothing_outside_is_written(place: &Place) {
    let victim = place.outside().join("victim");
    fs::write(&victim, "untouched").unwrap();
    // A system that does not contain files has left it behind.
    let _ = fs::remove_file("/tmp/hone-written-outside");
    std::os::unix::fs::symlink(place.outside(), place.workspace().join("way")).unwrap();
    let script = "echo x > $1; echo x > way/new; mv own way/own; ln -s $1 l; echo x > l; rm $1; chmod 777 way; mkdir way/d; \
                  head -c 0 > /tmp/hone-written-outside; true";
    fs::write(place.workspace().join("own"), "own").unwrap();
    let ran = place.run(&place.command(&["/bin/sh", "-c", script, "sh", victim.to_str().unwrap()]));
    if place.contains_files(&ran) {
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        let outside: Vec<_> = fs::read_dir(place.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(outside, ["victim"]);
        assert!(!Path::new("/tmp/hone-written-outside").exists());
    }
}

fn no_socket_is_opened(place: &Place) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let ran = place.run(&place.command(&[this_program().to_str().unwrap(), "connect", &port]));
    if cfg!(target_os = "linux") {
        assert_eq!(ran.ending, Ending::Exited(0), "{ran:?}");
        assert!(listener.accept().is_err(), "it has connected");
    }
}

/// Tries every kind of socket; fails if one can be opened.
fn connect(port: &str) -> ExitCode {
    let tcp = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
    let bound = TcpListener::bind("127.0.0.1:0").is_ok();
    let local = std::os::unix::net::UnixListener::bind("socket").is_ok();
    println!("tcp {tcp} udp {udp} bound {bound} local {local}");
    let pair = std::os::unix::net::UnixStream::pair().is_ok();
    if tcp || udp || bound || local || !pair { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn ignoring_sigterm_does_not_help(place: &Place) {
    let mark = unique_sleep();
    let mut command = place.shell(&format!("trap '' TERM INT HUP; echo waiting; sleep {mark}; sleep {mark}"));
    command.limits.seconds = 0.5;
    let ran = place.run(&command);
    assert_eq!((ran.ending, ran.stdout.as_str()), (Ending::TooLong, "waiting\n"));
    assert!(ran.seconds < 1.5, "{}", ran.seconds);
    assert_gone(&mark);
}

fn a_disk_is_not_filled_by_one_file(place: &Place) {
    let mut command = place.shell("head -c 50000000 /dev/zero > large");
    command.limits.file_bytes = 1 << 20;
    let ran = place.run(&command);
    assert_ne!(ran.ending, Ending::Exited(0));
    assert!(fs::metadata(place.workspace().join("large")).unwrap().len() <= 1 << 20);
}

/// Bounded: 200 MB if nothing ends it.
fn a_disk_is_not_filled_by_many_files(place: &Place) {
    let mut command = place.shell("i=0; while [ $i -lt 200 ]; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done");
    command.limits.disk_bytes = 20_000_000;
    let ran = place.run(&command);
    if cfg!(target_os = "linux") {
        assert_eq!(ran.ending, Ending::TooMuchWritten, "{ran:?}");
    }
}

fn memory_is_limited(place: &Place) {
    let mut command = place.command(&[this_program().to_str().unwrap(), "allocate"]);
    command.limits.memory_bytes = 100 << 20;
    let ran = place.run(&command);
    if cfg!(target_os = "linux") {
        assert_eq!(ran.ending, Ending::TooMuchMemory, "{ran:?}");
    }
}

/// Bounded: 800 MiB if nothing ends it.
fn allocate() -> ExitCode {
    let mut kept = Vec::new();
    for _ in 0..80 {
        kept.push(vec![1u8; 10 << 20]);
        // Slow enough to be seen at work.
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{}", kept.len());
    ExitCode::SUCCESS
}

/// Bounded: 500 MiB if nothing ends it. The memory is shared, and no process has it resident.
#[cfg(target_os = "linux")]
fn share() -> ExitCode {
    if let Ok(file) = rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::empty()) {
        println!("held {file:?}");
        return ExitCode::FAILURE;
    }
    let path = Path::new("/dev/shm/hone-held");
    if fs::write(path, "x").is_ok() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(target_os = "linux")]
fn ownerless_memory_is_limited(place: &Place) {
    let ran = place.run(&place.command(&[this_program().to_str().unwrap(), "share"]));
    assert_eq!(ran.ending, Ending::Exited(0), "{ran:?}");
}

#[cfg(target_os = "linux")]
fn no_space_is_reserved(place: &Place) {
    let mut command = place.shell("for i in 1 2 3 4; do fallocate -l 30M f$i; fallocate -n -l 30M f$i; done; true");
    command.limits.disk_bytes = 40 << 20;
    place.run(&command);
    use std::os::unix::fs::MetadataExt;
    let sizes = fs::read_dir(place.workspace()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512);
    assert!(sizes.sum::<u64>() <= 40 << 20);
}

#[cfg(target_os = "linux")]
fn others_are_invisible(place: &Place) {
    let mark = unique_sleep();
    let mut other = std::process::Command::new("sleep").arg(&mark).spawn().unwrap();
    let script = "for f in /proc/[0-9]*/cmdline /proc/[0-9]*/comm /proc/[0-9]*/status; do cat $f; done; \
                  head -c 1 /proc/meminfo";
    let ran = place.run(&place.shell(script));
    other.kill().unwrap();
    other.wait().unwrap();
    if place.contains_files(&ran) {
        assert!(!ran.stdout.contains(&mark), "{ran:?}");
        assert!(ran.stdout.ends_with('M'), "{ran:?}");
    }
}

/// With `unshare`, `clone` and `clone3`, which a program can call without a library that knows them.
#[cfg(target_os = "linux")]
fn no_namespace_is_made(place: &Place) {
    const SCRIPT: &str = "\
import ctypes, os, platform, struct
call = ctypes.CDLL(None).syscall
clone, clone3 = {'x86_64': (56, 435), 'aarch64': (220, 435)}[platform.machine()]
flags = {'user': 1 << 28, 'pid': 1 << 29, 'net': 1 << 30, 'mount': 1 << 17, 'ipc': 1 << 27, 'uts': 1 << 26, 'cgroup': 1 << 25}
END_SIGNAL = 17
for name, flag in flags.items():
    wide = struct.pack('11Q', flag, 0, 0, 0, END_SIGNAL, 0, 0, 0, 0, 0, 0)
    for how, number, arguments in (('clone', clone, (flag | END_SIGNAL, 0, 0, 0, 0)), ('clone3', clone3, (wide, len(wide)))):
        child = call(number, *arguments)
        if child == 0:
            os._exit(0)
        if child > 0:
            print(how, 'made', name)
    if ctypes.CDLL(None).unshare(flag) == 0:
        print('unshare made', name)
print('tried')
";
    let ran = place.run(&place.command(&["python3", "-c", SCRIPT]));
    if matches!(ran.ending, Ending::NotStarted(_)) {
        println!("LEFT OUT: needs python3");
        return;
    }
    assert_eq!(ran.stdout, "tried\n", "{ran:?}");
}

#[cfg(target_os = "linux")]
fn no_descriptor_is_inherited(place: &Place) {
    use std::os::fd::AsRawFd;
    let secret = place.outside().join("secret");
    fs::write(&secret, "the secret").unwrap();
    let open = fs::File::open(&secret).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    let ran = place.run(&place.shell(&format!("cat <&{}", open.as_raw_fd())));
    assert_eq!(ran.stdout, "", "{ran:?}");
}

/// A repository as git makes it, and other files that tools run by themselves.
fn with_self_running(workspace: &Path) {
    for folder in [".git/hooks", "sub/.git/hooks", "bare/objects", "bare/refs", "bare/hooks", "checks"] {
        fs::create_dir_all(workspace.join(folder)).unwrap();
    }
    fs::write(workspace.join(".git/config"), "[core]\n\thooksPath = checks\n").unwrap();
    for file in [".git/HEAD", "sub/.git/config", "bare/HEAD", "bare/config", ".envrc", "checks/pre-commit"] {
        fs::write(workspace.join(file), "as it was").unwrap();
    }
}

fn self_running_stays(place: &Place) {
    let workspace = place.workspace();
    with_self_running(&workspace);
    let script = "for f in .git/config sub/.git/config bare/config .envrc checks/pre-commit; do \
                  echo changed >> $f; rm -f $f; mv $f moved; echo other > other; mv -f other $f; done; \
                  echo x > .git/hooks/post-checkout; rm -rf sub/.git; mv .git elsewhere; rm -rf .git; \
                  mv sub below; chmod 777 .envrc; echo done > done";
    let ran = place.run(&place.shell(script));
    assert_eq!(fs::read_to_string(workspace.join("done")).unwrap(), "done\n", "{ran:?}");
    if ran.containment.missing.iter().any(|missing| missing.contains("tools run by themselves")) {
        assert!(!place.launcher.uses_namespaces || !cfg!(target_os = "linux"), "{}", ran.containment);
        return;
    }
    for file in ["below/.git/config", "bare/config", ".envrc", "checks/pre-commit"] {
        assert_eq!(fs::read_to_string(workspace.join(file)).unwrap(), "as it was", "{file}");
    }
    assert_eq!(fs::read_dir(workspace.join(".git/hooks")).unwrap().count(), 0);
    assert_eq!(ran.set_aside, Vec::<String>::new());
}

fn self_running_is_set_aside(place: &Place) {
    let workspace = place.workspace();
    let script = "mkdir -p .git/hooks a/b c/objects c/refs; echo x > .git/config; cp -r .git a/b/.GIT; echo x > a/.envrc; \
                  echo x > c/HEAD; echo x > plain; mkdir -p hidden/.vscode; chmod 0 hidden; chmod 500 a";
    let ran = place.run(&place.shell(script));
    for gone in [".git", "a/b/.GIT", "a/.envrc", "c/HEAD", "hidden/.vscode"] {
        assert!(workspace.join(gone).symlink_metadata().is_err(), "{gone} is there: {ran:?}");
    }
    assert_eq!(fs::read_to_string(workspace.join(".git.set-aside/config")).unwrap(), "x\n");
    assert_eq!(ran.set_aside.len(), 5, "{ran:?}");
    assert!(workspace.join("plain").exists());
}

#[cfg(target_os = "linux")]
mod attributes {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::fs::{
        AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chmodat, chown, chownat, fchmod, fchown,
        fremovexattr, fsetxattr, futimens, ioctl_setflags, lremovexattr, lsetxattr, setxattr, utimensat,
    };

    use super::*;

    /// Tries to change everything about a file except its contents; prints the changes that worked.
    pub(super) fn change(path: &Path) -> ExitCode {
        let file = fs::File::open(path).unwrap();
        let mode = Mode::from_raw_mode(0o777);
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: second, last_modification: second };
        let (user, group) = (Some(Uid::from_raw(rustix::process::getuid().as_raw())), None::<Gid>);
        let name = "user.hone";
        let outcomes = [
            ("chmod", chmod(path, mode)),
            ("fchmod", fchmod(&file, mode)),
            ("fchmodat", chmodat(CWD, path, mode, AtFlags::empty())),
            ("chown", chown(path, user, group)),
            ("fchown", fchown(&file, user, group)),
            ("fchownat", chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)),
            ("utimensat", utimensat(CWD, path, &times, AtFlags::empty())),
            ("futimens", futimens(&file, &times)),
            ("setxattr", setxattr(path, name, b"x", XattrFlags::empty())),
            ("lsetxattr", lsetxattr(path, name, b"x", XattrFlags::empty())),
            ("fsetxattr", fsetxattr(&file, name, b"x", XattrFlags::empty())),
            ("fremovexattr", fremovexattr(&file, name)),
            ("lremovexattr", lremovexattr(path, name)),
            ("setflags", ioctl_setflags(&file, rustix::fs::IFlags::NODUMP)),
        ];
        outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).for_each(|(what, _)| println!("{what}"));
        ExitCode::SUCCESS
    }

    pub(super) fn outside_stay(place: &Place) {
        let victim = place.outside().join("victim");
        fs::write(&victim, "untouched").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let before = victim.metadata().unwrap();
        let mut command = place.command(&[this_program().to_str().unwrap(), "change", victim.to_str().unwrap()]);
        command.readable.push(victim.clone());
        let ran = place.run(&command);
        assert_eq!((ran.ending, ran.stdout.as_str()), (Ending::Exited(0), ""));
        let after = victim.metadata().unwrap();
        assert_eq!((before.mode(), before.mtime(), before.ctime()), (after.mode(), after.mtime(), after.ctime()));
    }

    pub(super) fn inside_change(place: &Place) {
        let own = place.workspace().join("own");
        fs::write(&own, "own").unwrap();
        let ran = place.run(&place.command(&[this_program().to_str().unwrap(), "change", own.to_str().unwrap()]));
        let is_limited = ran.containment.missing.iter().any(|missing| missing.contains("tools run by themselves"));
        assert!(is_limited || ran.stdout.starts_with("chmod\nfchmod\nfchmodat\n"), "{ran:?}");
    }

    pub(super) fn no_set_user_id(place: &Place) {
        let script = "cp /bin/sh sh; chmod 4755 sh; chmod u+s sh; install -m 6755 /bin/sh other; mkdir -m 2777 d; true";
        place.run(&place.shell(script));
        for name in ["sh", "other"] {
            let mode = fs::metadata(place.workspace().join(name)).map_or(0, |metadata| metadata.mode());
            assert_eq!(mode & 0o6000, 0, "{name}: {mode:o}");
        }
    }
}

fn a_cancelled_command_is_ended(place: &Place) {
    let mark = unique_sleep();
    let is_running = || running(&mark).iter().any(|line| line.starts_with("sleep"));
    let ran = place.launcher.run(&place.shell(&format!("sleep {mark}")), &is_running).unwrap();
    assert_eq!(ran.ending, Ending::Cancelled);
    assert!(ran.seconds < 2.0, "{}", ran.seconds);
    assert_gone(&mark);
}

/// A caller that is killed in the middle of a command.
fn nothing_outlives_a_killed_caller(place: &Place) {
    let mark = unique_sleep();
    let how = if place.launcher.uses_namespaces { "with" } else { "without" };
    let mut caller =
        std::process::Command::new(this_program()).args(["call", &format!("{how} {mark}")]).spawn().unwrap();
    wait_until("its start", STARTED_WITHIN, || running(&mark).iter().any(|line| line.starts_with("sleep")));
    caller.kill().unwrap();
    caller.wait().unwrap();
    assert_gone(&mark);
}

fn call(order: &str) -> ExitCode {
    let (how, mark) = order.split_once(' ').unwrap();
    let place = Place::new(how == "with");
    place.run(&place.shell(&format!("(setsid sleep {mark} &); sleep {mark}")));
    ExitCode::SUCCESS
}
