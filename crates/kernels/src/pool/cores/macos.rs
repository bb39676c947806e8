//! macOS counts the cores of each kind, and chooses among the kinds by a thread's quality of service.

use std::ptr::{from_mut, null_mut};

/// The cores of the fastest kind; 0 if unknown.
pub(super) fn fast_cores() -> usize {
    let mut cores: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>();
    let name = c"hw.perflevel0.physicalcpu";
    // SAFETY: the name ends with a null byte, and at most `size` bytes are written to `cores`.
    let status = unsafe { libc::sysctlbyname(name.as_ptr(), from_mut(&mut cores).cast(), &mut size, null_mut(), 0) };
    if status == 0 { usize::try_from(cores).unwrap_or(0) } else { 0 }
}

/// Asks the system to run this thread on its fast cores, as user-initiated work. A refusal affects only speed.
pub fn prefer_performance_cores() {
    // SAFETY: the call affects the scheduling of the calling thread only.
    unsafe { libc::pthread_set_qos_class_self_np(libc::qos_class_t::QOS_CLASS_USER_INITIATED, 0) };
}
