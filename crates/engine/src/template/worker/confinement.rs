//! The privileges that a template's process gives up before it reads a template.
//!
//! Every limit is an extra line of defence and none is the only one, so a system that refuses one is no reason to stop.

/// Limits memory and core dumps, and gives up every system call that rendering does not need.
pub(super) fn confine() {
    #[cfg(unix)]
    limit(rustix::process::Resource::Core, 0);
    #[cfg(target_os = "linux")]
    if let Some(present) = present_bytes() {
        limit(rustix::process::Resource::As, present + super::MEMORY_BYTES);
    }
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    // A kernel without seccomp is no reason to refuse to chat.
    drop(system_calls::give_up_most());
}

/// Lets the process use `seconds` more of processor time.
pub(super) fn allow_processor_seconds(seconds: u64) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use rustix::time::{ClockId, clock_gettime};
        let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
        // Rounds up the current second, and lets the parent's clock expire first.
        let current = Some(used + seconds + 2);
        let _ = setrlimit(Resource::Cpu, Rlimit { current, maximum: getrlimit(Resource::Cpu).maximum });
    }
    #[cfg(not(unix))]
    let _ = seconds;
}

#[cfg(unix)]
fn limit(resource: rustix::process::Resource, most: u64) {
    let _ = rustix::process::setrlimit(resource, rustix::process::Rlimit { current: Some(most), maximum: Some(most) });
}

/// Address space that the process already uses: the program, its libraries, the stacks.
#[cfg(target_os = "linux")]
fn present_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kilobytes: u64 = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod system_calls {
    use std::collections::BTreeMap;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

    /// System calls needed by an allocator, the streams, the clock and process exit. None of them opens a file, reaches
    /// the network or starts a program.
    const ALLOWED: [libc::c_long; 29] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
        libc::SYS_prlimit64,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_tgkill,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_membarrier,
    ];

    /// Makes all other system calls fail from now on, in all threads of the process.
    pub(super) fn give_up_most() -> Result<(), seccompiler::Error> {
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let architecture = std::env::consts::ARCH.try_into()?;
        let rules: BTreeMap<_, _> = ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
        let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?;
        apply_filter_all_threads(&BpfProgram::try_from(filter)?)
    }
}
