//! Files and folders as hone keeps them: readable by their owner alone, and written completely or not at all.
//!
//! [`private`] handles permissions, [`staged`] the leftovers of killed processes, and [`sync_folder`] durability across
//! a power loss. Every crate that writes files uses these. [`regular`] opens untrusted files. [`frames`] and `sockets`
//! are for communication between processes of the same user.

pub mod frames;
pub mod private;
pub mod regular;
#[cfg(unix)]
mod sockets;
pub mod staged;

use std::fs::File;
use std::io;
use std::path::Path;

pub use private::{
    create_private_file, create_private_folder, make_private, make_tree_private, open_private, write_private,
};
pub use regular::{is_within, open_regular, read_regular, read_within};
#[cfg(unix)]
pub use sockets::socket_path;
pub use staged::{replace, staged_file, write_new};

/// Makes the names in a folder durable after files in it were created, renamed or removed.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // On other systems a folder cannot be opened as a file, and needs no sync.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The bytes of a text without the byte-order mark that some editors put before it.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}
