//! An allocator that counts.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of all threads so far.
pub(crate) static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread holds.
    pub(crate) static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most that it held.
    pub(crate) static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// What comes of `run`, and the most bytes that this thread held meanwhile beyond those that it held before.
pub(crate) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    (result, PEAK.get() - before)
}

struct Counting;

impl Counting {
    fn add(bytes: isize) {
        // A thread that is ending has no counters any more, and nobody asks for them.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory that is being handed out.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        Self::add(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::add(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
