//! Memory for weights and activations: aligned for vector loads, and for weights on large pages, which save most of
//! the address translation when they are streamed.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Every buffer starts at a multiple of this many bytes: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

/// Bytes of a region that several matrices share. Parts that are never written take no memory, except the rest of the
/// last large page.
const REGION_BYTES: usize = 64 << 20;

/// A fixed number of bytes, shared between threads that coordinate who writes where.
///
/// It hands out raw pointers: the types built on it (a matrix, activations) say which parts are initialized.
pub(crate) struct Buffer {
    pointer: NonNull<u8>,
    n_bytes: usize,
    /// Keeps the memory; other buffers may lie in it too.
    _region: Arc<Region>,
}

// SAFETY: the buffer's bytes are its own and have no thread affinity; code that dereferences its pointer (always in an
// unsafe block) must ensure that there is no conflicting access.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference exposes only the address.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates separate memory for `n_bytes`, all zero.
    pub(crate) fn zeroed(n_bytes: usize) -> Buffer {
        let region = Region::new(n_bytes, ALIGNMENT);
        // SAFETY: the region is `n_bytes` long, and not shared yet.
        unsafe { region.pointer.as_ptr().write_bytes(0, n_bytes) };
        Buffer { pointer: region.pointer, n_bytes, _region: Arc::new(region) }
    }

    /// Allocates uninitialized memory for `n_bytes` of weights, on large pages that it may share with other weights.
    pub(crate) fn for_weights(n_bytes: usize) -> Buffer {
        /// The region for the next weights, and the number of its bytes in use.
        static OPEN: Mutex<(Weak<Region>, usize)> = Mutex::new((Weak::new(), 0));

        if n_bytes > REGION_BYTES / 4 {
            let region = Region::new(n_bytes, LARGE_PAGE);
            return Buffer { pointer: region.pointer, n_bytes, _region: Arc::new(region) };
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, start) = match open.0.upgrade() {
            Some(region) if open.1 + n_bytes <= REGION_BYTES => (region, open.1),
            _ => (Arc::new(Region::new(REGION_BYTES, LARGE_PAGE)), 0),
        };
        *open = (Arc::downgrade(&region), (start + n_bytes).next_multiple_of(ALIGNMENT));
        // SAFETY: `start + n_bytes` is at most the region's length.
        let pointer = unsafe { region.pointer.add(start) };
        Buffer { pointer, n_bytes, _region: region }
    }

    /// All of its bytes, some of which may not have been written yet.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: these `n_bytes` of the region are this buffer's alone, borrowed mutably, and bytes of any kind are
        // valid as `MaybeUninit`.
        unsafe { slice::from_raw_parts_mut(self.as_ptr().cast(), self.n_bytes) }
    }

    /// Size in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// The first byte. Valid for reads (where initialized) and writes over the buffer's length.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

/// One allocation that contains buffers.
struct Region {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the region only owns its memory; access to it goes through the buffers.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new(n_bytes: usize, alignment: usize) -> Region {
        let layout = Layout::from_size_align(n_bytes.max(1), alignment).expect("a buffer fits into the address space");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        if alignment == LARGE_PAGE {
            advise_large_pages(pointer, n_bytes);
        }
        Region { pointer, layout }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// Asks the kernel to back the memory with large pages. This is advice: a refusal affects only speed.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_large_pages(pointer: NonNull<u8>, n_bytes: usize) {
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(address: *mut u8, length: usize, advice: i32) -> i32;
    }
    let whole_pages = n_bytes / LARGE_PAGE * LARGE_PAGE;
    // SAFETY: the range lies inside an allocation of ours that starts at a page, and the advice does not alter its
    // bytes.
    unsafe { madvise(pointer.as_ptr(), whole_pages, MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_large_pages(_pointer: NonNull<u8>, _n_bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_share_regions_without_overlapping() {
        let unit = if cfg!(miri) { 10 } else { 100_000 };
        let mut buffers: Vec<Buffer> = (1..40).map(|idx| Buffer::for_weights(idx * unit)).collect();
        for (idx, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            buffer.as_uninit_mut().fill(MaybeUninit::new(idx as u8));
        }
        for (idx, buffer) in buffers.iter().enumerate() {
            // SAFETY: all bytes were written above.
            let bytes = unsafe { slice::from_raw_parts(buffer.as_ptr(), buffer.n_bytes()) };
            assert!(bytes.iter().all(|&byte| byte == idx as u8), "buffer {idx}");
        }
    }
}
