//! Keys and values of one layer, in half precision, in blocks of 32 positions.
//!
//! A block's keys are stored by element: the first element of all 32 positions, then the second. A register then holds as
//! many positions, a query's products with them need no sum over a register, and one conversion serves all query heads
//! that share the keys. Values are stored by position, since they are summed over positions. Storage grows by segments,
//! and a segment's pages cost nothing before they are written.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use half::f16;

/// Positions of a block.
pub const BLOCK_POSITIONS: usize = 32;

/// Blocks of a segment: enough for a head's blocks to lie in one piece for a while, few enough for a short answer to
/// touch little memory.
const SEGMENT_BLOCKS: usize = 8;

/// Elements of a cache line; segments start at one.
const LINE_ELEMENTS: usize = 32;

/// `dim` rounded up to two of the widest registers.
pub(crate) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(32)
}

/// One layer's part of the cache. It hands out pointers: who may use which is agreed upon by those who share it.
pub(crate) struct KvLayer {
    n_kv_heads: usize,
    head_dim: usize,
    segments: Vec<Segment>,
}

struct Segment {
    keys: Zeroed,
    values: Zeroed,
}

impl KvLayer {
    pub(crate) fn new(n_kv_heads: usize, head_dim: usize) -> Self {
        KvLayer { n_kv_heads, head_dim, segments: Vec::new() }
    }

    pub(crate) fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Makes room for the blocks below `n_blocks`; new ones are zero.
    pub(crate) fn grow(&mut self, n_blocks: usize) {
        let key_elements = self.n_kv_heads * SEGMENT_BLOCKS * self.key_block_elements();
        let value_elements = self.n_kv_heads * SEGMENT_BLOCKS * self.value_block_elements();
        while self.segments.len() * SEGMENT_BLOCKS < n_blocks {
            self.segments.push(Segment { keys: Zeroed::new(key_elements), values: Zeroed::new(value_elements) });
        }
    }

    /// Keys of one head: `[head_dim][BLOCK_POSITIONS]`.
    ///
    /// # Panics
    /// When there is no such block or head.
    pub(crate) fn keys(&self, block: u32, kv_head: usize) -> *mut f16 {
        let (segment, index) = self.locate(block, kv_head);
        // SAFETY: the index is below the segment's number of blocks.
        unsafe { segment.keys.start().add(index * self.key_block_elements()) }
    }

    /// Values of one head: `[BLOCK_POSITIONS][padded head_dim]`.
    ///
    /// # Panics
    /// When there is no such block or head.
    pub(crate) fn values(&self, block: u32, kv_head: usize) -> *mut f16 {
        let (segment, index) = self.locate(block, kv_head);
        // SAFETY: the index is below the segment's number of blocks.
        unsafe { segment.values.start().add(index * self.value_block_elements()) }
    }

    /// Writes one head's key and value of one position.
    ///
    /// # Safety
    /// Nobody else touches this position of the block at the same time.
    pub(crate) unsafe fn write(&self, block: u32, slot: usize, kv_head: usize, key: &[f16], value: &[f16]) {
        assert!(slot < BLOCK_POSITIONS && key.len() == self.head_dim && value.len() == self.head_dim);
        let (keys, values) = (self.keys(block, kv_head), self.values(block, kv_head));
        // SAFETY: the slot and the lengths are within the block, and the caller has it to itself.
        unsafe {
            for (index, element) in key.iter().enumerate() {
                *keys.add(index * BLOCK_POSITIONS + slot) = *element;
            }
            let target = values.add(slot * padded(self.head_dim));
            std::ptr::copy_nonoverlapping(value.as_ptr(), target, value.len());
        }
    }

    /// Copies a block's content.
    ///
    /// # Panics
    /// When there is no such block.
    pub(crate) fn copy_block(&mut self, from: u32, to: u32) {
        for kv_head in 0..self.n_kv_heads {
            // SAFETY: `&mut self` keeps others away; both blocks are there, and may be the same.
            unsafe {
                std::ptr::copy(self.keys(from, kv_head), self.keys(to, kv_head), self.key_block_elements());
                std::ptr::copy(self.values(from, kv_head), self.values(to, kv_head), self.value_block_elements());
            }
        }
    }

    fn locate(&self, block: u32, kv_head: usize) -> (&Segment, usize) {
        let (segment, block) = (block as usize / SEGMENT_BLOCKS, block as usize % SEGMENT_BLOCKS);
        assert!(kv_head < self.n_kv_heads, "there is no such head");
        (&self.segments[segment], kv_head * SEGMENT_BLOCKS + block)
    }

    fn key_block_elements(&self) -> usize {
        self.head_dim * BLOCK_POSITIONS
    }

    fn value_block_elements(&self) -> usize {
        padded(self.head_dim) * BLOCK_POSITIONS
    }
}

/// Memory that the system hands out as zeros, page by page, when it is first touched.
struct Zeroed {
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, and hands out nothing but its address.
unsafe impl Send for Zeroed {}
// SAFETY: as above.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// The allocator is asked for little alignment, because for more it would write the zeros itself.
    fn new(n_elements: usize) -> Self {
        let layout = Layout::array::<f16>(n_elements + LINE_ELEMENTS).expect("a segment fits the address space");
        // SAFETY: the layout is not empty.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) });
        Zeroed { allocation: allocation.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    /// The first cache line within.
    fn start(&self) -> *mut f16 {
        let offset = self.allocation.align_offset(LINE_ELEMENTS * size_of::<f16>());
        // SAFETY: the allocation is longer by one line than what is used of it.
        unsafe { self.allocation.as_ptr().add(offset).cast() }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}
