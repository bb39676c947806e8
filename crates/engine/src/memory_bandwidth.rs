//! Measures the speed of reading memory. It is in this crate because this crate is optimized in every build:
//! unoptimized code reads slower than memory allows.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// How often memory is read; the fastest reading counts.
const PASSES: usize = 3;

/// Reads a buffer of `n_bytes` with all of `n_threads`, several times, and returns the bandwidth in bytes per second.
/// The buffer should be larger than the processor's caches.
pub fn memory_bandwidth(n_bytes: usize, n_threads: usize) -> f64 {
    // Pages of zeros may all be the same page.
    let buffer = vec![1u64; (n_bytes / 8).max(1)];
    let share = buffer.len().div_ceil(n_threads.max(1));
    let pass = || {
        let start = Instant::now();
        thread::scope(|scope| buffer.chunks(share).for_each(|part| drop(scope.spawn(move || black_box(sum(part))))));
        start.elapsed()
    };
    let fastest = (0..PASSES).map(|_| pass()).min().unwrap_or_default().max(Duration::from_nanos(1));
    // A whole number is read back exactly as it was written.
    ((8 * buffer.len()) as f64 / fastest.as_secs_f64()).round()
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number))
}
