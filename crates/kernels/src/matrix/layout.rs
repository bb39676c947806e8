//! The packed order of weights: the contents of a record, and their offsets.
//!
//! A matrix is a sequence of row groups, a group is a sequence of records, and a record is sixteen rows of one GGUF
//! block (32 columns, or 256). A record of a quantized type is
//!
//! ```text
//! scale of every row            16 × f16 (MXFP4: 16 bytes, see `Scales::Exponent`)
//! minimum of every row          16 × f16, types with a minimum only (negated where the format subtracts it)
//! scales of the sub-blocks      types of 256 columns only: per block of 32 columns one or two times 16 bytes (see `Scales`)
//! planes of block 0, block 1 …  the bits of the quants of 32 columns
//! ```
//!
//! The planes of a block hold the quants of 32 columns × 16 rows as 32-bit words, sixteen consecutive words (one per
//! row) at a time. Word `c` of a row holds its columns `4c .. 4c + 4`, one byte each. The planes are, in this order and
//! only if the type has them:
//!
//! ```text
//! bytes    8 × 16 words: word c itself, see [`SIGNED_BYTES`]
//! nibbles  4 × 16 words: low four bits of word j, and of word j + 4 in the upper half of every byte
//! pairs    2 × 16 words: two bits of words 4h, 4h + 1, 4h + 2 and 4h + 3, from low to high in every byte
//! bits     1 × 16 words: one bit of words 0 … 7, from low to high in every byte
//! ```
//!
//! Floating-point types have records of 32 columns: for every column (F32, F16) its sixteen rows, or for every two
//! columns (BF16) sixteen pairs, as read by the instruction for bfloat16 products.

/// Rows that are stored side by side, and that one product computes at once.
pub const ROW_GROUP: usize = 16;

/// Columns that share a scale of the activations, and that the kernels process at once.
pub(crate) const BLOCK: usize = 32;

/// Whether quants of eight bits are stored as signed bytes, as the byte products of this architecture take them, rather
/// than with an offset of 128.
pub(crate) const SIGNED_BYTES: bool = cfg!(target_arch = "aarch64");

/// The planes that hold the quants, lowest bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes {
    pub(crate) bytes: bool,
    pub(crate) nibbles: bool,
    pub(crate) pairs: bool,
    pub(crate) bits: bool,
}

impl Planes {
    /// Where the plane of pairs starts, in bytes from the first plane of the block.
    pub(crate) const fn pairs_offset(self) -> usize {
        if self.nibbles { 4 * 4 * ROW_GROUP } else { 0 }
    }

    /// Where the plane of bits starts.
    pub(crate) const fn bits_offset(self) -> usize {
        self.pairs_offset() + if self.pairs { 2 * 4 * ROW_GROUP } else { 0 }
    }

    /// The lowest bit of a quant that the pairs (or, without pairs, the bits) hold.
    pub(crate) const fn upper_shift(self) -> u32 {
        if self.nibbles { 4 } else { 0 }
    }

    /// The bit of a quant that the plane of bits holds.
    pub(crate) const fn bit_shift(self) -> u32 {
        self.upper_shift() + if self.pairs { 2 } else { 0 }
    }

    /// Bits of a quant.
    #[cfg(target_arch = "x86_64")]
    const fn n_bits(self) -> u32 {
        if self.bytes { 8 } else { self.bit_shift() + self.bits as u32 }
    }

    /// Bytes that the planes of a block of 32 columns take.
    pub(crate) const fn block_bytes(self) -> usize {
        if self.bytes { 8 * 4 * ROW_GROUP } else { self.bits_offset() + if self.bits { 4 * ROW_GROUP } else { 0 } }
    }
}

/// How a quant becomes a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// `scale · q` over 32 columns.
    Block,
    /// `scale · q + minimum` over 32 columns.
    BlockMinimum,
    /// `2^(e - 128) · q` over 32 columns, where the byte `e` takes the place of the scale. Below `e = 2` the factor would
    /// be subnormal, and is zero.
    Exponent,
    /// `scale · q` over 256 columns.
    Superblock,
    /// `scale · a · q` over 32 columns with the signed sub-block byte `a`.
    Sub,
    /// `scale · a · q + minimum · b` with the sub-block bytes `a` and `b` over 32 columns.
    SubMinimum,
    /// `scale · a · q` over the first 16 columns and `scale · b · q` over the others; `a` and `b` are signed.
    SubPair,
    /// Like `SubPair` with the low four bits of `a` and `b` as scales, and `minimum` times their high four bits added.
    SubPairMinimum,
    /// Like `SubPair` with scales of `2 a + 1` and `2 b + 1`: the low and the high four bits of one byte.
    SubOddPair,
}

/// Everything that distinguishes one quantized type from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantLayout {
    pub(crate) planes: Planes,
    pub(crate) scales: Scales,
    /// Stored quants are offset by `1 << offset_shift`; `None` means no offset.
    pub(crate) offset_shift: Option<u32>,
    /// If given, the stored bits are indices into these quants, which are offset as well.
    pub(crate) codebook: Option<&'static [u8; 16]>,
    /// Stored scales are multiplied by `2^-scale_shift`.
    pub(crate) scale_shift: u32,
}

impl QuantLayout {
    pub(super) const fn new(planes: Planes, scales: Scales, offset_shift: Option<u32>) -> QuantLayout {
        QuantLayout { planes, scales, offset_shift, codebook: None, scale_shift: 0 }
    }

    /// Whether the stored quants are signed.
    pub(crate) const fn is_signed(self) -> bool {
        SIGNED_BYTES && self.planes.bytes
    }

    /// Whether every row of a record has a minimum in addition to its scale.
    pub(crate) const fn has_minimum(self) -> bool {
        matches!(self.scales, Scales::BlockMinimum | Scales::SubMinimum | Scales::SubPairMinimum)
    }

    /// Whether the two halves of a block of 32 columns have scales of their own.
    pub(crate) const fn has_half_scales(self) -> bool {
        matches!(self.scales, Scales::SubPair | Scales::SubPairMinimum | Scales::SubOddPair)
    }

    /// Bytes of the sub-block scales of a row, per block of 32 columns.
    pub(crate) const fn sub_scale_bytes(self) -> usize {
        match self.scales {
            Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => 0,
            Scales::Sub | Scales::SubOddPair => 1,
            Scales::SubMinimum | Scales::SubPair | Scales::SubPairMinimum => 2,
        }
    }

    /// Blocks of 32 columns in a record.
    pub(crate) const fn record_blocks(self) -> usize {
        match self.scales {
            Scales::Block | Scales::BlockMinimum | Scales::Exponent => 1,
            _ => 8,
        }
    }

    /// Where the scales of the sub-blocks start in a record.
    pub(crate) const fn sub_scales_offset(self) -> usize {
        match self.scales {
            Scales::Exponent => ROW_GROUP,
            _ if self.has_minimum() => 4 * ROW_GROUP,
            _ => 2 * ROW_GROUP,
        }
    }

    /// Where the planes of the first block start in a record.
    pub(crate) const fn planes_offset(self) -> usize {
        self.sub_scales_offset() + self.record_blocks() * self.sub_scale_bytes() * ROW_GROUP
    }

    /// The value of a stored scale of one.
    pub(crate) const fn unit_scale(self) -> f32 {
        1.0 / (1u32 << self.scale_shift) as f32
    }

    /// The largest stored quant, with its offset.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn largest_quant(self) -> usize {
        let Some(codebook) = self.codebook else { return (1 << self.planes.n_bits()) - 1 };
        let (mut largest, mut idx) = (0, 0);
        while idx < codebook.len() {
            if codebook[idx] as usize > largest {
                largest = codebook[idx] as usize;
            }
            idx += 1;
        }
        largest
    }

    /// Bytes of a record.
    pub(crate) const fn record_bytes(self) -> usize {
        self.planes_offset() + self.record_blocks() * self.planes.block_bytes()
    }
}
