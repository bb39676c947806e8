//! States of sequences: the memory of all tokens so far, for layers without a cache.
//!
//! A state is never changed. A step reads the state of a sequence before its new tokens and writes the one after them
//! elsewhere, so that a step can be abandoned, and sequences can share a state.

use std::slice;

use crate::buffer::Buffer;

/// The state of a sequence after `position` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateAt {
    /// Positions before it.
    pub position: usize,
    /// The state.
    pub state: u32,
}

/// The states of a step's sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStates<'a> {
    /// The state before the new tokens; `None` at the beginning of a text.
    pub before: Option<u32>,
    /// Where states are written, in the order of their positions. The last one follows all new tokens.
    pub written: &'a [StateAt],
}

/// One layer's part of a state: the last inputs of a convolution, the oldest first, and the matrices of its heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Channels of the convolution.
    pub n_channels: usize,
    /// Taps of the convolution.
    pub n_taps: usize,
    /// Heads with a matrix.
    pub n_heads: usize,
    /// Rows of a matrix: the width of a key.
    pub key_dim: usize,
    /// Columns of a matrix: the width of a value.
    pub value_dim: usize,
}

impl StateShape {
    pub(super) fn inputs_len(&self) -> usize {
        (self.n_taps - 1) * self.n_channels
    }

    pub(super) fn matrix_len(&self) -> usize {
        self.key_dim * self.value_dim
    }

    /// Floats of the layer's part of a state.
    pub fn n_floats(&self) -> usize {
        self.inputs_len() + self.n_heads * self.matrix_len()
    }
}

/// One layer's part of all states.
#[derive(Clone, Copy, Debug)]
pub struct StateLayer {
    /// Its parts.
    pub shape: StateShape,
    /// Where it starts in a state, in floats.
    pub start: usize,
}

impl StateLayer {
    fn matrix_start(&self, head: usize) -> usize {
        self.start + self.shape.inputs_len() + head * self.shape.matrix_len()
    }
}

/// The memory of all states.
#[derive(Default)]
pub(super) struct StateMemory {
    layers: Vec<StateLayer>,
    /// Floats of a state.
    n_floats: usize,
    slots: Vec<Option<Buffer>>,
}

impl StateMemory {
    /// Adds a layer and returns its number.
    pub(super) fn add(&mut self, shape: StateShape) -> usize {
        self.layers.push(StateLayer { shape, start: self.n_floats });
        self.n_floats += shape.n_floats();
        self.layers.len() - 1
    }

    pub(super) fn shapes(&self) -> Vec<StateLayer> {
        self.layers.clone()
    }

    pub(super) fn layer(&self, index: usize) -> StateLayer {
        self.layers[index]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Bytes of a state.
    pub(super) fn state_bytes(&self) -> usize {
        self.n_floats * size_of::<f32>()
    }

    pub(super) fn exists(&self, state: u32) -> bool {
        self.slots.get(state as usize).is_some_and(Option::is_some)
    }

    /// Makes room for a state.
    pub(super) fn make(&mut self, state: u32) {
        let index = state as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if self.slots[index].is_none() {
            self.slots[index] = Some(Buffer::zeroed(self.state_bytes()));
        }
    }

    /// Frees the memory of a state.
    pub(super) fn free(&mut self, state: u32) {
        if let Some(slot) = self.slots.get_mut(state as usize) {
            *slot = None;
        }
    }

    fn start(&self, state: u32) -> *mut f32 {
        self.slots[state as usize].as_ref().expect("the step has made room for its states").as_ptr().cast()
    }

    /// A layer's last inputs, the oldest first.
    ///
    /// # Safety
    /// No one writes them while the slice is used.
    pub(super) unsafe fn inputs(&self, layer: StateLayer, state: u32) -> &[f32] {
        // SAFETY: within the state, whose memory starts as zeros; the rest is the caller's promise.
        unsafe { slice::from_raw_parts(self.start(state).add(layer.start), layer.shape.inputs_len()) }
    }

    /// # Safety
    /// No one else reads or writes them while the slice is used.
    #[allow(clippy::mut_from_ref, reason = "threads share the memory and write different parts")]
    pub(super) unsafe fn inputs_mut(&self, layer: StateLayer, state: u32) -> &mut [f32] {
        // SAFETY: as in `inputs`.
        unsafe { slice::from_raw_parts_mut(self.start(state).add(layer.start), layer.shape.inputs_len()) }
    }

    /// A head's matrix, [`StateShape::matrix_len`] floats.
    pub(super) fn matrix(&self, layer: StateLayer, state: u32, head: usize) -> *mut f32 {
        assert!(head < layer.shape.n_heads, "head {head} of {}", layer.shape.n_heads);
        // SAFETY: within the state.
        unsafe { self.start(state).add(layer.matrix_start(head)) }
    }
}
