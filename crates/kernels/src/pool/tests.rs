use std::sync::atomic::AtomicU64;

use super::*;
use crate::elementwise::tests::sized;

fn pool(n_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(n_threads).unwrap())
}

/// Every phase adds up the results of the phase before, so a task that starts too early or never runs changes the sum.
struct Sums {
    widths: Vec<usize>,
    cells: Vec<Vec<AtomicU64>>,
}

impl Sums {
    fn new(widths: &[usize]) -> Self {
        let cells = widths.iter().map(|width| (0..*width).map(|_| AtomicU64::new(0)).collect()).collect();
        Sums { widths: widths.to_vec(), cells }
    }

    fn expected(&self) -> u64 {
        self.widths.iter().filter(|width| **width > 0).fold(1, |sum, width| sum % 1_000_003 * *width as u64)
    }

    fn last(&self) -> u64 {
        self.cells.iter().rev().find(|cells| !cells.is_empty()).map_or(1, |cells| sum(cells))
    }
}

fn sum(cells: &[AtomicU64]) -> u64 {
    cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
}

impl Phases for Sums {
    fn n_phases(&self) -> usize {
        self.widths.len()
    }

    fn n_tasks(&self, phase: usize) -> usize {
        self.widths[phase]
    }

    fn run(&self, phase: usize, task: usize, _thread: usize) {
        let before = self.cells[..phase].iter().rev().find(|cells| !cells.is_empty()).map_or(1, |cells| sum(cells));
        self.cells[phase][task].fetch_add(before % 1_000_003, Ordering::Relaxed);
    }
}

#[track_caller]
fn check(n_threads: usize, widths: &[usize]) {
    let mut pool = pool(n_threads);
    for _ in 0..sized(20, 2) {
        let sums = Sums::new(widths);
        pool.run(&sums);
        assert_eq!(sums.last(), sums.expected(), "{n_threads} threads, {widths:?}");
    }
}

#[test]
fn phases_follow_one_another() {
    for n_threads in 1..=4 {
        check(n_threads, &[]);
        check(n_threads, &[0, 0]);
        check(n_threads, &[1]);
        check(n_threads, &[3, 0, 1, 7, 2, 0]);
        check(n_threads, &[2; sized(500, 20)]);
    }
}

#[test]
fn many_tiny_steps_all_happen() {
    for n_threads in 1..=4 {
        let mut pool = pool(n_threads);
        let count = AtomicU64::new(0);
        for _ in 0..sized(10_000, 50) {
            pool.for_each(3, |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.into_inner(), 3 * sized(10_000, 50) as u64);
    }
}

#[test]
fn sleeping_threads_are_woken() {
    let mut pool = pool(3);
    for _ in 0..5 {
        while pool.shared.n_sleepers.load(Ordering::SeqCst) < pool.workers.len() {
            std::thread::yield_now();
        }
        // Both hold this lock until they sleep.
        drop(pool.shared.lock_sleep());
        let threads: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        // Each task waits for another one to begin, which takes a second thread.
        pool.for_each(2, |_, thread| {
            threads[thread].fetch_add(1, Ordering::SeqCst);
            while sum(&threads) < 2 {
                std::thread::yield_now();
            }
        });
        assert!(threads.iter().all(|count| count.load(Ordering::Relaxed) < 2));
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    for n_threads in 1..=4 {
        let mut pool = pool(n_threads);
        for task_that_fails in 0..8 {
            let run = |pool: &mut Pool| {
                pool.for_each(8, |task, _| assert!(task != task_that_fails, "task {task} failed"));
            };
            let payload = catch_unwind(AssertUnwindSafe(|| run(&mut pool))).unwrap_err();
            let message = payload.downcast_ref::<String>().unwrap();
            assert_eq!(*message, format!("task {task_that_fails} failed"));
            let count = AtomicU64::new(0);
            pool.for_each(5, |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 5);
        }
    }
}

#[test]
fn what_follows_a_panic_does_not_begin() {
    struct Failing;
    impl Phases for Failing {
        fn n_phases(&self) -> usize {
            2
        }
        fn n_tasks(&self, _phase: usize) -> usize {
            4
        }
        fn run(&self, phase: usize, task: usize, _thread: usize) {
            assert_eq!(phase, 0, "the second phase began");
            assert_ne!(task, 2, "expected");
        }
    }
    let payload = catch_unwind(AssertUnwindSafe(|| pool(2).run(&Failing))).unwrap_err();
    assert!(payload.downcast_ref::<String>().unwrap().contains("expected"));
}
