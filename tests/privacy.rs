//! Other users cannot read a person's input: the permissions of everything that the real binary writes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Home, smollm2};

/// All paths from `folder` down that others than the owner can access.
fn wide(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = entries.flat_map(|path| if path.is_dir() { wide(&path) } else { vec![path] });
    let all = std::iter::once(folder.to_owned()).chain(inside);
    all.filter(|path| path.symlink_metadata().unwrap().permissions().mode() & 0o077 != 0).collect()
}

/// Runs the binary with a umask that lets everybody read and write.
fn run_with_wide_umask(home: &Home, arguments: &[&str]) {
    let script = r#"umask 0; exec "$0" "$@""#;
    let arguments = [&["-c", script, env!("CARGO_BIN_EXE_hone")], arguments].concat();
    let run = home.run_program(Path::new("/bin/sh"), &arguments, b"");
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn what_is_written_is_private_whatever_the_umask() {
    let home = Home::new();
    let model = smollm2();
    run_with_wide_umask(&home, &["pull", &model, "--name", "own:1"]);
    run_with_wide_umask(&home, &["chat", "Say yes.", "--model", "own:1", "--max-tokens", "2"]);
    run_with_wide_umask(&home, &["grade", "--query", "a", "--answer", "b", "--judge", "own:1"]);
    assert!(home.path("data/memory/store/db").exists());
    assert_eq!(wide(&home.path("data")), Vec::<PathBuf>::new());
}

#[test]
fn doctor_makes_private_what_others_could_read() {
    let home = Home::new();
    let files = ["data/history.txt", "data/conversations/a.json", "data/kv/b.kv"];
    for name in files {
        let path = home.write(name, b"{}");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    }
    let report = home.run(&["doctor", "--json", "--model", &smollm2()]).stdout;
    assert!(report.contains("6 files and folders of yours could be read by other users"), "{report}");
    assert_eq!(wide(&home.path("data")), Vec::<PathBuf>::new());
    let report = home.run(&["doctor", "--json", "--model", &smollm2()]).stdout;
    assert!(!report.contains("could be read by other users"), "{report}");
}
