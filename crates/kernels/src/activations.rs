//! The vectors that matrices are multiplied with, in the layout that the products read.
//!
//! Tokens are kept in tiles of [`TOKEN_TILE`]. Inside a tile all tokens' first 32 columns come first, then all tokens'
//! next 32 columns, and so on: a product unpacks 32 columns of weights into registers and then runs through the tile's
//! tokens, whose activations are contiguous.
//!
//! Trained models have a few elements that are far larger than the others. Eight bits for a block with such an element
//! leave little precision for its neighbours, and nearly all of a row's error comes from a tenth of its blocks. These
//! blocks are refined: the residual of the first quants is quantized as well, and multiplied with the same weights
//! while they are in registers. That removes two thirds of the squared error (in SmolLM2) for a tenth more work. With
//! [`ActivationBits::Sixteen`] every block is refined: the remaining error is far below that of the weights, for twice
//! the multiplications.

use std::slice;

use crate::TensorType;
use crate::buffer::Buffer;
use crate::matrix::layout::BLOCK;
use crate::operands::{ActivationBits, ActivationBlock, QuantizedRow, TOKEN_TILE};
use crate::platform::Kernels;

/// The quantized form of all tokens.
struct Quantized {
    blocks: Buffer,
    remainders: Buffer,
    is_refined: Buffer,
    bits: ActivationBits,
}

impl Quantized {
    fn new(n_blocks: usize, bits: ActivationBits) -> Quantized {
        let n_bytes = n_blocks * size_of::<ActivationBlock>();
        Quantized {
            blocks: Buffer::zeroed(n_bytes),
            remainders: Buffer::zeroed(n_bytes),
            // Kernels read all of a tile's flags at once, however few tokens it has.
            is_refined: Buffer::zeroed(n_blocks + TOKEN_TILE),
            bits,
        }
    }

    /// The blocks starting at `index`.
    fn at(&self, index: usize, stride: usize) -> QuantizedRow {
        QuantizedRow {
            blocks: self.blocks.as_ptr().cast::<ActivationBlock>().wrapping_add(index),
            remainders: self.remainders.as_ptr().cast::<ActivationBlock>().wrapping_add(index),
            is_refined: self.is_refined.as_ptr().wrapping_add(index),
            stride,
            bits: self.bits,
        }
    }
}

/// Activations of up to `max_tokens` tokens with `n_columns` each, quantized, and unquantized too if a matrix of
/// floating-point weights reads them.
pub struct Activations {
    n_columns: usize,
    max_tokens: usize,
    n_tokens: usize,
    quantized: Option<Quantized>,
    floats: Option<Buffer>,
}

impl Activations {
    /// Allocates room for `max_tokens` tokens, in the forms that matrices of the types `readers` read; for quantized
    /// weights they are rounded to `bits`.
    pub fn new(n_columns: usize, max_tokens: usize, readers: &[TensorType], bits: ActivationBits) -> Activations {
        let n_blocks = n_columns.div_ceil(BLOCK) * max_tokens;
        let has_floats = readers.iter().any(|reader| reader.is_float());
        let has_quants = readers.iter().any(|reader| !reader.is_float());
        let quantized = has_quants.then(|| Quantized::new(n_blocks, bits));
        let floats = has_floats.then(|| Buffer::zeroed(n_blocks * BLOCK * size_of::<f32>()));
        Activations { n_columns, max_tokens, n_tokens: 0, quantized, floats }
    }

    /// Columns of a token's vector.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Capacity in tokens.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Tokens in use.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Sets the number of tokens for the next products. Stored data becomes invalid, because the place of a token's
    /// columns depends on the number of tokens.
    ///
    /// # Panics
    /// When there is no room for that many.
    pub fn set_n_tokens(&mut self, n_tokens: usize) {
        assert!(n_tokens <= self.max_tokens, "{n_tokens} tokens do not fit into room for {}", self.max_tokens);
        self.n_tokens = n_tokens;
    }

    /// Stores the vector of one token.
    ///
    /// # Panics
    /// When `token` is not below the number of tokens in use, or `row` is not `n_columns` long.
    pub fn quantize_row(&mut self, kernels: &Kernels, token: usize, row: &[f32]) {
        assert!(token < self.n_tokens, "token {token} of {} in use", self.n_tokens);
        assert_eq!(row.len(), self.n_columns, "a token has as many elements as the activations have columns");
        // SAFETY: the token is in use, the length fits, and `&mut self` excludes every other access.
        unsafe { self.quantize_row_shared(kernels, token, row) }
    }

    /// Stores the vector of one token while other threads store those of other tokens.
    ///
    /// # Safety
    /// `token < n_tokens`, `row.len() == n_columns`, and no other thread accesses this token in the meantime.
    pub(crate) unsafe fn quantize_row_shared(&self, kernels: &Kernels, token: usize, row: &[f32]) {
        if self.n_columns == 0 {
            return;
        }
        let (index, stride) = self.position(token);
        if let Some(quantized) = &self.quantized {
            // SAFETY: the index of a token in use lies inside the buffers, as do all its blocks, `stride` apart.
            unsafe { (kernels.quantize_row)(row, &quantized.at(index, stride)) }
        }
        if let Some(buffer) = &self.floats {
            // SAFETY: as above, with blocks of 32 elements.
            unsafe { store_floats(row, buffer.as_ptr().cast::<f32>().add(index * BLOCK), stride) }
        }
    }

    /// Copies a token's vector from activations of the same width and forms, while other threads copy others.
    ///
    /// # Safety
    /// `token` and `source_token` are in use, both have the same number of columns and the same forms, and no other
    /// thread accesses this token, or writes the source's, in the meantime.
    pub(crate) unsafe fn copy_row_shared(&self, token: usize, source: &Activations, source_token: usize) {
        let n_blocks = self.n_columns.div_ceil(BLOCK);
        let ((to, to_stride), (from, from_stride)) = (self.position(token), source.position(source_token));
        if let (Some(ours), Some(theirs)) = (&self.quantized, &source.quantized) {
            let (ours, theirs) = (ours.at(to, to_stride), theirs.at(from, from_stride));
            for idx in 0..n_blocks {
                let (to, from) = (idx * to_stride, idx * from_stride);
                // SAFETY: the blocks of tokens in use lie inside the buffers, and these are different buffers.
                unsafe {
                    *ours.blocks.add(to) = *theirs.blocks.add(from);
                    *ours.is_refined.add(to) = *theirs.is_refined.add(from);
                    if *theirs.is_refined.add(from) != 0 {
                        *ours.remainders.add(to) = *theirs.remainders.add(from);
                    }
                }
            }
        }
        if let (Some(ours), Some(theirs)) = (&self.floats, &source.floats) {
            let (ours, theirs) = (ours.as_ptr().cast::<f32>(), theirs.as_ptr().cast::<f32>());
            for idx in 0..n_blocks {
                let (to, from) = ((to + idx * to_stride) * BLOCK, (from + idx * from_stride) * BLOCK);
                // SAFETY: as above, with blocks of 32 elements.
                unsafe { ours.add(to).copy_from_nonoverlapping(theirs.add(from), BLOCK) }
            }
        }
    }

    /// The index of a token's first block, and the distance between its blocks.
    pub(crate) fn position(&self, token: usize) -> (usize, usize) {
        let tile_start = token / TOKEN_TILE * TOKEN_TILE;
        let n_blocks = self.n_columns.div_ceil(BLOCK);
        (tile_start * n_blocks + token % TOKEN_TILE, (self.n_tokens - tile_start).min(TOKEN_TILE))
    }

    /// Whether there are quantized blocks.
    pub(crate) fn is_quantized(&self) -> bool {
        self.quantized.is_some()
    }

    /// The quantized blocks from a token's first one on, if there are any.
    pub(crate) fn quantized_from(&self, token: usize) -> Option<QuantizedRow> {
        let (index, stride) = self.position(token);
        self.quantized.as_ref().map(|quantized| quantized.at(index, stride))
    }

    /// The floating-point blocks of 32 elements, if there are any.
    pub(crate) fn floats(&self) -> Option<*const f32> {
        self.floats.as_ref().map(|buffer| buffer.as_ptr().cast_const().cast())
    }
}

/// Copies a row into blocks of 32 elements that are `stride` blocks apart, the last one padded with zeros.
///
/// # Safety
/// `out` is valid for writes of `row.len().div_ceil(32)` such blocks.
unsafe fn store_floats(row: &[f32], out: *mut f32, stride: usize) {
    for (idx, elements) in row.chunks(BLOCK).enumerate() {
        // SAFETY: the caller's promise; no one else accesses this token's blocks.
        let block = unsafe { slice::from_raw_parts_mut(out.add(idx * stride * BLOCK), BLOCK) };
        let (present, padding) = block.split_at_mut(elements.len());
        present.copy_from_slice(elements);
        padding.fill(0.0);
    }
}
