//! The memory of a program: rows, cache and states. It grows with the largest step and is kept.

use hone_kernels::step::{KvShape, RowSet, StateLayer};
use hone_kernels::{BLOCK_TOKENS, KvFormat};

use crate::arguments::{KvAt, QuantizedAt};
use crate::device::{Address, Buffer, DeviceError, SharedDevice};

/// Elements that share a scale in quantized rows.
pub(super) const SCALE_ELEMENTS: usize = 32;

/// A buffer with a row per token.
pub(super) struct Growing {
    pub(super) set: RowSet,
    row_bytes: usize,
    n_rows: usize,
    buffer: Buffer,
}

impl Growing {
    pub(super) fn new(device: &SharedDevice, set: RowSet, row_bytes: usize) -> Result<Self, DeviceError> {
        Ok(Growing { set, row_bytes, n_rows: 0, buffer: Buffer::new(device, 0)? })
    }

    /// Makes room; returns whether the address has changed, in which case the content is lost.
    pub(super) fn reserve(&mut self, device: &SharedDevice, n_rows: usize) -> Result<bool, DeviceError> {
        if n_rows <= self.n_rows || self.row_bytes == 0 {
            return Ok(false);
        }
        // The old memory is freed first.
        self.buffer = Buffer::new(device, 0)?;
        self.n_rows = 0;
        let n_rows = n_rows.next_power_of_two();
        // Zeroed, as on the processor: a row copied before its first write has defined content.
        self.buffer = Buffer::zeroed(device, n_rows * self.row_bytes)?;
        self.n_rows = n_rows;
        Ok(true)
    }

    /// Capacity in rows.
    pub(super) fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(super) fn address(&self) -> Address {
        self.buffer.address()
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

/// Rows in the forms that products read.
pub(super) struct Quantized {
    pub(super) set: RowSet,
    width: usize,
    has_quants: bool,
    quants: Growing,
    scales: Growing,
    sums: Growing,
    halves: Growing,
}

impl Quantized {
    pub(super) fn new(device: &SharedDevice, set: RowSet, width: usize) -> Result<Self, DeviceError> {
        let has_quants = width.is_multiple_of(SCALE_ELEMENTS);
        let n_scales = if has_quants { width / SCALE_ELEMENTS } else { 0 };
        let rows = |row_bytes| Growing::new(device, set, row_bytes);
        Ok(Quantized {
            set,
            width,
            has_quants,
            quants: rows(n_scales * SCALE_ELEMENTS)?,
            scales: rows(n_scales * size_of::<f32>())?,
            sums: rows(n_scales * size_of::<f32>())?,
            halves: rows(width * size_of::<half::bf16>())?,
        })
    }

    pub(super) fn reserve(&mut self, device: &SharedDevice, n_rows: usize) -> Result<bool, DeviceError> {
        let mut moved = false;
        for part in [&mut self.quants, &mut self.scales, &mut self.sums, &mut self.halves] {
            moved |= part.reserve(device, n_rows)?;
        }
        Ok(moved)
    }

    pub(super) fn at(&self) -> QuantizedAt {
        let of = |part: &Growing| if self.has_quants { part.address() } else { 0 };
        QuantizedAt {
            quants: of(&self.quants),
            scales: of(&self.scales),
            sums: of(&self.sums),
            bf16: self.halves.address(),
            width: self.width as u32,
            reserved: 0,
        }
    }
}

/// Approximate bytes of a segment of the cache.
const SEGMENT_BYTES: usize = 64 << 20;

/// The keys and values of all layers. All layers of a block are contiguous.
pub(super) struct Cache {
    layers: Vec<KvAt>,
    block_bytes: usize,
    segment_blocks: usize,
    segments: Vec<Buffer>,
    /// The addresses of the segments, on the device.
    table: Buffer,
}

/// Capacity of a table, in segments.
const MAX_SEGMENTS: usize = 4096;

impl Cache {
    pub(super) fn new(device: &SharedDevice, shapes: &[KvShape]) -> Result<Self, DeviceError> {
        let table = Buffer::new(device, MAX_SEGMENTS * size_of::<Address>())?;
        let mut block_bytes = 0;
        let mut layers = Vec::new();
        for shape in shapes {
            let row_bytes = shape.format.n_bytes(shape.head_dim).next_multiple_of(16);
            let half = shape.n_kv_heads * BLOCK_TOKENS * row_bytes;
            layers.push(KvAt {
                segments: table.address(),
                keys_offset: block_bytes as u64,
                values_offset: (block_bytes + half) as u64,
                row_bytes: row_bytes as u32,
                n_kv_heads: shape.n_kv_heads as u32,
                head_dim: shape.head_dim as u32,
                format: u32::from(shape.format == KvFormat::Q8_0),
                ..KvAt::default()
            });
            block_bytes += 2 * half;
        }
        let segment_blocks = SEGMENT_BYTES.checked_div(block_bytes).unwrap_or(1).clamp(1, 1024);
        for layer in &mut layers {
            (layer.block_bytes, layer.segment_blocks) = (block_bytes as u64, segment_blocks as u32);
        }
        Ok(Cache { layers, block_bytes, segment_blocks, segments: Vec::new(), table })
    }

    pub(super) fn layer(&self, index: usize) -> KvAt {
        self.layers[index]
    }

    /// Makes room for the blocks below `n_blocks`.
    pub(super) fn grow(&mut self, device: &SharedDevice, n_blocks: usize) -> Result<(), DeviceError> {
        while self.block_bytes > 0 && self.segments.len() * self.segment_blocks < n_blocks {
            assert!(self.segments.len() < MAX_SEGMENTS, "the cache is larger than any card");
            let segment = Buffer::new(device, self.segment_blocks * self.block_bytes)?;
            self.table.upload(self.segments.len() * size_of::<Address>(), &segment.address().to_ne_bytes())?;
            self.segments.push(segment);
        }
        Ok(())
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn locate(&self, block: u32) -> (&Buffer, usize) {
        let block = block as usize;
        (&self.segments[block / self.segment_blocks], block % self.segment_blocks * self.block_bytes)
    }

    pub(super) fn copy_block(&self, device: &SharedDevice, from: u32, to: u32) -> Result<(), DeviceError> {
        if from == to || self.block_bytes == 0 {
            return Ok(());
        }
        let ((from, from_at), (to, to_at)) = (self.locate(from), self.locate(to));
        // SAFETY: both blocks are within their segments.
        unsafe { device.0.copy(from.address() + from_at as u64, to.address() + to_at as u64, self.block_bytes) }
    }

    pub(super) fn read_block(&self, block: u32, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        let first = out.len();
        out.resize(first + self.block_bytes, 0);
        let (segment, at) = self.locate(block);
        segment.download(at, &mut out[first..])
    }

    pub(super) fn write_block(&self, block: u32, content: &[u8]) -> Result<(), DeviceError> {
        assert_eq!(content.len(), self.block_bytes, "the content is that of one block");
        let (segment, at) = self.locate(block);
        segment.upload(at, content)
    }
}

/// The states of layers without a cache.
pub(super) struct States {
    n_floats: usize,
    slots: Vec<Option<Buffer>>,
}

impl States {
    pub(super) fn new(layers: &[StateLayer]) -> Self {
        let n_floats = layers.iter().map(|layer| layer.start + layer.shape.n_floats()).max().unwrap_or(0);
        States { n_floats, slots: Vec::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.n_floats * size_of::<f32>()
    }

    pub(super) fn exists(&self, state: u32) -> bool {
        self.slots.get(state as usize).is_some_and(Option::is_some)
    }

    /// Makes room for a state.
    pub(super) fn make(&mut self, device: &SharedDevice, state: u32) -> Result<(), DeviceError> {
        let index = state as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if self.slots[index].is_none() {
            self.slots[index] = Some(Buffer::zeroed(device, self.bytes())?);
        }
        Ok(())
    }

    pub(super) fn free(&mut self, state: u32) {
        if let Some(slot) = self.slots.get_mut(state as usize) {
            *slot = None;
        }
    }

    pub(super) fn address(&self, state: u32) -> Address {
        self.slots[state as usize].as_ref().expect("the step has made room for its states").address()
    }
}
