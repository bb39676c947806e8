//! The file operations in strace's output, as steps.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The calls that change files or make changes durable, including those that the replay does not know.
pub(crate) const CALLS: &str = "trace=openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,\
    fallocate,fsync,fdatasync,sync,syncfs,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,\
    copy_file_range,sendfile,link,linkat,symlink,symlinkat";

/// One change of the files below a folder, with paths from there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A folder appears.
    Folder(PathBuf),
    /// A file appears if it does not exist; if it is truncated, its content is lost.
    File { path: PathBuf, truncates: bool },
    /// Bytes at an offset; without one, at the end.
    Write { path: PathBuf, offset: Option<u64>, bytes: Vec<u8> },
    /// The file has another length.
    Resize { path: PathBuf, length: u64 },
    /// The content of a file, or the names in a folder, are durable.
    Sync(PathBuf),
    /// A file or a folder has another name.
    Rename { from: PathBuf, to: PathBuf },
    /// A name is gone.
    Remove(PathBuf),
}

/// The steps of a record that concern `folder`.
pub(crate) fn steps(record: &str, folder: &Path) -> Vec<Step> {
    let mut unfinished: HashMap<&str, String> = HashMap::new();
    let mut steps = Vec::new();
    for line in record.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(begin) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, begin.to_owned());
        } else if let Some((_, rest)) = call.strip_prefix("<... ").and_then(|it| it.split_once(" resumed>")) {
            let begin = unfinished.remove(process).unwrap_or_default();
            steps.extend(step(&(begin + rest), folder));
        } else {
            steps.extend(step(call, folder));
        }
    }
    steps
}

/// The effect of a call; `None` if it failed or was about other files.
fn step(call: &str, folder: &Path) -> Option<Step> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") ").or_else(|| rest.rsplit_once(')'))?;
    let result: i64 = result.trim_start_matches([' ', '=']).split([' ', '<']).next()?.parse().ok()?;
    if result < 0 {
        return None;
    }
    let arguments: Vec<&str> = arguments.split(", ").collect();
    let text = |index: usize| arguments.get(index).and_then(|argument| inside(&quoted(argument)?, folder));
    let open = |index: usize| arguments.get(index).and_then(|argument| inside(&opened(argument)?, folder));
    let number = |index: usize| arguments.get(index).and_then(|argument| argument.parse::<u64>().ok());
    match name {
        "mkdir" => text(0).map(Step::Folder),
        "mkdirat" => text(1).map(Step::Folder),
        "open" | "creat" => created(text(0)?, arguments.get(1).copied().unwrap_or("O_CREAT|O_TRUNC")),
        "openat" => created(text(1)?, arguments.get(2)?),
        "write" => Some(Step::Write { path: open(0)?, offset: None, bytes: quoted(arguments[1])? }),
        "pwrite64" => Some(Step::Write { path: open(0)?, offset: number(3), bytes: quoted(arguments[1])? }),
        "ftruncate" => Some(Step::Resize { path: open(0)?, length: number(1)? }),
        "fsync" | "fdatasync" => open(0).map(Step::Sync),
        "rename" => Some(Step::Rename { from: text(0)?, to: text(1)? }),
        "renameat" | "renameat2" => Some(Step::Rename { from: text(1)?, to: text(3)? }),
        "unlink" | "rmdir" => text(0).map(Step::Remove),
        "unlinkat" => text(1).map(Step::Remove),
        gap => {
            let concerns = arguments.iter().enumerate().any(|(index, _)| open(index).or(text(index)).is_some());
            assert!(!concerns, "the replay does not know {gap}");
            None
        }
    }
}

fn created(path: PathBuf, flags: &str) -> Option<Step> {
    let truncates = flags.contains("O_TRUNC");
    (truncates || flags.contains("O_CREAT")).then_some(Step::File { path, truncates })
}

/// The bytes of `"\x2f\x74"`.
fn quoted(argument: &str) -> Option<Vec<u8>> {
    let hexadecimal = argument.strip_prefix('"')?.strip_suffix('"')?;
    bytes(hexadecimal)
}

/// The path in `9<\x2f\x74>`.
fn opened(argument: &str) -> Option<Vec<u8>> {
    let (number, path) = argument.split_once('<')?;
    number.parse::<u32>().ok()?;
    bytes(path.strip_suffix('>')?)
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hexadecimal.bytes().collect();
    let byte = |group: &[u8]| u8::from_str_radix(std::str::from_utf8(group.strip_prefix(b"\\x")?).ok()?, 16).ok();
    digits.chunks(4).map(byte).collect()
}

/// The rest of a path below `folder`; the folder itself is the empty path.
fn inside(path: &[u8], folder: &Path) -> Option<PathBuf> {
    let path = Path::new(std::str::from_utf8(path).ok()?);
    path.strip_prefix(folder).ok().map(Path::to_owned)
}
