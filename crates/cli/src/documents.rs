//! `hone document-worker`: the process in which a PDF is read.
//!
//! hone starts it itself, from its own executable; users never type it. So it is handled before the arguments are read.

use std::process::ExitCode;

use hone_agents::research::{PdfProcess, serve_pdf};

use crate::templates;

/// The argument that makes this program a document's process.
const WORKER: &str = "document-worker";
/// The memory that the process may use.
#[cfg(unix)]
const MEMORY_BYTES: u64 = 2 << 30;
/// The processor time that it may use, in case its parent is gone.
#[cfg(unix)]
const PROCESSOR_SECONDS: u64 = 60;

/// Whether this process was started for a document.
pub(crate) fn is_worker() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == WORKER)
}

/// Reads the document on stdin.
pub(crate) fn work() -> ExitCode {
    limit();
    match serve_pdf() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Starts such processes of this program.
///
/// # Errors
/// When this program's own file cannot be found.
pub(crate) fn pdf_process() -> anyhow::Result<PdfProcess> {
    Ok(PdfProcess::new(templates::this_program()?, WORKER))
}

/// Limits this process; its parent limits the time that it takes, and its output. A system that refuses a limit is no reason
/// to stop.
fn limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        for (resource, most) in [
            (Resource::Core, 0),
            (Resource::As, MEMORY_BYTES),
            (Resource::Cpu, PROCESSOR_SECONDS),
            (Resource::Fsize, 0),
        ] {
            let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
        }
    }
}
