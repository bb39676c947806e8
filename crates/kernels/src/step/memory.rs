//! Buffers with a row per token. They grow with the largest step and are kept.

use super::description::QuantizedShape;
use super::operation::{Part, RowSet};
use crate::activations::Activations;
use crate::buffer::Buffer;
use crate::{ActivationBits, TensorType};

/// Rows of floats.
pub(super) struct RowMemory {
    set: RowSet,
    width: usize,
    n_rows: usize,
    memory: Buffer,
}

impl RowMemory {
    pub(super) fn new(set: RowSet, width: usize) -> Self {
        RowMemory { set, width, n_rows: 0, memory: Buffer::zeroed(0) }
    }

    pub(super) fn set(&self) -> RowSet {
        self.set
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Makes room for `n_rows`; if the memory has to grow, its content is lost.
    pub(super) fn reserve(&mut self, n_rows: usize) {
        if n_rows > self.n_rows {
            self.memory = Buffer::zeroed(n_rows * self.width * size_of::<f32>());
            self.n_rows = n_rows;
        }
    }

    pub(super) fn start(&self) -> *mut f32 {
        self.memory.as_ptr().cast()
    }

    /// The first element of a part of a row.
    pub(super) fn pointer(&self, row: usize, part: Part) -> *mut f32 {
        assert!(row < self.n_rows, "row {row} of {}", self.n_rows);
        // SAFETY: the row is within the memory, and the builder has checked the part against the width.
        unsafe { self.start().add(row * self.width + part.first) }
    }

    /// # Safety
    /// No one writes this part of the row while the slice is used.
    pub(super) unsafe fn part(&self, row: usize, part: Part) -> &[f32] {
        // SAFETY: within the row, and initialized, because the memory starts as zeros; the rest is the caller's
        // promise.
        unsafe { std::slice::from_raw_parts(self.pointer(row, part), part.width) }
    }

    /// # Safety
    /// No one else reads or writes this part of the row while the slice is used.
    #[allow(clippy::mut_from_ref, reason = "threads share the memory and have rows of their own")]
    pub(super) unsafe fn part_mut(&self, row: usize, part: Part) -> &mut [f32] {
        // SAFETY: as in `part`.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(row, part), part.width) }
    }
}

/// Rows in the form that products read.
pub(super) struct ActivationMemory {
    set: RowSet,
    width: usize,
    bits: ActivationBits,
    /// Types of the matrices that read them.
    readers: Vec<TensorType>,
    activations: Activations,
}

impl ActivationMemory {
    pub(super) fn new(set: RowSet, width: usize, bits: ActivationBits) -> Self {
        let activations = Activations::new(width, 0, &[], bits);
        ActivationMemory { set, width, bits, readers: Vec::new(), activations }
    }

    pub(super) fn set(&self) -> RowSet {
        self.set
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn shape(&self) -> QuantizedShape {
        QuantizedShape { set: self.set, width: self.width, readers: self.readers.clone() }
    }

    /// Adds the type of a matrix that reads the rows.
    pub(super) fn add_reader(&mut self, tensor_type: TensorType) {
        if !self.readers.contains(&tensor_type) {
            self.readers.push(tensor_type);
        }
    }

    pub(super) fn reserve(&mut self, n_rows: usize) {
        if n_rows > self.activations.max_tokens() {
            self.activations = Activations::new(self.width, n_rows, &self.readers, self.bits);
        }
        self.activations.set_n_tokens(n_rows);
    }

    pub(super) fn activations(&self) -> &Activations {
        &self.activations
    }
}
