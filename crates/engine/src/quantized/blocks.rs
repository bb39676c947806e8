//! Formats with blocks of 32 elements.
//!
//! Where elements have 4 bits, byte `j` of 16 holds element `j` in its low half and element `j + 16` in its high half.
//! A fifth bit stands apart: bit `e` of a 32-bit number is that of element `e`.

use super::half_at;

/// What the 16 indices of an IQ4_NL element mean, before the block's scale: finer near zero, where most weights are
/// (`kvalues_iq4nl` in `ggml-common.h`).
pub(crate) const IQ4_NL_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Scale `d`, then 4 bits `q` each: `d (q - 8)`.
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        *out = f32::from(low_bits(&block[2..], element) as i8 - 8) * scale;
    }
}

/// Scale `d`, minimum `m`, then 4 bits `q` each: `d q + m`.
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (element, out) in out.iter_mut().enumerate() {
        *out = f32::from(low_bits(&block[4..], element)) * scale + minimum;
    }
}

/// Scale `d`, the fifth bits, then 4 bits each that make `q` with them: `d (q - 16)`.
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        let quant = low_bits(&block[6..], element) | fifth_bit(&block[2..6], element);
        *out = f32::from(quant as i8 - 16) * scale;
    }
}

/// Scale `d`, minimum `m`, the fifth bits, then 4 bits each that make `q` with them: `d q + m`.
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (element, out) in out.iter_mut().enumerate() {
        let quant = low_bits(&block[8..], element) | fifth_bit(&block[4..8], element);
        *out = f32::from(quant) * scale + minimum;
    }
}

/// Scale `d`, then a signed byte `q` each: `d q`.
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (quant, out) in block[2..].iter().zip(out) {
        *out = f32::from(*quant as i8) * scale;
    }
}

/// Scale `d`, then a 4-bit index `i` each: `d` times [`IQ4_NL_VALUES`]`[i]`.
pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (element, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(IQ4_NL_VALUES[usize::from(low_bits(&block[2..], element))]);
    }
}

fn low_bits(halves: &[u8], element: usize) -> u8 {
    halves[element % 16] >> (element / 16 * 4) & 0x0f
}

/// The element's bit, at the place of a fifth bit.
fn fifth_bit(bits: &[u8], element: usize) -> u8 {
    (bits[element / 8] >> (element % 8) & 1) << 4
}
