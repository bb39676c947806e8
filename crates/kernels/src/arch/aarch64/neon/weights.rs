//! Reads packed weights into registers: the quants and the scales of four rows at a time.

use std::arch::aarch64::*;

use super::{QUARTER, QUARTERS};
use crate::matrix::ROW_GROUP;
use crate::matrix::formats::LayoutOf;
use crate::matrix::layout::{QuantLayout, Scales};

/// The offset of the quants as read for few tokens, as a shift: codebook values are looked up without their offset.
pub(super) const fn offset_shift(layout: QuantLayout) -> Option<u32> {
    if layout.codebook.is_some() { None } else { layout.offset_shift }
}

/// Thirty-two columns of four rows, ready to be multiplied.
#[derive(Clone, Copy)]
pub(super) struct QuarterWeights {
    /// Four columns per register.
    pub(super) quants: [int8x16_t; 8],
    pub(super) factors: Factors,
}

/// The scales and minimums of four rows, for the first 16 columns and for the last 16. Both are equal if the type has
/// one for all 32.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) scales: [float32x4_t; 2],
    pub(super) minimums: [float32x4_t; 2],
}

/// The factors that a record has once: the scale and the minimum of every row.
#[derive(Clone, Copy)]
pub(super) struct RecordFactors {
    scale: [float32x4_t; QUARTERS],
    minimum: [float32x4_t; QUARTERS],
}

impl RecordFactors {
    /// # Safety
    /// `record` points to a whole record; NEON.
    #[inline(always)]
    pub(super) unsafe fn read<const TENSOR_TYPE: u8>(record: *const u8) -> RecordFactors {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: the offsets are those of the layout; fields that a type does not have are not read.
        unsafe {
            let zero = [vdupq_n_f32(0.0); QUARTERS];
            if matches!(layout.scales, Scales::Exponent) {
                return RecordFactors { scale: read_exponents(record), minimum: zero };
            }
            let mut scale = read_halves(record);
            if layout.scale_shift > 0 {
                scale = scale.map(|scale| vmulq_n_f32(scale, layout.unit_scale()));
            }
            let minimum = if layout.has_minimum() { read_halves(record.add(2 * ROW_GROUP)) } else { zero };
            RecordFactors { scale, minimum }
        }
    }
}

/// The scales of a block of 32 columns: the record's, and the bytes of the sub-block for all rows.
#[derive(Clone, Copy)]
pub(super) struct BlockFactors<'a> {
    record: &'a RecordFactors,
    bytes: [uint8x16_t; 2],
}

impl<'a> BlockFactors<'a> {
    /// # Safety
    /// `record` points to a whole record that contains the block, and `factors` belong to it; NEON.
    #[inline(always)]
    pub(super) unsafe fn read<const TENSOR_TYPE: u8>(
        factors: &'a RecordFactors,
        record: *const u8,
        block: usize,
    ) -> BlockFactors<'a> {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: the offsets are those of the layout; fields that a type does not have are not read.
        unsafe {
            let sub_scales = record.add(layout.sub_scales_offset() + block * layout.sub_scale_bytes() * ROW_GROUP);
            let mut bytes = [vdupq_n_u8(0); 2];
            for (idx, bytes) in bytes.iter_mut().enumerate().take(layout.sub_scale_bytes()) {
                *bytes = vld1q_u8(sub_scales.add(idx * ROW_GROUP));
            }
            BlockFactors { record: factors, bytes }
        }
    }

    /// The factors of four rows.
    ///
    /// # Safety
    /// NEON.
    #[inline(always)]
    pub(super) unsafe fn of_quarter<const TENSOR_TYPE: u8>(&self, quarter: usize) -> Factors {
        let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
        // SAFETY: no memory outside `self` is touched.
        unsafe {
            let (scale, minimum) = (self.record.scale[quarter], self.record.minimum[quarter]);
            let [first, last] = self.bytes;
            let (scales, minimums) = match layout.scales {
                Scales::Block | Scales::BlockMinimum | Scales::Exponent | Scales::Superblock => {
                    ([scale; 2], [minimum; 2])
                }
                Scales::Sub => ([scaled(scale, signed(first, quarter)); 2], [minimum; 2]),
                Scales::SubMinimum => (
                    [scaled_unsigned(scale, unsigned(first, quarter)); 2],
                    [scaled_unsigned(minimum, unsigned(last, quarter)); 2],
                ),
                Scales::SubPair => {
                    ([scaled(scale, signed(first, quarter)), scaled(scale, signed(last, quarter))], [minimum; 2])
                }
                Scales::SubPairMinimum => {
                    let low = |bytes| unsigned(vandq_u8(bytes, vdupq_n_u8(15)), quarter);
                    let high = |bytes| unsigned(vshrq_n_u8::<4>(bytes), quarter);
                    (
                        [scaled_unsigned(scale, low(first)), scaled_unsigned(scale, low(last))],
                        [scaled_unsigned(minimum, high(first)), scaled_unsigned(minimum, high(last))],
                    )
                }
                Scales::SubOddPair => {
                    let odd = |halves| {
                        let odd = vorrq_u8(vaddq_u8(halves, halves), vdupq_n_u8(1));
                        scaled_unsigned(scale, unsigned(odd, quarter))
                    };
                    ([odd(vandq_u8(first, vdupq_n_u8(15))), odd(vshrq_n_u8::<4>(first))], [minimum; 2])
                }
            };
            Factors { scales, minimums }
        }
    }
}

/// Four of sixteen bytes, as unsigned integers.
#[inline(always)]
unsafe fn unsigned(bytes: uint8x16_t, quarter: usize) -> uint32x4_t {
    // SAFETY: no memory is touched.
    unsafe {
        let halves = if quarter < 2 { vmovl_u8(vget_low_u8(bytes)) } else { vmovl_high_u8(bytes) };
        if quarter.is_multiple_of(2) { vmovl_u16(vget_low_u16(halves)) } else { vmovl_high_u16(halves) }
    }
}

/// Four of sixteen bytes, as signed integers.
#[inline(always)]
unsafe fn signed(bytes: uint8x16_t, quarter: usize) -> int32x4_t {
    // SAFETY: no memory is touched.
    unsafe {
        let bytes = vreinterpretq_s8_u8(bytes);
        let halves = if quarter < 2 { vmovl_s8(vget_low_s8(bytes)) } else { vmovl_high_s8(bytes) };
        if quarter.is_multiple_of(2) { vmovl_s16(vget_low_s16(halves)) } else { vmovl_high_s16(halves) }
    }
}

#[inline(always)]
unsafe fn scaled(scale: float32x4_t, integers: int32x4_t) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe { vmulq_f32(scale, vcvtq_f32_s32(integers)) }
}

#[inline(always)]
unsafe fn scaled_unsigned(scale: float32x4_t, integers: uint32x4_t) -> float32x4_t {
    // SAFETY: no memory is touched.
    unsafe { vmulq_f32(scale, vcvtq_f32_u32(integers)) }
}

/// Sixteen f16 numbers.
///
/// # Safety
/// `pointer` is valid for reads of 32 bytes; NEON.
#[inline(always)]
pub(super) unsafe fn read_halves(pointer: *const u8) -> [float32x4_t; QUARTERS] {
    // SAFETY: the caller's promise.
    unsafe {
        let halves = [0, 1].map(|idx| vreinterpretq_f16_u8(vld1q_u8(pointer.add(16 * idx))));
        let [first, last] = halves.map(|halves| [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]);
        [first[0], first[1], last[0], last[1]]
    }
}

/// Sixteen powers of two, as [`exponent_scale`](crate::quantized::exponent_scale).
///
/// # Safety
/// `pointer` is valid for reads of 16 bytes; NEON.
#[inline(always)]
unsafe fn read_exponents(pointer: *const u8) -> [float32x4_t; QUARTERS] {
    // SAFETY: the caller's promise.
    unsafe {
        let exponents = vqsubq_u8(vld1q_u8(pointer), vdupq_n_u8(1));
        [0, 1, 2, 3].map(|quarter| vreinterpretq_f32_u32(vshlq_n_u32::<23>(unsigned(exponents, quarter))))
    }
}

/// The quants of a block for four rows, assembled from its planes. If not `CENTRED`, the [`offset_shift`] is left in.
///
/// # Safety
/// `planes` points to all planes of a block; NEON.
#[inline(always)]
pub(super) unsafe fn read_quants<const TENSOR_TYPE: u8, const CENTRED: bool>(
    planes: *const u8,
    quarter: usize,
) -> [int8x16_t; 8] {
    let layout = LayoutOf::<TENSOR_TYPE>::LAYOUT;
    // SAFETY: the offsets are those of the layout; a plane that a type does not have is not read.
    unsafe {
        let planes = planes.add(4 * QUARTER * quarter);
        let mut quants = [vdupq_n_u8(0); 8];
        if layout.planes.bytes {
            for (idx, quant) in quants.iter_mut().enumerate() {
                *quant = vld1q_u8(planes.add(64 * idx));
            }
        }
        if layout.planes.nibbles {
            for idx in 0..4 {
                let bytes = vld1q_u8(planes.add(64 * idx));
                quants[idx] = vandq_u8(bytes, vdupq_n_u8(15));
                quants[idx + 4] = vshrq_n_u8::<4>(bytes);
            }
        }
        if layout.planes.pairs {
            let shift = layout.planes.upper_shift();
            for idx in 0..2 {
                let bytes = vld1q_u8(planes.add(layout.planes.pairs_offset() + 64 * idx));
                for within in 0..4 {
                    let upper = vandq_u8(move_bits(bytes, 2 * within as u32, shift), vdupq_n_u8(3 << shift));
                    quants[4 * idx + within] = vorrq_u8(quants[4 * idx + within], upper);
                }
            }
        }
        if layout.planes.bits {
            let shift = layout.planes.bit_shift();
            let bytes = vld1q_u8(planes.add(layout.planes.bits_offset()));
            for (idx, quant) in quants.iter_mut().enumerate() {
                let bit = vandq_u8(move_bits(bytes, idx as u32, shift), vdupq_n_u8(1 << shift));
                *quant = vorrq_u8(*quant, bit);
            }
        }
        let offset = vdupq_n_u8(layout.offset_shift.map_or(0, |shift| 1 << shift));
        if let Some(codebook) = layout.codebook {
            let values = vsubq_u8(vld1q_u8(codebook.as_ptr()), offset);
            quants = quants.map(|quants| vqtbl1q_u8(values, quants));
        } else if CENTRED {
            quants = quants.map(|quants| vsubq_u8(quants, offset));
        }
        quants.map(|quants| vreinterpretq_s8_u8(quants))
    }
}

/// Moves bit `from` of every byte to bit `to`; neighbouring bits must be masked off.
#[inline(always)]
unsafe fn move_bits(bytes: uint8x16_t, from: u32, to: u32) -> uint8x16_t {
    // SAFETY: no memory is touched.
    unsafe { vshlq_u8(bytes, vdupq_n_s8(to as i8 - from as i8)) }
}
