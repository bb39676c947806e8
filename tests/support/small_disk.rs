//! A disk that a test can fill, which needs the rights to mount one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The file that fills the disk.
const BALLAST: &str = "fill";

/// A file system of its own, in memory.
pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None` without the rights to mount it.
    pub(crate) fn mount(size: &str) -> Option<SmallDisk> {
        let folder = TempDir::new().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(SmallDisk { folder });
        }
        println!("LEFT OUT: a small file system cannot be mounted without the rights to do so");
        None
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Leaves not one block free.
    pub(crate) fn fill_up(&self) {
        let mut bytes = 32 << 20;
        while bytes > 0 {
            let mut file = OpenOptions::new().create(true).append(true).open(self.path(BALLAST)).unwrap();
            if file.write_all(&vec![1; bytes]).is_err() {
                bytes /= 2;
            }
        }
    }

    /// Frees the space taken by [`SmallDisk::fill_up`].
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.path(BALLAST)).unwrap();
    }

    /// Makes the disk read-only. No file may be open for writing.
    pub(crate) fn make_read_only(&self) {
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(self.folder.path()).status().unwrap();
        assert!(remounted.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(self.folder.path()).status().unwrap();
    }
}
