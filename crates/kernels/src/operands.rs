//! The operands of kernels: a token's quantized activations, and the arguments of a product.

use std::ptr::null_mut;

use crate::matrix::layout::BLOCK;

/// Tokens that share one read of the weights in a product.
pub(crate) const TOKEN_TILE: usize = 64;

/// How activations are rounded for products with quantized weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivationBits {
    /// To 8 bits per block of 32 columns, and to 16 for blocks with an outlier.
    #[default]
    Eight,
    /// To 16 bits: 8, and 8 more for the residual.
    Sixteen,
}

impl TryFrom<u32> for ActivationBits {
    type Error = String;

    fn try_from(bits: u32) -> Result<Self, String> {
        match bits {
            8 => Ok(ActivationBits::Eight),
            16 => Ok(ActivationBits::Sixteen),
            _ => Err(format!("activation_bits is {bits}: it must be 8 or 16")),
        }
    }
}

/// Thirty-two columns of one token, quantized: `x ≈ scale · quant`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(16))]
pub(crate) struct ActivationBlock {
    /// Between −127 and 127.
    pub(crate) quants: [i8; BLOCK],
    /// The value of a quant of one.
    pub(crate) scale: f32,
    /// `scale` times the sum of the quants, to be multiplied with the minimum of a row.
    pub(crate) scaled_sum: f32,
    /// Minus the sum of the first 16 quants and of the last 16, to be multiplied with the offset of the weights.
    pub(crate) negative_sums: [i32; 2],
}

/// Where a kernel writes the blocks of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedRow {
    pub(crate) blocks: *mut ActivationBlock,
    /// The quantized residual of refined blocks; nothing is written for the others.
    pub(crate) remainders: *mut ActivationBlock,
    /// One for a refined block, zero for others.
    pub(crate) is_refined: *mut u8,
    /// The distance between blocks in all three.
    pub(crate) stride: usize,
    /// Whether all blocks are refined, or only those that need it most.
    pub(crate) bits: ActivationBits,
}

impl QuantizedRow {
    /// No blocks; must not be written to.
    pub(crate) const NONE: QuantizedRow = QuantizedRow {
        blocks: null_mut(),
        remainders: null_mut(),
        is_refined: null_mut(),
        stride: 0,
        bits: ActivationBits::Eight,
    };

    /// Quantizes a row block by block with `quantize`, which receives the destination. Inlined into the kernels, so
    /// that the arithmetic here is compiled for their instructions.
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

    /// In 8 bits, a block is refined when its largest element alone has more energy than the average block: its step is
    /// then so wide that its error stands out.
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

/// The difference between a block's elements and its quants.
#[inline(always)]
fn remainder(elements: &[f32; BLOCK], block: &ActivationBlock) -> [f32; BLOCK] {
    std::array::from_fn(|idx| elements[idx] - block.scale * f32::from(block.quants[idx]))
}

/// The destination of a product: element (token, row) goes to `pointer + token · stride + row`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) pointer: *mut f32,
    /// Elements from one token to the next.
    pub(crate) stride: usize,
    /// Whether the product is added to the existing value, as for a residual.
    pub(crate) add: bool,
}

/// One call of a kernel: some groups of rows times the tokens of one tile.
///
/// A kernel may read `n_groups · group_bytes` from `weights`, the blocks of `n_tokens` tokens from `quantized` (with
/// `remainders` and `is_refined`) or `floats` (which one depends on the weight type; block `b` of token `t` has index
/// `b · token_stride + t`), and access `n_rows` elements of `n_tokens` rows of `out`. Starting at any block of a tile,
/// it may read a whole tile's flags in `is_refined`. The code that builds a `Product` must guarantee all of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) weights: *const u8,
    pub(crate) group_bytes: usize,
    pub(crate) n_rows: usize,
    pub(crate) n_blocks: usize,
    pub(crate) quantized: *const ActivationBlock,
    /// Also to be multiplied, if a block is refined.
    pub(crate) remainders: *const ActivationBlock,
    pub(crate) is_refined: *const u8,
    pub(crate) floats: *const f32,
    pub(crate) token_stride: usize,
    /// At most [`TOKEN_TILE`].
    pub(crate) n_tokens: usize,
    pub(crate) out: Output,
}
