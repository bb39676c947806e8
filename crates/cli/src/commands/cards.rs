//! NVIDIA's cards in this machine, as its `nvidia-smi` describes them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hone_app::describe::bytes;
use serde::Serialize;

/// A driver that takes longer has a problem of its own.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// A card. What its driver does not tell is `None`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) used_memory_bytes: Option<u64>,
    /// The share of the last moment in which it computed, in percent.
    pub(crate) load_percent: Option<u64>,
}

/// The cards of this machine; empty without NVIDIA's driver.
pub(crate) fn all() -> Vec<Card> {
    described_by(OsStr::new("nvidia-smi"))
}

fn described_by(program: &OsStr) -> Vec<Card> {
    let query = "--query-gpu=name,driver_version,memory.total,memory.used,utilization.gpu";
    let mut command = Command::new(program);
    command.args([query, "--format=csv,noheader,nounits"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = output_of(&mut command, TIME_LIMIT).unwrap_or_default();
    output.lines().filter_map(Card::read).collect()
}

/// What a command prints; `None` if it fails, or takes longer than the limit.
fn output_of(command: &mut Command, limit: Duration) -> Option<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody waits any more if the limit has passed.
        let _ = sender.send(std::io::read_to_string(stdout).ok());
    });
    let output = receiver.recv_timeout(limit).ok().flatten();
    if output.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    output.filter(|_| status.success())
}

impl Card {
    fn read(line: &str) -> Option<Card> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [name, driver, memory, used, load] = fields[..] else { return None };
        let mebibytes = |field: &str| field.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << 20));
        Some(Card {
            name: name.to_owned(),
            driver: driver.to_owned(),
            memory_bytes: mebibytes(memory),
            used_memory_bytes: mebibytes(used),
            load_percent: load.parse().ok(),
        })
    }

    /// Its name, memory and load in words.
    pub(crate) fn describe(&self) -> String {
        let memory = match (self.used_memory_bytes, self.memory_bytes) {
            (Some(used), Some(memory)) => format!(", {} of {} in use", bytes(used), bytes(memory)),
            (None, Some(memory)) => format!(", {}", bytes(memory)),
            (_, None) => String::new(),
        };
        let load = self.load_percent.map(|percent| format!(", {percent} % busy")).unwrap_or_default();
        format!("{} (driver {}){memory}{load}", self.name, self.driver)
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    /// The cards that a program with this text describes.
    fn cards(script: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-smi");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        described_by(program.as_os_str()).iter().map(Card::describe).collect()
    }

    #[test]
    fn cards_are_described() {
        let two = cards("echo 'NVIDIA H200, 570.86.10, 143771, 1024, 35'; echo 'NVIDIA GB10, 580.95, [N/A], [N/A], 0'");
        assert_eq!(
            two,
            [
                "NVIDIA H200 (driver 570.86.10), 1.07 GB of 150.75 GB in use, 35 % busy",
                "NVIDIA GB10 (driver 580.95), 0 % busy"
            ]
        );
    }

    #[test]
    fn a_driver_that_does_not_work_has_no_cards() {
        assert!(
            cards("echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9").is_empty()
        );
        assert!(cards("echo nonsense").is_empty());
        assert!(described_by(OsStr::new("no-such-program")).is_empty());
    }

    #[test]
    fn a_driver_that_hangs_is_not_waited_for() {
        let began = Instant::now();
        assert_eq!(output_of(Command::new("sleep").arg("60"), Duration::from_millis(50)), None);
        assert!(began.elapsed() < Duration::from_secs(50));
    }
}
