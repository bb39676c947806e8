//! 4 floats on any processor, with the instructions that the crate `wide` selects at compile time.

use bytemuck::cast;
use half::f16;
use wide::{f32x4, i32x4, u32x4};

use super::{EXP_COEFFICIENTS, LARGEST_EXPONENT, LN_2, SMALLEST_EXPONENT, Vector};

impl Vector for f32x4 {
    const LANES: usize = 4;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        f32x4::splat(value)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        f32x4::new(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.to_array()) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u16; 4]>().write_unaligned(to_halves(self)) }
    }

    #[inline(always)]
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2] {
        // SAFETY: the caller's promise.
        let [left, right] = unsafe { from.cast::<[[u16; 4]; 2]>().read_unaligned() };
        [from_halves(left), from_halves(right)]
    }

    #[inline(always)]
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2] {
        // SAFETY: the caller's promise.
        let [left, right] = unsafe { from.cast::<[[i8; 4]; 2]>().read_unaligned() };
        [f32x4::new(left.map(f32::from)), f32x4::new(right.map(f32::from))]
    }

    operators!();

    #[inline(always)]
    unsafe fn maximum(self, other: Self) -> Self {
        self.simd_gt(other).select(self, other)
    }

    /// Rounds twice where there is no fused instruction.
    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self {
        self.mul_add(factor, summand)
    }

    /// e^x = 2^n · e^r, with n the nearest integer to x / ln 2, which goes into the exponent's bits.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        let largest = f32x4::splat(LARGEST_EXPONENT);
        // NaN stays NaN: no comparison holds for it.
        let x = self.simd_gt(largest).select(largest, self);
        let n: i32x4 = (x * f32x4::splat(std::f32::consts::LOG2_E)).fast_round_int();
        let float_n = f32x4::from_i32x4(n);
        let r = float_n.mul_neg_add(f32x4::splat(LN_2[0]), x);
        let r = float_n.mul_neg_add(f32x4::splat(LN_2[1]), r);
        let mut sum = f32x4::splat(EXP_COEFFICIENTS[0]);
        for coefficient in &EXP_COEFFICIENTS[1..] {
            sum = sum.mul_add(r, f32x4::splat(*coefficient));
        }
        let power: f32x4 = cast((n + i32x4::splat(127)) << 23);
        self.simd_lt(f32x4::splat(SMALLEST_EXPONENT)).select(f32x4::ZERO, sum * power)
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.reduce_add()
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self.to_array().into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    unsafe fn swap_neighbours(self) -> Self {
        let [first, second, third, fourth] = self.to_array();
        f32x4::new([second, first, fourth, third])
    }
}

/// The half-precision numbers with these bits. A shift puts exponent and mantissa in place, and a factor corrects the
/// exponent's bias, for subnormal numbers too; infinities and NaN get their exponent back.
#[inline(always)]
fn from_halves(halves: [u16; 4]) -> f32x4 {
    let halves = u32x4::new(halves.map(u32::from));
    let magnitude = (halves & u32x4::splat(0x7fff)) << 13;
    let sign = (halves & u32x4::splat(0x8000)) << 16;
    let is_special = is_above(magnitude, 0x0f7f_ffff);
    let scaled: u32x4 = cast(cast::<_, f32x4>(magnitude) * f32x4::splat(f32::from_bits((127 + 112) << 23)));
    cast(scaled | sign | is_special & u32x4::splat(0x7f80_0000))
}

/// The bits of the nearest half-precision numbers, ties to even.
#[inline(always)]
fn to_halves(values: f32x4) -> [u16; 4] {
    let bits: u32x4 = cast(values);
    let magnitude = bits & u32x4::splat(0x7fff_ffff);
    // Adding 1/2 leaves the number of smallest steps, 2^-24, in the mantissa.
    let subnormal = cast::<_, u32x4>(cast::<_, f32x4>(magnitude) + f32x4::splat(0.5)) - u32x4::splat(0x3f00_0000);
    let is_odd = (magnitude >> 13) & u32x4::splat(1);
    let normal = (magnitude + is_odd - u32x4::splat((112 << 23) - 0x0fff)) >> 13;
    let is_nan = is_above(magnitude, 0x7f80_0000);
    let special = u32x4::splat(0x7c00) | is_nan & ((magnitude >> 13) & u32x4::splat(0x03ff) | u32x4::splat(0x0200));
    let is_normal = is_above(magnitude, 0x387f_ffff);
    let finite = is_normal & normal | !is_normal & subnormal;
    let is_special = is_above(magnitude, 0x477f_ffff);
    let halves: u32x4 = is_special & special | !is_special & finite | (bits & u32x4::splat(0x8000_0000)) >> 16;
    halves.to_array().map(|half| half as u16)
}

/// All ones where a number, whose highest bit is clear, is above a limit.
#[inline(always)]
fn is_above(numbers: u32x4, limit: i32) -> u32x4 {
    cast(cast::<_, i32x4>(numbers).simd_gt(i32x4::splat(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_the_crate() {
        for first in (0..=u16::MAX).step_by(if cfg!(miri) { 499 } else { 1 }) {
            let halves = [first, first ^ 0x8000, first ^ 0x7fff, 0x7c00].map(f16::from_bits);
            let ours = from_halves(halves.map(f16::to_bits)).to_array().map(f32::to_bits);
            // A signalling NaN becomes a quiet one there.
            let quiet = |bits: u32| if f32::from_bits(bits).is_nan() { bits | 1 << 22 } else { bits };
            assert_eq!(ours.map(quiet), halves.map(|half| half.to_f32_const().to_bits()), "{halves:?}");
        }
    }

    #[test]
    fn rounding_to_halves_is_that_of_the_crate() {
        for half in (0..=u16::MAX).step_by(if cfg!(miri) { 499 } else { 1 }) {
            // The number itself, its direct neighbours, and the midpoint between it and the next one.
            let bits = f16::from_bits(half).to_f32_const().to_bits();
            let middle = bits + (1 << 12);
            for floats in [[bits, bits + 1, bits.wrapping_sub(1), middle], [middle - 1, middle + 1, !bits, bits / 2]] {
                let floats = floats.map(f32::from_bits);
                let theirs = floats.map(|float| f16::from_f32_const(float).to_bits());
                assert_eq!(to_halves(f32x4::new(floats)), theirs, "{floats:?}");
            }
        }
    }
}
