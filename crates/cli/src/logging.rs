//! Logs of every crate, on stderr: warnings by default, more with `--verbose`, and in addition those selected by
//! `HONE_LOG`.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_subscriber::EnvFilter;

use crate::failure::usage;
use crate::terminal::{Line, Output};

/// Starts to log.
///
/// # Errors
/// When `HONE_LOG` is not a valid filter.
pub(crate) fn start(verbose: u8, output: Output) -> anyhow::Result<()> {
    let wanted = std::env::var("HONE_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = match wanted {
        Some(filter) => EnvFilter::try_new(&filter).map_err(|error| {
            usage(format!("HONE_LOG is {filter:?}, which is not a filter such as hone=debug: {error}"))
        })?,
        None => EnvFilter::new(filter_of(verbose)),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || LineWriter { line: Vec::new(), output })
        // Log lines quote files and servers, so they are made safe like all other text.
        .with_ansi(false)
        .with_target(verbose > 0)
        .without_time();
    subscriber.try_init().map_err(|error| anyhow::anyhow!("cannot start to log: {error}"))
}

/// Where log lines are sent instead of stderr, if diverted.
static DIVERSION: Mutex<Option<Diversion>> = Mutex::new(None);

type Diversion = Box<dyn Fn(String) + Send>;

/// Dropping it sends log lines to stderr again.
pub(crate) struct Diverted(());

/// Sends every log line to `take` from now on, so that logs do not disturb a line that is being typed.
pub(crate) fn divert(take: impl Fn(String) + Send + 'static) -> Diverted {
    *diversion() = Some(Box::new(take));
    Diverted(())
}

impl Drop for Diverted {
    fn drop(&mut self) {
        *diversion() = None;
    }
}

fn diversion() -> MutexGuard<'static, Option<Diversion>> {
    DIVERSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects a log line, and sends it when it is complete.
struct LineWriter {
    line: Vec<u8>,
    output: Output,
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        match &*diversion() {
            Some(take) => take(line),
            None => self.output.announce(&Line::plain(line)),
        }
    }
}

/// The filter for the number of `--verbose` flags.
fn filter_of(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn,sqlx=error",
        1 => "warn,hone=debug,hone_engine=debug,hone_models=debug",
        _ => "trace",
    }
}
