//! Threads that stay, and work that is handed to them once per step.
//!
//! A step of a decoder is a few hundred short phases, each of which needs the results of the one before. Waking threads
//! for every phase would cost more than the phases do. So a job is handed over once, with all of its phases, and the
//! threads take the tasks of a phase one after the other from a common counter. The next phase begins when the last task
//! of a phase is done: what is waited for is *work*, never a thread, so that a thread that the system has taken off its
//! core without a task in its hands holds up nobody, and the caller could do all of the work alone.
//!
//! A thread that finds no task spins for some microseconds, then offers its core to others between looks, and then sleeps.

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

use cursor::{Cursor, Position};

/// How long a thread without work looks for it without a pause.
const SPIN: Duration = Duration::from_micros(20);
/// How long it then looks for it, letting others run between looks, before it sleeps.
const YIELD: Duration = Duration::from_micros(80);

/// Work in phases. All tasks of a phase may run at the same time; none starts before those of the phase before are done.
pub trait Phases: Sync {
    /// How many phases there are.
    fn n_phases(&self) -> usize;

    /// How many tasks a phase has; asked when the phases before it are done. Phases without tasks are skipped.
    fn n_tasks(&self, phase: usize) -> usize;

    /// Carries out one task. `thread` is below [`Pool::n_threads`], and no two tasks run with the same one at a time.
    fn run(&self, phase: usize, task: usize, thread: usize);
}

/// The calling thread and others that wait to help it.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `n_threads`, the caller's among them. Where the system refuses a thread, the pool has fewer.
    pub fn new(n_threads: NonZeroUsize) -> Self {
        let shared = Arc::new(Shared::new());
        let spawn = |thread| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("hone-compute-{thread}"));
            builder.spawn(move || shared.work(thread, Role::Worker)).ok()
        };
        let workers = (1..n_threads.get()).map_while(spawn).collect();
        Pool { shared, workers }
    }

    /// How many threads work, the caller's among them.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Carries out all phases, and returns when they are done.
    ///
    /// # Panics
    /// When a task panics: with what it panicked with, after every task that had begun has ended. No others begin then.
    pub fn run(&mut self, phases: &dyn Phases) {
        self.shared.start(phases);
        self.shared.work(0, Role::Caller);
        if let Some(payload) = self.shared.take_panic() {
            resume_unwind(payload);
        }
    }

    /// Carries out `n_tasks` tasks in any order. `run` is given the number of the task and that of the thread.
    ///
    /// # Panics
    /// As [`Pool::run`].
    pub fn for_each(&mut self, n_tasks: usize, run: impl Fn(usize, usize) + Sync) {
        self.run(&OnePhase { n_tasks, run });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for worker in self.workers.drain(..) {
            // A worker catches what its tasks panic with, so there is nothing to be told here.
            let _ = worker.join();
        }
    }
}

/// How many cores this process may compute on: threads of one core count once where the system tells.
pub fn physical_cores() -> NonZeroUsize {
    let allowed = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let siblings = |cpu: usize| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    };
    let mut cores: Vec<String> = (0..).map_while(siblings).collect();
    cores.sort_unstable();
    cores.dedup();
    NonZeroUsize::new(cores.len()).map_or(allowed, |cores| cores.min(allowed))
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

/// A value with a cache line, and the one that is fetched beside it, to itself.
#[repr(align(128))]
struct Alone<T>(T);

struct Shared {
    cursor: Alone<Cursor>,
    /// Tasks of the present phase that are done.
    n_done: Alone<AtomicUsize>,
    job: UnsafeCell<Option<*const dyn Phases>>,
    is_closed: AtomicBool,
    has_panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    n_sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: everything but `job` is shared safely by its own type. `job` is written by the caller while no task can be
// taken, and read by threads that hold a task; the cursor orders the two. What it points to is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; what `job` points to may be used from any thread.
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

    /// Lets all threads work on a job. The caller must see the job's end before it returns to its own caller.
    fn start(&self, phases: &dyn Phases) {
        // SAFETY: only the lifetime changes. The pointer is used by threads that hold a task, and the job does not end,
        // and so `Pool::run` does not return, while one is held.
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
        // SAFETY: this thread holds a task, so that the caller waits and the pointer is that of the job that runs.
        let phases = unsafe { (*self.job.get()).map(|job| &*job) }.expect("a task belongs to a job");
        if !self.has_panicked.load(Ordering::Relaxed) {
            self.catch(|| phases.run(taken.phase(), taken.task(), thread));
        }
        // Release and acquire: what all tasks of the phase have written is seen by whoever counts the last of them.
        if self.n_done.0.fetch_add(1, Ordering::AcqRel) + 1 == taken.n_tasks() {
            self.n_done.0.store(0, Ordering::Relaxed);
            self.enter(self.next_phase(phases, taken.phase() + 1));
        }
    }

    /// The first phase from `phase` on that has tasks, and how many; none when the job is over.
    fn next_phase(&self, phases: &dyn Phases, phase: usize) -> Option<(usize, usize)> {
        let mut next = None;
        self.catch(|| {
            let with_tasks = (phase..phases.n_phases()).map(|phase| (phase, phases.n_tasks(phase)));
            next = with_tasks.into_iter().find(|(_, n_tasks)| *n_tasks > 0);
        });
        next.filter(|_| !self.has_panicked.load(Ordering::Relaxed))
    }

    /// Begins a phase, or ends the job. It knows nothing of the job: that may be gone as soon as its end is told.
    fn enter(&self, next: Option<(usize, usize)>) {
        match next {
            Some((phase, n_tasks)) => {
                self.cursor.0.enter(phase, n_tasks);
                // This thread takes a task itself, so a single one is no reason to wake others.
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

    /// Returns when there is something to do: soon, if it comes soon.
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

    /// The counter of sleepers is raised before the last look, and whoever changes the cursor reads the counter after:
    /// in the single order of both (all are `SeqCst`) one of the two sees the other.
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
