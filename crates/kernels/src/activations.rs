//! The vectors that matrices are multiplied with, in the form that the products read them.
//!
//! Tokens are kept in tiles of [`TOKEN_TILE`]. Inside a tile all tokens' first 32 columns come first, then all tokens'
//! next 32 columns, and so on: a product unpacks 32 columns of weights into registers and then runs through the
//! tokens of the tile, whose activations lie one after the other.
//!
//! Trained models have a few elements that are far larger than the others. Eight bits for a block with such an element
//! leave little to its neighbours, and all of a row's error comes from a tenth of its blocks. These blocks are refined:
//! what the first quants leave is quantized once more, and multiplied with the same weights while they are at hand. That
//! takes away two thirds of the error (its square, in SmolLM2) for a tenth more work. With [`ActivationBits::Sixteen`] every
//! block is refined: what is left of the error is far below that of the weights, for twice the multiplications.

use std::ptr::null_mut;
use std::slice;

use crate::WeightType;
use crate::buffer::Buffer;
use crate::matrix::layout::BLOCK;
use crate::platform::{self, Kernels};

/// Tokens for which a product reads the weights once.
pub(crate) const TOKEN_TILE: usize = 64;

/// How finely activations are rounded for products with quantized weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivationBits {
    /// To 8 bits per block of 32 columns, and to 16 where one element stands out.
    #[default]
    Eight,
    /// To 16 bits: 8, and 8 more for what the first leave.
    Sixteen,
}

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

/// Where a kernel writes the blocks of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedRow {
    pub(crate) blocks: *mut ActivationBlock,
    /// What the quants of a refined block leave, quantized; of the other blocks nothing is written here.
    pub(crate) remainders: *mut ActivationBlock,
    /// One for a refined block, zero for others.
    pub(crate) is_refined: *mut u8,
    /// All three stand this far apart.
    pub(crate) stride: usize,
    /// Whether all blocks are refined, or those that need it most.
    pub(crate) bits: ActivationBits,
}

impl QuantizedRow {
    /// Nothing can be written here.
    pub(crate) const NONE: QuantizedRow = QuantizedRow {
        blocks: null_mut(),
        remainders: null_mut(),
        is_refined: null_mut(),
        stride: 0,
        bits: ActivationBits::Eight,
    };

    /// Quantizes a row, block by block with `quantize`, which writes where it is told. Inlined into the kernels, so that
    /// the arithmetic here is compiled for their instructions.
    ///
    /// # Safety
    /// The pointers are valid for writes of all blocks of the row.
    #[inline(always)]
    pub(crate) unsafe fn fill(&self, row: &[f32], quantize: impl Fn(&[f32; BLOCK], *mut ActivationBlock)) {
        let mean_energy = energy(row) / row.len().div_ceil(BLOCK) as f32;
        let (blocks, rest) = row.as_chunks::<BLOCK>();
        for (idx, elements) in blocks.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.fill_block(idx, elements, mean_energy, &quantize) };
        }
        if !rest.is_empty() {
            let mut padded = [0.0; BLOCK];
            padded[..rest.len()].copy_from_slice(rest);
            // SAFETY: the caller's promise.
            unsafe { self.fill_block(blocks.len(), &padded, mean_energy, &quantize) };
        }
    }

    /// In 8 bits a block is refined when its largest element alone has more energy than a block has in the mean: its step
    /// is then so wide that its error stands out.
    ///
    /// # Safety
    /// As [`QuantizedRow::fill`], and the row has this block.
    #[inline(always)]
    unsafe fn fill_block(
        &self,
        idx: usize,
        elements: &[f32; BLOCK],
        mean_energy: f32,
        quantize: &impl Fn(&[f32; BLOCK], *mut ActivationBlock),
    ) {
        let at = idx * self.stride;
        // SAFETY: the caller's promise; the block is read after it has been written.
        unsafe {
            let block = self.blocks.add(at);
            quantize(elements, block);
            let largest = (*block).scale * 127.0;
            let is_refined = self.bits == ActivationBits::Sixteen || largest * largest > mean_energy;
            *self.is_refined.add(at) = u8::from(is_refined);
            if is_refined {
                quantize(&remainder(elements, &*block), self.remainders.add(at));
            }
        }
    }
}

/// The sum of squares, in the same order on every instruction set.
#[inline(always)]
fn energy(row: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    let (chunks, rest) = row.as_chunks::<16>();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, element)| *sum += element * element);
    }
    sums.iter_mut().zip(rest).for_each(|(sum, element)| *sum += element * element);
    sums.iter().sum()
}

/// What the quants of a block leave of its elements.
#[inline(always)]
fn remainder(elements: &[f32; BLOCK], block: &ActivationBlock) -> [f32; BLOCK] {
    std::array::from_fn(|idx| elements[idx] - block.scale * f32::from(block.quants[idx]))
}

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
            // Kernels read a tile's flags at once, however many of its tokens there are.
            is_refined: Buffer::zeroed(n_blocks + TOKEN_TILE),
            bits,
        }
    }

    /// The blocks from `index` on.
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

/// Activations of up to `max_tokens` tokens, `n_columns` each, quantized and (where a matrix of
/// floating-point weights reads them) as they are.
pub struct Activations {
    n_columns: usize,
    max_tokens: usize,
    n_tokens: usize,
    quantized: Option<Quantized>,
    floats: Option<Buffer>,
}

impl Activations {
    /// Room for `max_tokens` tokens, in the forms that matrices of the types `readers` read; for quantized weights they are
    /// rounded to so many `bits`.
    pub fn new(n_columns: usize, max_tokens: usize, readers: &[WeightType], bits: ActivationBits) -> Activations {
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
        if let Some(quantized) = &self.quantized {
            // SAFETY: the index of a token in use lies inside the buffers, as do all its blocks, `stride` apart.
            unsafe { (kernels.quantize_row)(row, &quantized.at(index, stride)) }
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

    /// Whether there are quantized blocks.
    pub(crate) fn is_quantized(&self) -> bool {
        self.quantized.is_some()
    }

    /// The quantized blocks from a token's first on, where the activations have them.
    pub(crate) fn quantized_from(&self, token: usize) -> Option<QuantizedRow> {
        let (index, stride) = self.position(token);
        self.quantized.as_ref().map(|quantized| quantized.at(index, stride))
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
