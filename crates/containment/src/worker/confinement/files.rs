//! The files that a command may use, by Landlock.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::command::ContainedCommand;

/// Files that programs of every kind read: themselves, their libraries, and descriptions of the machine.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    // Some test runners look up localhost.
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/dev/random",
    "/dev/urandom",
];
/// Descriptions of the machine in `/proc`, where the rest would show other processes.
const MACHINE: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
];
/// Devices that hold nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full"];

/// Lets this process read only the system and the paths that the command names, and write only the workspace and its
/// own folder. It may read all of `/proc` if that shows only its own processes.
///
/// # Errors
/// With the reason, when the kernel does not enforce it.
pub(super) fn confine(command: &ContainedCommand, private: &Path, sees_own_processes_only: bool) -> Result<(), String> {
    match enforce(command, private, sees_own_processes_only) {
        Ok(RulesetStatus::NotEnforced) => Err("the kernel has no Landlock".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("Landlock: {error}")),
    }
}

/// Whether the kernel keeps a confined process from sending signals to others.
pub(super) fn keeps_signals_in() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal);
    ruleset.is_ok()
}

fn enforce(
    command: &ContainedCommand,
    private: &Path,
    sees_own_processes_only: bool,
) -> Result<RulesetStatus, RulesetError> {
    // Before the third version of Landlock, a command could empty files that it may not write.
    let needed = AccessFs::from_all(ABI::V3);
    let known = ABI::V6;
    let processes = if sees_own_processes_only { &["/proc"] } else { MACHINE };
    let system = SYSTEM.iter().chain(processes).map(PathBuf::from);
    let readable: Vec<PathBuf> = system.chain(command.readable.iter().cloned()).collect();
    // A device node of its own would lead to a disk.
    let writable = AccessFs::from_all(known) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let own = [command.workspace.as_path(), private];
    let devices = DEVICES.iter().map(Path::new);
    let device_access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(needed)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(known))?
        .handle_access(AccessNet::from_all(known))?
        .scope(Scope::from_all(known))?
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(known)))?
        .add_rules(path_beneath_rules(own, writable))?
        .add_rules(path_beneath_rules(devices, device_access))?
        .restrict_self()?;
    Ok(status.ruleset)
}
