//! Keys and values of one layer, in half precision or in 8 bits, in blocks of 32 positions.
//!
//! A block's keys are stored by element: the first element of all 32 positions, then the second, and so on. The lanes
//! of a register are then positions, so a query's products with them need no sum across a register, and one conversion
//! serves all query heads that share the keys. Values are stored by position, since they are summed over positions.
//! Storage grows in segments, and a segment's pages cost nothing before they are written.
//!
//! In 8 bits, 32 neighbouring elements of a key or value share a scale in half precision, as in llama.cpp's Q8_0. A
//! block's quants come first, in the order just described, and then its scales: for keys, the scales of all 32
//! positions for the first 32 elements, and so on; for values, all scales of the first position, and so on. Attention
//! unpacks a block before it reads it, which costs less than it saves when contexts are long.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;
use std::str::FromStr;

use half::f16;

/// Positions per block.
pub const BLOCK_TOKENS: usize = 32;

/// Blocks per segment: enough that a head's blocks are mostly contiguous, few enough that a short answer touches little
/// memory.
const SEGMENT_BLOCKS: usize = 8;

/// Elements per cache line; segments start at a cache line.
const LINE_ELEMENTS: usize = 32;

/// `dim` rounded up to two of the widest registers.
pub(crate) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(32)
}

/// Elements that share a scale, in formats with scales.
pub(crate) const SCALE_ELEMENTS: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// In half precision.
    #[default]
    F16,
    /// In 8 bits with a scale for every 32 elements: little more than half of the memory.
    Q8_0,
}

impl KvFormat {
    /// Bytes that `n_elements` of a key or value take.
    pub const fn n_bytes(self, n_elements: usize) -> usize {
        match self {
            KvFormat::F16 => n_elements * size_of::<f16>(),
            KvFormat::Q8_0 => n_elements + n_elements.div_ceil(SCALE_ELEMENTS) * size_of::<f16>(),
        }
    }
}

impl FromStr for KvFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f16" => Ok(KvFormat::F16),
            "q8_0" => Ok(KvFormat::Q8_0),
            _ => Err(format!("unknown kv_cache {text:?}: expected f16 or q8_0")),
        }
    }
}

/// One layer's part of the cache. It hands out pointers; its users must coordinate access.
pub(crate) struct KvLayer {
    format: KvFormat,
    n_kv_heads: usize,
    head_dim: usize,
    segments: Vec<Segment>,
}

struct Segment {
    keys: Zeroed,
    values: Zeroed,
}

impl KvLayer {
    pub(crate) fn new(format: KvFormat, n_kv_heads: usize, head_dim: usize) -> Self {
        KvLayer { format, n_kv_heads, head_dim, segments: Vec::new() }
    }

    pub(crate) fn format(&self) -> KvFormat {
        self.format
    }

    pub(crate) fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Makes room for the blocks below `n_blocks`; new ones are zero.
    pub(crate) fn grow(&mut self, n_blocks: usize) {
        let key_bytes = self.n_kv_heads * SEGMENT_BLOCKS * self.key_block_bytes();
        let value_bytes = self.n_kv_heads * SEGMENT_BLOCKS * self.value_block_bytes();
        while self.segments.len() * SEGMENT_BLOCKS < n_blocks {
            self.segments.push(Segment { keys: Zeroed::new(key_bytes), values: Zeroed::new(value_bytes) });
        }
    }

    /// Keys of one head: `[head_dim][BLOCK_TOKENS]` elements, followed by `[head_dim / 32][BLOCK_TOKENS]` scales if the
    /// format has them.
    ///
    /// # Panics
    /// When the block or head does not exist.
    pub(crate) fn keys(&self, block: u32, kv_head: usize) -> *mut u8 {
        let (segment, index) = self.locate(block, kv_head);
        // SAFETY: the index is below the segment's number of blocks.
        unsafe { segment.keys.start().add(index * self.key_block_bytes()) }
    }

    /// Values of one head: `[BLOCK_TOKENS][padded head_dim]` elements, followed by `[BLOCK_TOKENS][padded head_dim /
    /// 32]` scales if the format has them.
    ///
    /// # Panics
    /// When the block or head does not exist.
    pub(crate) fn values(&self, block: u32, kv_head: usize) -> *mut u8 {
        let (segment, index) = self.locate(block, kv_head);
        // SAFETY: the index is below the segment's number of blocks.
        unsafe { segment.values.start().add(index * self.value_block_bytes()) }
    }

    /// Elements of a block's keys.
    pub(crate) fn key_elements(&self) -> usize {
        self.head_dim * BLOCK_TOKENS
    }

    /// Elements of a block's values.
    pub(crate) fn value_elements(&self) -> usize {
        padded(self.head_dim) * BLOCK_TOKENS
    }

    /// Writes one head's key and value of one position.
    ///
    /// # Safety
    /// No one else touches this position of the block at the same time.
    pub(crate) unsafe fn write(&self, block: u32, slot: usize, kv_head: usize, key: &[f16], value: &[f16]) {
        assert!(slot < BLOCK_TOKENS && key.len() == self.head_dim && value.len() == self.head_dim);
        let (keys, values) = (self.keys(block, kv_head), self.values(block, kv_head));
        let value_at = slot * padded(self.head_dim);
        // SAFETY: the slot and the lengths are within the block, and the caller has exclusive access.
        unsafe {
            match self.format {
                KvFormat::F16 => {
                    let (keys, values) = (keys.cast::<f16>(), values.cast::<f16>());
                    for (index, element) in key.iter().enumerate() {
                        *keys.add(index * BLOCK_TOKENS + slot) = *element;
                    }
                    std::ptr::copy_nonoverlapping(value.as_ptr(), values.add(value_at), value.len());
                }
                KvFormat::Q8_0 => {
                    let scales = keys.add(self.key_elements()).cast::<f16>().add(slot);
                    write_quants(key, keys.add(slot).cast(), BLOCK_TOKENS, scales, BLOCK_TOKENS);
                    let scales = values.add(self.value_elements()).cast::<f16>().add(value_at / SCALE_ELEMENTS);
                    write_quants(value, values.add(value_at).cast(), 1, scales, 1);
                }
            }
        }
    }

    /// Copies a block's content.
    ///
    /// # Panics
    /// When a block does not exist.
    pub(crate) fn copy_block(&mut self, from: u32, to: u32) {
        for kv_head in 0..self.n_kv_heads {
            // SAFETY: `&mut self` excludes other accesses; both blocks exist, and may be the same.
            unsafe {
                std::ptr::copy(self.keys(from, kv_head), self.keys(to, kv_head), self.key_block_bytes());
                std::ptr::copy(self.values(from, kv_head), self.values(to, kv_head), self.value_block_bytes());
            }
        }
    }

    /// Appends a block's content to `out`.
    ///
    /// # Panics
    /// When the block does not exist.
    pub(crate) fn read_block(&self, block: u32, out: &mut Vec<u8>) {
        for kv_head in 0..self.n_kv_heads {
            // SAFETY: the block exists, and writing to it requires the layer's owner, which this borrows.
            unsafe {
                out.extend_from_slice(slice::from_raw_parts(self.keys(block, kv_head), self.key_block_bytes()));
                out.extend_from_slice(slice::from_raw_parts(self.values(block, kv_head), self.value_block_bytes()));
            }
        }
    }

    /// Writes content returned by [`KvLayer::read_block`] into a block.
    ///
    /// # Panics
    /// When the block does not exist, or the content has the wrong length.
    pub(crate) fn write_block(&mut self, block: u32, content: &[u8]) {
        let (key_bytes, value_bytes) = (self.key_block_bytes(), self.value_block_bytes());
        assert_eq!(content.len(), self.n_kv_heads * (key_bytes + value_bytes), "the content is that of one block");
        for (kv_head, content) in content.chunks_exact(key_bytes + value_bytes).enumerate() {
            // SAFETY: `&mut self` excludes other accesses, and the block exists.
            unsafe {
                self.keys(block, kv_head).copy_from_nonoverlapping(content.as_ptr(), key_bytes);
                self.values(block, kv_head).copy_from_nonoverlapping(content[key_bytes..].as_ptr(), value_bytes);
            }
        }
    }

    /// Bytes of a block: all heads' keys and values.
    pub(crate) fn block_bytes(&self) -> usize {
        self.n_kv_heads * (self.key_block_bytes() + self.value_block_bytes())
    }

    fn locate(&self, block: u32, kv_head: usize) -> (&Segment, usize) {
        let (segment, block) = (block as usize / SEGMENT_BLOCKS, block as usize % SEGMENT_BLOCKS);
        assert!(kv_head < self.n_kv_heads, "there is no such head");
        (&self.segments[segment], kv_head * SEGMENT_BLOCKS + block)
    }

    fn key_block_bytes(&self) -> usize {
        match self.format {
            KvFormat::F16 => self.key_elements() * size_of::<f16>(),
            KvFormat::Q8_0 => {
                self.key_elements() + self.head_dim.div_ceil(SCALE_ELEMENTS) * BLOCK_TOKENS * size_of::<f16>()
            }
        }
    }

    fn value_block_bytes(&self) -> usize {
        match self.format {
            KvFormat::F16 => self.value_elements() * size_of::<f16>(),
            KvFormat::Q8_0 => self.value_elements() + self.value_elements() / SCALE_ELEMENTS * size_of::<f16>(),
        }
    }
}

/// Writes elements as quants, `stride` apart, and their scales, `scale_stride` apart.
///
/// # Safety
/// The pointers are valid for writes of that many elements.
unsafe fn write_quants(elements: &[f16], quants: *mut i8, stride: usize, scales: *mut f16, scale_stride: usize) {
    for (chunk_idx, chunk) in elements.chunks(SCALE_ELEMENTS).enumerate() {
        let largest = chunk.iter().fold(0.0f32, |largest, element| largest.max(element.to_f32().abs()));
        let scale = f16::from_f32(largest / 127.0);
        let steps_per_unit = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
        // SAFETY: the caller's promise.
        unsafe {
            *scales.add(chunk_idx * scale_stride) = scale;
            for (index, element) in chunk.iter().enumerate() {
                // Rounding the scale may push a quant out of range; it is clamped.
                let quant = (element.to_f32() * steps_per_unit).round_ties_even().clamp(-127.0, 127.0) as i8;
                *quants.add((chunk_idx * SCALE_ELEMENTS + index) * stride) = quant;
            }
        }
    }
}

/// Memory that the system provides as zeros, page by page, when first touched.
struct Zeroed {
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, and hands out nothing but its address.
unsafe impl Send for Zeroed {}
// SAFETY: as above.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// Requests little alignment from the allocator, because for more it would write the zeros itself.
    fn new(n_bytes: usize) -> Self {
        let layout = Layout::array::<f16>(n_bytes.div_ceil(size_of::<f16>()) + LINE_ELEMENTS)
            .expect("a segment fits the address space");
        // SAFETY: the layout is not empty.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) });
        Zeroed { allocation: allocation.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    /// The first cache line in the memory.
    fn start(&self) -> *mut u8 {
        let offset = self.allocation.align_offset(LINE_ELEMENTS * size_of::<f16>());
        // SAFETY: the allocation is one line longer than the part in use.
        unsafe { self.allocation.as_ptr().add(offset) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}
