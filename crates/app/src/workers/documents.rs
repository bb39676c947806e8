//! `hone document-worker`: the process in which a PDF is read.

use hone_agents::research::{PdfProcess, serve_pdf};

/// The argument that makes this program a document's process.
pub(super) const WORKER: &str = "document-worker";
/// The memory that the process may use.
#[cfg(unix)]
const MEMORY_BYTES: u64 = 2 << 30;
/// The processor time that it may use, in case its parent is gone.
#[cfg(unix)]
const PROCESSOR_SECONDS: u64 = 60;

/// Reads the document on stdin. Its parent knows that it failed from the missing text.
pub(super) fn work() -> Result<(), String> {
    limit();
    serve_pdf().map_err(|error| error.to_string())
}

/// Starts such processes of this program.
///
/// # Errors
/// When this program's own file cannot be found.
pub fn pdf_process() -> anyhow::Result<PdfProcess> {
    Ok(PdfProcess::new(super::this_program()?, WORKER))
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
