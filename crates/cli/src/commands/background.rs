//! `hone up`, `hone down` and `hone logs`: a `hone serve` in the background, whose engine other commands use.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hone_app::running::processes;
use hone_files::{create_private_folder, open_private};

use crate::arguments::{DownArguments, LogsArguments, UpArguments};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The command that serves.
const SERVE: &str = "serve";
/// The beginning of the line that the server prints when it is ready.
const READY: &str = "hone serves on ";
/// Polling interval while waiting.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a server to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a server in the background, and waits until it is ready.
///
/// # Errors
/// When the server cannot be started, or ends at once.
pub(crate) fn up(app: &Invocation, arguments: &UpArguments) -> anyhow::Result<Outcome> {
    if arguments.serve.new_key {
        return Err(usage("--new-key starts no server: `hone serve --new-key` makes a key"));
    }
    if let Some(process) = servers(app).first() {
        app.output.note(&format!("hone serve is running already (process {process}); `hone down` ends it"));
        return Ok(Outcome::Done);
    }
    let flags = std::env::args_os().skip_while(|argument| argument != "up").skip(1).collect();
    app.output.print_line(&start(app, flags)?)?;
    Ok(Outcome::Done)
}

/// Starts a server with these flags in the background, and waits until it is ready. Returns a message about it.
///
/// # Errors
/// When its model cannot be found or downloaded, or it ends at once.
pub(super) fn start(app: &Invocation, flags: Vec<OsString>) -> anyhow::Result<String> {
    // A download shows its progress here, and not in the log.
    let app = &app.with_model_of_fleet()?;
    app.obtain(&app.config.engine.model)?;
    create_private_folder(app.data_folder())?;
    let path = log_path(app);
    let failure = || format!("cannot write {}", path.display());
    let log = open_private(&path, OpenOptions::new().append(true).create(true)).with_context(failure)?;
    let begin = log.metadata().with_context(failure)?.len();
    let mut server = spawn(log, flags).context("cannot start hone serve")?;
    let line = wait_until_ready(app, &mut server, begin)?;
    Ok(format!("{line} in the background (process {}); `hone down` ends it", server.id()))
}

/// Stops the servers of this data folder, which first complete answers in progress.
///
/// # Errors
/// When a server cannot be stopped.
pub(crate) fn down(app: &Invocation, arguments: &DownArguments) -> anyhow::Result<Outcome> {
    let servers = servers(app);
    for process in &servers {
        terminate(*process)?;
    }
    let until = Instant::now() + PATIENCE;
    while servers.iter().any(|process| self::servers(app).contains(process)) {
        if Instant::now() > until {
            bail!("hone serve does not end: `hone ps` shows what it is doing");
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    if arguments.json.json {
        app.output.print_json(&servers)?;
    } else if servers.is_empty() {
        app.output.note("no hone serve is running");
    } else {
        servers
            .iter()
            .try_for_each(|process| app.output.print_line(&format!("hone serve has ended (process {process})")))?;
    }
    Ok(Outcome::Done)
}

/// Prints the end of the log of the server in the background.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn logs(app: &Invocation, arguments: &LogsArguments) -> anyhow::Result<Outcome> {
    let path = log_path(app);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("`hone up` has not started a server yet"),
        file => file.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut reader = BufReader::new(file);
    let lines = rest(&mut reader)?;
    let skipped = if arguments.n == 0 { 0 } else { lines.len().saturating_sub(arguments.n) };
    lines[skipped..].iter().try_for_each(|line| app.output.print_line(line))?;
    loop {
        if !arguments.follow {
            return Ok(Outcome::Done);
        }
        std::thread::sleep(LOOK_INTERVAL);
        rest(&mut reader)?.iter().try_for_each(|line| app.output.print_line(line))?;
    }
}

fn log_path(app: &Invocation) -> PathBuf {
    app.data_folder().join("serve.log")
}

/// The ids of the serving processes.
fn servers(app: &Invocation) -> Vec<u32> {
    let running = processes(app.data_folder()).into_iter();
    running.filter(|running| running.command == SERVE).map(|running| running.process).collect()
}

/// Starts a server that the terminal's Ctrl-C does not stop.
fn spawn(log: File, flags: Vec<OsString>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SERVE).args(flags).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

/// Waits until the server reports that it is ready, and returns that line.
fn wait_until_ready(app: &Invocation, server: &mut Child, begin: u64) -> anyhow::Result<String> {
    let mut log = BufReader::new(File::open(log_path(app))?);
    log.seek(SeekFrom::Start(begin))?;
    let (mut said, until) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        let has_ended = server.try_wait()?.is_some();
        said.extend(rest(&mut log)?);
        if let Some(line) = said.iter().find(|line| line.starts_with(READY)) {
            return Ok(line.clone());
        }
        if has_ended {
            bail!("hone serve has ended at once: {}", said.join("\n"));
        }
        if Instant::now() > until {
            bail!("hone serve has not begun: `hone logs` shows what it says");
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The lines that have not been read yet.
fn rest(reader: &mut BufReader<File>) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).context("cannot read the log")? > 0 {
        lines.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        bytes.clear();
    }
    Ok(lines)
}

#[cfg(unix)]
fn terminate(process: u32) -> anyhow::Result<()> {
    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, kill_process};

    let id = i32::try_from(process).ok().and_then(Pid::from_raw).context("this is not the id of a process")?;
    match kill_process(id, Signal::TERM) {
        // It ended on its own.
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot end process {process}")),
    }
}

#[cfg(not(unix))]
fn terminate(process: u32) -> anyhow::Result<()> {
    bail!("process {process} cannot be ended on this system: end it in the list of processes")
}
