//! Formats with superblocks of 256 elements: groups of 16 or 32 elements have scales of their own, stored as small
//! integers that share one or two half-precision scales.

use super::half_at;

/// 16 bytes of group scales, 64 bytes of 2-bit quants `q`, scale `d`, scale of the minimums `m`. A group has 16
/// elements; the low half of its byte is its scale `s`, the high half its minimum `t`: `d s q - m t`.
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
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
/// its scale `s` has 6 bits, its quants `q` have 3: `d (s - 32) (q - 4)`. Bit `i` of third byte `l` is that of element
/// `32 i + l`.
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
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
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (group_scale, group_minimum) = q4_k_group(&block[..16], group);
        for (index, out) in out.iter_mut().enumerate() {
            *out = group_scale * f32::from(four_bits(&block[16..], group, index)) - group_minimum;
        }
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the quants: bit `g` of byte `l` is that of element `l` of group `g`.
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
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
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = half_at(block, 208);
    for (element, out) in out.iter_mut().enumerate() {
        let (half, place) = (element / 128, element % 128);
        let low = block[half * 64 + place % 64] >> (place / 64 * 4) & 0x0f;
        let high = block[128 + half * 32 + place % 32] >> (place / 32 * 2) & 3;
        let group_scale = f32::from(block[192 + element / 16] as i8);
        *out = scale * group_scale * f32::from((low | high << 4) as i8 - 32);
    }
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
