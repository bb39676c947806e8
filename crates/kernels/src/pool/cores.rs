//! How many cores are worth a thread.
//!
//! A phase ends with its last task, so on a processor with two kinds of cores the slow ones would hold up the fast ones.

use std::num::NonZeroUsize;

/// The number of fast cores available to this process; the threads of one core count once. Where the system says nothing
/// about speeds or siblings, all count.
pub fn performance_cores() -> NonZeroUsize {
    let allowed = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(fast_cores()).map_or(allowed, |cores| cores.min(allowed))
}

/// A logical processor as Linux describes it.
#[cfg(any(test, not(target_os = "macos")))]
struct Processor {
    /// The processors that share its core.
    siblings: String,
    /// Its speed, where that of the fastest is 1024; kernels that know only one speed do not give it.
    capacity: Option<u32>,
}

/// Cores that are at least half as fast as the fastest; 0 if unknown.
#[cfg(not(target_os = "macos"))]
fn fast_cores() -> usize {
    let read = |cpu: usize, file| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).ok();
    let processors = (0..).map_while(|cpu| {
        let siblings = read(cpu, "topology/thread_siblings_list")?;
        let capacity = read(cpu, "cpu_capacity").and_then(|capacity| capacity.trim().parse().ok());
        Some(Processor { siblings, capacity })
    });
    count_fast(processors.collect())
}

#[cfg(any(test, not(target_os = "macos")))]
fn count_fast(processors: Vec<Processor>) -> usize {
    let fastest = processors.iter().filter_map(|processor| processor.capacity).max().unwrap_or(0);
    let is_fast = |processor: &Processor| processor.capacity.is_none_or(|capacity| capacity >= fastest.div_ceil(2));
    let mut cores: Vec<String> = processors.into_iter().filter(is_fast).map(|processor| processor.siblings).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

/// The cores of the fastest kind; 0 if unknown.
#[cfg(target_os = "macos")]
fn fast_cores() -> usize {
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr::{from_mut, null_mut};

    // SAFETY: the declaration is that of `sys/sysctl.h`.
    unsafe extern "C" {
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_size: *mut usize,
            new: *mut c_void,
            new_size: usize,
        ) -> c_int;
    }

    let mut cores: c_int = 0;
    let mut size = size_of::<c_int>();
    let name = c"hw.perflevel0.physicalcpu";
    // SAFETY: the name ends with a null byte, and at most `size` bytes are written to `cores`.
    let status = unsafe { sysctlbyname(name.as_ptr(), from_mut(&mut cores).cast(), &mut size, null_mut(), 0) };
    if status == 0 { usize::try_from(cores).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the fast cores among processors of which each is given as its siblings and its capacity.
    fn check(processors: &[(&str, Option<u32>)], expected: usize) {
        let processor = |&(siblings, capacity): &(&str, Option<u32>)| Processor { siblings: siblings.into(), capacity };
        assert_eq!(count_fast(processors.iter().map(processor).collect()), expected, "{processors:?}");
    }

    #[test]
    fn slow_cores_do_not_count() {
        check(&[("0", Some(290)), ("1", Some(290)), ("2", Some(870)), ("3", Some(1024))], 2);
        check(&[("0", Some(512)), ("1", Some(1024))], 2);
        check(&[("0", Some(400)), ("1", Some(400))], 2);
    }

    #[test]
    fn threads_of_a_core_count_once() {
        check(&[("0,2", None), ("1,3", None), ("0,2", None), ("1,3", None)], 2);
        check(&[], 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri lets nobody read the machine's files")]
    fn no_more_cores_count_than_this_process_may_use() {
        assert!(performance_cores() <= std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    }
}
