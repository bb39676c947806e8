//! A persistent thread pool that receives its work once per step.
//!
//! A step of a decoder has a few hundred short phases, each of which needs the results of the one before. Waking
//! threads for every phase would cost more than the phases do. So a job is submitted once, with all of its phases, and
//! the threads take the tasks of a phase from a shared counter. The next phase begins when the last task of a phase is
//! done: phases wait for *work*, never for a thread, so a thread that is preempted between tasks delays no one, and the
//! caller could do all of the work alone.
//!
//! A thread that finds no task spins for some microseconds, then yields its core between checks, and then sleeps.

mod cores;
mod cursor;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use cores::{performance_cores, prefer_performance_cores};
use cursor::{Cursor, Position};

/// How long an idle thread spins.
const SPIN: Duration = Duration::from_micros(20);
/// How long it then keeps checking, yielding in between, before it sleeps.
const YIELD: Duration = Duration::from_micros(80);

/// Work in phases. All tasks of a phase may run at the same time; no task starts before the previous phase is done.
pub(crate) trait Phases: Sync {
    /// The number of phases.
    fn n_phases(&self) -> usize;

    /// The number of tasks in a phase, queried once the phases before it are done. Phases without tasks are skipped.
    fn n_tasks(&self, phase: usize) -> usize;

    /// Carries out one task. `thread` is below [`Pool::n_threads`], and no two concurrent tasks have the same one.
    fn run(&self, phase: usize, task: usize, thread: usize);
}

/// The calling thread and the threads that help it.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Creates a pool of `n_threads`, including the caller's. If the system refuses a thread, the pool has fewer.
    pub fn new(n_threads: NonZeroUsize) -> Self {
        let shared = Arc::new(Shared::new());
        let spawn = |thread| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("hone-compute-{thread}"));
            let work = move || {
                prefer_performance_cores();
                shared.work(thread, Role::Worker);
            };
            builder.spawn(work).ok()
        };
        let workers = (1..n_threads.get()).map_while(spawn).collect();
        Pool { shared, workers }
    }

    /// The number of threads, including the caller's.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs all phases, and returns when they are done.
    ///
    /// # Panics
    /// When a task panics: with the same payload, after every running task has ended. No further tasks begin then.
    pub(crate) fn run(&mut self, phases: &dyn Phases) {
        self.shared.start(phases);
        self.shared.work(0, Role::Caller);
        if let Some(payload) = self.shared.take_panic() {
            resume_unwind(payload);
        }
    }

    /// Runs `n_tasks` tasks in any order. `run` is given the task's and the thread's numbers.
    ///
    /// # Panics
    /// When a task panics: with the same payload, after every running task has ended.
    pub fn for_each(&mut self, n_tasks: usize, run: impl Fn(usize, usize) + Sync) {
        self.run(&OnePhase { n_tasks, run });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so there is nothing to report here.
            let _ = worker.join();
        }
    }
}

struct OnePhase<F> {
    n_tasks: usize,
    run: F,
}

impl<F: Fn(usize, usize) + Sync> Phases for OnePhase<F> {
    fn n_phases(&self) -> usize {
        1
    }

    fn n_tasks(&self, _phase: usize) -> usize {
        self.n_tasks
    }

    fn run(&self, _phase: usize, task: usize, thread: usize) {
        (self.run)(task, thread);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Returns when the job is done.
    Caller,
    /// Returns when the pool is dropped.
    Worker,
}

/// A value that has its cache line, and the adjacent one fetched with it, to itself.
#[repr(align(128))]
struct Alone<T>(T);

struct Shared {
    cursor: Alone<Cursor>,
    /// Finished tasks of the current phase.
    n_done: Alone<AtomicUsize>,
    job: UnsafeCell<Option<*const dyn Phases>>,
    is_closed: AtomicBool,
    has_panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    n_sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: every field but `job` is itself safe to share. `job` is written by the caller while no task can be taken, and
// read by threads that hold a task; the cursor orders the two. It points to something Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the target of `job` may be used from any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Self {
        Shared {
            cursor: Alone(Cursor::at_end()),
            n_done: Alone(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            is_closed: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            n_sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Starts a job on all threads. The caller must wait for the job's end before returning.
    fn start(&self, phases: &dyn Phases) {
        // SAFETY: only the lifetime changes. Only threads that hold a task use the pointer. The job does not end while
        // a task is held, so `Pool::run` does not return before then.
        let erased = unsafe { std::mem::transmute::<*const dyn Phases, *const (dyn Phases + 'static)>(phases) };
        // SAFETY: the cursor is at its end, so no thread holds a task or can take one, and none reads the pointer.
        unsafe { *self.job.get() = Some(erased) };
        self.enter(self.next_phase(phases, 0));
    }

    fn work(&self, thread: usize, role: Role) {
        loop {
            let position = self.cursor.0.look();
            if position.has_task() {
                if let Some(task) = self.cursor.0.take() {
                    self.perform(task, thread);
                }
            } else if self.is_over(position, role) {
                return;
            } else {
                self.wait(role);
            }
        }
    }

    fn is_over(&self, position: Position, role: Role) -> bool {
        match role {
            Role::Caller => position.is_end(),
            Role::Worker => self.is_closed.load(Ordering::SeqCst),
        }
    }

    fn perform(&self, taken: Position, thread: usize) {
        // SAFETY: this thread holds a task, so the caller waits and the pointer belongs to the running job.
        let phases = unsafe { (*self.job.get()).map(|job| &*job) }.expect("a task belongs to a job");
        if !self.has_panicked.load(Ordering::Relaxed) {
            self.catch(|| phases.run(taken.phase(), taken.task(), thread));
        }
        // Release and acquire: the thread that counts the last task sees the writes of all tasks of the phase.
        if self.n_done.0.fetch_add(1, Ordering::AcqRel) + 1 == taken.n_tasks() {
            self.n_done.0.store(0, Ordering::Relaxed);
            self.enter(self.next_phase(phases, taken.phase() + 1));
        }
    }

    /// The first phase from `phase` on that has tasks, and their number; `None` when the job is over.
    fn next_phase(&self, phases: &dyn Phases, phase: usize) -> Option<(usize, usize)> {
        let mut next = None;
        self.catch(|| {
            let with_tasks = (phase..phases.n_phases()).map(|phase| (phase, phases.n_tasks(phase)));
            next = with_tasks.into_iter().find(|(_, n_tasks)| *n_tasks > 0);
        });
        next.filter(|_| !self.has_panicked.load(Ordering::Relaxed))
    }

    /// Begins a phase, or ends the job. Does not access the job, which may be dropped as soon as its end is visible.
    fn enter(&self, next: Option<(usize, usize)>) {
        match next {
            Some((phase, n_tasks)) => {
                self.cursor.0.enter(phase, n_tasks);
                // This thread takes a task itself, so a single task is no reason to wake others.
                if n_tasks > 1 {
                    self.wake_all();
                }
            }
            None => {
                self.cursor.0.end();
                self.wake_all();
            }
        }
    }

    fn catch(&self, work: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            self.has_panicked.store(true, Ordering::Relaxed);
        }
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.has_panicked.store(false, Ordering::Relaxed);
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns when there is something to do; spins first, in case it comes soon.
    fn wait(&self, role: Role) {
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                if self.is_awaited(role) {
                    return;
                }
                std::hint::spin_loop();
            }
            let waited = start.elapsed();
            if waited > SPIN + YIELD {
                return self.sleep(role);
            }
            if waited > SPIN {
                std::thread::yield_now();
            }
        }
    }

    fn is_awaited(&self, role: Role) -> bool {
        let position = self.cursor.0.look();
        position.has_task() || self.is_over(position, role)
    }

    /// The number of sleepers is raised before the last check, and a thread that changes the cursor reads that number
    /// afterwards: in the total order of both (all are `SeqCst`), one of the two sees the other.
    fn sleep(&self, role: Role) {
        let mut guard = self.lock_sleep();
        self.n_sleepers.fetch_add(1, Ordering::SeqCst);
        while !self.is_awaited(role) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.n_sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        if self.n_sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock_sleep());
            self.wake.notify_all();
        }
    }

    fn lock_sleep(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
