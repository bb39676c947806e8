//! Stored tensor elements as plain numbers, for every [`TensorType`].
//!
//! This is the portable reference: slices in, slices out, one formula per format, written for the reader. A quantized
//! format stores blocks of 32 or 256 elements; each block has its own scale, and what the stored small integers mean is
//! told beside each function. The layouts are those of `ggml-common.h`, the formulas those of `dequantize_row_*` in
//! `ggml-quants.c` (<https://github.com/ggml-org/ggml/tree/master/src>). All numbers are little-endian; scales are
//! half-precision floats.

mod blocks;
mod superblocks;

use half::{bf16, f16};

use crate::gguf::TensorType;

pub(crate) use blocks::IQ4_NL_VALUES;

/// Decodes the elements of a tensor, or of whole rows or blocks of it.
///
/// # Panics
/// When `out` has no whole number of blocks, or `bytes` are not exactly those of `out.len()` elements.
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
        TensorType::Q4_0 => each_block(bytes, out, blocks::q4_0),
        TensorType::Q4_1 => each_block(bytes, out, blocks::q4_1),
        TensorType::Q5_0 => each_block(bytes, out, blocks::q5_0),
        TensorType::Q5_1 => each_block(bytes, out, blocks::q5_1),
        TensorType::Q8_0 => each_block(bytes, out, blocks::q8_0),
        TensorType::IQ4_NL => each_block(bytes, out, blocks::iq4_nl),
        TensorType::Q2_K => each_block(bytes, out, superblocks::q2_k),
        TensorType::Q3_K => each_block(bytes, out, superblocks::q3_k),
        TensorType::Q4_K => each_block(bytes, out, superblocks::q4_k),
        TensorType::Q5_K => each_block(bytes, out, superblocks::q5_k),
        TensorType::Q6_K => each_block(bytes, out, superblocks::q6_k),
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

/// The half-precision number at `offset`.
fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use candle_core::Device;
    use candle_core::quantized::{QStorage, QTensor};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::backend::candle::candle_type;

    /// Any bytes at all, so that every bit of a block counts, scales that are no number included.
    #[test]
    fn every_type_that_candle_knows_decodes_to_the_same_bits() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (tensor_type, candle) in TensorType::all().filter_map(|each| Some((each, candle_type(each)?))) {
            let n_blocks = 300;
            let mut bytes = vec![0; n_blocks * tensor_type.block_bytes()];
            rng.fill_bytes(&mut bytes);
            let mut ours = vec![0.0; n_blocks * tensor_type.block_elements()];
            dequantize(tensor_type, &bytes, &mut ours);
            let storage = QStorage::from_data(bytes.into(), &Device::Cpu, candle).unwrap();
            let tensor = QTensor::new(storage, ours.len()).unwrap().dequantize(&Device::Cpu).unwrap();
            for (index, (ours, theirs)) in ours.iter().zip(tensor.to_vec1::<f32>().unwrap()).enumerate() {
                let same = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan() || *ours == theirs;
                assert!(same, "{tensor_type} element {index}: {ours} where candle has {theirs}");
            }
        }
    }

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
