//! Linux describes every processor in files. Other systems have no such files, and nothing is known about their cores.

/// A logical processor.
struct Processor {
    /// The processors that share its core.
    siblings: String,
    /// Its speed relative to 1024 for the fastest; kernels that know only one speed do not report it.
    capacity: Option<u32>,
}

/// Cores that are at least half as fast as the fastest; 0 if unknown.
pub(super) fn fast_cores() -> usize {
    let read = |cpu: usize, file| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).ok();
    let processors = (0..).map_while(|cpu| {
        let siblings = read(cpu, "topology/thread_siblings_list")?;
        let capacity = read(cpu, "cpu_capacity").and_then(|capacity| capacity.trim().parse().ok());
        Some(Processor { siblings, capacity })
    });
    count_fast(processors.collect())
}

/// Asks the system to run this thread on its fast cores. Does nothing here: busy threads get them anyway.
pub fn prefer_performance_cores() {}

fn count_fast(processors: Vec<Processor>) -> usize {
    let fastest = processors.iter().filter_map(|processor| processor.capacity).max().unwrap_or(0);
    let is_fast = |processor: &Processor| processor.capacity.is_none_or(|capacity| capacity >= fastest.div_ceil(2));
    let mut cores: Vec<String> = processors.into_iter().filter(is_fast).map(|processor| processor.siblings).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the fast cores among processors, each given by its siblings and its capacity.
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
}
