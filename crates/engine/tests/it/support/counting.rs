//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of all threads so far.
pub(crate) static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread has allocated.
    pub(crate) static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The maximum so far.
    pub(crate) static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The result of `run`, and the peak of this thread's allocated bytes beyond those allocated before.
pub(crate) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    (result, PEAK.get() - before)
}

struct Counting;

impl Counting {
    fn add(bytes: isize) {
        // A thread that is ending has no counters any more, and none are needed.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting does not touch the memory handed out.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        Self::add(layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::add(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}
