//! Memory for weights and activations: aligned for vector loads, on large pages where that saves address translation.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

/// Every buffer starts at a multiple of this many bytes: a cache line, and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Bytes of a large page. A buffer that spans several of them starts at one.
const LARGE_PAGE: usize = 2 << 20;

/// A fixed number of bytes, not initialized, shared between threads that agree on who writes where.
///
/// It hands out raw pointers only: the types built on it (a matrix, activations) say which parts are initialized.
pub(crate) struct Buffer {
    pointer: NonNull<u8>,
    layout: Layout,
    n_bytes: usize,
}

// SAFETY: the buffer owns its memory and has no thread affinity; whoever dereferences its pointer (always in an unsafe
// block) answers for there being no conflicting access.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference gives out nothing but the address.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `n_bytes` without initializing them.
    pub(crate) fn new(n_bytes: usize) -> Buffer {
        let alignment = if n_bytes >= 4 * LARGE_PAGE { LARGE_PAGE } else { ALIGNMENT };
        let layout = Layout::from_size_align(n_bytes.max(1), alignment).expect("a buffer fits into the address space");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        if alignment == LARGE_PAGE {
            advise_large_pages(pointer, n_bytes);
        }
        Buffer { pointer, layout, n_bytes }
    }

    /// Allocates `n_bytes` and sets them to zero.
    pub(crate) fn zeroed(n_bytes: usize) -> Buffer {
        let buffer = Buffer::new(n_bytes);
        // SAFETY: the allocation is `n_bytes` long, and nobody else knows of it yet.
        unsafe { buffer.as_ptr().write_bytes(0, n_bytes) };
        buffer
    }

    /// All of its bytes, some of which may not have been written yet.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the allocation is `n_bytes` long, borrowed mutably, and bytes of any kind are valid as `MaybeUninit`.
        unsafe { slice::from_raw_parts_mut(self.as_ptr().cast(), self.n_bytes) }
    }

    /// Bytes that it holds.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// The first byte. Valid for reads (where initialized) and writes over the buffer's length.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// Asks the kernel to back the memory with large pages. It is advice: a refusal changes nothing but speed.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_large_pages(pointer: NonNull<u8>, n_bytes: usize) {
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(address: *mut u8, length: usize, advice: i32) -> i32;
    }
    let whole_pages = n_bytes / LARGE_PAGE * LARGE_PAGE;
    // SAFETY: the range lies inside an allocation of ours that starts at a page, and the advice does not alter its bytes.
    unsafe { madvise(pointer.as_ptr(), whole_pages, MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_large_pages(_pointer: NonNull<u8>, _n_bytes: usize) {}
