//! A register of floats, so that one source serves every instruction set.
//!
//! Computations are written once over [`Vector`] and inlined into a function that is compiled for an instruction set.
//! Single floats are vectors too: they process the remainder at the end of a row.

use half::f16;

/// A register's worth of floats.
///
/// # Safety
/// Every function needs a processor with the instruction set of the implementation. Functions that take a pointer read
/// or write [`LANES`](Vector::LANES) elements there, at any alignment; a pair is twice as many, and
/// [`load_factors`](Vector::load_factors) reads [`N_FACTORS`](Vector::N_FACTORS).
pub(crate) trait Vector: Copy {
    /// Floats of a register.
    const LANES: usize;
    /// Rows of a tile that is two registers wide, such that it fits the registers with some to spare.
    const TILE_ROWS: usize;
    /// Factors of [`load_factors`](Vector::load_factors): 4 where an instruction can pick a lane, otherwise 1.
    const N_FACTORS: usize = 1;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn store_f16(self, to: *mut f16);
    /// Neighbouring elements in two registers.
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2];
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2];
    #[inline(always)]
    unsafe fn store_f16_pair([left, right]: [Self; 2], to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe {
            left.store_f16(to);
            right.store_f16(to.add(Self::LANES));
        }
    }
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn subtract(self, other: Self) -> Self;
    unsafe fn multiply(self, other: Self) -> Self;
    unsafe fn divide(self, other: Self) -> Self;
    unsafe fn maximum(self, other: Self) -> Self;
    /// self · factor + summand.
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self;
    /// [`N_FACTORS`](Vector::N_FACTORS) factors for [`multiply_add_lane`](Vector::multiply_add_lane).
    #[inline(always)]
    unsafe fn load_factors(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::splat(from.read_unaligned()) }
    }
    /// self · the factor in this lane + summand.
    #[inline(always)]
    unsafe fn multiply_add_lane<const LANE: i32>(self, factors: Self, summand: Self) -> Self {
        // SAFETY: the caller's promise; a single factor is in all lanes.
        unsafe { self.multiply_add(factors, summand) }
    }
    /// e to the power of each, within two units in the last place; 0 for values below -87.3.
    unsafe fn exp(self) -> Self;
    /// Prefetches a cache line that will be read soon; any address is allowed. A no-op where measurements showed no
    /// benefit.
    #[inline(always)]
    unsafe fn prefetch(_address: *const f16) {}
    unsafe fn sum(self) -> f32;
    unsafe fn largest(self) -> f32;
    /// Swaps neighbours: 1, 0, 3, 2, … Not for single floats.
    unsafe fn swap_neighbours(self) -> Self;
}

/// Up to this exponent, powers of e become 0; single precision has no normal numbers for them.
pub(crate) const SMALLEST_EXPONENT: f32 = -87.3;
/// Exponents above this are lowered to it, so that the powers remain finite.
pub(crate) const LARGEST_EXPONENT: f32 = 88.3;

/// ln 2 in two parts: the first ends in zero bits, so that its product with a small integer is exact.
pub(crate) const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Taylor coefficients of e^x from x⁶ to x⁰. For |x| ≤ ln(2)/2 the truncation error is below 1.2e-7.
pub(crate) const EXP_COEFFICIENTS: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// The arithmetic of types that have operators.
macro_rules! operators {
    () => {
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            self + other
        }

        #[inline(always)]
        unsafe fn subtract(self, other: Self) -> Self {
            self - other
        }

        #[inline(always)]
        unsafe fn multiply(self, other: Self) -> Self {
            self * other
        }

        #[inline(always)]
        unsafe fn divide(self, other: Self) -> Self {
            self / other
        }
    };
}

impl Vector for f32 {
    const LANES: usize = 1;
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        value
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { from.read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(f16::from_f32_const(self)) }
    }

    #[inline(always)]
    unsafe fn load_f16_pair(from: *const f16) -> [Self; 2] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f16; 2]>().read_unaligned() }.map(f16::to_f32_const)
    }

    #[inline(always)]
    unsafe fn load_i8_pair(from: *const i8) -> [Self; 2] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[i8; 2]>().read_unaligned() }.map(f32::from)
    }

    operators!();

    #[inline(always)]
    unsafe fn maximum(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// Rounds twice: without a fused instruction, rounding once requires a slow function.
    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, summand: Self) -> Self {
        self * factor + summand
    }

    #[inline(always)]
    unsafe fn exp(self) -> Self {
        match self {
            x if x < SMALLEST_EXPONENT => 0.0,
            x if x > LARGEST_EXPONENT => LARGEST_EXPONENT.exp(),
            x => x.exp(),
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn swap_neighbours(self) -> Self {
        unreachable!("a single float has no neighbour")
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
