//! Unix sockets named after processes.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hone_files::{create_private_folder, socket_path};

/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection to this process's socket in a folder, until it is dropped.
pub(super) struct Listener {
    address: PathBuf,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens in the subfolder `inside` of the data folder. One thread calls `serve`, for one connection after the
    /// other.
    pub(super) fn open(
        data_folder: &Path,
        inside: &str,
        serve: impl Fn(UnixStream) + Send + 'static,
    ) -> io::Result<Listener> {
        create_private_folder(data_folder)?;
        let address = address(data_folder, inside, process::id())?;
        // An earlier process with the same id is gone.
        let _ = fs::remove_file(&address);
        let listener = UnixListener::bind(&address)?;
        fs::set_permissions(&address, Permissions::from_mode(0o600))?;
        let is_closing = Arc::new(AtomicBool::new(false));
        let closing = Arc::clone(&is_closing);
        let accept = move || {
            for visitor in listener.incoming() {
                if closing.load(Ordering::SeqCst) {
                    return;
                }
                match visitor {
                    Ok(visitor) => serve(visitor),
                    // If the process is out of file descriptors, some may be freed later.
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        };
        let thread = thread::Builder::new().name(format!("hone-{inside}")).spawn(accept)?;
        Ok(Listener { address, is_closing, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::SeqCst);
        let reached = UnixStream::connect(&self.address);
        let _ = fs::remove_file(&self.address);
        // If its socket was removed, the thread cannot be woken, and ends with the process.
        if let (Ok(_), Some(thread)) = (reached, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn address(data_folder: &Path, inside: &str, process: u32) -> io::Result<PathBuf> {
    socket_path(data_folder, inside, &format!("{process}.sock"))
}

/// The addresses of all processes that may listen in the subfolder `inside`.
pub(super) fn addresses(data_folder: &Path, inside: &str) -> Vec<PathBuf> {
    let folder = address(data_folder, inside, 0).ok().and_then(|address| address.parent().map(Path::to_owned));
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Connects to a process; `None` if it is gone.
pub(super) fn connect(address: &Path, patience: Duration) -> Option<UnixStream> {
    let stream = match UnixStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                // Its process was killed.
                let _ = fs::remove_file(address);
            }
            return None;
        }
    };
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    Some(stream)
}
