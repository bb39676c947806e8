//! How many cores are worth a thread, and how a thread gets to run on them.
//!
//! A phase ends with its last task, so on a processor with two kinds of cores the slow ones would hold up the fast ones.

#[cfg(not(target_os = "macos"))]
#[path = "cores/linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "cores/macos.rs"]
mod system;

use std::num::NonZeroUsize;

pub use system::prefer_performance_cores;

/// The number of fast cores available to this process; the threads of one core count once. Where the system says nothing
/// about speeds or siblings, all count.
pub fn performance_cores() -> NonZeroUsize {
    let allowed = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(system::fast_cores()).map_or(allowed, |cores| cores.min(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri lets nobody read the machine's files")]
    fn no_more_cores_count_than_this_process_may_use() {
        assert!(performance_cores() <= std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    }
}
