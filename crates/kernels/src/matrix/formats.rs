//! The quantized types: how each is packed, and how the blocks of a GGUF row are read. Blocks of every type are
//! converted to the same plain form before they are packed.
//!
//! Quants are read four columns at a time as 32-bit words, one byte each, so that bits move in all four at once.
//! The formats are those of llama.cpp's `ggml-common.h`.

use super::layout::{BLOCK, Planes, QuantLayout, ROW_GROUP, SIGNED_BYTES, Scales};
use crate::TensorType;
use crate::quantized::grids::{self, IQ2_MAGNITUDES, IQ3_S_MAGNITUDES, IQ3_XXS_MAGNITUDES};
use crate::quantized::{IQ4_NL_VALUES, MXFP4_VALUES, even_signs};

const NIBBLES: Planes = Planes { bytes: false, nibbles: true, pairs: false, bits: false };
const NIBBLES_BITS: Planes = Planes { bits: true, ..NIBBLES };
const NIBBLES_PAIRS: Planes = Planes { pairs: true, ..NIBBLES };
const PAIRS: Planes = Planes { bytes: false, nibbles: false, pairs: true, bits: false };
const PAIRS_BITS: Planes = Planes { bits: true, ..PAIRS };
const BYTES: Planes = Planes { bytes: true, nibbles: false, pairs: false, bits: false };

/// The layout of a quantized type.
///
/// # Panics
/// For a floating-point type.
pub(crate) const fn quant_layout(tensor_type: TensorType) -> QuantLayout {
    match tensor_type {
        TensorType::Q4_0 => QuantLayout::new(NIBBLES, Scales::Block, Some(3)),
        TensorType::Q4_1 => QuantLayout::new(NIBBLES, Scales::BlockMinimum, None),
        TensorType::Q5_0 => QuantLayout::new(NIBBLES_BITS, Scales::Block, Some(4)),
        TensorType::Q5_1 => QuantLayout::new(NIBBLES_BITS, Scales::BlockMinimum, None),
        TensorType::Q8_0 => QuantLayout::new(BYTES, Scales::Block, if SIGNED_BYTES { None } else { Some(7) }),
        TensorType::Q2_K => QuantLayout::new(PAIRS, Scales::SubPairMinimum, None),
        TensorType::Q3_K => QuantLayout::new(PAIRS_BITS, Scales::SubPair, Some(2)),
        TensorType::Q4_K => QuantLayout::new(NIBBLES, Scales::SubMinimum, None),
        TensorType::Q5_K => QuantLayout::new(NIBBLES_BITS, Scales::SubMinimum, None),
        TensorType::Q6_K => QuantLayout::new(NIBBLES_PAIRS, Scales::SubPair, Some(5)),
        TensorType::IQ4_NL => with_codebook(&IQ4_NL_CODES, QuantLayout::new(NIBBLES, Scales::Block, Some(7))),
        TensorType::IQ4_XS => with_codebook(&IQ4_NL_CODES, QuantLayout::new(NIBBLES, Scales::Sub, Some(7))),
        TensorType::MXFP4 => with_codebook(&MXFP4_CODES, QuantLayout::new(NIBBLES, Scales::Exponent, Some(4))),
        TensorType::IQ2_XXS => iq2_layout(Scales::Sub),
        TensorType::IQ2_XS | TensorType::IQ2_S => iq2_layout(Scales::SubOddPair),
        TensorType::IQ3_XXS => QuantLayout {
            scale_shift: 2,
            ..with_codebook(&IQ3_XXS_CODES, QuantLayout::new(NIBBLES, Scales::Sub, Some(6)))
        },
        TensorType::IQ3_S => with_codebook(&IQ3_S_CODES, QuantLayout::new(NIBBLES, Scales::Sub, Some(4))),
        TensorType::TQ1_0 | TensorType::TQ2_0 => QuantLayout::new(PAIRS, Scales::Superblock, Some(0)),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => panic!("a floating-point type has no quants"),
    }
}

/// The layout of the type with this number, for kernels that are compiled for one type each. It is an associated
/// constant and not a `const fn`, which would be called in innermost loops wherever the surrounding `const { … }` was
/// forgotten.
pub(crate) struct LayoutOf<const TENSOR_TYPE: u8>;

impl<const TENSOR_TYPE: u8> LayoutOf<TENSOR_TYPE> {
    pub(crate) const LAYOUT: QuantLayout = quant_layout(TensorType::ALL[TENSOR_TYPE as usize]);
}

const fn with_codebook(codebook: &'static [u8; 16], layout: QuantLayout) -> QuantLayout {
    QuantLayout { codebook: Some(codebook), ..layout }
}

const IQ4_NL_CODES: [u8; 16] = offset(IQ4_NL_VALUES, 7);
const MXFP4_CODES: [u8; 16] = offset(MXFP4_VALUES, 4);

/// IQ2: a sign and one of three magnitudes in 3 bits.
const fn iq2_layout(scales: Scales) -> QuantLayout {
    QuantLayout { scale_shift: 3, ..with_codebook(&IQ2_CODES, QuantLayout::new(PAIRS_BITS, scales, Some(6))) }
}

const IQ2_CODES: [u8; 16] = offset(signed(&IQ2_MAGNITUDES, IQ2_SIGN), 6);
const IQ3_XXS_CODES: [u8; 16] = offset(signed(&IQ3_XXS_MAGNITUDES, IQ3_SIGN), 6);
const IQ3_S_CODES: [u8; 16] = offset(signed(&IQ3_S_MAGNITUDES, IQ3_SIGN), 4);

/// The position of the sign bit in a code of IQ2, set for a negative weight; the lower bits are the index of its
/// magnitude.
const IQ2_SIGN: u32 = 2;
/// The position of the sign bit in a code of IQ3.
const IQ3_SIGN: u32 = 3;

/// The magnitudes with either sign, negative if the bit `sign` of their index is set.
const fn signed(magnitudes: &[i8], sign: u32) -> [i8; 16] {
    let mut values = [0; 16];
    let mut idx = 0;
    while idx < magnitudes.len() {
        values[idx] = magnitudes[idx];
        values[idx + (1 << sign)] = -magnitudes[idx];
        idx += 1;
    }
    values
}

/// The values plus `1 << shift`, which makes all of them positive.
const fn offset(values: [i8; 16], shift: u32) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut idx = 0;
    while idx < 16 {
        codes[idx] = (values[idx] as i16 + (1 << shift)) as u8;
        idx += 1;
    }
    codes
}

/// Bytes that one group of rows takes, for rows of `n_columns`.
pub(crate) fn group_bytes(tensor_type: TensorType, n_columns: usize) -> usize {
    let n_blocks = n_columns.div_ceil(BLOCK);
    if tensor_type.is_float() {
        return n_blocks * BLOCK * ROW_GROUP * tensor_type.block_bytes();
    }
    let layout = quant_layout(tensor_type);
    n_blocks / layout.record_blocks() * layout.record_bytes()
}

/// One block of a row, with its quants as stored (unsigned) and unscaled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceBlock {
    /// The block's scale, an f16.
    pub(super) scale: u16,
    /// The exponent that replaces the scale for [`Scales::Exponent`].
    pub(super) exponent: u8,
    /// The block's minimum, an f16 that is added.
    pub(super) minimum: u16,
    /// Two bytes per 32 columns, as described in [`super::layout::Scales`].
    pub(super) sub_scales: [[u8; 2]; 8],
    /// Word `c` of 32 columns holds columns `4c .. 4c + 4`.
    pub(super) quants: [[u32; 8]; 8],
}

/// The sign bit of an f16: the K types subtract their minimum.
const SIGN: u16 = 0x8000;

impl SourceBlock {
    /// Reads one block from the bytes of a GGUF row.
    pub(super) fn read(&mut self, tensor_type: TensorType, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), tensor_type.block_bytes());
        match tensor_type {
            TensorType::Q4_0 | TensorType::IQ4_NL => self.read_nibbles(bytes, None, 2),
            TensorType::Q4_1 => self.read_nibbles(bytes, None, 4),
            TensorType::Q5_0 => self.read_nibbles(bytes, Some(2), 6),
            TensorType::Q5_1 => self.read_nibbles(bytes, Some(4), 8),
            TensorType::Q8_0 => self.read_bytes(bytes),
            TensorType::Q2_K => self.read_q2_k(bytes),
            TensorType::Q3_K => self.read_q3_k(bytes),
            TensorType::Q4_K => self.read_q4_k(bytes),
            TensorType::Q5_K => self.read_q5_k(bytes),
            TensorType::Q6_K => self.read_q6_k(bytes),
            TensorType::IQ4_XS => self.read_iq4_xs(bytes),
            TensorType::IQ2_XXS => self.read_iq2_xxs(bytes),
            TensorType::IQ2_XS => self.read_iq2_xs(bytes),
            TensorType::IQ2_S => self.read_iq2_s(bytes),
            TensorType::IQ3_XXS => self.read_iq3_xxs(bytes),
            TensorType::IQ3_S => self.read_iq3_s(bytes),
            TensorType::TQ1_0 => self.read_tq1_0(bytes),
            TensorType::TQ2_0 => {
                self.read_pairs(&bytes[..64]);
                self.scale = half_at(bytes, 64);
            }
            TensorType::MXFP4 => {
                self.exponent = bytes[0];
                read_halves_of_bytes(&bytes[1..], &mut self.quants[0]);
            }
            TensorType::F32 | TensorType::F16 | TensorType::BF16 => unreachable!("floats are not read in blocks"),
        }
        debug_assert!(quant_layout(tensor_type).has_minimum() || self.minimum == 0);
    }

    /// Types of 32 columns with four bits per quant, and a fifth bit starting at `fifth_bits`, if given.
    fn read_nibbles(&mut self, bytes: &[u8], fifth_bits: Option<usize>, quants: usize) {
        self.scale = half_at(bytes, 0);
        let head = fifth_bits.unwrap_or(quants);
        self.minimum = if head == 4 { half_at(bytes, 2) } else { 0 };
        read_halves_of_bytes(&bytes[quants..], &mut self.quants[0]);
        if let Some(at) = fifth_bits {
            let bits = word_at(bytes, at);
            for (word, quant) in self.quants[0].iter_mut().enumerate() {
                *quant |= spread_bits(bits >> (4 * word)) << 4;
            }
        }
    }

    /// Q8_0: signed bytes, which an offset of 128 makes unsigned where the layout requires it.
    fn read_bytes(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for (word, quant) in self.quants[0].iter_mut().enumerate() {
            *quant = word_at(bytes, 2 + 4 * word) ^ if SIGNED_BYTES { 0 } else { 0x8080_8080 };
        }
    }

    fn read_q2_k(&mut self, bytes: &[u8]) {
        self.read_sub_scales(&bytes[..16]);
        self.read_pairs(&bytes[16..80]);
        self.scale = half_at(bytes, 80);
        self.minimum = half_at(bytes, 82) ^ SIGN;
    }

    fn read_q3_k(&mut self, bytes: &[u8]) {
        let (upper_bits, rest) = bytes.split_at(32);
        let packed = &rest[64..76];
        let mut scales = [0; 16];
        for (idx, scale) in scales.iter_mut().enumerate() {
            let low = (packed[idx % 8] >> (4 * (idx / 8))) & 0x0f;
            let high = (packed[8 + idx % 4] >> (2 * (idx / 4))) & 0x03;
            *scale = (low | (high << 4)).wrapping_sub(32);
        }
        self.read_sub_scales(&scales);
        self.read_pairs(&rest[..64]);
        for (block, quants) in self.quants.iter_mut().enumerate() {
            for (word, quant) in quants.iter_mut().enumerate() {
                *quant |= ((word_at(upper_bits, 4 * word) >> block) & 0x0101_0101) << 2;
            }
        }
        self.scale = half_at(bytes, 108);
    }

    fn read_q4_k(&mut self, bytes: &[u8]) {
        self.read_scales_and_minimums(bytes);
        self.read_wide_nibbles(&bytes[16..144]);
    }

    fn read_q5_k(&mut self, bytes: &[u8]) {
        self.read_scales_and_minimums(bytes);
        self.read_wide_nibbles(&bytes[48..176]);
        for (block, quants) in self.quants.iter_mut().enumerate() {
            for (word, quant) in quants.iter_mut().enumerate() {
                *quant |= ((word_at(bytes, 16 + 4 * word) >> block) & 0x0101_0101) << 4;
            }
        }
    }

    fn read_q6_k(&mut self, bytes: &[u8]) {
        let (low, rest) = bytes.split_at(128);
        let (high, rest) = rest.split_at(64);
        for block in 0..8 {
            let (half, quarter) = (block / 4, block % 4);
            for word in 0..8 {
                let four = word_at(low, 64 * half + 32 * (quarter % 2) + 4 * word) >> (4 * (quarter / 2));
                let two = word_at(high, 32 * half + 4 * word) >> (2 * quarter);
                self.quants[block][word] = (four & 0x0f0f_0f0f) | ((two & 0x0303_0303) << 4);
            }
        }
        self.read_sub_scales(&rest[..16]);
        self.scale = half_at(rest, 16);
    }

    /// Scale, two high bits of the eight group scales, their four low bits, then the indices.
    fn read_iq4_xs(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        let high = half_at(bytes, 2);
        for (block, quants) in self.quants.iter_mut().enumerate() {
            let low_bits = bytes[4 + block / 2] >> (4 * (block % 2)) & 0x0f;
            let high_bits = (high >> (2 * block) & 3) as u8;
            self.sub_scales[block][0] = (low_bits | high_bits << 4).wrapping_sub(32);
            read_halves_of_bytes(&bytes[8 + 16 * block..], quants);
        }
    }

    fn read_iq2_xxs(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for (block, bytes) in bytes[2..].chunks_exact(8).enumerate() {
            let packed = word_at(bytes, 4);
            self.sub_scales[block][0] = odd_scale(packed >> 28);
            for (part, index) in bytes[..4].iter().enumerate() {
                let point = grids::IQ2_XXS[usize::from(*index)];
                self.put_iq2(4 * block + part, point, even_signs(packed >> (7 * part)));
            }
        }
    }

    fn read_iq2_xs(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for part in 0..32 {
            let packed = half_at(bytes, 2 + 2 * part);
            let point = grids::IQ2_XS[usize::from(packed & 0x1ff)];
            self.put_iq2(part, point, even_signs(u32::from(packed >> 9)));
        }
        self.read_packed_scales(&bytes[66..]);
    }

    fn read_iq2_s(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for part in 0..32 {
            let upper_bits = bytes[66 + part / 4] >> (2 * (part % 4)) & 3;
            let point = grids::IQ2_S[usize::from(bytes[2 + part]) | usize::from(upper_bits) << 8];
            self.put_iq2(part, point, bytes[34 + part]);
        }
        self.read_packed_scales(&bytes[74..]);
    }

    fn read_iq3_xxs(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for block in 0..8 {
            let packed = word_at(bytes, 66 + 4 * block);
            self.sub_scales[block][0] = odd_scale(packed >> 28);
            for part in 0..4 {
                let indices = &bytes[2 + 8 * block + 2 * part..][..2];
                let points = [0, 1].map(|half| grids::IQ3_XXS[usize::from(indices[half])]);
                self.put_iq3(4 * block + part, points, even_signs(packed >> (7 * part)));
            }
        }
    }

    fn read_iq3_s(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        for part in 0..32 {
            let upper_bits = usize::from(bytes[66 + part / 4]) >> (2 * (part % 4));
            let lower_bits = &bytes[2 + 2 * part..][..2];
            let points = [0, 1].map(|half| grids::IQ3_S[usize::from(lower_bits[half]) | (upper_bits >> half & 1) << 8]);
            self.put_iq3(part, points, bytes[74 + part]);
        }
        for (block, sub_scales) in self.sub_scales.iter_mut().enumerate() {
            sub_scales[0] = odd_scale(u32::from(bytes[106 + block / 2] >> (4 * (block % 2)) & 0x0f));
        }
    }

    /// The eight columns from `8 · part` on of an IQ2 type.
    fn put_iq2(&mut self, part: usize, point: u16, signs: u8) {
        for half in 0..2 {
            let magnitudes = spread_pairs(u32::from(point) >> (8 * half));
            let signs = spread_bits(u32::from(signs) >> (4 * half)) << IQ2_SIGN;
            self.quants[part / 4][part % 4 * 2 + half] = magnitudes | signs;
        }
    }

    /// The eight columns from `8 · part` on of an IQ3 type.
    fn put_iq3(&mut self, part: usize, points: [u16; 2], signs: u8) {
        for (half, point) in points.into_iter().enumerate() {
            let signs = spread_bits(u32::from(signs) >> (4 * half)) << IQ3_SIGN;
            self.quants[part / 4][part % 4 * 2 + half] = spread_nibbles(u32::from(point)) | signs;
        }
    }

    /// Eight bytes, one per 32 columns, as [`Scales::SubOddPair`] has them.
    fn read_packed_scales(&mut self, scales: &[u8]) {
        for (sub_scales, scales) in self.sub_scales.iter_mut().zip(scales) {
            sub_scales[0] = *scales;
        }
    }

    /// Digits in base 3: five in each of 48 bytes, four in the last 4, and the most significant one is first.
    fn read_tq1_0(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 52);
        let mut at = 0;
        for (bytes, n_digits) in [(&bytes[..32], 5), (&bytes[32..48], 5), (&bytes[48..52], 4)] {
            for power in [1, 3, 9, 27, 81].into_iter().take(n_digits) {
                for byte in bytes {
                    let digit = (u32::from(byte.wrapping_mul(power)) * 3) >> 8;
                    let word = &mut self.quants[at / BLOCK][at % BLOCK / 4];
                    *word = if at % 4 == 0 { digit } else { *word | digit << (8 * (at % 4)) };
                    at += 1;
                }
            }
        }
    }

    /// Sixteen bytes, one per 16 columns.
    fn read_sub_scales(&mut self, scales: &[u8]) {
        for (sub_scales, pair) in self.sub_scales.iter_mut().zip(scales.chunks_exact(2)) {
            *sub_scales = [pair[0], pair[1]];
        }
    }

    /// Q2_K and Q3_K: two bits per quant; 32 bytes hold four blocks of 32 columns.
    fn read_pairs(&mut self, bytes: &[u8]) {
        for (block, quants) in self.quants.iter_mut().enumerate() {
            for (word, quant) in quants.iter_mut().enumerate() {
                *quant = (word_at(bytes, 32 * (block / 4) + 4 * word) >> (2 * (block % 4))) & 0x0303_0303;
            }
        }
    }

    /// Q4_K and Q5_K: the nibbles of 32 bytes are two blocks of 32 columns.
    fn read_wide_nibbles(&mut self, bytes: &[u8]) {
        for (block, quants) in self.quants.iter_mut().enumerate() {
            for (word, quant) in quants.iter_mut().enumerate() {
                *quant = (word_at(bytes, 32 * (block / 2) + 4 * word) >> (4 * (block % 2))) & 0x0f0f_0f0f;
            }
        }
    }

    /// Q4_K and Q5_K: scale and minimum, then eight scales and eight minimums of six bits in twelve bytes.
    fn read_scales_and_minimums(&mut self, bytes: &[u8]) {
        self.scale = half_at(bytes, 0);
        self.minimum = half_at(bytes, 2) ^ SIGN;
        let packed = &bytes[4..16];
        for (idx, sub_scales) in self.sub_scales.iter_mut().enumerate() {
            *sub_scales = if idx < 4 {
                [packed[idx] & 63, packed[idx + 4] & 63]
            } else {
                let low = packed[idx + 4];
                [(low & 0x0f) | ((packed[idx - 4] >> 6) << 4), (low >> 4) | ((packed[idx] >> 6) << 4)]
            };
        }
    }
}

/// Four bits per quant: the low halves of sixteen bytes, then the high halves.
fn read_halves_of_bytes(bytes: &[u8], quants: &mut [u32; 8]) {
    for word in 0..4 {
        let packed = word_at(bytes, 4 * word);
        quants[word] = packed & 0x0f0f_0f0f;
        quants[word + 4] = (packed >> 4) & 0x0f0f_0f0f;
    }
}

/// Twice a scale plus one: the stored form of scales that end in a half.
fn odd_scale(scale: u32) -> u8 {
    (2 * scale + 1) as u8
}

/// The low four pairs of bits, one in each byte.
fn spread_pairs(pairs: u32) -> u32 {
    (pairs & 0x03) | ((pairs & 0x0c) << 6) | ((pairs & 0x30) << 12) | ((pairs & 0xc0) << 18)
}

/// Four times four bits, one in each byte.
fn spread_nibbles(nibbles: u32) -> u32 {
    (nibbles & 0x000f) | ((nibbles & 0x00f0) << 4) | ((nibbles & 0x0f00) << 8) | ((nibbles & 0xf000) << 12)
}

/// The low four bits, one in each byte.
fn spread_bits(bits: u32) -> u32 {
    (bits & 1) | ((bits & 2) << 7) | ((bits & 4) << 14) | ((bits & 8) << 21)
}

fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_weights_take_hardly_more_than_the_file() {
        for tensor_type in TensorType::ALL {
            let packed = group_bytes(tensor_type, 4096);
            let original = ROW_GROUP * 4096 / tensor_type.block_elements() * tensor_type.block_bytes();
            assert!(packed >= original, "{tensor_type:?}: {packed} < {original}");
            // The indices of these types are replaced by the values that they encode.
            let most = match tensor_type {
                TensorType::IQ2_XXS => 161,
                TensorType::IQ2_XS => 144,
                TensorType::IQ2_S => 130,
                TensorType::IQ3_XXS => 141,
                TensorType::IQ3_S => 126,
                TensorType::TQ1_0 => 123,
                _ => 104,
            };
            assert!(packed * 100 <= original * most, "{tensor_type:?}: {packed} against {original}");
        }
    }
}
