//! Denies system calls to a command, by seccomp.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn give_up(_: bool) -> Result<(), String> {
    Err("seccomp is not supported on this processor".to_owned())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) use filter::give_up;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod filter {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        apply_filter,
    };

    type Call = libc::c_long;
    /// The cases in which a call is refused; an empty list means always.
    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    // Calls that some versions of the C library do not name; their numbers are the same on all processors.
    const FCHMODAT2: Call = 452;
    const SETXATTRAT: Call = 463;
    const REMOVEXATTRAT: Call = 466;
    const OPEN_TREE_ATTR: Call = 467;
    const FILE_SETATTR: Call = 469;

    /// Calls that open sockets, leave the containment, or reach into other processes or the kernel. Socket pairs lead
    /// nowhere and stay allowed.
    const REFUSED: &[Call] = &[
        libc::SYS_socket,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_open_tree,
        OPEN_TREE_ATTR,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        libc::SYS_kcmp,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
        libc::SYS_pidfd_getfd,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_fanotify_init,
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
        libc::SYS_quotactl_fd,
        libc::SYS_syslog,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
    ];
    /// Calls for memory and disk that cannot be attributed to a process, and calls whose arguments a filter cannot
    /// read. Programs use others when the kernel reports that it does not have them.
    const UNKNOWN: &[Call] = &[
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_shmget,
        libc::SYS_msgget,
        libc::SYS_clone3,
        libc::SYS_openat2,
    ];
    /// Changes of a file's attributes rather than its contents. They are refused where other files are not read-only.
    const CHANGES: &[Call] = &[
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SETXATTRAT,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        REMOVEXATTRAT,
        FILE_SETATTR,
    ];
    /// Older calls for these changes, which newer processors no longer have.
    #[cfg(target_arch = "x86_64")]
    const OLD_CHANGES: &[Call] =
        &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_CHANGES: &[Call] = &[];

    /// Calls with a mode, and the index of that argument: another user could run a program with the rights of this one.
    const MODES: &[(Call, u8)] =
        &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
    #[cfg(target_arch = "x86_64")]
    const OLD_MODES: &[(Call, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_MODES: &[(Call, u8)] = &[];
    /// Calls that have a mode if they create a file; the argument with the flags precedes it.
    #[cfg(target_arch = "x86_64")]
    const OPENS: &[(Call, u8)] = &[(libc::SYS_openat, 3), (libc::SYS_open, 2)];
    #[cfg(not(target_arch = "x86_64"))]
    const OPENS: &[(Call, u8)] = &[(libc::SYS_openat, 3)];
    /// The bit that tells `O_TMPFILE` from `O_DIRECTORY`.
    const UNNAMED: u64 = 0o20_000_000;

    /// Namespaces that `clone` can make.
    const NAMESPACES: [libc::c_int; 7] = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    /// Device requests: insert text into a terminal's input.
    const TERMINAL_ORDERS: [u64; 2] = [0x5412, 0x541c];
    /// File system requests: reserve space, with XFS's numbers, which all file systems understand.
    const SPACE_ORDERS: [u64; 3] = [0x4030_5828, 0x4030_582a, 0x4030_5839];
    /// File system requests: set flags, attributes, versions.
    const ATTRIBUTE_ORDERS: [u64; 5] = [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4004_7602];

    /// On x86-64, the same calls have other numbers in the x32 interface, which has 32-bit pointers.
    const X32: Call = 0x4000_0000;

    /// Makes these system calls fail from now on, in this process and all that it starts. Attributes of files may be
    /// changed only if other files are read-only.
    pub(in super::super) fn give_up(others_are_read_only: bool) -> Result<(), String> {
        apply(others_are_read_only).map_err(|error| format!("seccomp: {error}"))
    }

    fn apply(others_are_read_only: bool) -> Result<(), seccompiler::Error> {
        refuse(always(UNKNOWN), libc::ENOSYS)?;
        refuse(reserving_space()?, libc::EOPNOTSUPP)?;
        let mut refused = always(REFUSED);
        if !others_are_read_only {
            refused.extend(always(CHANGES));
            refused.extend(always(OLD_CHANGES));
        }
        for bit in [0o4000, 0o2000] {
            for (call, mode) in MODES.iter().chain(OLD_MODES) {
                add(&mut refused, *call, &[(*mode, SeccompCmpOp::MaskedEq(bit), bit)])?;
            }
            for (call, mode) in OPENS {
                for flag in [u64::from(libc::O_CREAT.unsigned_abs()), UNNAMED] {
                    let makes_file = (mode - 1, SeccompCmpOp::MaskedEq(flag), flag);
                    add(&mut refused, *call, &[(*mode, SeccompCmpOp::MaskedEq(bit), bit), makes_file])?;
                }
            }
        }
        for namespace in NAMESPACES {
            let flag = u64::from(namespace.unsigned_abs());
            add(&mut refused, libc::SYS_clone, &[(0, SeccompCmpOp::MaskedEq(flag), flag)])?;
        }
        let orders = TERMINAL_ORDERS.iter().chain(ATTRIBUTE_ORDERS.iter().filter(|_| !others_are_read_only));
        for order in orders {
            add(&mut refused, libc::SYS_ioctl, &[(1, SeccompCmpOp::Eq, *order)])?;
        }
        refuse(refused, libc::EPERM)
    }

    fn reserving_space() -> Result<Rules, seccompiler::Error> {
        let mut rules = Rules::new();
        for order in SPACE_ORDERS {
            add(&mut rules, libc::SYS_ioctl, &[(1, SeccompCmpOp::Eq, order)])?;
        }
        // Punching a hole takes no space.
        for mode in [0, u64::from(libc::FALLOC_FL_KEEP_SIZE.unsigned_abs())] {
            add(&mut rules, libc::SYS_fallocate, &[(1, SeccompCmpOp::Eq, mode)])?;
        }
        for mode in [libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_UNSHARE_RANGE] {
            let mode = u64::from(mode.unsigned_abs());
            add(&mut rules, libc::SYS_fallocate, &[(1, SeccompCmpOp::MaskedEq(mode), mode)])?;
        }
        Ok(rules)
    }

    fn always(calls: &[Call]) -> Rules {
        calls.iter().map(|call| (*call, Vec::new())).collect()
    }

    /// Refuses a call if all of these comparisons of arguments hold; a call that is always refused stays so.
    fn add(rules: &mut Rules, call: Call, arguments: &[(u8, SeccompCmpOp, u64)]) -> Result<(), seccompiler::Error> {
        let conditions = arguments.iter().map(|(argument, operator, value)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
        });
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        match rules.entry(call) {
            Entry::Vacant(place) => drop(place.insert(vec![rule])),
            Entry::Occupied(mut place) if !place.get().is_empty() => place.get_mut().push(rule),
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    fn refuse(rules: Rules, error: libc::c_int) -> Result<(), seccompiler::Error> {
        let offsets: &[Call] = if cfg!(target_arch = "x86_64") { &[0, X32] } else { &[0] };
        let everywhere =
            |(call, cases): (i64, Vec<SeccompRule>)| offsets.iter().map(move |offset| (call + *offset, cases.clone()));
        let rules = rules.into_iter().flat_map(everywhere).collect();
        let architecture = std::env::consts::ARCH.try_into()?;
        let action = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?;
        apply_filter(&BpfProgram::try_from(filter)?)
    }
}
