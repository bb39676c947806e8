//! Random weights, in every format.
//!
//! Plain formats hold numbers that are uniformly distributed around their mean. Blocks of a quantized format are random
//! bytes, in which only the scales are then set so that the decoded weights have mean zero and the desired spread.
//! Formats without a minimum are asymmetric (4 bits around 8 reach from -8 to 7); there the sign of the scale is
//! random.
//!
//! Bytes come from ChaCha8 with a separate stream for every piece of a tensor, so that pieces can be drawn on all
//! cores, with the same result on any number of them.

use half::{bf16, f16};
use hone_kernels::{IQ4_NL_VALUES, MXFP4_VALUES};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use super::layout::Distribution;
use crate::gguf::TensorType;

/// Elements that are drawn at once.
const PIECE_ELEMENTS: usize = 1 << 18;
/// Pieces that are drawn in parallel and written together.
const PIECES: usize = 32;

/// Selects the random numbers of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct RandomStream {
    pub(super) seed: u64,
    pub(super) tensor: u32,
}

/// Draws the weights of a tensor and passes them to `write`, a few megabytes at a time. Quantized formats have mean
/// zero regardless of `distribution`.
///
/// # Errors
/// When `write` fails.
pub(super) fn draw<E>(
    tensor_type: TensorType,
    distribution: Distribution,
    n_elements: usize,
    stream: RandomStream,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes_of = |n_elements: usize| n_elements / tensor_type.block_elements() * tensor_type.block_bytes();
    let (n_bytes, piece_bytes) = (bytes_of(n_elements), bytes_of(PIECE_ELEMENTS));
    let mut buffer = vec![0; n_bytes.min(piece_bytes * PIECES)];
    for start in (0..n_bytes).step_by(piece_bytes * PIECES) {
        let batch_bytes = buffer.len().min(n_bytes - start);
        let batch = &mut buffer[..batch_bytes];
        batch.par_chunks_mut(piece_bytes).enumerate().for_each(|(index, piece)| {
            let mut rng = ChaCha8Rng::seed_from_u64(stream.seed);
            rng.set_stream(u64::from(stream.tensor) << 32 | (start / piece_bytes + index) as u64);
            rng.fill_bytes(piece);
            shape_bytes(tensor_type, distribution, piece);
        });
        write(batch)?;
    }
    Ok(())
}

/// Turns random bytes into weights.
fn shape_bytes(tensor_type: TensorType, distribution: Distribution, bytes: &mut [u8]) {
    let scale = distribution.standard_deviation / unit_spread(tensor_type);
    match tensor_type {
        TensorType::F32 => plain(bytes, distribution, f32::to_le_bytes),
        TensorType::F16 => plain(bytes, distribution, |number| f16::from_f32(number).to_le_bytes()),
        TensorType::BF16 => plain(bytes, distribution, |number| bf16::from_f32(number).to_le_bytes()),
        TensorType::Q4_0 => each_block(bytes, |block: &mut [u8; 18]| set_signed_scale(block, 0, scale)),
        TensorType::Q4_1 => each_block(bytes, |block: &mut [u8; 20]| set_scale_and_minimum(block, 0, scale, -7.5)),
        TensorType::Q5_0 => each_block(bytes, |block: &mut [u8; 22]| set_signed_scale(block, 0, scale)),
        TensorType::Q5_1 => each_block(bytes, |block: &mut [u8; 24]| set_scale_and_minimum(block, 0, scale, -15.5)),
        TensorType::Q8_0 => each_block(bytes, |block| q8_0(block, scale)),
        TensorType::Q2_K => each_block(bytes, |block| q2_k(block, scale)),
        TensorType::Q3_K => each_block(bytes, |block: &mut [u8; 110]| set_signed_scale(block, 108, scale)),
        TensorType::Q4_K => each_block(bytes, |block: &mut [u8; 144]| q4_k_head(&mut block[..16], scale, 7.5)),
        TensorType::Q5_K => each_block(bytes, |block: &mut [u8; 176]| q4_k_head(&mut block[..16], scale, 15.5)),
        TensorType::Q6_K => each_block(bytes, |block| q6_k(block, scale)),
        TensorType::IQ4_NL => each_block(bytes, |block: &mut [u8; 18]| set_signed_scale(block, 0, scale)),
        TensorType::IQ4_XS => each_block(bytes, |block: &mut [u8; 136]| set_signed_scale(block, 0, scale)),
        TensorType::IQ2_XXS => each_block(bytes, |block: &mut [u8; 66]| iq(block, (9..66).step_by(8), 0x80, scale)),
        TensorType::IQ2_XS => each_block(bytes, |block: &mut [u8; 74]| iq(block, 66..74, 0x88, scale)),
        TensorType::IQ2_S => each_block(bytes, |block: &mut [u8; 82]| iq(block, 74..82, 0x88, scale)),
        TensorType::IQ3_XXS => each_block(bytes, |block: &mut [u8; 98]| iq(block, (69..98).step_by(4), 0x80, scale)),
        TensorType::IQ3_S => each_block(bytes, |block: &mut [u8; 110]| iq(block, 106..110, 0x88, scale)),
        TensorType::TQ1_0 => each_block(bytes, |block: &mut [u8; 54]| set_signed_scale(block, 52, scale)),
        TensorType::TQ2_0 => each_block(bytes, |block| tq2_0(block, scale)),
        TensorType::MXFP4 => each_block(bytes, |block| mxfp4(block, scale)),
    }
}

/// Root mean square of the decoded elements when the block's scale is 1.
fn unit_spread(tensor_type: TensorType) -> f32 {
    match tensor_type {
        // Uniformly distributed between -1 and 1.
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => 3f32.sqrt().recip(),
        TensorType::Q4_0 => root_mean_square((0..16).map(|quant| quant as f32 - 8.0)),
        TensorType::Q4_1 => root_mean_square((0..16).map(|quant| quant as f32 - 7.5)),
        TensorType::Q5_0 => root_mean_square((0..32).map(|quant| quant as f32 - 16.0)),
        TensorType::Q5_1 => root_mean_square((0..32).map(|quant| quant as f32 - 15.5)),
        TensorType::Q8_0 => root_mean_square((-127..=127).chain([0]).map(|quant| quant as f32)),
        TensorType::Q2_K => {
            root_mean_square((0..4).map(|quant| quant as f32 - 1.5)) * root_mean_square((8..16).map(|s| s as f32))
        }
        TensorType::Q3_K => {
            root_mean_square((-4..4).map(|quant| quant as f32)) * root_mean_square((-32..32).map(|s| s as f32))
        }
        TensorType::Q4_K => unit_spread(TensorType::Q4_1) * root_mean_square((32..64).map(|s| s as f32)),
        TensorType::Q5_K => unit_spread(TensorType::Q5_1) * root_mean_square((32..64).map(|s| s as f32)),
        TensorType::Q6_K => {
            root_mean_square((-32..32).map(|quant| quant as f32)) * root_mean_square((16..32).map(|s| s as f32))
        }
        TensorType::IQ4_NL => root_mean_square(IQ4_NL_VALUES.into_iter().map(f32::from)),
        TensorType::IQ4_XS => unit_spread(TensorType::IQ4_NL) * root_mean_square((-32..32).map(|s| s as f32)),
        // The first factor is the root mean square of all magnitudes in the grid.
        TensorType::IQ2_XXS => 23.12 * 0.25 * spread_of_halves(),
        TensorType::IQ2_XS => 24.22 * 0.25 * spread_of_halves(),
        TensorType::IQ2_S => 24.43 * 0.25 * spread_of_halves(),
        TensorType::IQ3_XXS => 30.85 * 0.5 * spread_of_halves(),
        TensorType::IQ3_S => 7.594 * 2.0 * spread_of_halves(),
        TensorType::TQ1_0 => root_mean_square([-1.0, 0.0, 1.0].into_iter()),
        TensorType::TQ2_0 => root_mean_square([-1.0, 0.0, 0.0, 1.0].into_iter()),
        TensorType::MXFP4 => root_mean_square(MXFP4_VALUES.into_iter().map(f32::from)),
    }
}

/// The root mean square of the group scales of IQ2 and IQ3, as [`iq`] sets them: 8 to 15, and a half.
fn spread_of_halves() -> f32 {
    root_mean_square((8..16).map(|scale| scale as f32 + 0.5))
}

fn root_mean_square(numbers: impl Iterator<Item = f32>) -> f32 {
    let (n, sum) = numbers.fold((0.0, 0.0), |(n, sum), number| (n + 1.0, sum + number * number));
    f32::sqrt(sum / n)
}

fn each_block<const BYTES: usize>(bytes: &mut [u8], change: impl Fn(&mut [u8; BYTES])) {
    bytes.as_chunks_mut().0.iter_mut().for_each(change);
}

/// Interprets the random bytes in an element's place as a number between -1 and 1.
fn plain<const BYTES: usize>(bytes: &mut [u8], distribution: Distribution, encode: impl Fn(f32) -> [u8; BYTES]) {
    let reach = distribution.standard_deviation / unit_spread(TensorType::F32);
    for element in bytes.as_chunks_mut::<BYTES>().0 {
        let random = i16::from_le_bytes([element[0], element[1]]);
        let even = (f32::from(random) + 0.5) / -f32::from(i16::MIN);
        *element = encode(distribution.mean + reach * even);
    }
}

fn put_half(block: &mut [u8], offset: usize, number: f32) {
    block[offset..offset + 2].copy_from_slice(&f16::from_f32(number).to_le_bytes());
}

/// Sets the scale at `offset`, and keeps its random sign.
fn set_signed_scale(block: &mut [u8], offset: usize, scale: f32) {
    let is_negative = block[offset + 1] & 0x80 != 0;
    put_half(block, offset, if is_negative { -scale } else { scale });
}

/// Sets the scale at `offset` and the minimum after it, which is `relative_minimum` times the stored scale.
fn set_scale_and_minimum(block: &mut [u8], offset: usize, scale: f32, relative_minimum: f32) {
    put_half(block, offset, scale);
    put_half(block, offset + 2, f16::from_f32(scale).to_f32() * relative_minimum);
}

/// No element is -128: quantizing never produces it, so kernels that take absolute values in bytes need not handle it.
fn q8_0(block: &mut [u8; 34], scale: f32) {
    put_half(block, 0, scale);
    block[2..].iter_mut().filter(|quant| **quant == 0x80).for_each(|quant| *quant = 0);
}

/// Groups get a scale of 8 to 15, and a minimum equal to it.
fn q2_k(block: &mut [u8; 84], scale: f32) {
    for group in &mut block[..16] {
        let group_scale = 8 | *group & 7;
        *group = group_scale | group_scale << 4;
    }
    set_scale_and_minimum(block, 80, scale, 1.5);
}

/// Groups get a scale of 32 to 63, and a minimum equal to it. (For the packing of their bits, see `dequantize`.)
fn q4_k_head(head: &mut [u8], scale: f32, center: f32) {
    set_scale_and_minimum(head, 0, scale, center);
    let packed = &mut head[4..];
    for group in 0..4 {
        // The top two bits of byte `group` belong to group + 4, whose scale starts with 10 or 11 in binary.
        let first = packed[group] | 0xa0;
        packed[group] = first;
        packed[group + 4] = first;
        let low_bits = packed[group + 8] & 0x0f;
        packed[group + 8] = low_bits | low_bits << 4;
    }
}

/// IQ2 and IQ3: groups get a scale of 8 to 15, whose highest bits are those of `mask` in the bytes at `group_scales`.
fn iq(block: &mut [u8], group_scales: impl Iterator<Item = usize>, mask: u8, scale: f32) {
    group_scales.for_each(|at| block[at] |= mask);
    set_signed_scale(block, 0, scale);
}

/// A quant of 3 stands for no ternary number, and becomes zero.
fn tq2_0(block: &mut [u8; 66], scale: f32) {
    for quants in &mut block[..64] {
        let threes = *quants & *quants >> 1 & 0x55;
        *quants ^= threes << 1;
    }
    set_signed_scale(block, 64, scale);
}

/// Scales are powers of two, so blocks get the one below `scale` or the one above it, in such proportions that their
/// mean square is that of `scale`.
fn mxfp4(block: &mut [u8; 17], scale: f32) {
    let below = scale.log2().floor();
    let share_above = (scale / below.exp2()).powi(2) / 3.0 - 1.0 / 3.0;
    let is_above = f32::from(block[0]) < 256.0 * share_above;
    block[0] = (128.0 + below + f32::from(u8::from(is_above))) as u8;
}

/// Groups get a scale of 16 to 31, of either sign.
fn q6_k(block: &mut [u8; 210], scale: f32) {
    for group in &mut block[192..208] {
        let magnitude = (16 | *group & 15) as i8;
        *group = if *group & 0x80 != 0 { -magnitude } else { magnitude } as u8;
    }
    put_half(block, 208, scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::dequantize;

    fn drawn(tensor_type: TensorType, distribution: Distribution, n_elements: usize, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let result = draw(tensor_type, distribution, n_elements, RandomStream { seed, tensor: 3 }, |piece| {
            bytes.extend_from_slice(piece);
            Ok::<(), ()>(())
        });
        assert_eq!(result, Ok(()));
        bytes
    }

    #[test]
    fn decoded_weights_have_the_mean_and_the_spread_that_were_asked_for() {
        let n_elements = 1 << 20;
        for tensor_type in TensorType::ALL {
            for standard_deviation in [0.02, 0.001] {
                let distribution = Distribution { mean: 0.0, standard_deviation };
                let bytes = drawn(tensor_type, distribution, n_elements, 7);
                let mut weights = vec![0.0; n_elements];
                dequantize(tensor_type, &bytes, &mut weights);
                let n = n_elements as f64;
                let mean = weights.iter().map(|weight| f64::from(*weight)).sum::<f64>() / n;
                let spread = (weights.iter().map(|weight| f64::from(*weight).powi(2)).sum::<f64>() / n).sqrt();
                let wanted = f64::from(standard_deviation);
                assert!(mean.abs() < 0.01 * wanted, "{tensor_type}: mean {mean} for spread {wanted}");
                assert!((spread / wanted - 1.0).abs() < 0.05, "{tensor_type}: spread {spread} and not {wanted}");
                let largest = weights.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
                assert!(f64::from(largest) < 4.0 * wanted, "{tensor_type}: {largest} for spread {wanted}");
            }
        }
    }

    #[test]
    fn plain_formats_have_a_mean() {
        let bytes = drawn(TensorType::F32, Distribution { mean: 1.5, standard_deviation: 0.1 }, 10_000, 7);
        let mut weights = vec![0.0; 10_000];
        dequantize(TensorType::F32, &bytes, &mut weights);
        let mean = weights.iter().sum::<f32>() / 10_000.0;
        assert!((mean - 1.5).abs() < 0.01, "{mean}");
    }

    #[test]
    fn pieces_and_batches_differ_and_the_seed_decides() {
        let distribution = Distribution { mean: 0.0, standard_deviation: 0.02 };
        let n_elements = PIECE_ELEMENTS * PIECES + PIECE_ELEMENTS + 256;
        let bytes = drawn(TensorType::Q4_K, distribution, n_elements, 1);
        assert_eq!(bytes.len(), n_elements / 256 * 144);
        let mut starts: Vec<&[u8]> = bytes.chunks(PIECE_ELEMENTS / 256 * 144).map(|piece| &piece[..144]).collect();
        assert_eq!(starts.len(), PIECES + 2);
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), PIECES + 2, "two pieces start alike");
        assert!(bytes == drawn(TensorType::Q4_K, distribution, n_elements, 1), "the same seed gives other bytes");
        assert!(bytes != drawn(TensorType::Q4_K, distribution, n_elements, 2), "another seed gives the same bytes");
    }
}
