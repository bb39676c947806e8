//! The state of a job in one word: its phase, the number of its tasks, and the next task. Taking a task therefore also
//! yields its phase.

use std::sync::atomic::{AtomicU64, Ordering};

const TASK_BITS: u32 = 20;
const TASK_MASK: u64 = (1 << TASK_BITS) - 1;
const MAX_PHASE: u64 = (1 << (64 - 2 * TASK_BITS)) - 1;

/// Maximum number of tasks of a phase. Threads that find none left still increment the counter, hence the spare room.
const MAX_TASKS: usize = (TASK_MASK / 2) as usize;

/// The counter that tasks are taken from.
pub(super) struct Cursor(AtomicU64);

/// A snapshot of the counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(u64);

impl Cursor {
    pub(super) fn at_end() -> Self {
        Cursor(AtomicU64::new(Position::END.0))
    }

    /// `SeqCst` for threads that are about to sleep; on x86-64 it costs the same as any load.
    pub(super) fn look(&self) -> Position {
        Position(self.0.load(Ordering::SeqCst))
    }

    /// Takes the next task of the current phase, if one is left.
    pub(super) fn take(&self) -> Option<Position> {
        let position = Position(self.0.fetch_add(1, Ordering::AcqRel));
        position.has_task().then_some(position)
    }

    pub(super) fn enter(&self, phase: usize, n_tasks: usize) {
        assert!(n_tasks <= MAX_TASKS && (phase as u64) < MAX_PHASE, "a job has too many tasks or phases");
        self.0.store((phase as u64) << (2 * TASK_BITS) | (n_tasks as u64) << TASK_BITS, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.0.store(Position::END.0, Ordering::SeqCst);
    }
}

impl Position {
    /// The last phase, without tasks.
    const END: Position = Position(MAX_PHASE << (2 * TASK_BITS));

    pub(super) fn phase(self) -> usize {
        (self.0 >> (2 * TASK_BITS)) as usize
    }

    pub(super) fn n_tasks(self) -> usize {
        (self.0 >> TASK_BITS & TASK_MASK) as usize
    }

    pub(super) fn task(self) -> usize {
        (self.0 & TASK_MASK) as usize
    }

    pub(super) fn has_task(self) -> bool {
        self.task() < self.n_tasks()
    }

    /// A thread that looked just before the end may have incremented the counter, so only the phase is compared.
    pub(super) fn is_end(self) -> bool {
        self.phase() as u64 == MAX_PHASE
    }
}
