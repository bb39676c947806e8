//! Unix sockets on which processes of one user serve each other.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};

use crate::create_private_folder;

/// The longest socket path that every system accepts (104 bytes including the terminator on macOS, 108 on Linux).
const MAX_SOCKET_PATH: usize = 100;

/// The path of a socket on which a process serves other processes of the same user: in the subfolder `inside` of
/// `folder`, which only its owner may enter, or if that path would be too long, in a private folder below the system's
/// folder for temporary files. The folder is created.
///
/// # Errors
/// When the folder cannot be created or belongs to another user.
pub fn socket_path(folder: &Path, inside: &str, name: &str) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?;
    let inside = folder.join(inside);
    let private = if inside.join(name).as_os_str().len() <= MAX_SOCKET_PATH {
        inside
    } else {
        let sum = Sha256::digest(inside.as_os_str().as_encoded_bytes());
        let digits: String = sum[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        std::env::temp_dir().join(format!("hone-{digits}"))
    };
    create_private_folder(&private)?;
    // In the folder for temporary files, another user may have created it first.
    let (found, own) = (fs::symlink_metadata(&private)?, fs::metadata(&folder)?);
    if !found.is_dir() || found.uid() != own.uid() {
        let reason = format!("{} belongs to another user", private.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    // A copied folder may have lost its permissions.
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700))?;
    Ok(private.join(name))
}
