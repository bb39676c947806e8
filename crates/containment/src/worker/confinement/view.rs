//! The file system as a command sees it: read-only except its own folders, with a `/proc` that shows its own processes.
//!
//! Landlock restricts which files can be opened; it does not cover modes, times, owners and extended attributes, and it
//! cannot exclude a file from a writable folder. Read-only mounts do both.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::command::ContainedCommand;

/// The maximum number of files that are protected by mounts.
const MOST_PROTECTED: usize = 2000;
/// The flag for a mount's id in `statx` (`STATX_MNT_ID`).
const MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x1000);

/// The resulting view.
pub(super) struct View {
    /// Whether `/proc` shows only the command's processes.
    pub(super) has_own_processes: bool,
}

/// Gives this process mounts of its own; needs the capabilities that [`keep_for_child`] has passed on.
///
/// # Errors
/// With the reason, when the system does not allow it. The steps up to then do no harm.
pub(super) fn narrow(command: &ContainedCommand, private: &Path, protected: &[PathBuf]) -> Result<View, String> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|error| error.desc().to_owned())?;
    let failed = |what: &str, path: &Path| {
        let path = path.display().to_string();
        let what = what.to_owned();
        move |error: rustix::io::Errno| format!("{what} {path}: {}", io::Error::from(error))
    };
    let root = Path::new("/");
    let private_everywhere = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(root, private_everywhere).map_err(failed("own mounts below", root))?;
    let own = [command.workspace.canonicalize(), private.canonicalize()];
    let own = own.into_iter().collect::<io::Result<Vec<PathBuf>>>().map_err(|error| error.to_string())?;
    for folder in &own {
        mount_bind_recursive(folder, folder).map_err(failed("own mount of", folder))?;
    }
    let covered = cover_packages(command, &own);
    for found in mounts().map_err(|error| error.to_string())? {
        let is_left = own.iter().any(|folder| found.place.starts_with(folder)) || covered.contains(&found.place);
        if !is_left && found.is_visible() {
            found.make_read_only().map_err(failed("read-only mount of", &found.place))?;
        }
    }
    protect(protected, &own[0])?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Some containers do not allow another `/proc`.
    let has_own_processes = mount("proc", "/proc", "proc", flags, None).is_ok();
    Ok(View { has_own_processes })
}

/// Covers packages of the workspace that are installed outside of it, so that changes to them are made in memory and
/// lost; returns their places. Landlock refuses writes there with an error that tools understand, whereas a read-only
/// file system ends some of them (vite, for one). Where the system does not allow it, the packages are on a read-only
/// file system.
fn cover_packages(command: &ContainedCommand, own: &[PathBuf]) -> Vec<PathBuf> {
    let linked = command.readable.iter().filter(|path| path.starts_with(&command.workspace));
    let places = linked.filter_map(|path| path.canonicalize().ok());
    let outside = places.filter(|place| place.is_dir() && !own.iter().any(|folder| place.starts_with(folder)));
    outside
        .enumerate()
        .filter(|(number, place)| cover(place, &own[1].join(format!("changes-{number}"))).is_ok())
        .map(|(_, place)| place)
        .collect()
}

/// Covers a folder with an overlay of itself, whose changes are kept in memory at `changes`.
fn cover(place: &Path, changes: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    fs::create_dir(changes)?;
    let (upper, work) = (changes.join("upper"), changes.join("work"));
    let names = [place, &upper, &work].map(Path::to_str);
    let [Some(lower), Some(upper_name), Some(work_name)] = names else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if names.into_iter().flatten().any(|name| name.contains([',', ':', '\\'])) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    mount("tmpfs", changes, "tmpfs", flags, Some(c"size=16m,mode=700"))?;
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let options = format!("userxattr,lowerdir={lower},upperdir={upper_name},workdir={work_name}");
    let options = CString::new(options)?;
    Ok(mount("overlay", place, "overlay", flags, Some(options.as_c_str()))?)
}

/// Makes the existing files among `protected` read-only.
fn protect(protected: &[PathBuf], workspace: &Path) -> Result<(), String> {
    if protected.len() > MOST_PROTECTED {
        return Err(format!("{} files run by themselves", protected.len()));
    }
    // The target of a link has to be protected; the link itself is compared afterwards.
    let targets = protected.iter().filter_map(|path| path.canonicalize().ok());
    for target in targets.filter(|target| target.starts_with(workspace) && target != workspace) {
        let read_only = || {
            mount_bind(&target, &target)?;
            mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY | flags_of(&target)?, "")
        };
        read_only().map_err(|error| format!("read-only mount of {}: {}", target.display(), io::Error::from(error)))?;
    }
    Ok(())
}

/// The flags of the mount that a path is on; a new mount may not lose one.
fn flags_of(path: &Path) -> rustix::io::Result<MountFlags> {
    let found = rustix::fs::statvfs(path)?.f_flag;
    let pairs = [
        (rustix::fs::StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (rustix::fs::StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (rustix::fs::StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let flags = pairs.into_iter().filter(|(known, _)| found.contains(*known)).map(|(_, flag)| flag);
    Ok(flags.fold(MountFlags::empty(), |all, flag| all | flag))
}

/// A mount, as `/proc/self/mountinfo` lists it.
struct Mount {
    id: u64,
    place: PathBuf,
    flags: MountFlags,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let place = PathBuf::from(OsString::from_vec(unescaped(fields.nth(3)?)));
        let options = std::str::from_utf8(fields.next()?).ok()?;
        let flags = options.split(',').map(|option| match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            // MS_NOSYMFOLLOW
            "nosymfollow" => MountFlags::from_bits_retain(256),
            _ => MountFlags::empty(),
        });
        Some(Mount { id, place, flags: flags.fold(MountFlags::empty(), |all, flag| all | flag) })
    }

    /// Whether its place leads to it: a mount that another one covers cannot be reached.
    fn is_visible(&self) -> bool {
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        statx(CWD, &self.place, flags, MOUNT_ID).is_ok_and(|found| found.stx_mnt_id == self.id)
    }

    fn make_read_only(&self) -> rustix::io::Result<()> {
        mount_remount(&self.place, MountFlags::BIND | MountFlags::RDONLY | self.flags, "")
    }
}

fn mounts() -> io::Result<Vec<Mount>> {
    let list = fs::read("/proc/self/mountinfo")?;
    let lines = list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Mount::parse(line).ok_or_else(|| io::Error::other("a mount is not understood"))).collect()
}

/// Decodes spaces and the like, which are written as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &others[3..];
            }
            None => {
                plain.push(*first);
                rest = others;
            }
        }
    }
    plain
}

/// The capabilities for mounting and then giving up all capabilities.
const NEEDED: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];

/// Lets the next program that this process starts keep the capabilities that [`narrow`] needs.
pub(in crate::worker) fn keep_for_child() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let inheritable = NEEDED.iter().fold(sets.inheritable, |all, needed| all | *needed);
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable, ..sets })?;
    for needed in NEEDED {
        rustix::thread::configure_capability_in_ambient_set(needed, true)?;
    }
    Ok(())
}

/// Gives up all capabilities, including those that a program gets because its user is root.
pub(super) fn give_up_capabilities() -> io::Result<()> {
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_with_spaces_is_read() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,nosuid,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let found = Mount::parse(line).unwrap();
        assert_eq!((found.id, found.place.as_path()), (36, Path::new(r"/mnt/a b\c")));
        assert_eq!(found.flags, MountFlags::NOSUID);
    }
}
