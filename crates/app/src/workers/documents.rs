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

/// Reads the document on stdin. The missing text tells the parent of a failure.
pub(super) fn work() -> Result<(), String> {
    limit();
    serve_pdf().map_err(|error| error.to_string())
}

/// Starts document workers.
///
/// # Errors
/// When this program's own file cannot be found.
pub fn pdf_process() -> anyhow::Result<PdfProcess> {
    Ok(PdfProcess::new(super::this_program()?, WORKER))
}

/// Limits this process; its parent limits its time and output. A limit that the system refuses is ignored.
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
