//! The system calls that a command does without, by seccomp.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn give_up() -> Result<(), String> {
    Err("seccomp is not supported on this processor".to_owned())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) use filter::give_up;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod filter {
    use std::collections::BTreeMap;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    /// Calls that open sockets, leave the containment, or reach into other processes or the kernel. Pairs of sockets
    /// lead nowhere and stay.
    const REFUSED: &[libc::c_long] = &[
        libc::SYS_socket,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
    ];
    /// On x86-64, the same calls have other numbers in the interface with 32-bit pointers.
    const X32: libc::c_long = 0x4000_0000;

    /// Makes these system calls fail from now on, in this process and all that it starts.
    pub(in super::super) fn give_up() -> Result<(), String> {
        apply().map_err(|error| format!("seccomp: {error}"))
    }

    fn apply() -> Result<(), seccompiler::Error> {
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let architecture = std::env::consts::ARCH.try_into()?;
        let offsets: &[libc::c_long] = if cfg!(target_arch = "x86_64") { &[0, X32] } else { &[0] };
        let numbers = REFUSED.iter().flat_map(|call| offsets.iter().map(move |offset| call + offset));
        let rules: BTreeMap<_, _> = numbers.map(|number| (number, Vec::new())).collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
        apply_filter(&BpfProgram::try_from(filter)?)
    }
}
