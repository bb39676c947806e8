//! Untrusted files: a folder filled by someone else may hold pipes, devices and links that lead elsewhere.
//!
//! Opening a pipe waits for its other end, and a device may have no end. So only regular files are opened, and reads
//! have a limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file for reading; never waits for another program.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device can act on it.
    check(&fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A pipe that has replaced the file in the meantime is not waited for, either.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("it is larger than {most} bytes"))),
    }
}

/// Reads a regular file of at most `most` bytes. Links on the way to it must stay within `folder`.
///
/// # Errors
/// When it cannot be read, is not a regular file, is larger, or lies elsewhere.
pub fn read_within(folder: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    match is_within(folder, path)? {
        true => read_regular(path, most),
        false => Err(io::Error::other("it is a link that leads out of its folder")),
    }
}

/// Whether a file lies in a folder once all links are followed.
///
/// # Errors
/// When the file or the folder does not exist.
pub fn is_within(folder: &Path, path: &Path) -> io::Result<bool> {
    Ok(path.canonicalize()?.starts_with(folder.canonicalize()?))
}

fn check(found: &fs::Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_regular(&path, 4).unwrap(), b"four");
        assert!(read_regular(&path, 3).unwrap_err().to_string().contains("larger than 3 bytes"));
        assert!(read_regular(folder.path(), 4).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn pipes_devices_and_links_outside_are_not_opened() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [pipe.as_path(), link.as_path(), Path::new("/dev/zero")] {
            assert!(open_regular(path).unwrap_err().to_string().contains("not a regular file"), "{}", path.display());
        }
        let (secret, way) = (outside.path().join("secret"), folder.path().join("way"));
        fs::write(&secret, "x").unwrap();
        std::os::unix::fs::symlink(&secret, &way).unwrap();
        assert_eq!(read_regular(&way, 4).unwrap(), b"x");
        assert!(read_within(folder.path(), &way, 4).unwrap_err().to_string().contains("leads out"));
    }
}
