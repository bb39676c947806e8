//! Instructions whose intrinsics are not yet stable.

use std::arch::aarch64::*;
use std::arch::asm;

/// Adds the products of four columns of four rows with the columns `4 LANE .. 4 LANE + 4` of one token.
///
/// # Safety
/// `dotprod`.
#[inline(always)]
pub(super) unsafe fn sdot<const LANE: usize>(sums: int32x4_t, weights: int8x16_t, token: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: no memory is touched.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {weights:v}.16b, {token:v}.4b[{lane}]",
            sums = inout(vreg) sums,
            weights = in(vreg) weights,
            token = in(vreg) token,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Adds the products of eight columns of two tokens with those of two rows: both rows of the first token, then both of
/// the second.
///
/// # Safety
/// `i8mm`.
#[inline(always)]
pub(super) unsafe fn smmla(sums: int32x4_t, tokens: int8x16_t, weights: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: no memory is touched.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {tokens:v}.16b, {weights:v}.16b",
            sums = inout(vreg) sums,
            tokens = in(vreg) tokens,
            weights = in(vreg) weights,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}
