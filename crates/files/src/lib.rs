//! Files and folders as hone keeps them: nobody but their owner can read them, and what is there is there whole.
//!
//! [`private`] is about who can read, [`staged`] about what is left when a process is killed, and [`sync_folder`] about
//! what is left when the power goes. Every crate that writes does it through these.

pub mod private;
pub mod staged;

use std::fs::File;
use std::io;
use std::path::Path;

pub use private::{
    create_private_file, create_private_folder, make_private, make_tree_private, open_private, write_private,
};
pub use staged::staged_file;

/// Makes the names in a folder durable: those of files that were made, renamed or removed in it.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file, and needs no sync.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
