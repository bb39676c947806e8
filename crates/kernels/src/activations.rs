//! The vectors that matrices are multiplied with, in the form that the products read them.
//!
//! Tokens are kept in tiles of [`TOKEN_TILE`]. Inside a tile all tokens' first 32 columns come first, then all tokens'
//! next 32 columns, and so on: a product unpacks 32 columns of weights into registers and then runs through the
//! tokens of the tile, whose activations lie one after the other.

use std::slice;

use crate::WeightType;
use crate::buffer::Buffer;
use crate::matrix::layout::BLOCK;
use crate::platform::{self, Kernels};

/// Tokens for which a product reads the weights once.
pub(crate) const TOKEN_TILE: usize = 64;

/// Thirty-two columns of one token, quantized: `x ≈ scale · quant`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(16))]
pub(crate) struct ActivationBlock {
    /// Between −127 and 127.
    pub(crate) quants: [i8; BLOCK],
    /// What a quant of one stands for.
    pub(crate) scale: f32,
    /// `scale` times the sum of the quants: what the minimum of a row is multiplied with.
    pub(crate) scaled_sum: f32,
    /// Minus the sum of the first 16 quants and of the last 16: what the offset of the weights is multiplied with.
    pub(crate) negative_sums: [i32; 2],
}

/// Activations of up to `max_tokens` tokens, `n_columns` each, quantized to eight bits and (where a matrix of
/// floating-point weights reads them) as they are.
pub struct Activations {
    n_columns: usize,
    max_tokens: usize,
    n_tokens: usize,
    quantized: Option<Buffer>,
    floats: Option<Buffer>,
}

impl Activations {
    /// Room for `max_tokens` tokens, in the forms that matrices of the types `readers` read.
    pub fn new(n_columns: usize, max_tokens: usize, readers: &[WeightType]) -> Activations {
        let n_blocks = n_columns.div_ceil(BLOCK) * max_tokens;
        let has_floats = readers.iter().any(|reader| reader.is_float());
        let has_quants = readers.iter().any(|reader| !reader.is_float());
        let quantized = has_quants.then(|| Buffer::zeroed(n_blocks * size_of::<ActivationBlock>()));
        let floats = has_floats.then(|| Buffer::zeroed(n_blocks * BLOCK * size_of::<f32>()));
        Activations { n_columns, max_tokens, n_tokens: 0, quantized, floats }
    }

    /// Columns of a token's vector.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Tokens that there is room for.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Tokens in use.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Says how many tokens the next products are about. What was stored before is gone: where a token's columns
    /// stand depends on how many tokens there are.
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
    pub fn quantize_row(&mut self, token: usize, row: &[f32]) {
        self.quantize_row_with(platform::kernels(), token, row);
    }

    /// As [`Activations::quantize_row`], with kernels of the caller's choice.
    pub fn quantize_row_with(&mut self, kernels: &Kernels, token: usize, row: &[f32]) {
        assert!(token < self.n_tokens, "token {token} of {} in use", self.n_tokens);
        assert_eq!(row.len(), self.n_columns, "a token has as many elements as the activations have columns");
        // SAFETY: the token is in use, the length fits, and `&mut self` excludes every other access.
        unsafe { self.quantize_row_shared(kernels, token, row) }
    }

    /// Stores the vector of one token while other threads store those of other tokens.
    ///
    /// # Safety
    /// `token < n_tokens`, `row.len() == n_columns`, and no other thread reads or writes this token meanwhile.
    pub(crate) unsafe fn quantize_row_shared(&self, kernels: &Kernels, token: usize, row: &[f32]) {
        if self.n_columns == 0 {
            return;
        }
        let (index, stride) = self.position(token);
        if let Some(buffer) = &self.quantized {
            // SAFETY: the index of a token in use lies inside the buffer, as do all its blocks, `stride` apart.
            unsafe { (kernels.quantize_row)(row, buffer.as_ptr().cast::<ActivationBlock>().add(index), stride) }
        }
        if let Some(buffer) = &self.floats {
            // SAFETY: as above, with blocks of 32 elements.
            unsafe { store_floats(row, buffer.as_ptr().cast::<f32>().add(index * BLOCK), stride) }
        }
    }

    /// The index of a token's first block, and how many blocks after each other its blocks stand.
    pub(crate) fn position(&self, token: usize) -> (usize, usize) {
        let tile_start = token / TOKEN_TILE * TOKEN_TILE;
        let n_blocks = self.n_columns.div_ceil(BLOCK);
        (tile_start * n_blocks + token % TOKEN_TILE, (self.n_tokens - tile_start).min(TOKEN_TILE))
    }

    /// The quantized blocks, where the activations have them.
    pub(crate) fn quantized(&self) -> Option<*const ActivationBlock> {
        self.quantized.as_ref().map(|buffer| buffer.as_ptr().cast_const().cast())
    }

    /// The floating-point blocks of 32 elements, where the activations have them.
    pub(crate) fn floats(&self) -> Option<*const f32> {
        self.floats.as_ref().map(|buffer| buffer.as_ptr().cast_const().cast())
    }
}

/// Copies a row into blocks of 32 elements that stand `stride` blocks apart, the last one filled up with zeros.
///
/// # Safety
/// `out` is valid for writes of `row.len().div_ceil(32)` such blocks.
unsafe fn store_floats(row: &[f32], out: *mut f32, stride: usize) {
    for (idx, elements) in row.chunks(BLOCK).enumerate() {
        // SAFETY: the caller's promise; nobody else accesses this token's blocks.
        let block = unsafe { slice::from_raw_parts_mut(out.add(idx * stride * BLOCK), BLOCK) };
        let (present, padding) = block.split_at_mut(elements.len());
        present.copy_from_slice(elements);
        padding.fill(0.0);
    }
}
