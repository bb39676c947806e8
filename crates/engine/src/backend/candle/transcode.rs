//! IQ4_NL as Q8_0.
//!
//! candle does not have IQ4_NL. Its 16 values are 8-bit integers, so that a block says the same, bit for bit, as Q8_0:
//! the scale stays, and every index is replaced by the value that it stands for.

use crate::gguf::TensorType;
use crate::quantized::IQ4_NL_VALUES;

/// Whole IQ4_NL blocks to as many Q8_0 blocks.
pub(super) fn iq4_nl_to_q8_0(blocks: &[u8]) -> Vec<u8> {
    let mut transcoded = Vec::with_capacity(blocks.len() / 18 * 34);
    for block in blocks.chunks_exact(TensorType::IQ4_NL.block_bytes()) {
        let (scale, indices) = block.split_at(2);
        transcoded.extend_from_slice(scale);
        transcoded.extend(indices.iter().map(|pair| IQ4_NL_VALUES[usize::from(pair & 15)] as u8));
        transcoded.extend(indices.iter().map(|pair| IQ4_NL_VALUES[usize::from(pair >> 4)] as u8));
    }
    transcoded
}
