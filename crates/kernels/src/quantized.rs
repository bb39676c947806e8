//! Decodes stored tensor elements to plain numbers, for every [`TensorType`].
//!
//! This is the portable reference: slices in, slices out, one formula per format, written to be readable. A quantized
//! format stores blocks of 32 or 256 elements; each block has its own scale, and the documentation of each function
//! explains the stored small integers. The layouts are those of `ggml-common.h`, the formulas those of
//! `dequantize_row_*` in `ggml-quants.c` (<https://github.com/ggml-org/ggml/tree/master/src>). All numbers are
//! little-endian; scales are half-precision floats.
//!
//! In blocks of 32 elements of 4 bits, byte `j` of 16 holds element `j` in its low half and element `j + 16` in its
//! high half. Fifth bits are stored separately: bit `e` of a 32-bit number belongs to element `e`. In superblocks of
//! 256 elements, groups of 16 or 32 have scales of their own, stored as small integers that share one or two
//! half-precision scales.
//!
//! The IQ2 and IQ3 types store an index for eight or four elements, which selects their magnitudes from a grid
//! ([`grids`]), and a sign for each element.

pub(crate) mod grids;

use half::{bf16, f16};

use crate::TensorType;
use grids::{IQ2_MAGNITUDES, IQ3_S_MAGNITUDES, IQ3_XXS_MAGNITUDES};

/// Decodes the elements of a tensor, or of whole rows or blocks of it.
///
/// # Panics
/// When `out` is not a whole number of blocks, or `bytes` does not have the size of `out.len()` elements.
pub fn dequantize(tensor_type: TensorType, bytes: &[u8], out: &mut [f32]) {
    let (block_elements, block_bytes) = (tensor_type.block_elements(), tensor_type.block_bytes());
    assert!(
        out.len().is_multiple_of(block_elements) && bytes.len() == out.len() / block_elements * block_bytes,
        "{} bytes of {tensor_type} for {} elements, where {block_bytes} bytes make {block_elements}",
        bytes.len(),
        out.len(),
    );
    match tensor_type {
        TensorType::F32 => each_block(bytes, out, |element, [out]| *out = f32::from_le_bytes(*element)),
        TensorType::F16 => each_block(bytes, out, |element, [out]| *out = f16::from_le_bytes(*element).to_f32()),
        TensorType::BF16 => each_block(bytes, out, |element, [out]| *out = bf16::from_le_bytes(*element).to_f32()),
        TensorType::Q4_0 => each_block(bytes, out, q4_0),
        TensorType::Q4_1 => each_block(bytes, out, q4_1),
        TensorType::Q5_0 => each_block(bytes, out, q5_0),
        TensorType::Q5_1 => each_block(bytes, out, q5_1),
        TensorType::Q8_0 => each_block(bytes, out, q8_0),
        TensorType::IQ4_NL => each_block(bytes, out, iq4_nl),
        TensorType::IQ4_XS => each_block(bytes, out, iq4_xs),
        TensorType::IQ2_XXS => each_block(bytes, out, iq2_xxs),
        TensorType::IQ2_XS => each_block(bytes, out, iq2_xs),
        TensorType::IQ2_S => each_block(bytes, out, iq2_s),
        TensorType::IQ3_XXS => each_block(bytes, out, iq3_xxs),
        TensorType::IQ3_S => each_block(bytes, out, iq3_s),
        TensorType::TQ1_0 => each_block(bytes, out, tq1_0),
        TensorType::TQ2_0 => each_block(bytes, out, tq2_0),
        TensorType::MXFP4 => each_block(bytes, out, mxfp4),
        TensorType::Q2_K => each_block(bytes, out, q2_k),
        TensorType::Q3_K => each_block(bytes, out, q3_k),
        TensorType::Q4_K => each_block(bytes, out, q4_k),
        TensorType::Q5_K => each_block(bytes, out, q5_k),
        TensorType::Q6_K => each_block(bytes, out, q6_k),
    }
}

fn each_block<const BYTES: usize, const ELEMENTS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let blocks = bytes.as_chunks().0.iter();
    blocks.zip(out.as_chunks_mut().0).for_each(|(block, out)| decode(block, out));
}

/// The values of the 16 indices of IQ4_NL, before the block's scale: finer near zero, where most weights are
/// (`kvalues_iq4nl` in `ggml-common.h`).
pub const IQ4_NL_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of the 16 floats of MXFP4, which have a sign, two bits of exponent and one of mantissa
/// (`kvalues_mxfp4` in `ggml-common.h`).
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `2^(exponent - 128)`: the scale of an MXFP4 block, halved because its values are doubled. Zero in place of the two
/// subnormal numbers.
pub fn exponent_scale(exponent: u8) -> f32 {
    f32::from_bits(u32::from(exponent.saturating_sub(1)) << 23)
}

/// Scale `d`, then 4 bits `q` per element: `d (q - 8)`.
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        *out = f32::from(low_bits(&block[2..], element) as i8 - 8) * scale;
    }
}

/// Scale `d`, minimum `m`, then 4 bits `q` per element: `d q + m`.
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (element, out) in out.iter_mut().enumerate() {
        *out = f32::from(low_bits(&block[4..], element)) * scale + minimum;
    }
}

/// Scale `d`, the fifth bits, then 4 bits per element, which together form `q`: `d (q - 16)`.
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        let quant = low_bits(&block[6..], element) | fifth_bit(&block[2..6], element);
        *out = f32::from(quant as i8 - 16) * scale;
    }
}

/// Scale `d`, minimum `m`, the fifth bits, then 4 bits per element, which together form `q`: `d q + m`.
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (element, out) in out.iter_mut().enumerate() {
        let quant = low_bits(&block[8..], element) | fifth_bit(&block[4..8], element);
        *out = f32::from(quant) * scale + minimum;
    }
}

/// Scale `d`, then a signed byte `q` per element: `d q`.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (quant, out) in block[2..].iter().zip(out) {
        *out = f32::from(*quant as i8) * scale;
    }
}

/// Scale `d`, then a 4-bit index `i` per element: `d` times [`IQ4_NL_VALUES`]`[i]`.
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(IQ4_NL_VALUES[usize::from(low_bits(&block[2..], element))]);
    }
}

/// Scale `d`, 2 bytes with the upper 2 bits of the group scales, 4 bytes with their lower 4 bits, 128 bytes of 4-bit
/// indices `i`. A group has 32 elements in 16 bytes, and a 6-bit scale `s`: `d (s - 32)` times [`IQ4_NL_VALUES`]`[i]`.
fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let (scale, upper_bits) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let lower = block[4 + group / 2] >> (group % 2 * 4) & 0x0f;
        let upper = (upper_bits >> (2 * group) & 3) as u8;
        let group_scale = scale * f32::from((lower | upper << 4) as i8 - 32);
        for (element, out) in out.iter_mut().enumerate() {
            *out = group_scale * f32::from(IQ4_NL_VALUES[usize::from(low_bits(&block[8 + 16 * group..], element))]);
        }
    }
}

/// The scale's exponent, then a 4-bit index `i` per element: [`exponent_scale`] times [`MXFP4_VALUES`]`[i]`.
fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let scale = exponent_scale(block[0]);
    for (element, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(MXFP4_VALUES[usize::from(low_bits(&block[1..], element))]);
    }
}

fn low_bits(halves: &[u8], element: usize) -> u8 {
    halves[element % 16] >> (element / 16 * 4) & 0x0f
}

/// The element's fifth bit, shifted into its place.
fn fifth_bit(bits: &[u8], element: usize) -> u8 {
    (bits[element / 8] >> (element % 8) & 1) << 4
}

/// 16 bytes of group scales, 64 bytes of 2-bit quants `q`, scale `d`, scale of the minimums `m`. A group has 16
/// elements; the low half of its byte is its scale `s`, the high half its minimum `t`: `d s q - m t`.
fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scale, minimum) = (half_at(block, 80), half_at(block, 82));
    for (group, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let group_scale = scale * f32::from(block[group] & 0x0f);
        let group_minimum = minimum * f32::from(block[group] >> 4);
        for (index, out) in out.iter_mut().enumerate() {
            *out = group_scale * f32::from(two_bits(&block[16..80], group * 16 + index)) - group_minimum;
        }
    }
}

/// 32 bytes of third bits, 64 bytes of low 2-bit quants, 12 bytes of group scales, scale `d`. A group has 16 elements;
/// its scale `s` has 6 bits, its quants `q` have 3: `d (s - 32) (q - 4)`. Bit `i` of third byte `l` belongs to element
/// `32 i + l`.
fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let scale = half_at(block, 108);
    for (group, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let group_scale = scale * f32::from(q3_k_group_scale(&block[96..108], group));
        for (index, out) in out.iter_mut().enumerate() {
            let element = group * 16 + index;
            let third_bit = block[element % 32] >> (element / 32) & 1;
            let quant = (two_bits(&block[32..96], element) | third_bit << 2) as i8 - 4;
            *out = group_scale * f32::from(quant);
        }
    }
}

/// Scale `d`, scale of the minimums `m`, 12 bytes of group scales, 128 bytes of 4-bit quants `q`. A group has 32
/// elements with a 6-bit scale `s` and a 6-bit minimum `t`: `d s q - m t`.
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (group_scale, group_minimum) = q4_k_group(&block[..16], group);
        for (index, out) in out.iter_mut().enumerate() {
            *out = group_scale * f32::from(four_bits(&block[16..], group, index)) - group_minimum;
        }
    }
}

/// Like [`q4_k`], with 32 bytes of fifth bits before the quants: bit `g` of byte `l` belongs to element `l` of group
/// `g`.
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (group_scale, group_minimum) = q4_k_group(&block[..16], group);
        for (index, out) in out.iter_mut().enumerate() {
            let fifth_bit = block[16 + index] >> group & 1;
            let quant = four_bits(&block[48..], group, index) | fifth_bit << 4;
            *out = group_scale * f32::from(quant) - group_minimum;
        }
    }
}

/// 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 signed bytes of group scales `s`, scale `d`. A group has 16
/// elements with 6-bit quants `q`: `d s (q - 32)`. Each half of 128 elements has its low bits in 64 bytes (elements
/// 0..64 in the low halves, 64..128 in the high halves) and its high bits in 32 bytes (element `l` at bits `2 (l / 32)`
/// of byte `l % 32`).
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = half_at(block, 208);
    for (element, out) in out.iter_mut().enumerate() {
        let (half, place) = (element / 128, element % 128);
        let low = block[half * 64 + place % 64] >> (place / 64 * 4) & 0x0f;
        let high = block[128 + half * 32 + place % 32] >> (place / 32 * 2) & 3;
        let group_scale = f32::from(block[192 + element / 16] as i8);
        *out = scale * group_scale * f32::from((low | high << 4) as i8 - 32);
    }
}

/// Scale `d`, then 8 bytes for each 32 elements: four indices into the grid, and a number of four times 7 bits of signs
/// and 4 bits of scale `s`. An element of magnitude `q` is `± d (s + 0.5) q / 4`.
fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let scale = half_at(block, 0);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (indices, packed) = (&block[2 + 8 * group..][..4], word_at(block, 6 + 8 * group));
        let group_scale = scale * (0.5 + (packed >> 28) as f32) * 0.25;
        for (part, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = grids::IQ2_XXS[usize::from(indices[part])];
            place_eight(out, group_scale, even_signs(packed >> (7 * part)), |idx| iq2_magnitude(point, idx));
        }
    }
}

/// Scale `d`, then for each 8 elements a number of 9 bits of index and 7 bits of signs, then 4 bits of scale `s` for
/// each 16 elements: `± d (s + 0.5) q / 4`.
fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let scale = half_at(block, 0);
    for (part, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let packed = u16::from_le_bytes([block[2 + 2 * part], block[3 + 2 * part]]);
        let group_scale = scale * (0.5 + f32::from(scale_bits(&block[66..], part / 2))) * 0.25;
        let point = grids::IQ2_XS[usize::from(packed & 0x1ff)];
        place_eight(out, group_scale, even_signs(u32::from(packed >> 9)), |idx| iq2_magnitude(point, idx));
    }
}

/// Scale `d`, then for each 8 elements the lower 8 bits of an index, then for each 8 elements their signs, then the
/// upper 2 bits of the indices, then 4 bits of scale `s` for each 16 elements: `± d (s + 0.5) q / 4`.
fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let scale = half_at(block, 0);
    for (part, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let upper = block[66 + part / 4] >> (part % 4 * 2) & 3;
        let point = grids::IQ2_S[usize::from(block[2 + part]) | usize::from(upper) << 8];
        let group_scale = scale * (0.5 + f32::from(scale_bits(&block[74..], part / 2))) * 0.25;
        place_eight(out, group_scale, block[34 + part], |idx| iq2_magnitude(point, idx));
    }
}

/// Scale `d`, then an index for each 4 elements, then for each 32 elements a number of four times 7 bits of signs and 4
/// bits of scale `s`. An element of magnitude `q` is `± d (s + 0.5) q / 2`.
fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let scale = half_at(block, 0);
    for (part, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let packed = word_at(block, 66 + part / 4 * 4);
        let group_scale = scale * (0.5 + (packed >> 28) as f32) * 0.5;
        let points = [0, 1].map(|half| grids::IQ3_XXS[usize::from(block[2 + 2 * part + half])]);
        let magnitude = |idx: usize| IQ3_XXS_MAGNITUDES[usize::from(points[idx / 4] >> (idx % 4 * 4) & 7)];
        place_eight(out, group_scale, even_signs(packed >> (part % 4 * 7)), magnitude);
    }
}

/// Scale `d`, then for each 4 elements the lower 8 bits of an index, then their upper bits, then for each 8 elements
/// their signs, then 4 bits of scale `s` for each 32 elements: `± d (2 s + 1) q`.
fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let scale = half_at(block, 0);
    for (part, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let group_scale = scale * f32::from(2 * scale_bits(&block[106..], part / 4) + 1);
        let points = [2 * part, 2 * part + 1].map(|four| {
            let upper = block[66 + four / 8] >> (four % 8) & 1;
            grids::IQ3_S[usize::from(block[2 + four]) | usize::from(upper) << 8]
        });
        let magnitude = |idx: usize| IQ3_S_MAGNITUDES[usize::from(points[idx / 4] >> (idx % 4 * 4) & 7)];
        place_eight(out, group_scale, block[74 + part], magnitude);
    }
}

/// 48 bytes of five digits and 4 bytes of four, then scale `d`. A byte is a fraction of 256 whose first digits in base
/// 3 are the elements `q`: `d (q - 1)`. The first digits of 32 bytes come first, then their second ones, to the fifth;
/// the next 16 bytes and the last 4 follow likewise.
fn tq1_0(block: &[u8; 54], out: &mut [f32; 256]) {
    let scale = half_at(block, 52);
    for (element, out) in out.iter_mut().enumerate() {
        let (byte, digit) = match element {
            0..160 => (block[element % 32], element / 32),
            160..240 => (block[32 + element % 16], (element - 160) / 16),
            _ => (block[48 + element % 4], (element - 240) / 4),
        };
        let fraction = byte.wrapping_mul(3u8.pow(digit as u32));
        *out = scale * f32::from(((u16::from(fraction) * 3) >> 8) as i8 - 1);
    }
}

/// 64 bytes of 2-bit quants `q`, then scale `d`: `d (q - 1)`.
fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let scale = half_at(block, 64);
    for (element, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(two_bits(&block[..64], element) as i8 - 1);
    }
}

/// Eight elements: the scale times their magnitudes, negative where the bit in `signs` is set.
fn place_eight(out: &mut [f32; 8], scale: f32, signs: u8, magnitude: impl Fn(usize) -> i8) {
    for (idx, out) in out.iter_mut().enumerate() {
        let value = scale * f32::from(magnitude(idx));
        *out = if signs >> idx & 1 == 1 { -value } else { value };
    }
}

/// Eight signs from the lowest 7 bits: the number of negative ones is even.
pub(crate) fn even_signs(bits: u32) -> u8 {
    let signs = (bits & 0x7f) as u8;
    signs | (signs.count_ones() as u8 & 1) << 7
}

fn iq2_magnitude(point: u16, idx: usize) -> i8 {
    IQ2_MAGNITUDES[usize::from(point >> (2 * idx) & 3)]
}

/// The scale of 4 bits of a group.
fn scale_bits(scales: &[u8], group: usize) -> u8 {
    scales[group / 2] >> (group % 2 * 4) & 0x0f
}

fn word_at(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([block[offset], block[offset + 1], block[offset + 2], block[offset + 3]])
}

/// Quants of 2 bits: each half of 128 elements has 32 bytes, and byte `l` holds elements `l`, `l + 32`, `l + 64` and
/// `l + 96` from its lowest bits up.
fn two_bits(quants: &[u8], element: usize) -> u8 {
    quants[element / 128 * 32 + element % 32] >> (element % 128 / 32 * 2) & 3
}

/// Quants of 4 bits: two groups of 32 share 32 bytes, the first in the low halves.
fn four_bits(quants: &[u8], group: usize, index: usize) -> u8 {
    quants[group / 2 * 32 + index] >> (group % 2 * 4) & 0x0f
}

/// The signed scale of a Q3_K group: 4 low bits in the first 8 bytes (groups 0..8 in the low halves), 2 high bits in
/// the last 4 (group `g` at bits `2 (g / 4)` of byte `g % 4`).
fn q3_k_group_scale(scales: &[u8], group: usize) -> i8 {
    let low = scales[group % 8] >> (group / 8 * 4) & 0x0f;
    let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

/// Scale and minimum of a group of Q4_K or Q5_K, from the first 16 bytes of the block. Of the 12 bytes after the two
/// half-precision scales, the first four hold the scales of groups 0..4 in 6 bits, the next four their minimums; groups
/// 4..8 have 4 bits each in the last four (the scale low, the minimum high) and 2 bits on top of the first eight.
fn q4_k_group(head: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum, packed) = (half_at(head, 0), half_at(head, 2), &head[4..]);
    let (group_scale, group_minimum) = if group < 4 {
        (packed[group] & 0x3f, packed[group + 4] & 0x3f)
    } else {
        let halves = packed[group + 4];
        (halves & 0x0f | packed[group - 4] >> 6 << 4, halves >> 4 | packed[group] >> 6 << 4)
    };
    (scale * f32::from(group_scale), minimum * f32::from(group_minimum))
}

/// The half-precision number at `offset`.
fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iq4_nl_looks_its_values_up() {
        let mut block = [0u8; 18];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2] = 0x0f; // element 0 has index 15, element 16 has index 0
        block[3] = 0x78; // element 1 has index 8, element 17 has index 7
        block[17] = 0xf1; // element 15 has index 1, element 31 has index 15
        let mut out = [0.0; 32];
        dequantize(TensorType::IQ4_NL, &block, &mut out);
        let mut expected = [-63.5; 32];
        (expected[0], expected[1], expected[17]) = (56.5, 0.5, -5.0);
        (expected[15], expected[31]) = (-52.0, 56.5);
        assert_eq!(out, expected);
    }

    #[test]
    #[should_panic(expected = "35 bytes of IQ4_NL for 64 elements, where 18 bytes make 32")]
    fn lengths_must_fit() {
        dequantize(TensorType::IQ4_NL, &[0; 35], &mut [0.0; 64]);
    }
}
